//! How far a routine reaches that is not followed step by step: which tables it may read and write.
//!
//! In: a function of the catalog, called by a statement or by a trigger. Out: the touches of that statement.
//!
//! Always true:
//!   - a body that is not understood to its last word may write everything, unless its function promises not to;
//!   - SQL that is put together at run time, DDL and settings count as not understood.

use super::Analyzer;
use crate::sql::config;
use crate::state::Catalog;
use crate::state::catalog::{Function, Trigger, is_anywhere};
use crate::trace::lex;
use crate::value::catalog::CATALOG;
use crate::value::oid;
use pg_query::NodeEnum;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::sync::Arc;

/// Steps of PL/pgSQL that do nothing but what the SQL in them says.
const PLAIN_STEPS: &[&str] = &[
    "block",
    "assign",
    "if",
    "case",
    "loop",
    "while",
    "fori",
    "fors",
    "forc",
    "foreach_a",
    "exit",
    "return",
    "return_next",
    "return_query",
    "raise",
    "assert",
    "execsql",
    "perform",
    "getdiag",
    "open",
    "fetch",
    "close",
    "call",
    "commit",
    "rollback",
];

/// Words of which none may stand in a body without being seen in the SQL that was found there.
const WRITING: &[&str] = &[
    "insert",
    "update",
    "delete",
    "merge",
    "truncate",
    "copy",
    "create",
    "alter",
    "drop",
    "execute",
    "call",
    "set_config",
];

/// Functions of PostgreSQL's own that run queries which they are given as text.
fn runs_more(name: &str) -> bool {
    name.contains("_to_xml") || matches!(name, "ts_stat" | "ts_rewrite")
}

impl Analyzer<'_> {
    /// A function that nobody here follows is called.
    pub(in crate::sql::analyze) fn raw_call(&mut self, name: &str, schema: Option<&str>) {
        let path = &self.settings.search_path;
        let found = match schema {
            Some("pg_catalog") => Vec::new(),
            _ => self.catalog.find_functions(schema, name, path),
        };
        let found: Vec<Arc<Function>> = found.into_iter().cloned().collect();
        for function in &found {
            self.touch_routine(function);
        }
        if !found.is_empty() {
            return;
        }
        let is_built_in = CATALOG.functions_by_name.contains_key(name);
        let is_plain = schema == Some("pg_catalog") || is_built_in;
        if !is_plain || runs_more(name) {
            self.touches.reads_everything = true;
            self.touches.writes_everything |= !is_plain && !self.catalog.is_loaded();
        }
    }

    /// What the triggers do that are called.
    pub(super) fn touch_triggers(&mut self, triggers: &[Trigger]) {
        for trigger in triggers {
            let named = self
                .catalog
                .find_functions(Some(&trigger.schema), &trigger.function, &[]);
            let named: Vec<Arc<Function>> = named.into_iter().cloned().collect();
            match named.as_slice() {
                [] => self.touch_everything(),
                some => some.iter().for_each(|function| self.touch_routine(function)),
            }
        }
    }

    /// What is called when the catalog is changed.
    pub(super) fn touch_event_triggers(&mut self) {
        let triggers = self.catalog.event_triggers().clone();
        self.touch_triggers(&triggers);
    }

    /// What a routine does that is not followed.
    pub(super) fn touch_routine(&mut self, function: &Arc<Function>) {
        if self.reached.iter().any(|reached| Arc::ptr_eq(reached, function)) {
            return;
        }
        self.reached.push(function.clone());
        let statements = match function.own_settings {
            true => None,
            false => statements_of(function, self.catalog),
        };
        match statements {
            Some(statements) => {
                let outside = std::mem::replace(&mut self.is_unfollowed, true);
                statements.iter().for_each(|node| self.touch_statement(node));
                self.touches.commits |= commits(function);
                self.is_unfollowed = outside;
            }
            None => {
                self.touches.reads_everything = true;
                self.touches.writes_everything |= function.volatility == 'v';
                self.touches.changes_session |= function.volatility == 'v';
            }
        }
    }

    /// Whether it is not known which schemas a name without one is looked for in.
    pub(super) fn searches_anywhere(&self) -> bool {
        is_anywhere(&self.settings.search_path)
    }

    fn touch_everything(&mut self) {
        self.touches.reads_everything = true;
        self.touches.writes_everything = true;
        self.touches.changes_session = true;
    }

    fn touch_statement(&mut self, node: &NodeEnum) {
        self.touches.changes_session |= !config::calls_in(node).is_empty();
        let target = match node {
            NodeEnum::SelectStmt(select) if select.into_clause.is_none() => {
                return self.raw_touches(node, false);
            }
            NodeEnum::CallStmt(_) => return self.raw_touches(node, false),
            NodeEnum::InsertStmt(insert) => insert.relation.as_ref(),
            NodeEnum::UpdateStmt(update) => update.relation.as_ref(),
            NodeEnum::DeleteStmt(delete) => delete.relation.as_ref(),
            NodeEnum::MergeStmt(merge) => merge.relation.as_ref(),
            _ => return self.touch_everything(),
        };
        match target.is_some_and(|range| !self.candidates(range).is_empty()) {
            true => self.raw_touches(node, true),
            false => self.touch_everything(),
        }
    }
}

