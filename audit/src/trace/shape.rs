//! What a statement is, without its values: for counting alike with alike.

use super::lex::{Kind, tokens};

/// The text with `?` for literals and one blank between words; lists of values become `?, …`.
pub fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len().min(400));
    let mut previous = "";
    // Ends of the shape where a list of literals may go on.
    let mut in_list = false;
    for token in tokens(text) {
        let piece = &text[token.place];
        let literal = matches!(token.kind, Kind::String | Kind::Dollar | Kind::Number);
        let piece = if literal { "?" } else { piece };
        if literal && in_list && previous == "," {
            // `?, ?, ?` is told as `?, …`.
            if !shape.ends_with('…') {
                shape.push_str(" …");
            }
            previous = "?";
            continue;
        }
        if piece == "," && in_list && previous == "?" {
            if !shape.ends_with('…') {
                shape.push(',');
            }
            previous = ",";
            continue;
        }
        if previous == "," && shape.ends_with('…') {
            shape.push(',');
        }
        in_list = literal;
        let glued =
            matches!(piece, "," | ")" | ";" | "." | "]" | "[") || matches!(previous, "(" | "." | "[" | "");
        let call = piece == "("
            && shape.ends_with(is_name)
            && !KEYWORDS.iter().any(|k| previous.eq_ignore_ascii_case(k));
        if !glued && !call {
            shape.push(' ');
        }
        if previous == "," && !shape.ends_with(' ') {
            shape.push(' ');
        }
        shape.push_str(piece);
        previous = piece;
    }
    let end = shape.trim_end_matches([';', ' ']).len();
    shape.truncate(end);
    shape
}

/// Words that a blank separates from the bracket behind them; behind a name there is none.
const KEYWORDS: [&str; 18] = [
    "in", "values", "and", "or", "not", "exists", "where", "on", "from", "as", "when", "then", "else",
    "select", "using", "over", "with", "set",
];

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '"'
}

/// The tables that a statement names, by PostgreSQL's own grammar; none if it cannot be parsed.
pub fn tables(text: &str) -> Vec<String> {
    let mut tables = match pg_query::parse(text, pg_query::ParserOptions::default()) {
        Ok(parsed) => parsed.tables(),
        Err(_) => Vec::new(),
    };
    tables.sort();
    tables.dedup();
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_is_alike() {
        for (text, expected) in [
            (
                "SELECT  a,b FROM t WHERE id = 5;",
                "SELECT a, b FROM t WHERE id = ?",
            ),
            (
                "select * from t where a in (1, 2,3) and b = 'x'",
                "select * from t where a in (?, …) and b = ?",
            ),
            (
                "insert into t values (1, 'a', $1) -- note",
                "insert into t values (?, …, $1)",
            ),
            ("select count(*) from s.t", "select count(*) from s.t"),
            ("", ""),
        ] {
            assert_eq!(shape(text), expected);
        }
    }

    #[test]
    fn tables_by_grammar() {
        assert_eq!(
            tables("update a set x = 1 from s.b where exists (select 1 from c)"),
            ["a", "c", "s.b"]
        );
        assert_eq!(tables("not sql"), Vec::<String>::new());
    }
}
