//! What is known of a table's rows, what is in doubt, and what had to be guessed.
//!
//! In: what commits, answers and losses say about keys and about the whole table, each with its instant. Out: for a
//! snapshot, whether it finds every row with a key, or every row; and whether what it shows can be relied on.
//!
//! Always true: a doubt ends at an instant, and snapshots from before it are still in doubt; a table with too many
//! doubts is known in part only.

use super::Table;
use crate::state::view::Knowledge;
use crate::state::{Row, RowId};
use crate::trace::Nanos;
use crate::value::{Key, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Nobody knows which rows have a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// Snapshots from before this cannot clear it up.
    until: Nanos,
    /// Snapshots from after this know it again.
    healed: Nanos,
}

impl Doubt {
    /// Whether a snapshot taken at `sent` or later is still in doubt.
    fn is_open(&self, sent: Nanos) -> bool {
        sent <= self.healed
    }
}

/// Keys that are in doubt, by the columns that they are keys in.
pub(super) type Doubts = FxHashMap<Box<[usize]>, FxHashMap<Vec<Key>, Doubt>>;

/// Keys of a partial table that are known, by the columns that they are keys in, and since when.
pub(super) type Known = FxHashMap<Box<[usize]>, FxHashMap<Vec<Key>, Nanos>>;

/// Something had to be guessed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guess {
    until: Nanos,
    /// The same, of which rows there are; what was guessed later is only what is in them.
    moved_until: Nanos,
}

impl Guess {
    /// Whether a snapshot taken at `sent` or later may have found other rows there.
    fn is_moved(&self, sent: Nanos) -> bool {
        self.moved_until > 0 && sent <= self.moved_until
    }
}

/// Keys under which something had to be guessed, by the columns that they are keys in.
pub(super) type Guesses = FxHashMap<Box<[usize]>, FxHashMap<Vec<Key>, Guess>>;

/// Keys of a table that may be in doubt before all of it is.
const DOUBTS_MAX: usize = 10_000;

/// Keys of a partial table that are remembered as known.
const KNOWN_MAX: usize = 100_000;

impl Table {
    /// Every row with this key is known from `since` on, says a snapshot taken at `from` or later.
    pub fn know(&mut self, columns: &[usize], key: &[Value], from: Nanos, since: Nanos) {
        let key = as_key(key);
        match self.doubtful.get(columns).and_then(|keys| keys.get(&key)) {
            Some(doubt) if from <= doubt.until => return,
            Some(_) => self.heal(columns, &key, since),
            None => {}
        }
        // A row whose key is in doubt may have anything in its other columns.
        let mut elsewhere = self.doubtful.iter().filter(|(of, _)| ***of != *columns);
        if self.knowledge == Knowledge::Complete
            || elsewhere.any(|(_, keys)| keys.values().any(|doubt| from <= doubt.until))
        {
            return;
        }
        if self.known.values().map(FxHashMap::len).sum::<usize>() >= KNOWN_MAX {
            self.known = Arc::default();
            // What went since an older snapshot is forgotten with it.
            self.unsettle(since);
        }
        if self
            .known
            .get(columns)
            .is_none_or(|keys| !keys.contains_key(&key))
        {
            let known = Arc::make_mut(&mut self.known);
            known.entry(columns.into()).or_default().insert(key, since);
        }
    }

    /// There is no row with this key from `at` on; what snapshots from before that show is no news.
    pub fn left(&mut self, columns: &[usize], key: &[Value], at: Nanos) {
        self.distrust_key(columns, key, at);
        self.know(columns, key, Nanos::MAX, at);
    }

    /// Snapshots from before `at` may have found a row with this key or none; of later ones as much is known as before.
    pub fn blur_key(&mut self, columns: &[usize], key: &[Value], at: Nanos) {
        let key = as_key(key);
        if let Some(since) = self.known.get(columns).and_then(|keys| keys.get(&key))
            && *since < at
        {
            let known = Arc::make_mut(&mut self.known).get_mut(columns);
            known.and_then(|keys| keys.insert(key.clone(), at));
        }
        self.doubt_key(columns, key, at, at);
    }

    /// Whoever came after `at` knows again which rows have this key.
    pub fn cleared(&mut self, columns: &[usize], key: &[Value], at: Nanos) {
        if !self.doubtful.is_empty() {
            self.heal(columns, &as_key(key), at);
        }
    }

