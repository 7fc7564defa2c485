//! Queries whose answer is taken in parts: cursors of SQL, and portals of the protocol with a row limit.
//!
//! In: the expectation of the whole query, run on the snapshot that the portal keeps, and what was fetched so
//! far. Out: the expectation of one fetch, and the portal afterwards.
//!
//! Always true:
//!   - the rows of a portal are those of its snapshot, whatever its transaction writes later;
//!   - a row that was fetched stays at its place: fetched again, it is the same row;
//!   - where the whole answer is not certain, only what every fetch must have in common is checked.

use super::expect::{Expect, ExpectedRow, Group, Rows, Tag};
use crate::control::Control;
use crate::sql::plan::FetchDirection;
use crate::trace::{Outcome, Parameter};
use crate::value::compare::same;
use crate::value::{Collation, Value, decode};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a portal is called. A portal of the protocol is known by what was bound to it.
#[derive(Clone, Debug, PartialEq)]
pub enum PortalName {
    Cursor(String),
    Bound(Arc<str>, Vec<Parameter>),
}

/// One FETCH or MOVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub direction: FetchDirection,
    pub count: i64,
    pub is_move: bool,
}

/// The open portals of one session.
#[derive(Clone, Debug, Default)]
pub struct Portals {
    open: Vec<(PortalName, Arc<Portal>)>,
    /// Counts portals, to tell those that are younger than a savepoint.
    born: u64,
    savepoints: Vec<(String, u64)>,
}

/// One open portal.
#[derive(Clone, Debug)]
pub struct Portal {
    hold: bool,
    born: u64,
    rows: Known,
    /// How many rows lie before the place where the next fetch goes on, plus one when beyond the last row.
    at: usize,
    /// Errors and values are those of the query as a whole.
    whole: Expect,
    reasons: Vec<String>,
}

#[derive(Clone, Debug)]
enum Known {
    /// How many rows there are and which ones, up to ties.
    Exactly(Places),
    /// Rows that may come; `true` until something was fetched.
    Loosely {
        fresh: bool,
    },
    Nothing(String),
}

/// Every place of an answer: the tie that it belongs to, and the row that was seen there.
#[derive(Clone, Debug)]
struct Places {
    ties: Vec<Vec<ExpectedRow>>,
    places: Vec<(usize, Option<Vec<Value>>)>,
}

impl Portals {
    pub fn get(&self, name: &PortalName) -> Option<&Arc<Portal>> {
        self.open
            .iter()
            .rev()
            .find(|(other, _)| other == name)
            .map(|(_, portal)| portal)
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.savepoints.is_empty()
    }

    pub fn open(&mut self, name: PortalName, mut portal: Portal) {
        // Two portals with the same query and parameters cannot be told apart.
        let twin = matches!(name, PortalName::Bound(..)) && self.get(&name).is_some();
        self.close(Some(&name));
        self.born += 1;
        portal.born = self.born;
        if twin {
            portal.rows = Known::Nothing("two_portals".to_owned());
        }
        self.open.push((name, Arc::new(portal)));
    }

    fn replace(&mut self, name: &PortalName, portal: Portal) {
        if let Some((_, old)) = self.open.iter_mut().find(|(other, _)| other == name) {
            *old = Arc::new(portal);
        }
    }

    /// `None`: all of them.
    pub fn close(&mut self, name: Option<&PortalName>) {
        self.open
            .retain(|(other, _)| name.is_some_and(|name| other != name));
    }

    /// Savepoints: what was opened after one is gone when it is rolled back; positions stay.
    pub fn control(&mut self, control: &Control) {
        let place =
            |savepoints: &[(String, u64)], name: &str| savepoints.iter().rposition(|(n, _)| n == name);
        match control {
            Control::Savepoint(name) => self.savepoints.push((name.clone(), self.born)),
            Control::RollbackTo(name) => {
                if let Some(at) = place(&self.savepoints, name) {
                    let born = self.savepoints[at].1;
                    self.savepoints.truncate(at + 1);
                    self.open.retain(|(_, portal)| portal.born <= born);
                } else {
                    // It is older than every portal.
                    self.open.clear();
                }
            }
            Control::Release(name) => {
                if let Some(at) = place(&self.savepoints, name) {
                    self.savepoints.truncate(at);
                }
            }
            _ => {}
        }
    }

    /// What is still open after the transaction's end. Of one that was rolled back, what was open `before` it.
    pub fn end(&self, committed: bool, before: &Portals) -> Portals {
        let mut kept = self.clone();
        kept.savepoints.clear();
        kept.open.retain(|(_, portal)| match committed {
            true => portal.hold,
            false => portal.born <= before.born,
        });
        kept
    }

    /// Follows a fetch that was answered.
    pub fn fetched(&mut self, name: &PortalName, fetch: Fetch, outcome: &Outcome) {
        let Some(portal) = self.get(name) else { return };
        let mut portal = (**portal).clone();
        match outcome {
            Outcome::Answer(answer) => portal.follow(fetch, answer),
            _ => portal.rows = Known::Nothing("failed_fetch".to_owned()),
        }
        self.replace(name, portal);
    }
}

