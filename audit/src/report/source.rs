//! Where in the application a statement was written, if the statement itself says so.
//!
//! In: SQL with the comment that a library put into it. Out: a file and a line, or nothing; nothing is guessed.
//!
//! Understood:
//!
//! ```text
//! /*file='app%2Fmodels%2Fuser.py',line='42'*/              sqlcommenter: keys, quoted and percent-encoded values
//! /*source_location='app%2Fmodels%2Fuser.rb%3A42'*/        Rails' query log tags, in the same form
//! /*source_location:app/models/user.rb:42:in `find'*/      and in their older one
//! /*application:shop,line:/srv/app/models/user.rb:42*/     marginalia
//! ```

use crate::verdict::{StoryStatement, Violation};

/// A line of the application.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub line: u64,
}

/// The place of the statement to blame; else of any statement of the story.
pub fn of(violation: &Violation) -> Option<Place> {
    let culprits = violation
        .culprits
        .iter()
        .filter_map(|(t, s)| violation.transactions.get(*t)?.statements.get(*s));
    let all = violation.transactions.iter().flat_map(|t| &t.statements);
    culprits.chain(all).find_map(place)
}

/// Every place that the story names, each once, in the order of the story.
pub fn all(violation: &Violation) -> Vec<Place> {
    let mut places = Vec::new();
    for statement in violation.transactions.iter().flat_map(|t| &t.statements) {
        if let Some(place) = place(statement)
            && !places.contains(&place)
        {
            places.push(place);
        }
    }
    places
}

fn place(statement: &StoryStatement) -> Option<Place> {
    comments(&statement.sql).into_iter().find_map(read)
}

/// The texts of `/* … */`, outside of literals and quoted names.
fn comments(sql: &str) -> Vec<&str> {
    let bytes = sql.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let skip = |close: &str| {
            sql[at + 1..]
                .find(close)
                .map_or(sql.len(), |n| at + 1 + n + close.len())
        };
        at = match bytes[at] {
            b'\'' => skip("'"),
            b'"' => skip("\""),
            b'-' if sql[at..].starts_with("--") => skip("\n"),
            b'/' if sql[at..].starts_with("/*") => {
                let end = sql[at + 2..].find("*/").map_or(sql.len(), |n| at + 2 + n);
                found.push(&sql[at + 2..end]);
                (end + 2).min(sql.len())
            }
            _ => at + sql[at..].chars().next().map_or(1, char::len_utf8),
        };
    }
    found
}

fn read(comment: &str) -> Option<Place> {
    let value = |wanted: &[&str]| {
        comment.split(',').find_map(|pair| {
            let (key, value) = pair.split_once(['=', ':'])?;
            wanted.contains(&key.trim()).then(|| decoded(value.trim()))
        })
    };
    let line = value(&["line", "lineno"]);
    if let (Some(file), Some(number)) = (value(&["file", "filepath", "filename"]), &line)
        && let Ok(line) = number.parse()
    {
        return place_of(&file, line);
    }
    // One value holds both: FILE:LINE, perhaps with the method behind it.
    let both = value(&["source_location"]).or(line)?;
    let mut parts = both.splitn(3, ':');
    place_of(parts.next()?, parts.next()?.trim().parse().ok()?)
}

fn place_of(file: &str, line: u64) -> Option<Place> {
    let said = !file.is_empty() && line > 0 && !file.chars().any(char::is_control);
    said.then(|| Place {
        file: file.to_owned(),
        line,
    })
}

/// Without quotes, and without percent-encoding where the quotes say that there is one.
fn decoded(value: &str) -> String {
    let Some(inner) = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) else {
        return value.to_owned();
    };
    let bytes = inner.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = |n: usize| bytes.get(at + n).and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sql: &str) -> Option<(String, u64)> {
        comments(sql)
            .into_iter()
            .find_map(read)
            .map(|place| (place.file, place.line))
    }

    #[test]
    fn the_forms_that_libraries_write_are_understood() {
        let user = Some(("app/user.rb".to_owned(), 42));
        for sql in [
            "select 1 /*file='app%2Fuser.rb',line='42'*/",
            "/*action='find',line='42',file='app/user.rb',traceparent='00-aa'*/ select 1",
            "select 1 /*source_location='app%2Fuser.rb%3A42'*/",
            "select 1 /*application:shop,source_location:app/user.rb:42:in `find'*/",
            "select 1 /*application:shop,line:app/user.rb:42:in `find'*/",
        ] {
            assert_eq!(found(sql), user, "{sql}");
        }
    }

    #[test]
    fn nothing_is_guessed() {
        for sql in [
            "select 1",
            "select 1 /* app/user.rb:42 */",
            "select '/*file=''a'',line=''1''*/'",
            "select 1 /*file='a'*/",
            "select 1 /*file='a',line='many'*/",
            "select 1 /*file='a',line='0'*/",
            "select 1 -- /*file='a',line='1'*/",
            "select 1 /*file='",
        ] {
            assert_eq!(found(sql), None, "{sql}");
        }
    }
}
