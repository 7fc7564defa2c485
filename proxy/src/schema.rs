//! A schema that somebody wrote down, for where nobody may read the catalog.
//!
//! In: a file of DDL, such as `pg_dump --schema-only` makes. Out: records as if a session had created everything in it
//! before the first client came, and a gap behind them.
//!
//! Always true:
//!   - passwords in the file are not recorded;
//!   - of the file only what creates, alters, drops or sets becomes a record;
//!   - what the tables hold and how far sequences are is not known: whoever filled them was not seen.

use crate::clock;
use anyhow::{Context, Result};
use pgassay_audit::trace::lex::{self, Kind};
use pgassay_audit::trace::{
    Answer, Bootstrap, Gap, NOBODY, Observation, Outcome, Protocol, Record, SessionFacts, SessionId, Status,
    Window,
};
use pgassay_audit::wire::secret;
use std::path::Path;

/// Commands of psql that `pg_dump` writes between the statements.
const PSQL: &[&str] = &["\\restrict", "\\unrestrict", "\\connect"];

/// What the file says, told by `session`.
pub fn read(file: &Path, session: SessionId) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the schema {} (audit.schema)", file.display()))?;
    let statements = statements(&text);
    let creates = |statement: &String| starts_with(statement, &["create"]);
    anyhow::ensure!(
        statements.iter().any(creates),
        "{} (audit.schema) creates nothing; `pg_dump --schema-only` writes such a file",
        file.display()
    );
    Ok(records(statements, session))
}

fn records(statements: Vec<String>, session: SessionId) -> Vec<Record> {
    let mut at = clock::now();
    // An earlier run in the same journal may have said the same.
    let nothing = Bootstrap {
        window: Window::new(at, at + 1),
        server_version: String::new(),
        settings: Vec::new(),
        catalog: Vec::new(),
        tables: Vec::new(),
        open_transactions: 0,
    };
    at += 2;
    let facts = SessionFacts {
        session,
        at,
        user: "schema".to_owned(),
        // Of whichever database comes first.
        database: String::new(),
        server_version: String::new(),
        parameters: Vec::new(),
    };
    let mut records = vec![Record::Bootstrap(Box::new(nothing)), Record::SessionStart(facts)];
    for (seq, text) in (1..).zip(statements) {
        let window = Window::new(at + 1, at + 2);
        at += 2;
        records.push(Record::Statement(Box::new(Observation {
            session,
            seq,
            text: text.into(),
            part: 0,
            protocol: Protocol::Simple,
            parameters: Vec::new(),
            window,
            // Nobody looked at the answer.
            outcome: Outcome::Answer(Answer::default()),
            before: Status::Idle,
            after: Status::Idle,
            group: seq,
            ready: window,
        })));
    }
    records.push(Record::SessionEnd { session, at: at + 1 });
    records.push(Record::Gap(Gap {
        session: Some(NOBODY),
        window: Window::new(at + 2, at + 3),
        reason: Gap::UNREAD.to_owned(),
    }));
    records
}

fn statements(text: &str) -> Vec<String> {
    let is_sql = |line: &&str| !PSQL.iter().any(|command| line.starts_with(command));
    let sql: Vec<&str> = text.lines().filter(is_sql).collect();
    let sql = sql.join("\n");
    let redacted = |statement: &str| secret::redact(statement).into_owned();
    let mut kept: Vec<String> = lex::statements(&sql).into_iter().map(redacted).collect();
    kept.retain(|statement| {
        let says = starts_with(statement, &["create", "alter", "drop", "set"]);
        says && !changes_owner(statement)
    });
    kept
}

fn starts_with(statement: &str, words: &[&str]) -> bool {
    let first = lex::tokens(statement).find(|token| token.kind == Kind::Word);
    first.is_some_and(|first| {
        let first = &statement[first.place];
        words.iter().any(|word| first.eq_ignore_ascii_case(word))
    })
}

/// Who owns something changes nothing that is followed.
fn changes_owner(statement: &str) -> bool {
    let words: Vec<String> = lex::tokens(statement)
        .filter(|token| token.kind == Kind::Word)
        .map(|token| statement[token.place].to_ascii_lowercase())
        .collect();
    words.first().is_some_and(|word| word == "alter")
        && words.windows(2).any(|pair| pair[0] == "owner" && pair[1] == "to")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\nSET lock_timeout = 0;\n\
         SELECT pg_catalog.set_config('search_path', '', false);\n\
         CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS $$ select 1; $$;\n\
         ALTER FUNCTION public.f() OWNER TO postgres;\n\
         CREATE TABLE public.t (\n    id integer NOT NULL\n);\nCOMMENT ON TABLE public.t IS 'a; b';\n\
         ALTER TABLE ONLY public.t ADD CONSTRAINT t_pkey PRIMARY KEY (id);\n\\unrestrict abc\n";

    #[test]
    fn ddl_is_told_and_nothing_else() {
        let kept = statements(DUMP);
        let first: Vec<&str> = kept
            .iter()
            .filter_map(|s| s.lines().find(|line| !line.starts_with("--")))
            .collect();
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert!(kept[1].contains("select 1;"), "a body is not cut");
        assert!(first[3].starts_with("ALTER TABLE ONLY public.t"));
    }

    #[test]
    fn nothing_is_known_of_what_the_tables_hold() {
        let records = records(statements(DUMP), SessionId(1));
        assert!(matches!(
            records[..2],
            [Record::Bootstrap(_), Record::SessionStart(_)]
        ));
        let Some(Record::Gap(gap)) = records.last() else {
            panic!("no gap behind the DDL")
        };
        assert_eq!(gap.session, Some(NOBODY));
        let all_before = records.iter().all(|record| match record {
            Record::Statement(o) => o.window.is_before(gap.window),
            _ => true,
        });
        assert!(all_before);
    }
}
