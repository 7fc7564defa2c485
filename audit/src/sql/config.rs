//! Settings that a statement makes by calling set_config instead of saying SET.
//!
//! In: text, or the parse tree of it. Out: which settings, for how long, and where the answer tells their values.
//!
//! Always true: what does not stand there as a constant is not known, and said to be so.

use super::mention::{Call, mentioned};
use pg_query::NodeEnum;
use pg_query::protobuf as pg;

/// One call of set_config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConfig {
    /// In lower case.
    pub name: Option<String>,
    /// Only for the transaction.
    pub local: Option<bool>,
    /// The column of the answer that says the value, where the call is made exactly once.
    pub column: Option<usize>,
}

const NAME: &str = "set_config";

/// Whether the word is in the text at all.
pub fn is_mentioned(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_here = |at: usize| {
        let place = at
            .checked_sub(3)
            .and_then(|start| bytes.get(start..start + NAME.len()));
        place.is_some_and(|word| word.eq_ignore_ascii_case(NAME.as_bytes()))
    };
    memchr::memchr_iter(b'_', bytes).any(is_here)
}

/// The calls in all statements of a text.
pub fn calls(parsed: &pg::ParseResult) -> Vec<SetConfig> {
    let nodes = parsed
        .stmts
        .iter()
        .filter_map(|raw| raw.stmt.as_ref()?.node.as_ref());
    nodes.flat_map(calls_in).collect()
}

/// The calls in one statement.
pub fn calls_in(node: &NodeEnum) -> Vec<SetConfig> {
    let calls = mentioned(node)
        .calls
        .into_iter()
        .filter(|call| call.name.1 == NAME);
    let calls: Vec<SetConfig> = calls.map(|call| of_call(&call, None)).collect();
    let plain = match node {
        NodeEnum::SelectStmt(select) => made_once(select),
        _ => Vec::new(),
    };
    match plain.len() == calls.len() {
        true => plain,
        false => calls,
    }
}

/// The calls that are the columns of an answer of one row.
fn made_once(select: &pg::SelectStmt) -> Vec<SetConfig> {
    let is_plain = select.from_clause.is_empty()
        && select.where_clause.is_none()
        && select.values_lists.is_empty()
        && select.larg.is_none()
        && select.limit_count.is_none()
        && select.limit_offset.is_none();
    if !is_plain {
        return Vec::new();
    }
    let columns = select.target_list.iter().enumerate();
    let calls = columns.filter_map(|(column, target)| {
        let Some(NodeEnum::ResTarget(target)) = &target.node else {
            return None;
        };
        let called = target.val.as_ref()?.node.as_ref()?;
        let NodeEnum::FuncCall(_) = called else {
            return None;
        };
        // What stands in its arguments comes behind it.
        let call = mentioned(called).calls.into_iter().next()?;
        (call.name.1 == NAME).then(|| of_call(&call, Some(column)))
    });
    calls.collect()
}

fn of_call(call: &Call, column: Option<usize>) -> SetConfig {
    let argument = |place: usize| call.arguments.get(place).cloned().flatten();
    SetConfig {
        name: argument(0).map(|name| name.to_ascii_lowercase()),
        local: argument(2).and_then(|local| local.parse().ok()),
        column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<SetConfig> {
        calls(&pg_query::parse(text, 0).expect("SQL").protobuf)
    }

    fn call(name: Option<&str>, local: Option<bool>, column: Option<usize>) -> SetConfig {
        SetConfig {
            name: name.map(str::to_owned),
            local,
            column,
        }
    }

    #[test]
    fn a_call_tells_its_value_where_it_is_made_once() {
        assert_eq!(
            of("select 1, pg_catalog.Set_Config('Search_Path', $1, true)"),
            [call(Some("search_path"), Some(true), Some(1))]
        );
        assert_eq!(
            of("select set_config($1, 'x', $2), set_config('role', 'y', false)"),
            [
                call(None, None, Some(0)),
                call(Some("role"), Some(false), Some(1))
            ]
        );
        assert_eq!(
            of("select set_config('role', r, false) from roles r"),
            [call(Some("role"), Some(false), None)]
        );
        assert_eq!(
            of("select coalesce(set_config('role', 'a', false), 'x'), set_config('role', 'b', false)"),
            [
                call(Some("role"), Some(false), None),
                call(Some("role"), Some(false), None)
            ]
        );
        assert_eq!(of("select 'set_config'"), []);
    }

    #[test]
    fn the_word_is_found_in_any_case() {
        assert!(is_mentioned("select SET_Config('a', 'b', true)"));
        assert!(!is_mentioned("select set_confi('a', 'b', true) _ _config"));
        assert!(!is_mentioned("_"));
    }
}
