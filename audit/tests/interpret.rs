//! Golden scripts of the interpreter: SQL in, right answers out, over a small database in memory.
//!
//! `> statement` prints which answers are right and keeps the effects.

use goldenscript::{Command, Context};
use pgassay_audit::interpret::Execution;
use pgassay_audit::interpret::expect::Expect;
use pgassay_audit::interpret::memory::Memory;
use pgassay_audit::value::{Value, encode_text};
use std::error::Error;

struct Runner {
    memory: Memory,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let execution = self.memory.run(&command.name, &[]);
        let text = describe(&execution);
        if execution.expect.success {
            for effect in &execution.effects {
                self.memory.apply(effect);
            }
        }
        Ok(text)
    }
}

fn describe(execution: &Execution) -> String {
    let expect = &execution.expect;
    let mut lines = Vec::new();
    if let Some(reason) = &expect.anything {
        lines.push(format!("anything: {reason}"));
    }
    for error in &expect.errors {
        let must = if expect.success { "may fail" } else { "fails" };
        lines.push(format!("{must} {}: {}", error.sqlstate, error.why));
    }
    if expect.success && expect.anything.is_none() {
        for (place, group) in expect.rows.iter().flat_map(|rows| &rows.groups).enumerate() {
            if let Some(take) = group.take {
                lines.push(format!("{take} of"));
            }
            for row in &group.rows {
                let cells: Vec<String> = row.values.iter().map(|value| cell(expect, value)).collect();
                let doubt = if row.certain { "" } else { " perhaps" };
                lines.push(format!("{place}: {}{doubt}", cells.join(" | ")));
            }
        }
        if let Some(rows) = &expect.rows {
            if rows.open {
                lines.push("and rows that were never seen".to_owned());
            }
        }
        if let Some(tag) = expect.tag.as_ref().filter(|tag| tag.counted) {
            match tag.max {
                Some(max) if max == tag.min => lines.push(format!("{} {max}", tag.command)),
                max => lines.push(format!("{} {} to {max:?}", tag.command, tag.min)),
            }
        }
    }
    if !execution.reasons.is_empty() {
        lines.push(format!("because of {}", execution.reasons.join(", ")));
    }
    lines.join("\n")
}

fn cell(expect: &Expect, value: &Value) -> String {
    match value {
        Value::Unknown => "?".to_owned(),
        Value::Null => "NULL".to_owned(),
        known => encode_text(known, &expect.context).unwrap_or_else(|| format!("{known:?}")),
    }
}

#[test]
fn scripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/interpret");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let mut runner = Runner {
            memory: Memory::new(),
        };
        let input = std::fs::read_to_string(&path).expect("a script");
        let output = goldenscript::generate(&mut runner, &input)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            std::fs::write(&path, &output).expect("the script can be written");
        } else {
            assert_eq!(
                output,
                input,
                "{} differs; UPDATE_GOLDENFILES=1 rewrites it",
                path.display()
            );
        }
    }
}
