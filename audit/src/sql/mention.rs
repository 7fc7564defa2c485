//! Everything that a parse tree names, wherever it stands in it.
//!
//! In: a parse tree. Out: the tables and functions that are named in it, and whether it says that rows are written.
//!
//! Always true: the whole tree is walked, whatever kinds of nodes it has.

use pg_query::NodeEnum;
use pg_query::protobuf as pg;
use serde_json::{Map, Value as Json};

/// A name, and the schema where it is said.
pub(crate) type Name = (Option<String>, String);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentioned {
    pub tables: Vec<Name>,
    /// Functions, with their arguments as far as these are constants.
    pub calls: Vec<Call>,
    /// INSERT, UPDATE, DELETE or MERGE.
    pub writes: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub name: Name,
    pub arguments: Vec<Option<String>>,
}

pub(crate) fn mentioned(node: &NodeEnum) -> Mentioned {
    let mut found = Mentioned::default();
    match serde_json::to_value(node) {
        Ok(tree) => walk(&tree, &mut found),
        // A tree that cannot be told may say anything.
        Err(_) => found.writes = true,
    }
    found
}

/// The schema that is said with a name, if one is.
pub(crate) fn schema_of(range: &pg::RangeVar) -> Option<&str> {
    (!range.schemaname.is_empty()).then_some(range.schemaname.as_str())
}

/// The query with the schema of every table said: whoever reads it later finds the same tables, wherever else it looks.
pub(crate) fn qualified(query: &str, schema_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let parsed = pg_query::parse(query, pg_query::ParserOptions::default()).ok()?;
    let node = parsed.protobuf.stmts.into_iter().next()?.stmt?.node?;
    let tree = serde_json::to_value(&node).ok()?;
    let (mut bare, mut own) = (Vec::new(), Vec::new());
    bare_names(&tree, &mut bare, &mut own);
    bare.retain(|(name, _)| !own.contains(name));
    bare.sort_by_key(|(_, at)| *at);
    let mut text = query.to_owned();
    for (name, at) in bare.into_iter().rev() {
        let schema = schema_of(&name)?.replace('"', "\"\"");
        if !text.is_char_boundary(at) {
            return None;
        }
        text.insert_str(at, &format!("\"{schema}\"."));
    }
    Some(text)
}

/// Tables that are named without a schema, and where; and the names of WITH.
fn bare_names(json: &Json, bare: &mut Vec<(String, usize)>, own: &mut Vec<String>) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| bare_names(item, bare, own)),
        Json::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Json::as_str);
            let at = fields.get("location").and_then(Json::as_u64);
            if let (Some(name), Some(""), Some(at)) = (text("relname"), text("schemaname"), at) {
                bare.push((name.to_owned(), at as usize));
            }
            own.extend(text("ctename").map(str::to_owned));
            fields.values().for_each(|value| bare_names(value, bare, own));
        }
        _ => {}
    }
}

fn walk(json: &Json, found: &mut Mentioned) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| walk(item, found)),
        Json::Object(fields) => {
            if let Some(Json::String(name)) = fields.get("relname") {
                let schema = fields.get("schemaname").and_then(Json::as_str);
                let schema = schema.filter(|schema| !schema.is_empty()).map(str::to_owned);
                found.tables.push((schema, name.clone()));
            }
            found.calls.extend(call(fields));
            for (kind, value) in fields {
                found.writes |= matches!(
                    kind.as_str(),
                    "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt"
                );
                walk(value, found);
            }
        }
        _ => {}
    }
}

fn call(fields: &Map<String, Json>) -> Option<Call> {
    let names = fields.get("funcname")?.as_array()?.iter();
    let mut names = names.filter_map(|name| name["node"]["String"]["sval"].as_str().map(str::to_owned));
    let name = names.next_back()?;
    let arguments = fields.get("args").and_then(Json::as_array);
    Some(Call {
        name: (names.next_back(), name),
        arguments: arguments.into_iter().flatten().map(constant).collect(),
    })
}

/// The text of a constant.
fn constant(node: &Json) -> Option<String> {
    let value = &node["node"]["AConst"]["val"];
    let text = value["Sval"]["sval"].as_str().map(str::to_owned);
    text.or_else(|| value["Boolval"]["boolval"].as_bool().map(|flag| flag.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_without_a_schema_are_given_one() {
        let qualify = |text: &str| qualified(text, |name| (name != "nowhere").then(|| "a\"b".to_owned()));
        let told =
            qualify("WITH w AS (SELECT 1 FROM t) SELECT t.k FROM t, s.u, w WHERE EXISTS (SELECT 1 FROM v)");
        assert_eq!(
            told.as_deref(),
            Some(
                "WITH w AS (SELECT 1 FROM \"a\"\"b\".t) SELECT t.k FROM \"a\"\"b\".t, s.u, w WHERE EXISTS (SELECT 1 FROM \"a\"\"b\".v)"
            )
        );
        assert_eq!(qualify("SELECT 1 FROM nowhere"), None);
    }

    fn of(text: &str) -> Mentioned {
        let parsed = pg_query::parse(text, pg_query::ParserOptions::default()).expect("SQL");
        let node = parsed
            .protobuf
            .stmts
            .into_iter()
            .next()
            .and_then(|raw| raw.stmt?.node);
        mentioned(&node.expect("a statement"))
    }

    #[test]
    fn nothing_is_hidden_deep_in_a_tree() {
        let calls =
            |text: &str| -> Vec<String> { of(text).calls.into_iter().map(|call| call.name.1).collect() };
        assert_eq!(
            calls("select array[a(1)], (b(2)).c, case when d() then e() end limit f()"),
            ["a", "b", "d", "e", "f"]
        );
        assert_eq!(
            calls("insert into t values (1) on conflict (k) do update set v = g(excluded.v) returning h()"),
            ["g", "h"]
        );
        assert_eq!(calls("call s.p(q())"), ["p", "q"]);
        let tables =
            |text: &str| -> Vec<String> { of(text).tables.into_iter().map(|(_, name)| name).collect() };
        assert_eq!(tables("alter table a detach partition b"), ["a", "b"]);
        assert_eq!(
            tables("alter table a add foreign key (x) references c"),
            ["a", "c"]
        );
        assert_eq!(
            tables("select 1 from d, lateral (select array(select 1 from s.e)) x"),
            ["d", "e"]
        );
        assert!(of("with w as (delete from d returning 1) select 1").writes);
        assert!(!of("select 1 from d").writes);
    }
}
