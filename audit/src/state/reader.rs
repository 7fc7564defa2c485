//! The state as one statement of one transaction sees it: a [`View`] over the store.
//!
//! In: the store, the order of the commits, the window in which the snapshot was taken, and the
//! transaction's own writes. Out: for every row the version that is visible.
//!
//! Where the windows decide, this is a hash lookup and a comparison of two numbers; where they do not, the
//! [`Chooser`] is asked.

use super::index::Range;
use super::overlay::{OWN, Overlay, OwnTable};
use super::store::{Chain, Store, Table, Version};
use super::view::{Focus, Knowledge, Reached, has_key};
use super::{Catalog, Row, RowId, TableId, View};
use crate::points::{Chooser, CommitId, Order, PointId};
use crate::trace::{Nanos, Outcome, Window};
use crate::value::compare::{identical, total_order};
use crate::value::{Context, Key, Value, decode};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell, RefCell};

pub struct Reader<'a> {
    pub store: &'a Store,
    pub order: &'a Order,
    /// Where the snapshot (or lock) point lies.
    pub window: Window,
    pub point: PointId,
    /// The statement's own window, for rewrites that ignore snapshots.
    pub statement: Window,
    pub own: &'a Overlay,
    /// The transaction's own commit, when it has been applied already: it does not see itself.
    pub hidden: Option<CommitId>,
    pub chooser: &'a RefCell<Chooser>,
    /// Open commits whose versions were read; for the certifier.
    pub providers: RefCell<SmallVec<[CommitId; 8]>>,
    /// A lock point sees the newest version unless something speaks against it.
    pub eager: bool,
    /// The rows of this table that are found by these columns were written: their newest version must have been seen,
    /// if it can have been.
    pub held: Option<(TableId, &'a [usize])>,
    /// What is claimed inside of a routine stays locked: its newest version must have been seen, too.
    pub claims: bool,
    /// The answer that was observed, to guess well.
    pub observed: &'a Outcome,
    pub shown: OnceCell<Option<FxHashSet<Key>>>,
    /// A row was met that may have been anything at the time of the snapshot.
    pub unsure: Cell<bool>,
    /// At which instant of its statement it is looked through, and for what.
    pub focus: RefCell<Focus>,
    /// Rows that were written, and at which instant.
    pub claimed: RefCell<Vec<((TableId, RowId), PointId)>>,
}

