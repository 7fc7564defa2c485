//! Reads the four sources and remembers which of them each value came from.
//!
//! In: an optional file, the environment, overrides of flags. Out: [`Loaded`].

use super::{Config, nearest::nearest};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables with our prefix that are not keys.
const OTHER_VARIABLES: &[&str] = &[
    "PGASSAY_CONFIG",
    "PGASSAY_PG_BIN",
    "PGASSAY_DEPS",
    "PGASSAY_TARGET",
];
/// What the templates for CI systems (deploy/gitlab/) call their own.
const OF_TEMPLATES: &str = "PGASSAY_RUN_";

/// The effective configuration and where each key of it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// By dotted key, in alphabetical order; keys that are missing here have their default.
    pub origins: BTreeMap<String, Origin>,
    pub warnings: Vec<String>,
    sources: Sources,
}

/// What was read, so that SIGHUP can read it again.
#[derive(Clone, Debug, Default)]
struct Sources {
    file: Option<PathBuf>,
    flags: Vec<Override>,
}

/// One value given on the command line, as it would be written in TOML or as plain text.
#[derive(Clone, Debug)]
pub struct Override {
    pub key: String,
    pub value: String,
    /// The flag, as the user typed it.
    pub flag: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Variable(name) => write!(f, "${name}"),
            Origin::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl Override {
    pub fn new(key: &str, value: impl fmt::Display, flag: &str) -> Override {
        Override {
            key: key.to_owned(),
            value: value.to_string(),
            flag: flag.to_owned(),
        }
    }

    /// `KEY=VALUE` of `--set`.
    pub fn parse(text: &str) -> Result<Override> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| anyhow!("--set {text}: expected KEY=VALUE"))?;
        Ok(Override::new(key.trim(), value.trim(), "--set"))
    }
}

impl Loaded {
    pub fn load(file: Option<&Path>, flags: Vec<Override>) -> Result<Loaded> {
        Self::read(
            Sources {
                file: file.map(Path::to_owned),
                flags,
            },
            std::env::vars_os(),
        )
    }

    /// Reads the same sources again.
    pub fn reload(&self) -> Result<Loaded> {
        Self::read(self.sources.clone(), std::env::vars_os())
    }

    fn read(
        sources: Sources,
        environment: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<Loaded> {
        let defaults = known_keys();
        let mut builder = config::Config::builder();
        let mut origins = BTreeMap::new();
        let mut warnings = Vec::new();
        for (key, default) in &defaults {
            builder = builder
                .set_default(key, to_config(default))
                .context("a default of our own")?;
        }

        if let Some(path) = &sources.file {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
            let table: toml::Table = text
                .parse()
                .with_context(|| format!("{} is not valid TOML", path.display()))?;
            let value = serde_json::to_value(&table)?;
            let mut given = Vec::new();
            flatten("", &value, &defaults, &mut given);
            for (key, mut value) in given {
                // TOML has no word for «nothing».
                if value == "" {
                    value = Value::Null;
                }
                check_known(&key, &defaults).with_context(|| path.display().to_string())?;
                builder = builder
                    .set_override(&key, to_config(&value))
                    .with_context(|| key.clone())?;
                origins.insert(key, Origin::File(path.clone()));
            }
        }

        let mut variables: BTreeMap<String, String> = environment
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("PGASSAY_"))
            .collect();
        for (key, default) in &defaults {
            let name = variable_name(key);
            if let Some(text) = variables.remove(&name) {
                let value = from_text(default, &text);
                builder = builder
                    .set_override(key, to_config(&value))
                    .with_context(|| name.clone())?;
                origins.insert(key.clone(), Origin::Variable(name));
            }
        }
        for name in variables
            .keys()
            .filter(|name| !OTHER_VARIABLES.contains(&name.as_str()) && !name.starts_with(OF_TEMPLATES))
        {
            let known: Vec<String> = defaults.keys().map(|key| variable_name(key)).collect();
            let guess = nearest(name, known.iter().map(String::as_str));
            let hint = guess
                .map(|guess| format!("; the nearest is {guess}"))
                .unwrap_or_default();
            warnings.push(format!("the variable {name} sets nothing{hint}"));
        }

        for flag in &sources.flags {
            check_known(&flag.key, &defaults).with_context(|| flag.flag.clone())?;
            let value = from_text(&defaults[&flag.key], &flag.value);
            builder = builder
                .set_override(&flag.key, to_config(&value))
                .with_context(|| flag.key.clone())?;
            origins.insert(flag.key.clone(), Origin::Flag(flag.flag.clone()));
        }

        let config: Config = builder
            .build()
            .and_then(config::Config::try_deserialize)
            .map_err(|error| explain(error, &origins))?;
        Ok(Loaded {
            config,
            origins,
            warnings,
            sources,
        })
    }

