//! A story as a specification for PostgreSQL's isolationtester (src/test/isolation).
//!
//! One session block per transaction, one step per request, one permutation: the order in which the
//! requests were sent. The tester itself notices which steps wait for a lock.

use super::brief;
use super::script::inline;
use super::steps;
use super::text::one_line;
use crate::trace::lex::{Kind, tokens};
use crate::verdict::Violation;
use std::fmt::Write;

pub fn write(violation: &Violation) -> String {
    let mut out = format!("# {} at {} ({})\n", violation.rule, violation.level, violation.id);
    for line in brief::of(violation).lines() {
        let _ = writeln!(out, "# {}", one_line(line));
    }
    let ground = &violation.ground;
    for remark in &ground.remarks {
        let _ = writeln!(out, "# (!) {}", one_line(remark));
    }
    // The tester sends a block as one query: each statement gets its own.
    out.push('\n');
    for sql in &ground.create {
        let _ = writeln!(out, "setup {{ {}; }}", block(sql));
    }
    if !ground.drop.is_empty() {
        let drops: Vec<String> = ground.drop.iter().map(|sql| block(sql) + ";").collect();
        let _ = writeln!(out, "teardown {{ {} }}", drops.join(" "));
    }
    let all = steps::of(violation);
    let name = |index: usize| identifier(&violation.transactions[index].name);
    let mut order = Vec::new();
    let mut counts = vec![0; violation.transactions.len()];
    let mut blocks = vec![String::new(); violation.transactions.len()];
    for step in &all {
        let count = &mut counts[step.transaction];
        *count += 1;
        let label = format!("{}_{}", name(step.transaction), count);
        let sql = block(&inline(&step.sql, &step.parameters));
        let _ = writeln!(blocks[step.transaction], "step {label}\t{{ {sql}; }}");
        order.push(label);
    }
    for (index, steps) in blocks.iter().enumerate() {
        let _ = writeln!(out, "\nsession {}", name(index));
        if let Some(settings) = ground.settings.get(index).filter(|settings| !settings.is_empty()) {
            let _ = writeln!(out, "setup {{ {}; }}", settings.join("; "));
        }
        out.push_str(steps);
    }
    let _ = writeln!(out, "\npermutation {}", order.join(" "));
    let _ = writeln!(out, "\n# answered: {}", one_line(&violation.observed));
    for right in &violation.expected {
        let _ = writeln!(out, "# right: {}", one_line(right));
    }
    out
}

/// The tester's lexer ends a block at the first `}`, even inside a literal: there it is written as an escape.
fn block(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut end = 0;
    for token in tokens(sql) {
        // Comments lie between tokens; only they can hold one there.
        out.push_str(&sql[end..token.place.start].replace('}', ")"));
        out.push_str(&without_brace(&sql[token.place.clone()], token.kind));
        end = token.place.end;
    }
    out.push_str(&sql[end..].replace('}', ")"));
    out.trim().to_owned()
}

/// The same token without a closing brace.
fn without_brace(token: &str, kind: Kind) -> String {
    if !token.contains('}') {
        return token.to_owned();
    }
    match kind {
        Kind::String | Kind::QuotedName if token.starts_with(['\'', '"']) => {
            let escaped = token.replace('\\', "\\\\").replace('}', "\\007D");
            format!("U&{escaped}")
        }
        Kind::String if token.starts_with(['E', 'e']) => token.replace('}', "\\x7D"),
        Kind::String => token.replace('}', "\\007D"),
        Kind::Dollar => {
            let tag = token[1..].find('$').map_or(0, |at| at + 2);
            let inner = token.get(tag..token.len().saturating_sub(tag)).unwrap_or("");
            let escaped = inner.replace('\\', "\\\\").replace('\'', "''");
            format!("E'{}'", escaped.replace('}', "\\x7D"))
        }
        _ => token.replace('}', ")"),
    }
}

/// The tester's identifiers.
fn identifier(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_closing_brace_is_escaped_wherever_it_stands() {
        for (sql, wanted) in [
            ("select '{1,2}'::int[]", r"select U&'{1,2\007D'::int[]"),
            (r"select 'a\b}'", r"select U&'a\\b\007D'"),
            (r"select E'a\n}'", r"select E'a\n\x7D'"),
            ("select \"a}b\"", "select U&\"a\\007Db\""),
            ("select $x$it's }$x$", r"select E'it''s \x7D'"),
            ("select 1 /* } */", "select 1 /* ) */"),
        ] {
            assert_eq!(block(sql), wanted);
        }
    }

    #[test]
    fn one_step_per_request_and_one_permutation() {
        let spec = write(&sample::lost_update());
        assert!(
            spec.contains("session t1\nstep t1_1\t{ BEGIN ISOLATION LEVEL READ COMMITTED; }\n"),
            "{spec}"
        );
        assert!(
            spec.contains("step t2_3\t{ UPDATE account SET balance = '120' WHERE id = '1'; }"),
            "{spec}"
        );
        assert!(
            spec.contains("\npermutation t1_1 t1_2 t2_1 t2_2 t1_3 t2_3 t1_4 t2_4\n"),
            "{spec}"
        );
    }
}
