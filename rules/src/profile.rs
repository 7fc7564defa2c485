//! What a database promises at each isolation level, read from TOML.
//!
//! In: the text of a profile (three are built in: `postgres`, `postgres-standby`, `paper`).
//! Out: [`Profile`], and per [`Level`] its [`LevelRules`]: a few primitive rules that the audit consults where
//! it places snapshot and commit points.
//!
//! Always true:
//!   - a profile that parses is complete: every level in it has every rule, spelled out;
//!   - an unknown key or word is an error that names its place and the nearest known name;
//!   - a level that is not in the profile does not exist in that database.
//!
//! Example. `[levels.repeatable-read]` with `read_point = "transaction"` and `real_time = "strict"`: one
//! snapshot point per transaction, somewhere inside the window of its first statement.

use crate::Level;
use crate::nearest::nearest;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The profiles that are built in, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("postgres", include_str!("../profiles/postgres.toml")),
    (
        "postgres-standby",
        include_str!("../profiles/postgres-standby.toml"),
    ),
    ("paper", include_str!("../profiles/paper.toml")),
];

/// What one kind of database promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub description: String,
    pub commit_timestamps: CommitTimestamps,
    pub commit_order: CommitOrder,
    levels: BTreeMap<Level, LevelRules>,
}

/// What one level promises, composed of primitives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRules {
    pub read_point: ReadPoint,
    pub real_time: RealTime,
    pub writes: Writes,
    /// ME: of two transactions that wrote the same row, one ended before the other wrote.
    pub mutual_exclusion: bool,
    /// INT: a transaction agrees with its own earlier writes, and with its earlier reads of one snapshot.
    pub internal: bool,
    pub serial_order: SerialOrder,
    pub participants: Participants,
    pub aborted_reads: AbortedReads,
}

/// Declares an enum whose variants have one spelling in TOML each.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every spelling, in the order of the reference page.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            fn of(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }
    };
}

words! {
    /// How many snapshot points a transaction has.
    ReadPoint {
        /// One per statement.
        Statement = "statement",
        /// One for all its statements.
        Transaction = "transaction",
        /// One per key read: any committed state will do for each.
        Key = "key",
    }
}

words! {
    /// Where a snapshot point may lie.
    RealTime {
        /// Inside the window of the statement that took it.
        Strict = "strict",
        /// Anywhere before the end of that window.
        AnyEarlier = "any-earlier",
    }
}

words! {
    /// What happens when a row to be written was changed after the snapshot.
    Writes {
        /// EvalPlanQual: wait, re-check the WHERE on the newest version, write from that version.
        EvalPlanQual = "epq",
        /// FUW: wait; if the other committed, fail.
        FirstUpdaterWins = "first-updater-wins",
        /// NWC: a key that was observably changed since the snapshot is not overwritten.
        NoWriteConflict = "no-write-conflict",
        /// Every write is refused (a standby).
        Refused = "refused",
        /// Nothing is promised.
        Any = "any",
    }
}

words! {
    /// Whether one order of the transactions must explain all answers.
    SerialOrder {
        None = "none",
        /// SC: some order.
        Any = "any",
        /// An order in which what ended before the other began comes first.
        RealTime = "real-time",
    }
}

words! {
    /// Which transactions take part in the serial order.
    Participants {
        /// Only those of this level.
        SameLevel = "same-level",
        All = "all",
    }
}

words! {
    /// What a transaction that aborted may have read.
    AbortedReads {
        /// The same as one that committed.
        Snapshot = "snapshot",
        Anything = "anything",
    }
}

words! {
    /// What commit timestamps are worth, where they are known.
    CommitTimestamps {
        /// They order the search and forbid nothing.
        Hint = "hint",
        /// Transactions became visible in their order.
        Authoritative = "authoritative",
    }
}

words! {
    /// In which order commits become visible to readers.
    CommitOrder {
        /// The one that is observed on the primary.
        Visibility = "visibility",
        /// That of the write-ahead log, which may differ for overlapping commits.
        Wal = "wal",
    }
}

