//! The state that a case starts from, and the state as it is while the case is played.
//!
//! Always true: versions made by members of the case are not in the base; a version that is neither in
//! the base nor made by a member is a *stray*: its writer belongs to the case, too.

use crate::points::order::Commit;
use crate::points::{CommitId, Order};
use crate::state::overlay::{OWN, Overlay};
use crate::state::store::{Chain, Store};
use crate::state::view::{Focus, Knowledge, has_key};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::Nanos;
use crate::value::Value;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Ids of rows that members of the case inserted.
pub const CASE: u64 = 1 << 61;

/// What members of a case have committed so far, on top of the base.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pub rows: BTreeMap<(TableId, RowId), Option<Row>>,
    pub truncated: BTreeSet<TableId>,
    pub havoc: BTreeSet<TableId>,
    pub havoc_everything: bool,
    pub catalog: Option<Arc<Catalog>>,
    /// The state before the last commit, where there was one.
    before: Option<Rc<Delta>>,
    next: u64,
}

impl Delta {
    /// Commits what a member wrote.
    pub fn commit(&mut self, own: &Overlay) {
        self.havoc_everything |= own.havoc_everything.is_some();
        if let Some(catalog) = &own.catalog {
            self.catalog = Some(catalog.clone());
        }
        for (table, written) in &own.tables {
            if written.havoc.is_some() {
                self.havoc.insert(*table);
                continue;
            }
            if written.truncated {
                self.truncated.insert(*table);
                self.rows.retain(|(t, _), _| t != table);
            }
            for (id, replaced) in &written.replaced {
                self.rows.insert((*table, *id), replaced.row.clone());
            }
            for row in written.inserted.values() {
                self.rows
                    .insert((*table, RowId(CASE | self.next)), Some(row.clone()));
                self.next += 1;
            }
        }
    }

    /// The state after what a member wrote was committed.
    pub fn then(self: &Rc<Delta>, own: &Overlay) -> Delta {
        let mut next = (**self).clone();
        next.before = Some(self.clone());
        next.commit(own);
        next
    }

    /// This state and all that there were before it, newest first.
    pub fn and_before(&self) -> impl Iterator<Item = &Delta> {
        std::iter::successors(Some(self), |state| state.before.as_deref())
    }

    /// A row as it is in this state.
    pub fn version(&self, base: &Base<'_>, table: TableId, id: RowId) -> Option<Row> {
        if let Some(row) = self.rows.get(&(table, id)) {
            return row.clone();
        }
        if self.truncated.contains(&table) {
            return None;
        }
        let chain = base.store.tables.get(&table).and_then(|t| t.chain(id))?;
        base.visible(chain).cloned()
    }

    /// Leaves out what a member wrote: rows of others keep their ids.
    pub fn skip(&mut self, own: &Overlay) {
        let inserted = own.tables.values().filter(|t| t.havoc.is_none());
        self.next += inserted.map(|t| t.inserted.len() as u64).sum::<u64>();
    }
}

/// The store with the members' own versions taken out, as it was before `start`.
pub struct Base<'a> {
    pub store: &'a Store,
    pub order: &'a Order,
    pub members: Vec<CommitId>,
    pub start: Nanos,
    /// Writers that had ended before `start` are members, too, where nothing but answers says which of them came last.
    pub is_deep: bool,
    /// Commits that were stumbled upon and are not members.
    pub strays: RefCell<BTreeSet<CommitId>>,
}

