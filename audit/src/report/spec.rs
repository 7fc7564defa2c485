//! A story as a specification for PostgreSQL's isolationtester (src/test/isolation).
//!
//! One session block per transaction, one step per request, one permutation: the order in which the
//! requests were sent. The tester itself notices which steps wait for a lock.

use super::brief;
use super::script::inline;
use super::steps;
use super::text::one_line;
use crate::verdict::Violation;
use std::fmt::Write;

pub fn write(violation: &Violation) -> String {
    let mut out = format!("# {} at {} ({})\n", violation.rule, violation.level, violation.id);
    for line in brief::of(violation).lines() {
        let _ = writeln!(out, "# {}", one_line(line));
    }
    out.push_str("\nsetup\n{\n");
    for row in &violation.initial {
        let _ = writeln!(out, "  -- starts from {}", one_line(row));
    }
    out.push_str("  SELECT 1;\n}\n");
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
        let _ = write!(out, "\nsession {}\n{steps}", name(index));
    }
    let _ = writeln!(out, "\npermutation {}", order.join(" "));
    let _ = writeln!(out, "\n# answered: {}", one_line(&violation.observed));
    for right in &violation.expected {
        let _ = writeln!(out, "# right: {}", one_line(right));
    }
    out
}

/// The tester's lexer ends a block at the first `}`, even inside a literal: such statements are cut
/// into pieces of text that never hold one.
fn block(sql: &str) -> String {
    sql.replace('}', "'||chr(125)||'").trim().to_owned()
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