impl Reader<'_> {
    /// Whether a commit is seen, where the windows say so.
    fn is_seen(&self, id: CommitId, rewrite: bool) -> Option<bool> {
        if self.hidden == Some(id) {
            return Some(false);
        }
        if id < self.order.settled() {
            return Some(true);
        }
        let Some(commit) = self.order.get(id) else {
            return Some(true);
        };
        let window = self.window_of(rewrite);
        if commit.hi < window.sent {
            return Some(true);
        }
        (commit.lo > window.done).then_some(false)
    }

    fn window_of(&self, rewrite: bool) -> Window {
        if rewrite { self.statement } else { self.window }
    }

    fn sees(&self, id: CommitId, rewrite: bool, must: bool, hint: impl FnOnce() -> Option<bool>) -> bool {
        let window = self.window_of(rewrite);
        let point = self.point.inside(self.focus.borrow().nth);
        let mut chooser = self.chooser.borrow_mut();
        if must {
            return chooser.require(self.order, id, point, window, true);
        }
        chooser.decide(self.order, id, point, window, hint)
    }

    /// Whether nothing that matters tells a version from the one below it.
    fn looks_like(&self, table: TableId, version: &Version, below: Option<&Version>) -> bool {
        let focus = self.focus.borrow();
        let Some((_, columns)) = focus
            .columns
            .as_ref()
            .and_then(|all| all.iter().find(|(t, _)| *t == table))
        else {
            return false;
        };
        let (Some(above), Some(below)) = (&version.row, below.and_then(|b| b.row.as_ref())) else {
            return false;
        };
        !version.rewrite
            && above.len() == below.len()
            && columns.iter().all(|&c| match (above.get(c), below.get(c)) {
                (Some(a), Some(b)) => identical(a, b) == Some(true),
                _ => false,
            })
    }

    /// Whether nothing that is still to come can say that the newest version of a row was not seen at a point.
    fn is_held_for_certain(&self, table: TableId, id: RowId, point: PointId) -> bool {
        let chain = self.table(table).and_then(|t| t.chain(id));
        let newest = chain.and_then(|chain| chain.versions.last());
        newest.is_none_or(|newest| {
            self.is_seen(newest.commit, false)
                .unwrap_or_else(|| self.chooser.borrow().is_seen_by(newest.commit, point))
        })
    }

    /// What was learned from then on need not be what it sees.
    fn known_from(&self, table: TableId) -> Nanos {
        match self.own.table(table) {
            Some(own) if own.unseen => self.window.sent.min(self.own.begun),
            _ => self.window.sent,
        }
    }

    /// The visible version of a chain, `None` if there is none, it is deleted, or was not known then.
    fn visible<'c>(&self, table: TableId, chain: &'c Chain) -> Option<&'c Row> {
        self.newest_visible(table, chain, false, false)
    }

    /// The same; `held`: of a row that was written, so that the newest version must have been seen; `claimed`: of a row
    /// that was written if it was there.
    fn newest_visible<'c>(
        &self,
        table: TableId,
        chain: &'c Chain,
        held: bool,
        claimed: bool,
    ) -> Option<&'c Row> {
        for (at, version) in chain.versions.iter().enumerate().rev() {
            let below = at.checked_sub(1).map(|below| &chain.versions[below]);
            if version.since > 0 && version.since >= self.known_from(table) {
                match below {
                    // Whoever writes it comes after all that is kept of it.
                    Some(below) if below.vague && (held || claimed) => {}
                    Some(below) if below.vague => continue,
                    _ => {
                        self.unsure.set(true);
                        return None;
                    }
                }
            }
            let seen = match self.is_seen(version.commit, version.rewrite) {
                Some(seen) => seen,
                // Whichever it was, the answer is the same.
                None if self.looks_like(table, version, below) => false,
                None => {
                    let stays = version.row.is_some() && below.is_some_and(|b| b.row.is_some());
                    let in_doubt = version.perhaps || self.order.get(version.commit).is_some_and(|c| c.maybe);
                    let must = (held || (claimed && stays)) && !in_doubt;
                    let hint = || self.answer_shows(version, below);
                    self.sees(version.commit, version.rewrite, must, hint)
                }
            };
            if seen {
                if version.commit >= self.order.settled() {
                    let mut providers = self.providers.borrow_mut();
                    if !providers.contains(&version.commit) {
                        providers.push(version.commit);
                    }
                }
                return version.row.as_ref();
            }
        }
        None
    }

    /// Whether the answer that was observed looks more like `newer` (true) than like what is below it: a value
    /// that only one of them has occurs in the answer. A guess, to be tried first.
    fn answer_shows(&self, newer: &Version, below: Option<&Version>) -> Option<bool> {
        if self.eager {
            return Some(true);
        }
        let values = self.shown.get_or_init(|| shown_values(self.observed)).as_ref()?;
        let newer = newer.row.as_deref().unwrap_or(&[]);
        let below = below.and_then(|v| v.row.as_deref()).unwrap_or(&[]);
        let only_in = |row: &[Value], other: &[Value]| {
            row.iter().enumerate().any(|(at, value)| {
                let fresh = other.get(at).is_none_or(|o| Key(o.clone()) != Key(value.clone()));
                fresh && values.contains(&Key(value.clone()))
            })
        };
        match (only_in(newer, below), only_in(below, newer)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Whether no two rows can agree in these columns.
    fn is_unique(&self, table: TableId, columns: &[usize]) -> bool {
        self.catalog().table(table).is_some_and(|t| {
            t.keys.iter().any(|key| {
                let plain =
                    key.predicate.is_none() && key.expressions.iter().all(Option::is_none) && !key.deferrable;
                plain && !key.columns.is_empty() && key.columns.iter().all(|c| columns.contains(c))
            })
        })
    }

    /// Whether the transaction wrote this row, or took it away, before anybody had seen it.
    fn is_claimed(&self, table: TableId, own: &OwnTable, row: &Row) -> bool {
        if own.inserted.is_empty() && own.absent.is_empty() {
            return false;
        }
        if self.table(table).is_none_or(Table::is_certain) {
            return false;
        }
        let Some((columns, key)) = self.store.key_of(table, row) else {
            return false;
        };
        own.inserted.values().any(|mine| has_key(mine, &columns, &key))
            || self.own.is_absent(table, &columns, &key)
    }

    /// Whether this transaction itself created the table, so that every row is known.
    fn is_created(&self, table: TableId) -> bool {
        self.own.catalog.is_some() && self.store.catalog.table(table).is_none()
    }

    fn table(&self, table: TableId) -> Option<&Table> {
        self.store.tables.get(&table)
    }
}

/// Answers with more cells than this are not looked through for hints.
const SHOWN_MAX: usize = 4_096;

fn shown_values(observed: &Outcome) -> Option<FxHashSet<Key>> {
    let Outcome::Answer(answer) = observed else {
        return None;
    };
    if answer.rows.len() * answer.columns.len() > SHOWN_MAX || answer.columns.is_empty() {
        return None;
    }
    let context = Context::defaults();
    let cells = answer
        .rows
        .iter()
        .flat_map(|row| row.iter().zip(answer.columns.iter()));
    let mut shown = FxHashSet::default();
    for (cell, column) in cells {
        let value = decode(column.type_oid, column.format, cell.as_deref(), &context);
        if let Value::Array(array) = &value {
            shown.extend(array.items.iter().cloned().map(Key));
        }
        shown.insert(Key(value));
    }
    Some(shown)
}

fn is_key_known(row: &Row, columns: &[usize]) -> bool {
    columns
        .iter()
        .all(|&column| !matches!(row.get(column), None | Some(Value::Unknown)))
}

impl View for Reader<'_> {
    fn catalog(&self) -> &Catalog {
        self.own.catalog.as_deref().unwrap_or(&self.store.catalog)
    }

    fn focus(&self, focus: Focus) -> Focus {
        self.focus.replace(focus)
    }

    fn claimed(&self, table: TableId, id: RowId) {
        let mut held = self.claimed.borrow_mut();
        if !held.iter().any(|(known, _)| *known == (table, id)) {
            let point = self.point.inside(self.focus.borrow().nth);
            held.push(((table, id), point));
            if !self.is_held_for_certain(table, id, point) {
                self.chooser.borrow_mut().looks_back();
            }
        }
    }

    fn showed(&self, table: TableId, columns: &[usize], key: &[Value]) {
        let Some(kept) = self.table(table) else { return };
        let ids = kept.candidates(columns, key);
        let mut chains = ids.into_iter().filter_map(|id| kept.chain(id));
        let (Some(chain), None) = (chains.next(), chains.next()) else {
            return;
        };
        let has = |version: &&Version| version.row.as_ref().is_some_and(|row| has_key(row, columns, key));
        if let Some(first) = chain.versions.iter().find(has)
            && self.is_seen(first.commit, first.rewrite).is_none()
        {
            self.sees(first.commit, first.rewrite, true, || None);
        }
    }

    fn has_asked(&self) -> bool {
        self.chooser.borrow().has_chosen()
    }

    fn has_come_to(&self, state: u64) -> bool {
        // Where there is one snapshot, whatever was not seen will not be seen.
        self.point != PointId::SNAPSHOT && self.chooser.borrow_mut().has_come_to(state, self.point.step())
    }

    fn sequence(&self, sequence: TableId) -> Option<i64> {
        if let Some(next) = self.own.drawn.next(sequence) {
            return next;
        }
        if self.store.catalog.table(sequence).is_none() {
            // It was made by this transaction: nobody else knows it.
            let made = self.catalog().table(sequence)?;
            return made.sequence?.first();
        }
        self.store.sequences.as_ref()?.get(&sequence).copied()
    }

    fn has_written(&self, table: TableId) -> bool {
        self.own.has_written(table)
    }

    fn is_still(&self, table: TableId) -> bool {
        self.table(table)
            .is_none_or(|kept| kept.is_still(self.window.sent.min(self.statement.sent)))
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        if self.own.havoc_everything.is_some() {
            return Knowledge::Partial;
        }
        if let Some(own) = self.own.table(table) {
            if own.havoc.is_some() {
                return Knowledge::Partial;
            }
            if own.truncated {
                return Knowledge::Complete;
            }
            if own.unseen {
                return Knowledge::Partial;
            }
        }
        if self.is_created(table) {
            return Knowledge::Complete;
        }
        self.table(table)
            .map_or(Knowledge::Partial, |t| t.scanned_at(self.window.sent))
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        let own = self.own.table(table);
        if self.own.havoc_everything.is_some() || own.is_some_and(|o| o.havoc.is_some()) {
            return;
        }
        if let Some(kept) = self.table(table)
            && !own.is_some_and(|o| o.truncated)
        {
            for (id, chain) in kept.chains() {
                match own.and_then(|o| o.replaced.get(&id)) {
                    Some(replaced) => {
                        if let Some(row) = &replaced.row {
                            each(id, row);
                        }
                    }
                    None => {
                        if let Some(row) = self.visible(table, chain)
                            && !own.is_some_and(|o| self.is_claimed(table, o, row))
                        {
                            each(id, row);
                        }
                    }
                }
            }
        }
        for (id, row) in own.into_iter().flat_map(|o| &o.inserted) {
            each(*id, row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        let own = self.own.table(table);
        if self.own.havoc_everything.is_some() || own.is_some_and(|o| o.havoc.is_some()) {
            return false;
        }
        let mut found = false;
        let gone = own.is_some_and(|o| o.truncated) || self.own.is_absent(table, columns, key);
        let mut certain = gone || self.is_created(table);
        if let Some(kept) = self.table(table)
            && !gone
        {
            certain |=
                self.store.knows(table, columns, key, self.window.sent) && !own.is_some_and(|o| o.unseen);
            self.unsure.set(false);
            let held = self.held == Some((table, columns));
            let claimed = self.claims && {
                let focus = self.focus.borrow();
                let claims = focus.claims.as_ref();
                claims.is_some_and(|(of, key)| *of == table && *key == columns)
            };
            for id in kept.candidates(columns, key) {
                let Some(chain) = kept.chain(id) else { continue };
                if own.is_some_and(|o| o.replaced.contains_key(&id)) {
                    continue;
                }
                if let Some(row) = self.newest_visible(table, chain, held, claimed)
                    && !own.is_some_and(|o| self.is_claimed(table, o, row))
                    && has_key(row, columns, key)
                {
                    found |= is_key_known(row, columns);
                    each(id, row);
                }
            }
            certain &= !self.unsure.get();
        }
        if let Some(own) = own {
            let replaced = own
                .replaced
                .iter()
                .filter_map(|(id, r)| r.row.as_ref().map(|row| (*id, row)));
            let inserted = own.inserted.iter().map(|(id, row)| (*id, row));
            for (id, row) in replaced.chain(inserted) {
                if has_key(row, columns, key) {
                    found |= is_key_known(row, columns);
                    each(id, row);
                }
            }
        }
        // Where the key is unique and its row was found, there is no other.
        certain || (found && self.is_unique(table, columns))
    }

    fn range(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        range: &Range,
        each: &mut dyn FnMut(RowId, &Row),
    ) -> Reached {
        let own = self.own.table(table);
        let nowhere = self.own.havoc_everything.is_some() || own.is_some_and(|o| o.havoc.is_some());
        let truncated = own.is_some_and(|o| o.truncated);
        let Some(kept) = self.table(table).filter(|_| !nowhere && !truncated) else {
            let certain = if columns.is_empty() {
                self.scan(table, each);
                self.knowledge(table) == Knowledge::Complete
            } else {
                self.lookup(table, columns, key, each)
            };
            return Reached { certain, last: None };
        };
        let mut certain = self.is_created(table)
            || match columns.is_empty() {
                true => kept.scanned_at(self.window.sent) == Knowledge::Complete,
                false => self.store.knows(table, columns, key, self.window.sent),
            } && !own.is_some_and(|o| o.unseen);
        self.unsure.set(false);
        let (unknown, found, over) = kept.range(columns, key, range);
        let is_own = |id: RowId| own.is_some_and(|o| o.replaced.contains_key(&id));
        for id in unknown.into_iter().filter(|_| !range.goes_on) {
            if let Some(row) = kept
                .chain(id)
                .filter(|_| !is_own(id))
                .and_then(|c| self.visible(table, c))
                .filter(|row| !own.is_some_and(|o| self.is_claimed(table, o, row)))
                && has_key(row, columns, key)
                && (row.get(range.column).is_none_or(Value::is_unknown) || !is_key_known(row, columns))
            {
                each(id, row);
            }
        }
        if let Some(own) = own.filter(|_| !range.goes_on) {
            let replaced = own
                .replaced
                .iter()
                .filter_map(|(id, r)| r.row.as_ref().map(|row| (*id, row)));
            let inserted = own.inserted.iter().map(|(id, row)| (*id, row));
            for (id, row) in replaced.chain(inserted) {
                if has_key(row, columns, key) {
                    each(id, row);
                }
            }
        }
        let last = found.last().map(|(value, _)| value.0.clone());
        for (value, id) in found {
            // Other versions of the row are kept elsewhere: it comes where the visible one is.
            if let Some(row) = kept
                .chain(id)
                .filter(|_| !is_own(id))
                .and_then(|c| self.visible(table, c))
                .filter(|row| !own.is_some_and(|o| self.is_claimed(table, o, row)))
                && row
                    .get(range.column)
                    .is_some_and(|cell| total_order(cell, &value.0).is_eq())
                && has_key(row, columns, key)
            {
                each(id, row);
            }
        }
        certain &= !self.unsure.get();
        Reached {
            certain,
            last: last.filter(|_| !over),
        }
    }

    fn is_fixed(&self, table: TableId, columns: &[usize], key: &[Value]) -> bool {
        let Some(kept) = self.table(table) else {
            return true;
        };
        let overlaps = |id: CommitId| {
            let open = self.order.get(id).filter(|_| id >= self.order.settled());
            open.is_some_and(|c| c.hi >= self.statement.sent && c.lo <= self.statement.done)
        };
        let ids = kept.candidates(columns, key);
        let mut chains = ids.iter().filter_map(|id| kept.chain(*id));
        !chains.any(|chain| chain.versions.iter().any(|v| overlaps(v.commit)))
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        let own = self.own.table(table);
        if id.0 & OWN != 0 {
            return own.and_then(|o| o.inserted.get(&id)).cloned();
        }
        if let Some(replaced) = own.and_then(|o| o.replaced.get(&id)) {
            return replaced.row.clone();
        }
        if own.is_some_and(|o| o.truncated || o.havoc.is_some()) {
            return None;
        }
        self.table(table)
            .and_then(|t| t.chain(id))
            .and_then(|c| self.visible(table, c))
            .cloned()
    }
}