impl Base<'_> {
    fn visible<'c>(&self, chain: &'c Chain) -> Option<&'c Row> {
        for (at, version) in chain.versions.iter().enumerate().rev() {
            if self.members.contains(&version.commit) {
                continue;
            }
            if version.since >= self.start && version.since > 0 {
                match at.checked_sub(1).is_some_and(|below| chain.versions[below].vague) {
                    true => continue,
                    false => return None,
                }
            }
            if version.commit < self.order.settled() {
                return version.row.as_ref();
            }
            match self.order.get(version.commit) {
                // As observed: what answers say about it is for the case to find out.
                Some(commit) if commit.observed.done >= self.start => {
                    self.strays.borrow_mut().insert(version.commit);
                }
                Some(commit) if self.is_deep && self.has_rivals(chain, version.commit, commit) => {
                    self.strays.borrow_mut().insert(version.commit);
                }
                _ => return version.row.as_ref(),
            }
        }
        None
    }

    /// Whether somebody else wrote a row at the same time as the last who is known to have written it.
    fn has_rivals(&self, chain: &Chain, last: CommitId, commit: &Commit) -> bool {
        let mut others = chain.versions.iter().filter(|version| version.commit != last);
        others.any(|version| {
            let other = self.order.get(version.commit);
            other.is_some_and(|other| other.observed.overlaps(commit.observed))
        })
    }
}

/// The state as one statement of a member sees it.
pub struct CaseView<'a> {
    pub base: &'a Base<'a>,
    pub delta: &'a Delta,
    pub own: &'a Overlay,
    /// Whose view it is.
    pub me: Me,
    /// The later instants of the statement, if it has any.
    pub instants: Option<Instants<'a>>,
}

/// What the statements of a routine see, one after the other.
pub struct Instants<'a> {
    /// As far as they have been taken.
    pub taken: &'a [Rc<Delta>],
    pub nth: Cell<u32>,
    /// The first that was asked for and is not taken, or 0: what comes behind it is not what happened.
    pub wanted: Cell<u32>,
    /// Rows that were written.
    pub held: RefCell<BTreeSet<(TableId, RowId)>>,
}

impl<'a> Instants<'a> {
    pub fn new(taken: &'a [Rc<Delta>]) -> Instants<'a> {
        Instants {
            taken,
            nth: Cell::default(),
            wanted: Cell::default(),
            held: RefCell::default(),
        }
    }
}

/// Who looks.
#[derive(Clone, Copy, Debug)]
pub enum Me {
    /// Nobody comes in between.
    Alone,
    /// One of several, and what it committed, where that is kept.
    OneOfMany(Option<CommitId>),
}

impl CaseView<'_> {
    /// What is committed at the instant in focus.
    fn delta(&self) -> &Delta {
        let Some(instants) = &self.instants else {
            return self.delta;
        };
        let nth = instants.nth.get();
        match nth.checked_sub(1) {
            None => self.delta,
            Some(place) => {
                if place as usize >= instants.taken.len() && instants.wanted.get() == 0 {
                    instants.wanted.set(nth);
                }
                let last = instants.taken.get(place as usize).or(instants.taken.last());
                last.map_or(self.delta, |delta| delta)
            }
        }
    }

    fn is_havoc(&self, table: TableId) -> bool {
        self.delta().havoc_everything
            || self.delta().havoc.contains(&table)
            || self.own.havoc_everything.is_some()
            || self.own.table(table).is_some_and(|o| o.havoc.is_some())
    }

    fn is_created(&self, table: TableId) -> bool {
        (self.own.catalog.is_some() || self.delta().catalog.is_some())
            && self.base.store.catalog.table(table).is_none()
    }

    /// Every visible row, in order of id.
    pub(super) fn rows(&self, table: TableId, wanted: Option<(&[usize], &[Value])>) -> Vec<(RowId, Row)> {
        let mut rows: BTreeMap<RowId, Row> = BTreeMap::new();
        let own = self.own.table(table);
        let emptied = own.is_some_and(|o| o.truncated);
        if !emptied {
            if let Some(kept) = self.base.store.tables.get(&table)
                && !self.delta().truncated.contains(&table)
            {
                let mut take = |id: RowId, chain: &Chain| {
                    if let Some(row) = self.base.visible(chain) {
                        rows.insert(id, row.clone());
                    }
                };
                match wanted {
                    Some((columns, key)) => {
                        for id in kept.candidates(columns, key) {
                            if let Some(chain) = kept.chain(id) {
                                take(id, chain);
                            }
                        }
                    }
                    None => kept.chains().for_each(|(id, chain)| take(id, chain)),
                }
            }
            let from = (table, RowId(0));
            for ((_, id), row) in self
                .delta()
                .rows
                .range(from..)
                .take_while(|((t, _), _)| *t == table)
            {
                match row {
                    Some(row) => rows.insert(*id, row.clone()),
                    None => rows.remove(id),
                };
            }
        }
        if let Some(own) = own {
            for (id, replaced) in &own.replaced {
                match &replaced.row {
                    Some(row) => rows.insert(*id, row.clone()),
                    None => rows.remove(id),
                };
            }
            rows.extend(own.inserted.iter().map(|(id, row)| (*id, row.clone())));
        }
        let all = rows.into_iter();
        all.filter(|(_, row)| wanted.is_none_or(|(columns, key)| has_key(row, columns, key)))
            .collect()
    }
}

