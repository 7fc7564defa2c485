//! Takes passwords out of SQL before it is recorded.
//!
//! In: the text of a statement. Out: the same text, with `'***'` for every literal that sets a password
//! of a role, a user mapping, a server or a subscription. Everything else keeps its meaning: a column
//! called `password` in an application's own table is data like any other and must stay as it is, or the
//! audit would remember a value that was never written.

use crate::trace::lex::{Kind, Token, tokens};
use std::borrow::Cow;

/// Cheap on text that does not say "password" at all.
pub fn redact(text: &str) -> Cow<'_, str> {
    if !mentions_password(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::new();
    let mut copied = 0;
    let mut words: Vec<String> = Vec::new();
    let mut follows_password = false;
    for Token { kind, place } in tokens(text) {
        let piece = &text[place.clone()];
        let replacement = match kind {
            Kind::Symbol if piece == ";" => {
                words.clear();
                None
            }
            Kind::String | Kind::Dollar if sets_secrets(&words) => {
                if follows_password {
                    Some("'***'".to_owned())
                } else {
                    hide_in_connection(piece)
                }
            }
            // The body of DO or of a function is SQL in turn.
            Kind::Dollar => {
                let tag = piece[1..].find('$').map_or(0, |at| at + 2);
                match piece.get(tag..piece.len().saturating_sub(tag)) {
                    Some(body) => match redact(body) {
                        Cow::Borrowed(_) => None,
                        Cow::Owned(body) => Some(format!("{0}{body}{0}", &piece[..tag])),
                    },
                    None => None,
                }
            }
            _ => None,
        };
        follows_password =
            kind == Kind::Word && piece.eq_ignore_ascii_case("password") || follows_password && piece == "=";
        if kind == Kind::Word && words.len() < 4 {
            words.push(piece.to_ascii_lowercase());
        }
        if let Some(replacement) = replacement {
            redacted.push_str(&text[copied..place.start]);
            redacted.push_str(&replacement);
            copied = place.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(&text[copied..]);
    Cow::Owned(redacted)
}

/// Whether a statement that begins with these words may carry the secret of a role or of a connection.
/// Inside a function's body any statement may follow any word, so a later pair counts as well.
fn sets_secrets(words: &[String]) -> bool {
    words.windows(2).any(|pair| {
        matches!(pair[0].as_str(), "alter" | "create")
            && matches!(
                pair[1].as_str(),
                "role" | "user" | "group" | "server" | "subscription" | "foreign"
            )
    })
}

/// `CONNECTION 'host=h password=x'`.
fn hide_in_connection(literal: &str) -> Option<String> {
    let at = literal.to_ascii_lowercase().find("password")? + "password".len();
    let value = literal[at..].trim_start().strip_prefix('=')?.trim_start();
    let start = literal.len() - value.len();
    let length = value.find([' ', '\'']).unwrap_or(value.len());
    Some(format!("{}***{}", &literal[..start], &value[length..]))
}

/// `w` is rare in SQL, so it is what to look for.
fn mentions_password(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'w', b'W', text).any(|at| {
        at >= 4
            && text
                .get(at - 4..at + 4)
                .is_some_and(|word| word.eq_ignore_ascii_case(b"password"))
    })
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn passwords_of_roles_are_hidden() {
        for (text, expected) in [
            ("ALTER USER u PASSWORD 'secret'", "ALTER USER u PASSWORD '***'"),
            (
                "create role r login encrypted password $$x$$;",
                "create role r login encrypted password '***';",
            ),
            (
                "SELECT 1; ALTER /* p */ ROLE r WITH PASSWORD E'a\\'b' ",
                "SELECT 1; ALTER /* p */ ROLE r WITH PASSWORD '***' ",
            ),
            (
                "CREATE USER MAPPING FOR u SERVER s OPTIONS (user 'a', password 'b')",
                "CREATE USER MAPPING FOR u SERVER s OPTIONS (user 'a', password '***')",
            ),
            (
                "CREATE SUBSCRIPTION s CONNECTION 'host=h password=x dbname=d' PUBLICATION p",
                "CREATE SUBSCRIPTION s CONNECTION 'host=h password=*** dbname=d' PUBLICATION p",
            ),
            (
                "DO $$BEGIN ALTER ROLE r PASSWORD 'x'; END$$",
                "DO $$BEGIN ALTER ROLE r PASSWORD '***'; END$$",
            ),
        ] {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn data_stays_data() {
        for text in [
            "UPDATE users SET password = 'abc' WHERE id = 1",
            "ALTER TABLE users ADD COLUMN password text DEFAULT 'x'",
            "CREATE USER u; UPDATE users SET password = 'abc'",
            "ALTER ROLE r PASSWORD NULL",
            "SELECT 'password'",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