    fn heal(&mut self, columns: &[usize], key: &Vec<Key>, at: Nanos) {
        let keys = Arc::make_mut(&mut self.doubtful).get_mut(columns);
        if let Some(doubt) = keys.and_then(|keys| keys.get_mut(key)) {
            doubt.healed = doubt.healed.min(at);
        }
    }

    /// Nobody knows which rows have this key; what snapshots from before `until` show does not tell either.
    pub fn distrust(&mut self, columns: &[usize], key: &[Value], until: Nanos) {
        // They may have anything in their other columns.
        if self.known.keys().any(|of| **of != *columns) {
            Arc::make_mut(&mut self.known).retain(|of, _| **of == *columns);
        }
        self.distrust_key(columns, key, until);
    }

    fn distrust_key(&mut self, columns: &[usize], key: &[Value], until: Nanos) {
        // Whoever wrote it before may have become visible only later.
        let until = until.max(self.busy_until);
        let key = as_key(key);
        if self
            .known
            .get(columns)
            .is_some_and(|keys| keys.contains_key(&key))
        {
            let known = Arc::make_mut(&mut self.known).get_mut(columns);
            known.and_then(|keys| keys.remove(&key));
        }
        self.doubt_key(columns, key, until, Nanos::MAX);
    }

    fn doubt_key(&mut self, columns: &[usize], key: Vec<Key>, until: Nanos, healed: Nanos) {
        self.disturb(until);
        let keys = Arc::make_mut(&mut self.doubtful)
            .entry(columns.into())
            .or_default();
        let doubt = keys.entry(key).or_insert(Doubt { until, healed });
        doubt.until = doubt.until.max(until);
        doubt.healed = doubt.healed.max(healed);
        if keys.len() > DOUBTS_MAX {
            // Little of it is known any more; what is left is not worth asking for every time.
            self.unsettle(until);
            self.forget();
        }
    }

    /// Whether a snapshot taken at `from` may be too early to clear up what is in doubt about this key.
    pub fn is_too_early(&self, columns: &[usize], key: &[Value], from: Nanos) -> bool {
        if self.doubtful.is_empty() {
            return false;
        }
        let doubt = self.doubtful.get(columns).and_then(|keys| keys.get(&as_key(key)));
        doubt.is_some_and(|doubt| from <= doubt.until)
    }

    /// As little is known as in another copy of the table.
    pub fn share_doubts(&mut self, other: &Table) {
        let doubtful = match Arc::ptr_eq(&self.doubtful, &other.doubtful) {
            true => None,
            false => Some(other.doubtful.iter()),
        };
        for (columns, keys) in doubtful.into_iter().flatten() {
            for (key, theirs) in keys {
                let own = Arc::make_mut(&mut self.doubtful)
                    .entry(columns.clone())
                    .or_default();
                let own = own.entry(key.clone()).or_insert(*theirs);
                own.until = own.until.max(theirs.until);
                own.healed = own.healed.max(theirs.healed);
            }
        }
        if !Arc::ptr_eq(&self.known, &other.known) && !self.known.is_empty() {
            for (columns, keys) in Arc::make_mut(&mut self.known) {
                let theirs = other.known.get(columns);
                keys.retain(|key, since| match theirs.and_then(|theirs| theirs.get(key)) {
                    Some(theirs) => {
                        *since = (*since).max(*theirs);
                        true
                    }
                    None => false,
                });
            }
        }
        self.unstable_until = self.unstable_until.max(other.unstable_until);
        self.disturbed_until = self.disturbed_until.max(other.disturbed_until);
        self.busy_until = self.busy_until.max(other.busy_until);
        self.guess(other.guessed_until);
        for (columns, keys) in other.guessed.iter() {
            for (key, guess) in keys {
                self.guess_key(columns, key.clone(), *guess);
            }
        }
        self.blurred_until = self.blurred_until.max(other.blurred_until);
        self.whole_since = self.whole_since.max(other.whole_since);
    }

    /// Whether as much is known as in another copy of the table, for snapshots that are still to be taken.
    pub fn is_as_known(&self, other: &Table) -> bool {
        self.knowledge == other.knowledge
            && self.unstable_until == other.unstable_until
            && (Arc::ptr_eq(&self.doubtful, &other.doubtful) || self.open_doubts() == other.open_doubts())
            && (Arc::ptr_eq(&self.known, &other.known) || self.known_keys() == other.known_keys())
    }