impl View for CaseView<'_> {
    fn catalog(&self) -> &Catalog {
        let changed = self.own.catalog.as_deref().or(self.delta().catalog.as_deref());
        changed.unwrap_or(&self.base.store.catalog)
    }

    fn focus(&self, focus: Focus) -> Focus {
        let before = self.instants.as_ref().map(|i| i.nth.replace(focus.nth));
        Focus {
            nth: before.unwrap_or(0),
            ..Focus::default()
        }
    }

    fn claimed(&self, table: TableId, id: RowId) {
        if let Some(instants) = &self.instants
            && instants.nth.get() as usize <= instants.taken.len()
        {
            instants.held.borrow_mut().insert((table, id));
        }
    }

    fn has_written(&self, table: TableId) -> bool {
        self.own.has_written(table)
    }

    fn knowledge(&self, table: TableId) -> Knowledge {
        if self.is_havoc(table) {
            return Knowledge::Partial;
        }
        if self.is_created(table)
            || self.delta().truncated.contains(&table)
            || self.own.table(table).is_some_and(|o| o.truncated)
        {
            return Knowledge::Complete;
        }
        self.base
            .store
            .tables
            .get(&table)
            .map_or(Knowledge::Partial, |t| t.scanned_at(self.base.start))
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        if self.is_havoc(table) {
            return;
        }
        for (id, row) in self.rows(table, None) {
            each(id, &row);
        }
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        if self.is_havoc(table) {
            return false;
        }
        for (id, row) in self.rows(table, Some((columns, key))) {
            each(id, &row);
        }
        let kept = self.base.store.tables.get(&table);
        // A row that was learned later may have been anything when the case began.
        let is_late = |id: &RowId| {
            let chain = kept.and_then(|t| t.chain(*id));
            chain.is_some_and(|c| {
                let late = c
                    .versions
                    .iter()
                    .any(|v| v.since > 0 && v.since >= self.base.start);
                late && !c.versions.iter().any(|v| v.vague)
            })
        };
        self.knowledge(table) == Knowledge::Complete
            || kept.is_some_and(|t| {
                let store = self.base.store;
                store.knows(table, columns, key, self.base.start)
                    && !t.candidates(columns, key).iter().any(is_late)
            })
    }

    fn is_fixed(&self, table: TableId, columns: &[usize], key: &[Value]) -> bool {
        let me = match self.me {
            Me::Alone => return true,
            Me::OneOfMany(None) => return false,
            Me::OneOfMany(Some(me)) => me,
        };
        let Some(kept) = self.base.store.tables.get(&table) else {
            return true;
        };
        let is_other = |commit: CommitId| commit != me && self.base.members.contains(&commit);
        let ids = kept.candidates(columns, key);
        let mut chains = ids.iter().filter_map(|id| kept.chain(*id));
        !chains.any(|chain| chain.versions.iter().any(|v| is_other(v.commit)))
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        let own = self.own.table(table);
        if id.0 & OWN != 0 {
            return own.and_then(|o| o.inserted.get(&id)).cloned();
        }
        if let Some(replaced) = own.and_then(|o| o.replaced.get(&id)) {
            return replaced.row.clone();
        }
        if own.is_some_and(|o| o.truncated) || self.is_havoc(table) {
            return None;
        }
        self.delta().version(self.base, table, id)
    }
}