impl Portal {
    /// A portal over a query that was run on the portal's snapshot.
    pub fn new(hold: bool, whole: Expect, reasons: Vec<String>) -> Portal {
        let rows = match (&whole.rows, &whole.anything) {
            (_, Some(reason)) => Known::Nothing(reason.clone()),
            _ if !whole.success => Known::Nothing("error_in_cursor".to_owned()),
            (None, None) => Known::Nothing("no_rows".to_owned()),
            (Some(rows), None) => match Places::of(rows) {
                Some(places) => Known::Exactly(places),
                None => Known::Loosely { fresh: true },
            },
        };
        Portal {
            hold,
            born: 0,
            rows,
            at: 0,
            whole,
            reasons,
        }
    }

    /// Nothing is known of what it answers.
    pub fn unknown(hold: bool, reason: &str, whole: Expect) -> Portal {
        Portal {
            rows: Known::Nothing(reason.to_owned()),
            ..Portal::new(hold, whole, Vec::new())
        }
    }

    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Which answers to this fetch are right.
    pub fn fetch(&self, fetch: Fetch, command: &'static str) -> Expect {
        let mut expect = self.whole.clone();
        expect.in_parts = true;
        match &self.rows {
            Known::Nothing(reason) => return Expect::anything(reason.clone(), expect.context),
            Known::Exactly(places) => {
                let (taken, _) = places.walk(self.at, fetch);
                let count = taken.len() as u64;
                expect.tag = Some(Tag::exactly(command, count));
                expect.rows = (!fetch.is_move).then(|| places.rows(&taken, self.whole.rows.as_ref()));
            }
            Known::Loosely { fresh } => {
                let forward = fetch.direction == FetchDirection::Forward && fetch.count > 0;
                if !forward || fetch.is_move {
                    return Expect::anything("cursor_over_unknown", expect.context);
                }
                expect.tag = None;
                if let Some(rows) = &mut expect.rows {
                    let whole = *fresh && fetch.count == i64::MAX;
                    if !whole {
                        let limit = fetch.count as u64;
                        rows.limit = Some(rows.limit.map_or(limit, |other| other.min(limit)));
                    }
                    rows.opening = None;
                    for row in rows.groups.iter_mut().flat_map(|group| &mut group.rows) {
                        row.certain &= whole;
                        row.sources.clear();
                    }
                }
            }
        }
        expect
    }

    /// Moves on as the answer says.
    fn follow(&mut self, fetch: Fetch, answer: &crate::trace::Answer) {
        if answer.cut.is_some() {
            self.rows = Known::Nothing("cut_answer".to_owned());
        }
        let types = self.whole.rows.as_ref().map(|rows| rows.types.clone());
        match &mut self.rows {
            Known::Nothing(_) => {}
            Known::Loosely { fresh } => {
                *fresh = false;
                if fetch.is_move || fetch.direction != FetchDirection::Forward || fetch.count < 0 {
                    self.rows = Known::Nothing("cursor_over_unknown".to_owned());
                }
            }
            Known::Exactly(places) => {
                let (taken, at) = places.walk(self.at, fetch);
                self.at = at;
                if fetch.is_move {
                    return;
                }
                for (place, cells) in taken.iter().zip(&answer.rows) {
                    let described = cells.iter().zip(answer.columns.iter());
                    let typed = described.zip(types.iter().flat_map(|types| types.iter()));
                    let values: Vec<Value> = typed
                        .map(|((cell, column), expected)| {
                            let oid = if column.type_oid == 0 {
                                *expected
                            } else {
                                column.type_oid
                            };
                            decode(oid, column.format, cell.as_deref(), &self.whole.context)
                        })
                        .collect();
                    places.see(*place, values);
                }
            }
        }
    }
}

impl Places {
    /// `None`: not every row is certain.
    fn of(rows: &Rows) -> Option<Places> {
        let certain = |group: &Group| group.rows.iter().all(|row| row.certain);
        if rows.open || rows.limit.is_some() || !rows.groups.iter().all(certain) {
            return None;
        }
        let mut places = Vec::new();
        let mut ties = Vec::new();
        for group in &rows.groups {
            let count = group.take.map_or(group.rows.len(), |take| take as usize);
            places.extend(std::iter::repeat_n((ties.len(), None), count));
            // What a fetch shows is the state of the portal's snapshot: nothing is learned from it of now.
            let without_sources = |row: &ExpectedRow| ExpectedRow {
                sources: SmallVec::new(),
                ..row.clone()
            };
            ties.push(group.rows.iter().map(without_sources).collect());
        }
        Some(Places { ties, places })
    }