    fn open_doubts(&self) -> FxHashMap<(&[usize], &[Key]), Nanos> {
        let all = self.doubtful.iter();
        let all = all.flat_map(|(columns, keys)| keys.iter().map(move |(key, doubt)| (columns, key, doubt)));
        all.filter(|(.., doubt)| doubt.is_open(Nanos::MAX))
            .map(|(columns, key, doubt)| ((&**columns, &**key), doubt.until))
            .collect()
    }

    fn known_keys(&self) -> FxHashSet<(&[usize], &[Key])> {
        let all = self.known.iter();
        all.flat_map(|(columns, keys)| keys.keys().map(|key| (&**columns, &**key)))
            .collect()
    }

    /// Every row that a snapshot taken at `since` or before could see is kept, or its key is in doubt.
    pub fn complete(&mut self, since: Nanos) {
        self.knowledge = Knowledge::Complete;
        self.known = Arc::default();
        self.whole_since = since;
    }

    /// Whether a commit sent at `sent` may be part of what was read as a whole.
    pub fn may_contain(&self, sent: Nanos) -> bool {
        self.whole_since > 0 && sent <= self.whole_since
    }

    /// Keys in these columns that are in doubt, and that a snapshot taken at `from` may clear up.
    pub fn doubts(&self, columns: &[usize], from: Nanos) -> Vec<Vec<Value>> {
        let keys = self.doubtful.get(columns).into_iter().flatten();
        keys.filter(|(_, doubt)| doubt.is_open(Nanos::MAX) && doubt.until < from)
            .map(|(key, _)| key.iter().map(|k| k.0.clone()).collect())
            .collect()
    }

    /// Since when this key is known, in a table that is not known as a whole.
    pub fn known_since(&self, columns: &[usize], key: &[Value]) -> Option<Nanos> {
        self.known.get(columns)?.get(&as_key(key)).copied()
    }

    /// Every row of it went: nothing is in doubt for snapshots from after `at`.
    pub fn emptied(&mut self, at: Nanos) {
        self.knowledge = Knowledge::Complete;
        for keys in Arc::make_mut(&mut self.doubtful).values_mut() {
            for doubt in keys.values_mut() {
                doubt.healed = doubt.healed.min(at);
            }
        }
    }

    /// Forgets doubts that no snapshot from `horizon` on has.
    pub fn clear_up(&mut self, horizon: Nanos) {
        self.chains.repack(horizon);
        for until in [&mut self.blurred_until, &mut self.whole_since] {
            if *until < horizon {
                *until = 0;
            }
        }
        if self
            .guessed
            .values()
            .any(|keys| keys.values().any(|guess| guess.until < horizon))
        {
            let guessed = Arc::make_mut(&mut self.guessed);
            for keys in guessed.values_mut() {
                keys.retain(|_, guess| guess.until >= horizon);
            }
            guessed.retain(|_, keys| !keys.is_empty());
        }
        let is_over = |doubt: &Doubt| doubt.healed < horizon && doubt.until < horizon;
        if !self.doubtful.values().any(|keys| keys.values().any(is_over)) {
            return;
        }
        let doubtful = Arc::make_mut(&mut self.doubtful);
        for keys in doubtful.values_mut() {
            keys.retain(|_, doubt| !is_over(doubt));
        }
        doubtful.retain(|_, keys| !keys.is_empty());
    }

    /// What a scan by a snapshot taken at `sent` or later can rely on.
    pub fn scanned_at(&self, sent: Nanos) -> Knowledge {
        let early = sent <= self.blurred_until.max(self.whole_since);
        let blurred = early && self.blurred_until.max(self.whole_since) > 0;
        let doubts = || {
            self.doubtful
                .values()
                .any(|keys| keys.values().any(|d| d.is_open(sent)))
        };
        if blurred || doubts() {
            Knowledge::Partial
        } else {
            self.knowledge
        }
    }

    /// Whether a snapshot taken at `sent` or later may have found rows of which only the newest version is kept.
    pub fn is_blurred(&self, sent: Nanos) -> bool {
        self.blurred_until > 0 && sent <= self.blurred_until
    }

    /// Whether nothing about it was ever in doubt.
    pub fn is_certain(&self) -> bool {
        self.knowledge == Knowledge::Complete
            && self.doubtful.is_empty()
            && self.blurred_until.max(self.whole_since) == 0
    }

    /// What a scan can rely on from now on.
    pub fn scanned(&self) -> Knowledge {
        self.scanned_at(Nanos::MAX)
    }