/// A condition over state identifiers: figure 6 of «Checking Observational Correctness of Database Systems».
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitTest {
    /// RMR: every read is of one given, most recent state.
    ReadMostRecent,
    /// ROS: all reads are of one state.
    ReadOneSnapshot,
    /// ROV: reads of one key agree.
    ReadOneValue,
    /// NFR: no read is of a state after the own commit.
    NoFutureReads,
    /// NWC: what was changed since the state that was read is not overwritten.
    NoWriteConflict,
}

impl LevelRules {
    /// Whether a serial order is promised.
    pub fn is_serial(&self) -> bool {
        self.serial_order != SerialOrder::None
    }

    /// Whether the serial order respects real time: what ended before the other began comes first.
    pub fn is_in_real_time(&self) -> bool {
        self.serial_order == SerialOrder::RealTime
    }

    /// Whether a serial order is all that is promised: what is read is the state before the own commit, so that a snapshot
    /// at the start of the transaction is one way to do it, and locks on what was read are another.
    pub fn is_serial_alone(&self) -> bool {
        self.is_serial() && self.writes == Writes::Any
    }

    /// Whether what is read may be older than what was there.
    pub fn may_read_older(&self) -> bool {
        self.real_time == RealTime::AnyEarlier || self.is_serial_alone()
    }

    /// The commit tests that these primitives amount to.
    pub fn commit_tests(&self) -> Vec<CommitTest> {
        let one_state = self.is_serial()
            || (self.read_point == ReadPoint::Transaction && self.real_time == RealTime::Strict);
        let mut tests = Vec::new();
        if one_state {
            tests.push(CommitTest::ReadMostRecent);
        } else {
            if self.read_point == ReadPoint::Transaction {
                tests.push(CommitTest::ReadOneSnapshot);
            }
            tests.push(CommitTest::NoFutureReads);
        }
        if matches!(self.writes, Writes::FirstUpdaterWins | Writes::NoWriteConflict) {
            tests.push(CommitTest::NoWriteConflict);
        }
        tests
    }
}

/// A profile that cannot be used, and where the trouble is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("profile «{profile}», {place}: {what}")]
pub struct ProfileError {
    pub profile: String,
    /// `[levels.serializable]`, `key «writes» of [levels.serializable]` …
    pub place: String,
    pub what: String,
}

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A built-in profile.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Profile::from_toml(name, text),
            None => Err(ProfileError {
                profile: name.to_owned(),
                place: "by name".to_owned(),
                what: format!(
                    "there is no built-in profile of this name{}",
                    hint(name, Profile::names())
                ),
            }),
        }
    }

    /// A profile of one's own: `name` is how errors call it, `text` its TOML.
    pub fn from_toml(name: &str, text: &str) -> Result<Profile, ProfileError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| ProfileError {
            profile: name.to_owned(),
            place: "as TOML".to_owned(),
            what: error.to_string().trim_end().to_owned(),
        })?;
        let top = Section {
            profile: name,
            place: "at the top".to_owned(),
            table: &table,
        };
        top.only(&["description", "commit_timestamps", "commit_order", "levels"])?;
        Ok(Profile {
            name: name.to_owned(),
            description: top.string("description")?.to_owned(),
            commit_timestamps: top.word(
                "commit_timestamps",
                CommitTimestamps::of,
                CommitTimestamps::WORDS,
            )?,
            commit_order: top.word("commit_order", CommitOrder::of, CommitOrder::WORDS)?,
            levels: read_levels(&top)?,
        })
    }

    /// What the level promises; `None` when this database does not have it.
    pub fn level(&self, level: Level) -> Option<&LevelRules> {
        self.levels.get(&level)
    }

    /// The levels of this database, weakest spelling first.
    pub fn levels(&self) -> impl Iterator<Item = (Level, &LevelRules)> {
        self.levels.iter().map(|(level, rules)| (*level, rules))
    }
}

