//! What the session and the database contribute to the value of an expression.
//!
//! Always true: everything that is not known is said to be unknown, and makes the values that depend
//! on it unknown.

use super::{TypeOid, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The settings that expressions depend on.
#[derive(Clone, Debug)]
pub struct Context {
    pub time_zone: TimeZone,
    /// `now()`: a [`Value::TimestampTz`], or unknown.
    pub now: Value,
    /// DateStyle is ISO (any field order other than MDY is unknown).
    pub date_style: DateStyle,
    /// IntervalStyle is `postgres`.
    pub interval_style_postgres: bool,
    /// `extra_float_digits` is above zero, so that floats print shortest.
    pub shortest_floats: bool,
    /// `bytea_output` is `hex`.
    pub bytea_hex: bool,
    /// The order of the database's default collation.
    pub collation: Collation,
    /// The server encoding is UTF8.
    pub utf8: bool,
    pub user_types: Arc<UserTypes>,
    /// current_user, session_user, current_database … by name, where known.
    pub facts: Arc<HashMap<String, Value>>,
    /// The schema of the session's temporary tables.
    pub temporary: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DateStyle {
    IsoMdy,
    IsoDmy,
    IsoYmd,
    #[default]
    Unknown,
}

/// A session's TimeZone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeZone {
    /// Seconds east of Greenwich, always.
    Fixed(i32),
    /// A zone whose rules are not modelled.
    #[default]
    Unknown,
}

/// How text is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Collation {
    /// By bytes: `C`, `POSIX`, `ucs_basic`.
    Bytes,
    /// Deterministic, so equality is equality of bytes, but the order is not modelled.
    #[default]
    Deterministic,
    /// Not even equality is known.
    Nondeterministic,
}

/// Types that the catalog of the audited database adds to the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct UserTypes {
    pub by_oid: HashMap<TypeOid, UserType>,
}

#[derive(Clone, Debug)]
pub struct UserType {
    pub name: String,
    pub kind: UserKind,
    /// The oid of the array type over this one, or 0.
    pub array: TypeOid,
}

#[derive(Clone, Debug)]
pub enum UserKind {
    /// Labels in sort order.
    Enum(Vec<Arc<str>>),
    /// The base type and its modifier.
    Domain(TypeOid, i32),
    /// An array over a user's type.
    Array(TypeOid),
    /// Composite, range, extension type.
    Other,
}

impl Context {
    /// A session with the server's default settings, a UTC clock that is not known, and text order by bytes.
    pub fn defaults() -> Context {
        Context {
            time_zone: TimeZone::Fixed(0),
            now: Value::Unknown,
            date_style: DateStyle::IsoMdy,
            interval_style_postgres: true,
            shortest_floats: true,
            bytea_hex: true,
            collation: Collation::Bytes,
            utf8: true,
            user_types: Arc::default(),
            facts: Arc::default(),
            temporary: Arc::from(crate::state::catalog::TEMPORARY),
        }
    }

    /// Nothing is known.
    pub fn unknown() -> Context {
        Context {
            time_zone: TimeZone::Unknown,
            date_style: DateStyle::Unknown,
            interval_style_postgres: false,
            shortest_floats: false,
            bytea_hex: false,
            collation: Collation::Deterministic,
            utf8: false,
            ..Context::defaults()
        }
    }
}

impl TimeZone {
    /// Reads the value of the setting TimeZone.
    pub fn from_setting(setting: &str) -> TimeZone {
        const UTC: &[&str] = &[
            "utc",
            "etc/utc",
            "gmt",
            "etc/gmt",
            "zulu",
            "etc/zulu",
            "uct",
            "etc/uct",
            "universal",
            "etc/universal",
            "greenwich",
            "etc/greenwich",
            "gmt0",
            "etc/gmt0",
            "gmt+0",
            "gmt-0",
            "etc/gmt+0",
            "etc/gmt-0",
        ];
        let lower = setting.to_ascii_lowercase();
        if UTC.contains(&lower.as_str()) {
            return TimeZone::Fixed(0);
        }
        // POSIX signs: Etc/GMT+3 lies west of Greenwich.
        if let Some(hours) = lower
            .strip_prefix("etc/gmt")
            .and_then(|rest| rest.parse::<i32>().ok())
            && (-14..=12).contains(&hours)
        {
            return TimeZone::Fixed(-hours * 3600);
        }
        // What SET TIME ZONE INTERVAL/number is shown as: <+02>-02
        if let Some(rest) = lower.strip_prefix('<')
            && let Some((shown, posix)) = rest.split_once('>')
            && let Ok(west) = posix.parse::<i32>()
            && shown.parse::<i32>() == Ok(-west)
        {
            return TimeZone::Fixed(-west * 3600);
        }
        TimeZone::Unknown
    }
}

impl DateStyle {
    /// Reads the value of the setting DateStyle, such as `ISO, MDY`.
    pub fn from_setting(setting: &str) -> DateStyle {
        let lower = setting.to_ascii_lowercase();
        match lower.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            ["iso", "mdy"] => DateStyle::IsoMdy,
            ["iso", "dmy"] => DateStyle::IsoDmy,
            ["iso", "ymd"] => DateStyle::IsoYmd,
            _ => DateStyle::Unknown,
        }
    }

    pub fn is_iso(self) -> bool {
        self != DateStyle::Unknown
    }
}

impl Collation {
    /// A collation that SQL names. Those that every server brings are deterministic; of one that somebody created
    /// nothing is known but its name.
    pub fn named(name: &str) -> Collation {
        Collation::from_name(name, is_predefined(name))
    }

    /// From the name of a collation and whether it is deterministic.
    pub fn from_name(name: &str, deterministic: bool) -> Collation {
        match name {
            // C.UTF-8 is by code point, in glibc, musl and PostgreSQL's own provider: the order of UTF-8 bytes.
            "C" | "POSIX" | "ucs_basic" | "C.UTF-8" | "C.utf8" | "pg_c_utf8" => Collation::Bytes,
            _ if deterministic => Collation::Deterministic,
            _ => Collation::Nondeterministic,
        }
    }
}

/// `und-x-icu`, `de_DE`, `de_DE.utf8`, `unicode`: names of the operating system's and of ICU's locales.
fn is_predefined(name: &str) -> bool {
    if matches!(name, "unicode" | "pg_unicode_fast") || name.ends_with("-x-icu") {
        return true;
    }
    let (language, rest) = name.split_at(name.find(['_', '.', '@']).unwrap_or(name.len()));
    let country = rest
        .strip_prefix('_')
        .map_or("XX", |rest| rest.split(['.', '@']).next().unwrap_or(""));
    !rest.is_empty()
        && (2..=3).contains(&language.len())
        && language.chars().all(|c| c.is_ascii_lowercase())
        && country.len() == 2
        && country.chars().all(|c| c.is_ascii_uppercase())
}