    /// What was written until then had to be guessed.
    pub fn guess(&mut self, until: Nanos) {
        self.guessed_until = self.guessed_until.max(until);
    }

    /// The same, of the rows with this key: which there are, if they `moved`, or only what is in them.
    pub fn guess_at(&mut self, columns: &[usize], key: &[Value], until: Nanos, moved: bool) {
        let moved_until = if moved { until } else { 0 };
        self.guess_key(columns, as_key(key), Guess { until, moved_until });
    }

    fn guess_key(&mut self, columns: &[usize], key: Vec<Key>, guess: Guess) {
        let guessed = Arc::make_mut(&mut self.guessed);
        let known = guessed.entry(columns.into()).or_default().entry(key).or_default();
        known.until = known.until.max(guess.until);
        known.moved_until = known.moved_until.max(guess.moved_until);
    }

    /// Whether what a snapshot taken at `sent` or later finds anywhere may have been guessed.
    pub fn is_guessed(&self, sent: Nanos) -> bool {
        let is_open = |guess: &Guess| sent <= guess.until;
        self.is_all_guessed(sent) || self.guessed.values().any(|keys| keys.values().any(is_open))
    }

    /// Whether what it finds among the rows that it `may_find` may have been: those `at` a key, if it looks for one. Rows have
    /// so many cells, if that is known.
    pub fn is_guessed_among(
        &self,
        at: Option<(&[usize], &[Value])>,
        may_find: impl Fn(&Row) -> bool,
        width: Option<usize>,
        sent: Nanos,
    ) -> bool {
        let is_open = |guess: &Guess| sent <= guess.until;
        let is_met = |of: &[usize], key: &[Key], guess: &Guess| {
            is_open(guess) && self.shows(of, key, guess.is_moved(sent), width, &may_find)
        };
        self.is_all_guessed(sent)
            || self.guessed.iter().any(|(of, keys)| match at {
                Some((columns, key)) if **of == *columns => keys.get(&as_key(key)).is_some_and(is_open),
                _ => keys.iter().any(|(key, guess)| is_met(of, key, guess)),
            })
    }

    /// Whether one of the rows with this key is such that somebody `may_find` it; where it was guessed which rows there are,
    /// it may have anything in its other cells.
    fn shows(
        &self,
        columns: &[usize],
        key: &[Key],
        moved: bool,
        width: Option<usize>,
        may_find: impl Fn(&Row) -> bool,
    ) -> bool {
        let values: Vec<Value> = key.iter().map(|k| k.0.clone()).collect();
        let ids = self.candidates(columns, &values);
        if !moved && !ids.is_empty() {
            let chains = ids.iter().filter_map(|id| self.chain(*id));
            let mut rows = chains.flat_map(|c| &c.versions).filter_map(|v| v.row.as_ref());
            return rows.any(may_find);
        }
        let Some(width) = width else {
            return true;
        };
        let mut cells = vec![Value::Unknown; width];
        for (column, value) in columns.iter().zip(values) {
            cells[*column] = value;
        }
        may_find(&cells.into())
    }

    /// Whether it may have been guessed which rows it finds there.
    pub fn is_row_guessed_at(&self, columns: &[usize], key: &[Value], sent: Nanos) -> bool {
        let is_open = |guess: &Guess| guess.is_moved(sent);
        self.is_all_guessed(sent)
            || self.guessed.iter().any(|(of, keys)| match **of == *columns {
                true => keys.get(&as_key(key)).is_some_and(is_open),
                false => keys.values().any(is_open),
            })
    }

    fn is_all_guessed(&self, sent: Nanos) -> bool {
        self.guessed_until > 0 && sent <= self.guessed_until
    }

    /// Something unknown happened to any of its rows before `until`: what snapshots from before that show is not
    /// learned.
    pub fn unsettle(&mut self, until: Nanos) {
        self.unstable_until = self.unstable_until.max(until);
        self.disturb(until);
    }

    /// Nothing unknown happens after `at`.
    pub fn settle(&mut self, at: Nanos) {
        self.unstable_until = self.unstable_until.min(at);
        self.disturbed_until = self.disturbed_until.min(at);
    }

    /// A commit wrote it, and became visible until `done`.
    pub fn written(&mut self, done: Nanos) {
        self.busy_until = self.busy_until.max(done);
    }

    /// Whether whoever has written it was visible before `from`.
    pub fn is_still(&self, from: Nanos) -> bool {
        self.busy_until < from
    }