fn read_levels(top: &Section<'_>) -> Result<BTreeMap<Level, LevelRules>, ProfileError> {
    let Value::Table(levels) = top.value("levels")? else {
        return Err(top.error_at(
            "levels",
            "must be a table: write [levels.NAME] for each level".to_owned(),
        ));
    };
    let mut read = BTreeMap::new();
    for (name, value) in levels {
        let place = format!("[levels.{name}]");
        // The canonical spelling only: two spellings of one level would be two tables.
        let Some(level) = Level::ALL.into_iter().find(|level| level.name() == name) else {
            let what = format!(
                "there is no such isolation level{}",
                hint(name, Level::ALL.map(Level::name))
            );
            return Err(ProfileError {
                profile: top.profile.to_owned(),
                place,
                what,
            });
        };
        let Value::Table(table) = value else {
            let what = "must be a table of rules".to_owned();
            return Err(ProfileError {
                profile: top.profile.to_owned(),
                place,
                what,
            });
        };
        read.insert(
            level,
            read_level(&Section {
                profile: top.profile,
                place,
                table,
            })?,
        );
    }
    if read.is_empty() {
        return Err(top.error_at("levels", "names no level at all".to_owned()));
    }
    Ok(read)
}

fn read_level(section: &Section<'_>) -> Result<LevelRules, ProfileError> {
    section.only(&[
        "read_point",
        "real_time",
        "writes",
        "mutual_exclusion",
        "internal",
        "serial_order",
        "participants",
        "aborted_reads",
    ])?;
    let serial_order = section.word("serial_order", SerialOrder::of, SerialOrder::WORDS)?;
    let rules = LevelRules {
        read_point: section.word("read_point", ReadPoint::of, ReadPoint::WORDS)?,
        real_time: section.word("real_time", RealTime::of, RealTime::WORDS)?,
        writes: section.word("writes", Writes::of, Writes::WORDS)?,
        mutual_exclusion: section.boolean("mutual_exclusion")?,
        internal: section.boolean("internal")?,
        serial_order,
        // Without a serial order nobody takes part in it, and the key would only mislead.
        participants: match serial_order {
            SerialOrder::None if section.table.contains_key("participants") => {
                let what = "has no meaning where serial_order is \"none\": remove it".to_owned();
                return Err(section.error_at("participants", what));
            }
            SerialOrder::None => Participants::All,
            _ => section.word("participants", Participants::of, Participants::WORDS)?,
        },
        aborted_reads: section.word("aborted_reads", AbortedReads::of, AbortedReads::WORDS)?,
    };
    if rules.is_serial() && rules.read_point != ReadPoint::Transaction {
        let what = "must be \"transaction\" where there is a serial order".to_owned();
        return Err(section.error_at("read_point", what));
    }
    if rules.writes == Writes::FirstUpdaterWins && rules.read_point != ReadPoint::Transaction {
        let what = "\"first-updater-wins\" compares with the snapshot of the transaction: it needs read_point = \"transaction\"".to_owned();
        return Err(section.error_at("writes", what));
    }
    Ok(rules)
}

/// A table of the file, and what errors need to say about it.
struct Section<'a> {
    profile: &'a str,
    place: String,
    table: &'a Table,
}

impl Section<'_> {
    fn only(&self, known: &[&'static str]) -> Result<(), ProfileError> {
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let hint = hint(key, known.iter().copied());
                Err(self.error_at(key, format!("there is no such key{hint}")))
            }
        }
    }

    fn value(&self, key: &str) -> Result<&Value, ProfileError> {
        self.table
            .get(key)
            .ok_or_else(|| self.error_at(key, "is missing".to_owned()))
    }

    fn string(&self, key: &str) -> Result<&str, ProfileError> {
        let value = self.value(key)?;
        value
            .as_str()
            .ok_or_else(|| self.error_at(key, format!("must be a string, not {}", value.type_str())))
    }

    fn boolean(&self, key: &str) -> Result<bool, ProfileError> {
        let value = self.value(key)?;
        value
            .as_bool()
            .ok_or_else(|| self.error_at(key, format!("must be true or false, not {}", value.type_str())))
    }

    fn word<T>(
        &self,
        key: &str,
        of: fn(&str) -> Option<T>,
        words: &'static [&'static str],
    ) -> Result<T, ProfileError> {
        let word = self.string(key)?;
        of(word).ok_or_else(|| {
            let hint = hint(word, words.iter().copied());
            self.error_at(key, format!("«{word}» is none of {}{hint}", words.join(", ")))
        })
    }

    fn error_at(&self, key: &str, what: String) -> ProfileError {
        ProfileError {
            profile: self.profile.to_owned(),
            place: format!("key «{key}» {}", self.where_is_it()),
            what,
        }
    }

    fn where_is_it(&self) -> String {
        if self.place.starts_with('[') {
            format!("of {}", self.place)
        } else {
            self.place.clone()
        }
    }
}

