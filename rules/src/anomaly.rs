//! The catalogue: every rule that a violation can name.
//!
//! One rule has one name, and the name is the thread through the repository: the metric label, the
//! golden script, the runbook and the alert are all derived from, or checked against, this list.

/// One thing that a correct database never does.
#[derive(Debug)]
pub struct Rule {
    /// `snake_case`; the label of the metric and the name of the runbook.
    pub name: &'static str,
    /// One sentence for the pager.
    pub summary: &'static str,
    /// Where the term comes from.
    pub source: &'static str,
}

macro_rules! catalogue {
    ($($ident:ident = $name:literal, $summary:literal, $source:literal;)*) => {
        $(pub const $ident: Rule = Rule { name: $name, summary: $summary, source: $source };)*
        /// Every rule, in the order of the reference page.
        pub static CATALOGUE: &[&Rule] = &[$(&$ident),*];
    };
}

catalogue! {
    DIRTY_WRITE = "dirty_write", "Two transactions held the same row at once.", "Berenson et al. 1995, P0; Adya 1999, G0";
    ABORTED_READ = "aborted_read", "A transaction saw a write that was rolled back.", "Adya 1999, G1a";
    INTERMEDIATE_READ = "intermediate_read", "A transaction saw a value that its writer had overwritten before it committed.", "Adya 1999, G1b";
    CIRCULAR_INFORMATION_FLOW = "circular_information_flow", "Two transactions saw each other's writes.", "Adya 1999, G1c";
    GARBAGE_READ = "garbage_read", "An answer holds a value that nobody wrote.", "Jepsen glossary; Troubadour §8.2";
    STALE_READ = "stale_read", "A statement did not see a write that was committed before it began.", "Jepsen glossary";
    FUTURE_READ = "future_read", "A statement saw a write whose commit had not yet been asked for.", "Leopard, CR";
    LOST_UPDATE = "lost_update", "An update was computed from a version that another update had replaced.", "Berenson et al. 1995, P4; Adya 1999, G-single";
    READ_SKEW = "read_skew", "One transaction saw only a part of another.", "Berenson et al. 1995, A5A; Adya 1999, G-single";
    WRITE_SKEW = "write_skew", "Transactions read what the others changed, and no serial order explains all of them.", "Berenson et al. 1995, A5B; Adya 1999, G2-item";
    LONG_FORK = "long_fork", "Two readers saw two writes in opposite orders.", "Cerone et al. 2015; Jepsen glossary";
    PHANTOM = "phantom", "The same predicate selected other rows within one snapshot.", "Berenson et al. 1995, A3";
    INTERNAL = "internal_inconsistency", "A transaction did not see its own earlier write or read.", "Cerone et al. 2015, INT";
    SERIALIZATION = "serialization", "No serial order of the serializable transactions explains their answers.", "Adya 1999, G2";
    MISSING_ROW = "missing_row", "A row that must be in the answer is not.", "semantics";
    EXTRA_ROW = "extra_row", "A row that cannot be in the answer is.", "semantics";
    WRONG_VALUE = "wrong_value", "A cell of the answer has a value that no state gives.", "semantics";
    WRONG_COUNT = "wrong_count", "A command tag counts other rows than the statement touched.", "semantics";
    WRONG_ORDER = "wrong_order", "The rows are not in the order that ORDER BY asks for.", "semantics";
    DUPLICATE_KEY = "duplicate_key", "A unique key occurs twice.", "semantics";
    WRONG_ERROR = "wrong_error", "The statement failed for a reason that no state gives.", "semantics";
    MISSING_ERROR = "missing_error", "The statement succeeded although every state forbids it.", "semantics";
}

/// The rule with this name, if there is one.
pub fn by_name(name: &str) -> Option<&'static Rule> {
    CATALOGUE.iter().copied().find(|rule| rule.name == name)
}