    /// Something unknown happened to one of its rows before `until`.
    pub fn disturb(&mut self, until: Nanos) {
        self.disturbed_until = self.disturbed_until.max(until);
    }

    /// The same, to this one.
    pub fn unsettle_row(&mut self, id: RowId, until: Nanos) {
        self.disturb(until);
        if self.chain(id).is_some() {
            let chain = self.chains.get_mut(id.0 as usize);
            chain.unsettled_until = chain.unsettled_until.max(until);
        }
    }

    /// Whether what a snapshot taken at `from` shows of single rows can be learned.
    pub fn is_settled(&self, from: Nanos) -> bool {
        from > self.unstable_until
    }

    /// Whether what it shows of many rows can be.
    pub fn is_quiet(&self, from: Nanos) -> bool {
        from > self.disturbed_until
    }

    /// Rows that nobody has seen were written: no key is known any more.
    pub fn doubt(&mut self) {
        self.known = Arc::default();
    }

    /// Whether a snapshot taken after `at` finds every row with this key.
    pub fn knows(&self, columns: &[usize], key: &[Value], at: Nanos) -> bool {
        if self.knowledge == Knowledge::Complete && self.whole_since > 0 && at <= self.whole_since {
            return false;
        }
        if self.doubtful.is_empty() && self.knowledge == Knowledge::Complete {
            return true;
        }
        if self.doubtful.is_empty() && self.known.is_empty() {
            return false;
        }
        let key = as_key(key);
        if self.knowledge == Knowledge::Complete {
            // A row whose key is in doubt may have anything in its other columns.
            return !self.doubtful.iter().any(|(of, keys)| match **of == *columns {
                true => keys.get(&key).is_some_and(|d| d.is_open(at)),
                false => keys.values().any(|d| d.is_open(at)),
            });
        }
        let since = self.known.get(columns).and_then(|keys| keys.get(&key));
        since.is_some_and(|since| *since < at)
    }
}

fn as_key(values: &[Value]) -> Vec<Key> {
    values.iter().cloned().map(Key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: i32) -> [Value; 1] {
        [Value::Int4(number)]
    }

    #[test]
    fn a_row_of_a_doubtful_key_may_have_anything_in_its_other_columns() {
        let mut table = Table::new(Knowledge::Partial);
        table.know(&[0], &key(7), 10, 20);
        table.know(&[2], &key(1), 10, 20);
        assert!(table.knows(&[2], &key(1), 30));
        table.distrust(&[0], &key(6), 50);
        assert!(!table.knows(&[2], &key(1), 90) && table.knows(&[0], &key(7), 90));
        table.know(&[2], &key(1), 50, 60);
        assert!(!table.knows(&[2], &key(1), 90), "that snapshot was too early");
        table.know(&[2], &key(1), 60, 70);
        assert!(table.knows(&[2], &key(1), 90));
        table.left(&[0], &key(7), 95);
        assert!(table.knows(&[2], &key(1), 96), "nothing came");
    }

    #[test]
    fn a_doubt_ends_at_an_instant() {
        let mut table = Table::new(Knowledge::Complete);
        table.distrust(&[0], &key(1), 50);
        assert!(!table.knows(&[0], &key(1), 90) && table.knows(&[0], &key(2), 90));
        assert_eq!(table.scanned_at(90), Knowledge::Partial);
        table.know(&[0], &key(1), 50, 70);
        assert!(!table.knows(&[0], &key(1), 90), "that snapshot was too early");
        table.know(&[0], &key(1), 60, 70);
        assert!(table.knows(&[0], &key(1), 71));
        assert!(
            !table.knows(&[0], &key(1), 70),
            "an older snapshot is still in doubt"
        );
        assert_eq!(table.scanned_at(71), Knowledge::Complete);
        table.clear_up(100);
        assert!(table.is_certain());
    }

    #[test]
    fn a_table_is_forgotten_until_its_writers_are_visible() {
        let mut table = Table::new(Knowledge::Complete);
        table.written(80);
        table.forget();
        assert!(!table.is_settled(80) && table.is_settled(81));
    }

    #[test]
    fn a_table_full_of_doubts_is_forgotten() {
        let mut table = Table::new(Knowledge::Complete);
        for number in 0..=DOUBTS_MAX as i32 {
            table.distrust(&[0], &key(number), 50);
        }
        assert_eq!(table.knowledge, Knowledge::Partial);
        assert!(!table.is_settled(50) && table.is_settled(51));
    }
}