fn hint(word: &str, known: impl IntoIterator<Item = &'static str>) -> String {
    let known: Vec<&'static str> = known.into_iter().collect();
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("; did you mean «{near}»?"),
        None => format!("; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_reads() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(profile.name, name);
            assert!(profile.levels().count() > 0);
        }
    }

    #[test]
    fn postgres_levels_are_composed_as_designed() {
        let profile = Profile::named("postgres").unwrap();
        let read_committed = profile.level(Level::ReadCommitted).unwrap();
        assert_eq!(read_committed.read_point, ReadPoint::Statement);
        assert_eq!(read_committed.writes, Writes::EvalPlanQual);
        let repeatable_read = profile.level(Level::RepeatableRead).unwrap();
        assert_eq!(repeatable_read.read_point, ReadPoint::Transaction);
        assert_eq!(repeatable_read.writes, Writes::FirstUpdaterWins);
        assert_eq!(repeatable_read.serial_order, SerialOrder::None);
        let serializable = profile.level(Level::Serializable).unwrap();
        assert_eq!(serializable.serial_order, SerialOrder::Any);
        assert_eq!(serializable.participants, Participants::SameLevel);
        assert_eq!(profile.level(Level::StrictS), None);
    }

    /// Section 6.2 of the paper, level by level.
    #[test]
    fn the_papers_levels_amount_to_the_papers_commit_tests() {
        use CommitTest::*;
        let profile = Profile::named("paper").unwrap();
        let tests = |level| profile.level(level).unwrap().commit_tests();
        assert_eq!(tests(Level::Rc), [NoFutureReads]);
        assert_eq!(
            tests(Level::Si),
            [ReadOneSnapshot, NoFutureReads, NoWriteConflict]
        );
        assert_eq!(tests(Level::StrictSi), [ReadMostRecent, NoWriteConflict]);
        assert_eq!(tests(Level::S), [ReadMostRecent]);
        assert_eq!(tests(Level::StrictS), [ReadMostRecent]);
    }

    #[test]
    fn a_standby_has_no_serializable_and_takes_no_writes() {
        let profile = Profile::named("postgres-standby").unwrap();
        assert_eq!(profile.level(Level::Serializable), None);
        assert!(profile.levels().all(|(_, rules)| rules.writes == Writes::Refused));
    }

    /// The `postgres` profile with one line replaced.
    fn broken(from: &str, to: &str) -> String {
        let (_, text) = BUILT_IN[0];
        assert!(text.contains(from), "«{from}» is not in the profile any more");
        Profile::from_toml("mine", &text.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn errors_name_the_place_and_the_nearest_name() {
        assert_eq!(
            broken("read_point = \"statement\"", "read_pont = \"statement\""),
            "profile «mine», key «read_pont» of [levels.read-committed]: there is no such key; did you mean «read_point»?"
        );
        assert_eq!(
            broken(
                "writes = \"first-updater-wins\"",
                "writes = \"first-updater-win\""
            ),
            "profile «mine», key «writes» of [levels.repeatable-read]: «first-updater-win» is none of epq, first-updater-wins, no-write-conflict, refused, any; did you mean «first-updater-wins»?"
        );
        assert_eq!(
            broken("[levels.serializable]", "[levels.serialisable]"),
            "profile «mine», [levels.serialisable]: there is no such isolation level; did you mean «serializable»?"
        );
        assert_eq!(
            broken("commit_order = \"visibility\"", ""),
            "profile «mine», key «commit_order» at the top: is missing"
        );
        assert_eq!(
            broken("mutual_exclusion = true", "mutual_exclusion = \"yes\""),
            "profile «mine», key «mutual_exclusion» of [levels.read-committed]: must be true or false, not string"
        );
        assert_eq!(
            Profile::named("postgrs").unwrap_err().to_string(),
            "profile «postgrs», by name: there is no built-in profile of this name; did you mean «postgres»?"
        );
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(broken("serial_order = \"none\"", "serial_order = \"any\"").contains("participants"));
        assert!(broken("writes = \"epq\"", "writes = \"first-updater-wins\"").contains("read_point"));
        assert!(broken("[levels.read-committed]", "[levels").contains("as TOML"));
    }
}