    /// The places that a fetch from `at` goes over, in its order, and where it ends.
    ///
    /// Source: PostgreSQL manual, FETCH; `DoPortalRunFetch` in pquery.c.
    fn walk(&self, at: usize, fetch: Fetch) -> (Vec<usize>, usize) {
        let total = self.places.len() as i64;
        let at = at as i64;
        let single = |wanted: i64| {
            let found = wanted >= 1 && wanted <= total;
            let end = wanted.clamp(0, total + 1);
            let taken = if found {
                vec![wanted as usize - 1]
            } else {
                Vec::new()
            };
            (taken, end as usize)
        };
        let forward = |count: i64| {
            let end = at.saturating_add(count);
            let taken = (at..end.min(total)).map(|place| place as usize).collect();
            (taken, end.min(total + 1) as usize)
        };
        let backward = |count: i64| {
            let end = at.saturating_sub(count);
            let taken = (end.max(1)..at.min(total + 1)).rev();
            let taken = taken.map(|place| place as usize - 1).collect();
            (taken, end.max(0) as usize)
        };
        match (fetch.direction, fetch.count) {
            (FetchDirection::Forward | FetchDirection::Backward, 0) => single(at),
            (FetchDirection::Forward, count) if count > 0 => forward(count),
            (FetchDirection::Forward, count) => backward(count.saturating_neg()),
            (FetchDirection::Backward, count) if count > 0 => backward(count),
            (FetchDirection::Backward, count) => forward(count.saturating_neg()),
            (FetchDirection::Absolute, count) if count >= 0 => single(count),
            (FetchDirection::Absolute, count) => single((total + 1).saturating_add(count)),
            (FetchDirection::Relative, count) => single(at.saturating_add(count)),
        }
    }

    /// What these places may hold.
    fn rows(&self, taken: &[usize], whole: Option<&Rows>) -> Rows {
        let mut groups: Vec<Group> = Vec::new();
        // The tie that the last group was made of.
        let mut last: Option<usize> = None;
        for place in taken {
            let (tie, seen) = &self.places[*place];
            match seen {
                Some(values) => {
                    last = None;
                    groups.push(Group {
                        rows: vec![ExpectedRow {
                            values: values.clone(),
                            certain: true,
                            sources: SmallVec::new(),
                        }],
                        take: None,
                    });
                }
                None => match (last == Some(*tie)).then(|| groups.last_mut()).flatten() {
                    Some(group) => group.take = group.take.map(|take| take + 1),
                    None => {
                        last = Some(*tie);
                        groups.push(Group {
                            rows: self.ties[*tie].clone(),
                            take: Some(1),
                        });
                    }
                },
            }
        }
        let (types, names) = whole.map_or_else(Default::default, |w| (w.types.clone(), w.names.clone()));
        Rows {
            groups,
            types,
            names,
            ..Rows::default()
        }
    }

    /// This row was answered at this place: no other place has it, where it is clear which one it was.
    fn see(&mut self, place: usize, values: Vec<Value>) {
        let (tie, seen) = &mut self.places[place];
        if seen.is_some() {
            return;
        }
        let rows = &mut self.ties[*tie];
        let agrees = |row: &ExpectedRow| {
            row.values
                .iter()
                .zip(&values)
                .all(|(one, other)| same(one, other, Collation::Bytes) != Some(false))
        };
        let known = |row: &ExpectedRow| !row.values.iter().any(Value::has_unknown);
        let partners: Vec<usize> = (0..rows.len()).filter(|at| agrees(&rows[*at])).collect();
        if partners.len() == 1 || partners.iter().all(|at| known(&rows[*at])) {
            if let Some(first) = partners.first() {
                rows.remove(*first);
            }
        }
        *seen = Some(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize) -> Places {
        Places {
            ties: vec![Vec::new()],
            places: vec![(0, None); count],
        }
    }

    #[test]
    fn a_cursor_walks_as_the_server_does() {
        let walk = |at, direction, count| {
            places(3).walk(
                at,
                Fetch {
                    direction,
                    count,
                    is_move: false,
                },
            )
        };
        use FetchDirection::{Absolute, Backward, Forward, Relative};
        assert_eq!(walk(0, Forward, 2), (vec![0, 1], 2));
        assert_eq!(walk(2, Forward, 5), (vec![2], 4));
        assert_eq!(walk(4, Backward, 1), (vec![2], 3));
        assert_eq!(walk(3, Backward, i64::MAX), (vec![1, 0], 0));
        assert_eq!(walk(0, Forward, i64::MAX), (vec![0, 1, 2], 4));
        assert_eq!(walk(0, Absolute, -1), (vec![2], 3));
        assert_eq!(walk(1, Relative, 2), (vec![2], 3));
        assert_eq!(walk(3, Relative, 2), (vec![], 4));
        assert_eq!(walk(2, Forward, 0), (vec![1], 2));
        assert_eq!(walk(0, Forward, 0), (vec![], 0));
        assert_eq!(walk(4, Forward, 1), (vec![], 4));
    }
}
