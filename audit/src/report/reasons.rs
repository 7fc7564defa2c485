//! Why something was not checked, in words.
//!
//! In: a reason as it is counted, such as `unknown_table` or `function: to_tsvector`. Out: a sentence about it.
//!
//! Always true: metrics, JSON and the documentation keep the counted name; the sentence stands beside it.

/// The names that people meet most; what is not here names the construct itself.
const MEANINGS: &[(&str, &str)] = &[
    (
        "audit_crashed",
        "the audit itself crashed on the transaction: a defect of pgassay, its records are kept",
    ),
    (
        "backslashes_in_strings",
        "without standard_conforming_strings a backslash in a string is not what it seems",
    ),
    (
        "begun_unseen",
        "the transaction was open before the recording began",
    ),
    (
        "borrowed_snapshot",
        "the transaction took over a snapshot of another one (SET TRANSACTION SNAPSHOT)",
    ),
    (
        "cascade_of_unknown",
        "a cascade may have touched rows that nobody has seen",
    ),
    (
        "catalog_in_doubt",
        "the tables may have been changed unseen since the catalog was read",
    ),
    (
        "children_at_several_instants",
        "which rows refer to a row is asked of the newest ones, whatever the snapshot: no serial order says it",
    ),
    (
        "conflict_with_unknown",
        "ON CONFLICT met rows that nobody has seen",
    ),
    ("copy_data", "the data of a COPY were too large to keep"),
    (
        "cursor_over_unknown",
        "the cursor reads rows that nobody has seen",
    ),
    (
        "cycle_explained",
        "versions alone look like a cycle, but another serial order gives the same answers; what it would mean for those that came \
         later is not followed",
    ),
    (
        "failed_block",
        "the transaction had failed already: the server ignores what follows",
    ),
    (
        "failed_commit",
        "it failed by a constraint that was deferred to the commit, which is not followed",
    ),
    ("foreign_key", "a foreign key leads to rows that nobody has seen"),
    ("function", "a function that is not modelled"),
    ("function_call", "a call by the wire protocol's own message"),
    ("group_by_unknown", "groups of rows that nobody has seen"),
    (
        "keys_at_several_instants",
        "who has a key is asked of the newest rows, whatever the snapshot: no serial order says it",
    ),
    ("lost_answer", "the connection was lost before the answer came"),
    (
        "mixed_levels",
        "transactions of several levels wrote the same rows",
    ),
    ("no_row_description", "the shape of the answer was not seen"),
    (
        "nothing_promised_to_aborted",
        "a transaction that is rolled back may have seen anything at this level",
    ),
    (
        "older_states_forgotten",
        "the state that it read was forgotten already",
    ),
    (
        "order_left_open",
        "writers overlapped, and nobody asked in which order they came",
    ),
    (
        "other_database",
        "another database of the same server: one is judged",
    ),
    (
        "overlapping_ddl",
        "several changed what a table is at once, and nobody can tell who came first",
    ),
    ("pairing_budget", "too many ways to pair rows with answers"),
    (
        "partition_constraint",
        "which partition a row belongs to was not known",
    ),
    (
        "reads_by_key",
        "at this level every row may come from another state, and not every combination was tried",
    ),
    (
        "recursive_over_unknown",
        "a recursive query over rows that nobody has seen",
    ),
    (
        "routine_over_unknown",
        "what a function or procedure did depends on rows that nobody has seen",
    ),
    ("row_security", "row-level security decides what is seen"),
    ("rule", "a rule rewrites the statement"),
    (
        "session_replication_role",
        "triggers and foreign keys are turned off for the session, or may be",
    ),
    ("skipped", "the server skipped it after an error"),
    (
        "state_was_guessed",
        "the state before it was one of several, and nobody is accused on a guess",
    ),
    (
        "story_forgotten",
        "a suspicion whose beginnings were forgotten already: nobody is accused",
    ),
    (
        "story_too_large",
        "a suspicion with too many transactions to be confirmed: nobody is accused",
    ),
    (
        "story_too_long",
        "a suspicion with too many statements to be confirmed: nobody is accused",
    ),
    (
        "too_many_orders",
        "so many writers overlapped that not all of their orders were tried",
    ),
    ("trigger", "a trigger changes what the statement does"),
    (
        "two_rows_with_one_key",
        "a kept snapshot holds two rows with one key: what is made of them is not promised",
    ),
    ("unknown_column", "the column is not known"),
    (
        "unknown_condition",
        "the condition depends on something that nobody has seen",
    ),
    ("unknown_cursor", "the cursor was opened unseen"),
    (
        "unknown_level",
        "the isolation level of the transaction could not be told: a setting was changed in a way that is not followed",
    ),
    ("unknown_prepared_statement", "the statement was prepared unseen"),
    ("unknown_relation", "the table or view is not known"),
    (
        "unknown_table",
        "nobody has said what the table is: no side connection, no CREATE TABLE, no audit.schema",
    ),
    ("unknown_type", "a type that is not modelled"),
    (
        "unknown_value",
        "a value that nobody can foretell (now(), random(), a sequence), or that was never seen",
    ),
    (
        "unseen_rows",
        "rows that nobody has seen may belong to the answer",
    ),
    (
        "unseen_writers",
        "something was not seen that may have been written before it was read",
    ),
    ("work_budget", "the search was given up after its share of work"),
];

/// Every name that has a sentence.
pub fn names() -> impl Iterator<Item = &'static str> {
    MEANINGS.iter().map(|(name, _)| *name)
}

/// A sentence about a counted reason, if there is one.
pub fn meaning(reason: &str) -> Option<&'static str> {
    let name = reason.split(':').next().unwrap_or(reason);
    let found = MEANINGS.binary_search_by_key(&name, |(known, _)| known);
    found.ok().map(|at| MEANINGS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_found_by_name() {
        assert!(MEANINGS.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(meaning("trigger: audit_log"), meaning("trigger"));
        assert!(meaning("trigger").is_some());
        assert_eq!(meaning("a construct of its own"), None);
    }
}
