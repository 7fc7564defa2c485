//! The user list: PgBouncer's format, `"user" "password"` or `"user" "SCRAM-SHA-256$…"` per line.

use super::scram::Verifier;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::Path;

#[derive(Clone, Default)]
pub struct Users {
    known: HashMap<String, Secret>,
    /// What an unknown user is checked against, in vain.
    nobody: Option<Verifier>,
}

#[derive(Clone)]
pub enum Secret {
    Password(String),
    Verifier(Verifier),
}

impl Users {
    pub fn read(path: &Path) -> Result<Users> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the user list {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Users> {
        let mut known = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(';') || line.starts_with('#') {
                continue;
            }
            let mut words = quoted(line);
            let (Some(user), Some(secret), None) = (words.next(), words.next(), words.next()) else {
                bail!("line {}: expected \"user\" \"password\"", index + 1);
            };
            let secret = if secret.starts_with("SCRAM-SHA-256$") {
                let verifier = Verifier::parse(&secret);
                Secret::Verifier(verifier.with_context(|| format!("line {}: a broken verifier", index + 1))?)
            } else if secret.starts_with("md5") && secret.len() == 35 {
                bail!(
                    "line {}: MD5 hashes are of no use here; give the password or a SCRAM verifier",
                    index + 1
                );
            } else {
                Secret::Password(secret)
            };
            known.insert(user, secret);
        }
        Ok(Users {
            known,
            nobody: Some(Verifier::random()),
        })
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn knows(&self, user: &str) -> bool {
        self.known.contains_key(user)
    }

    pub fn secret(&self, user: &str) -> Option<&Secret> {
        self.known.get(user)
    }

    pub fn verifier(&self, user: &str) -> Verifier {
        match self.known.get(user) {
            Some(Secret::Verifier(verifier)) => verifier.clone(),
            Some(Secret::Password(password)) => Verifier::of(password),
            None => self.nobody.clone().unwrap_or_else(Verifier::random),
        }
    }
}

/// The quoted words of a line; a quote within is doubled.
fn quoted(line: &str) -> impl Iterator<Item = String> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let mut word = String::new();
        rest = rest.trim_start().strip_prefix('"')?;
        loop {
            let end = rest.find('"')?;
            word.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(more) => {
                    word.push('"');
                    rest = more;
                }
                None => return Some(word),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pgbouncers_format() {
        let users = Users::parse("; comment\n\"me\" \"p\"\"q\"\n\n\"you\" \"\"\n").unwrap();
        assert!(matches!(users.secret("me"), Some(Secret::Password(password)) if password == "p\"q"));
        assert!(users.knows("you") && !users.knows("him"));
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (text, word) in [
            ("\"me\"", "line 1"),
            ("\n\"me\" \"SCRAM-SHA-256$x\"", "line 2"),
            ("me x", "line 1"),
        ] {
            let error = format!("{:#}", Users::parse(text).err().unwrap());
            assert!(error.contains(word), "{error}");
        }
        let md5 = format!("\"me\" \"md5{}\"", "0".repeat(32));
        assert!(Users::parse(&md5).is_err());
    }
}