    /// Every key with its value and origin, in the order of the documentation.
    pub fn entries(&self) -> Vec<(String, Value, Origin)> {
        let value = serde_json::to_value(&self.config).expect("a configuration is plain data");
        let mut entries = Vec::new();
        flatten("", &value, &BTreeMap::new(), &mut entries);
        entries
            .into_iter()
            .map(|(key, value)| {
                let origin = self.origins.get(&key).cloned().unwrap_or(Origin::Default);
                (key, without_password(value), origin)
            })
            .collect()
    }
}

/// `postgresql://me:secret@db` → `postgresql://me:***@db`.
fn without_password(value: Value) -> Value {
    let Value::String(text) = &value else { return value };
    let Some((scheme, rest)) = text.split_once("://") else {
        return value;
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let hidden = match rest[..end].rsplit_once('@') {
        Some((userinfo, _)) => userinfo.split_once(':').map(|(user, password)| {
            let after = user.len() + 1 + password.len();
            format!("{scheme}://{user}:***{}", &rest[after..])
        }),
        None => None,
    };
    let shown = hidden.unwrap_or_else(|| text.clone());
    match shown.split_once("password=") {
        Some((before, after)) => {
            let tail = after.find('&').map_or("", |at| &after[at..]);
            Value::from(format!("{before}password=***{tail}"))
        }
        None => Value::from(shown),
    }
}

/// `journal.dir` → `PGASSAY_JOURNAL_DIR`.
pub fn variable_name(key: &str) -> String {
    format!("PGASSAY_{}", key.replace('.', "_").to_uppercase())
}

/// Every key with its default.
fn known_keys() -> BTreeMap<String, Value> {
    let value = serde_json::to_value(Config::default()).expect("a configuration is plain data");
    let mut keys = Vec::new();
    flatten("", &value, &BTreeMap::new(), &mut keys);
    keys.into_iter().collect()
}

/// Dotted keys of the leaves. A key of `leaves` is not descended into.
fn flatten(prefix: &str, value: &Value, leaves: &BTreeMap<String, Value>, into: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !leaves.contains_key(prefix) => {
            for (key, value) in map {
                let key = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                flatten(&key, value, leaves, into);
            }
        }
        leaf => into.push((prefix.to_owned(), leaf.clone())),
    }
}

fn check_known(key: &str, known: &BTreeMap<String, Value>) -> Result<()> {
    if known.contains_key(key) {
        return Ok(());
    }
    match nearest(key, known.keys().map(String::as_str)) {
        Some(guess) => bail!("there is no key `{key}`; did you mean `{guess}`?"),
        None => bail!("there is no key `{key}`; `pgassay config show` lists them all"),
    }
}

/// Plain text of a variable or flag, read as the kind of value that the key has. Lists are separated by
/// commas; nothing at all unsets.
fn from_text(default: &Value, text: &str) -> Value {
    match default {
        Value::Array(_) if text.is_empty() => Value::Array(Vec::new()),
        _ if text.is_empty() => Value::Null,
        Value::Array(_) => text.split(',').map(|part| Value::from(part.trim())).collect(),
        Value::Bool(_) | Value::Number(_) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        _ => Value::from(text),
    }
}

fn to_config(value: &Value) -> config::Value {
    use config::ValueKind;
    let kind = match value {
        Value::Null => ValueKind::Nil,
        Value::Bool(b) => ValueKind::Boolean(*b),
        Value::Number(n) => match n.as_i64() {
            Some(i) => ValueKind::I64(i),
            None => ValueKind::Float(n.as_f64().unwrap_or(f64::MAX)),
        },
        Value::String(s) => ValueKind::String(s.clone()),
        Value::Array(items) => ValueKind::Array(items.iter().map(to_config).collect()),
        Value::Object(map) => ValueKind::Table(
            map.iter()
                .map(|(key, value)| (key.clone(), to_config(value)))
                .collect(),
        ),
    };
    config::Value::new(None, kind)
}