/// Every piece of SQL in the body of a routine; `None` if there may be more than can be seen.
fn statements_of(function: &Function, catalog: &Catalog) -> Option<Vec<NodeEnum>> {
    match function.language.as_str() {
        // A body that was parsed when it was made has no source.
        "sql" if !function.source.trim().is_empty() => parsed(&function.source),
        "plpgsql" => {
            let body = pg_query::parse_plpgsql(&definition(function)).ok()?;
            let mut texts = Vec::new();
            collect(&body, &mut texts)?;
            let is_telling = |word: &str| {
                let written = catalog.has_function(word) || catalog.has_function(&word.to_lowercase());
                written || WRITING.iter().any(|writes| writes.eq_ignore_ascii_case(word))
            };
            let count = |text: &str, word: &str| {
                let same = |other: &&str| other.eq_ignore_ascii_case(word);
                lex::words(text).filter(same).count()
            };
            let is_told = |word: &str| {
                let told: usize = texts.iter().map(|text| count(text, word)).sum();
                count(&function.source, word) <= told
            };
            let mut telling = lex::words(&function.source).filter(|word| is_telling(word));
            if !telling.all(is_told) {
                return None;
            }
            let statements = texts.into_iter().map(sql_in);
            Some(statements.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}

/// Whether the words are there that end a transaction.
fn commits(function: &Function) -> bool {
    let ends = |word: &str| word.eq_ignore_ascii_case("commit") || word.eq_ignore_ascii_case("rollback");
    function.language == "plpgsql" && lex::words(&function.source).any(ends)
}

/// The parser stumbles over what a trigger is given without saying so: here it is said.
fn definition(function: &Function) -> Cow<'_, str> {
    if !matches!(function.returns, oid::TRIGGER | oid::EVENT_TRIGGER) {
        return Cow::Borrowed(&function.definition);
    }
    let body = &function.source;
    Cow::Owned(format!(
        "CREATE FUNCTION f(new record, old record, tg_name name, tg_when text, tg_level text, tg_op text, \
         tg_relid oid, tg_relname name, tg_table_name name, tg_table_schema name, tg_nargs int, tg_argv text[], \
         tg_event text, tg_tag text) RETURNS record LANGUAGE plpgsql AS $pgassay_body${body}$pgassay_body$"
    ))
}

/// All SQL in a piece of PL/pgSQL, as the parser tells it.
fn collect<'j>(json: &'j Json, texts: &mut Vec<&'j str>) -> Option<()> {
    match json {
        Json::Array(items) => items.iter().try_for_each(|item| collect(item, texts)),
        Json::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            if let Some(step) = name.strip_prefix("PLpgSQL_stmt_") {
                if !PLAIN_STEPS.contains(&step) {
                    return None;
                }
            }
            match (name.as_str(), value) {
                ("dynquery", _) => None,
                ("query", Json::String(text)) => {
                    texts.push(text);
                    Some(())
                }
                _ => collect(value, texts),
            }
        }),
        _ => Some(()),
    }
}

/// A statement, an expression, or what is assigned to something.
fn sql_in(text: &str) -> Option<Vec<NodeEnum>> {
    let expression = |text: &str| parsed(&format!("SELECT {text}"));
    let assigned = || {
        let (target, value) = text.split_once(":=").or_else(|| text.split_once('='))?;
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | ' ');
        target.chars().all(is_name).then(|| expression(value))?
    };
    parsed(text).or_else(assigned).or_else(|| expression(text))
}

fn parsed(text: &str) -> Option<Vec<NodeEnum>> {
    let parsed = pg_query::parse(text, pg_query::ParserOptions::default()).ok()?;
    let statements = parsed.protobuf.stmts.into_iter();
    statements.map(|raw| raw.stmt?.node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(language: &str, returns: u32, body: &str) -> Option<usize> {
        let function = Function {
            oid: 0,
            schema: "public".to_owned(),
            name: "f".to_owned(),
            language: language.to_owned(),
            procedure: false,
            kind: 'f',
            volatility: 'v',
            strict: false,
            returns,
            returns_set: false,
            arguments: Vec::new(),
            definition: Arc::from(format!(
                "create function f() returns int language plpgsql as $f${body}$f$"
            )),
            source: Arc::from(body),
            own_settings: false,
        };
        statements_of(&function, &Catalog::default()).map(|statements| statements.len())
    }

    #[test]
    fn a_body_is_understood_to_its_last_word() {
        let trigger = |body: &str| count("plpgsql", oid::TRIGGER, body);
        let noting = "begin if tg_op = 'DELETE' then insert into trail values (old.x, null); \
                      else new.w := new.w + 1; end if; return new; end";
        assert_eq!(trigger(noting), Some(3));
        assert_eq!(trigger("begin new.updated_at = now(); return new; end"), Some(1));
        assert_eq!(
            trigger("begin perform pg_notify('c', tg_op); return null; end"),
            Some(2)
        );
    }

    #[test]
    fn what_cannot_be_seen_may_do_anything() {
        let plain = |body: &str| count("plpgsql", oid::INT4, body);
        assert_eq!(plain("begin return 1; end"), Some(1));
        assert_eq!(plain("begin execute 'delete from t'; return 1; end"), None);
        assert_eq!(plain("begin insert into t values (1); commit; end"), Some(1));
        assert_eq!(
            plain("declare c cursor for select 1; begin open c; close c; end"),
            Some(1)
        );
        assert_eq!(plain("begin return query execute 'select 1'; end"), None);
        assert_eq!(count("plpython3u", oid::INT4, "plpy.execute('x')"), None);
        assert_eq!(count("sql", oid::INT4, "select 1; delete from t"), Some(2));
        assert_eq!(count("sql", oid::INT4, ""), None);
    }
}