/// The same error, with the place that the value came from.
fn explain(error: config::ConfigError, origins: &BTreeMap<String, Origin>) -> anyhow::Error {
    let text = error.to_string();
    let place = origins
        .iter()
        .find(|(key, _)| text.contains(&format!("`{key}`")))
        .map(|(_, origin)| format!(" (set by {origin})"))
        .unwrap_or_default();
    anyhow!("the configuration does not make sense: {text}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn read(text: &str, variables: &[(&str, &str)], flags: Vec<Override>) -> Result<Loaded> {
        let file = file(text);
        let sources = Sources {
            file: Some(file.path().to_owned()),
            flags,
        };
        Loaded::read(sources, variables.iter().map(|(k, v)| (k.into(), v.into())))
    }

    #[test]
    fn later_sources_win_and_are_named() {
        let text = "upstream = 'file'\n[journal]\ndir = '/file'\nflush_ms = 5\n[proxy]\nthreads = 3\n";
        let flags = vec![Override::new("upstream", "flag", "--upstream")];
        let variables = [("PGASSAY_UPSTREAM", "env"), ("PGASSAY_JOURNAL_DIR", "/env")];
        let loaded = read(text, &variables, flags).unwrap();
        assert_eq!(loaded.config.upstream, "flag");
        assert_eq!(loaded.config.journal.dir.as_deref(), Some(Path::new("/env")));
        assert_eq!(loaded.config.journal.flush_ms, 5);
        assert_eq!(loaded.config.proxy.threads, 3);
        assert_eq!(loaded.config.proxy.drain_seconds, 30);
        assert_eq!(loaded.origins["upstream"], Origin::Flag("--upstream".to_owned()));
        assert_eq!(
            loaded.origins["journal.dir"],
            Origin::Variable("PGASSAY_JOURNAL_DIR".to_owned())
        );
        assert!(matches!(loaded.origins["journal.flush_ms"], Origin::File(_)));
        assert!(!loaded.origins.contains_key("proxy.drain_seconds"));
    }

    #[test]
    fn lists_come_from_variables_and_tables_from_files() {
        let text = "[[webhooks]]\nurl = 'http://127.0.0.1:1/'\n";
        let loaded = read(text, &[("PGASSAY_LISTEN", "127.0.0.1:1, [::1]:2")], Vec::new()).unwrap();
        assert_eq!(loaded.config.listen, ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(loaded.config.webhooks[0].kind, "json");
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = format!(
            "{:#}",
            read("[journal]\ndirr = 'x'", &[], Vec::new()).unwrap_err()
        );
        assert!(
            error.contains("`journal.dirr`") && error.contains("`journal.dir`"),
            "{error}"
        );
        let error = read("", &[], vec![Override::parse("proxy.conections_max=3").unwrap()]).unwrap_err();
        assert!(
            format!("{error:#}").contains("`proxy.connections_max`"),
            "{error:#}"
        );
    }

    #[test]
    fn an_unknown_variable_is_a_warning() {
        let loaded = read("", &[("PGASSAY_UPSTREM", "x")], Vec::new()).unwrap();
        assert!(
            loaded.warnings[0].contains("PGASSAY_UPSTREAM"),
            "{:?}",
            loaded.warnings
        );
    }

    #[test]
    fn a_wrong_value_says_where_it_came_from() {
        let error = read("", &[("PGASSAY_TLS_MODE", "maybe")], Vec::new()).unwrap_err();
        assert!(format!("{error:#}").contains("maybe"), "{error:#}");
        let error = read("", &[("PGASSAY_PROXY_THREADS", "many")], Vec::new()).unwrap_err();
        assert!(format!("{error:#}").contains("threads"), "{error:#}");
    }

    #[test]
    fn nothing_unsets() {
        assert_eq!(
            read("[admin]\nlisten = ''", &[], Vec::new())
                .unwrap()
                .config
                .admin
                .listen,
            None
        );
        let flags = vec![Override::parse("admin.listen=").unwrap()];
        assert_eq!(read("", &[], flags).unwrap().config.admin.listen, None);
    }

    #[test]
    fn passwords_are_not_shown() {
        for (given, shown) in [
            (
                "postgresql://me:secret@db:1/x?a=b",
                "postgresql://me:***@db:1/x?a=b",
            ),
            (
                "postgresql://me@db/x?password=secret&sslmode=require",
                "postgresql://me@db/x?password=***&sslmode=require",
            ),
            ("postgres://me:se:cr@et@db", "postgres://me:***@db"),
            ("127.0.0.1:5432", "127.0.0.1:5432"),
        ] {
            let loaded = read("", &[("PGASSAY_UPSTREAM", given)], Vec::new()).unwrap();
            let entry = loaded
                .entries()
                .into_iter()
                .find(|(key, ..)| key == "upstream")
                .unwrap();
            assert_eq!(entry.1, shown);
            assert_eq!(loaded.config.upstream, given);
        }
    }

    #[test]
    fn every_key_is_listed_with_its_default() {
        let loaded = read("", &[], Vec::new()).unwrap();
        assert_eq!(loaded.config, Config::default());
        let entries = loaded.entries();
        assert!(
            entries
                .iter()
                .any(|(key, _, origin)| key == "journal.dir" && *origin == Origin::Default)
        );
    }
}
