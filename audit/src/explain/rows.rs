//! Explains an answer row by row, where each of its rows may come from another state.
//!
//! In: a transaction whose answers no single state explains. Out: whether states do that were committed by then, one for each
//! row.
//!
//! Of every row of the table one version is picked: one that gives a row of the answer, or else one that gives none. The
//! statement, run on those that were picked, must give the whole answer.
//!
//! Always true: what is explained is right. What is not may be right all the same, by versions that nobody thought of.

use super::asked::Asked;
use super::session::SessionState;
use super::world::World;
use super::{Accusation, Explainer};
use crate::interpret::{Expect, Heed, Match, Views};
use crate::points::Order;
use crate::state::store::Chain;
use crate::state::view::{Knowledge, has_key};
use crate::state::{Catalog, Row, RowId, TableId, View};
use crate::trace::{Answer, Cells, Nanos, Observation, Outcome};
use crate::value::Value;
use pgassay_rules::profile::{ReadPoint, RealTime};

/// Rows of a table that are looked at.
const ROWS_MAX: usize = 512;

impl Explainer {
    /// Whether every answer of a suspect that reads is right row by row.
    pub fn explains_by_rows(&self, accusation: &Accusation) -> bool {
        let suspect = &accusation.suspect;
        let rules = &suspect.rules;
        let by_key = rules.read_point == ReadPoint::Key && rules.real_time == RealTime::AnyEarlier;
        let Some((world, _)) = accusation.worlds.first().filter(|_| by_key) else {
            return false;
        };
        let attempt = world.run_anyway(&suspect.txn, rules, &suspect.session, &self.planner);
        let reads = attempt.wrote.is_empty() && !attempt.changes_session && attempt.crash.is_none();
        reads
            && !attempt.wrong_steps.is_empty()
            && attempt.wrong_steps.iter().all(|step| {
                let seen = &suspect.txn.steps[*step].seen;
                let asked = Asked::of(&self.planner, &world.store.catalog, seen, &attempt.session);
                is_explained(world, &asked, seen, &attempt.session)
            })
    }
}

fn is_explained(world: &World, asked: &Asked, seen: &Observation, session: &SessionState) -> bool {
    let catalog = &*world.store.catalog;
    let (Some(rows), Outcome::Answer(answer)) = (asked.row_by_row(catalog), &seen.outcome) else {
        return false;
    };
    let Some(kept) = world.store.tables.get(&rows.table) else {
        return false;
    };
    let whole = answer.cut.is_none() && answer.tag.is_some() && kept.knowledge == Knowledge::Complete;
    if !whole || kept.rows_len() > ROWS_MAX || answer.rows.len() > ROWS_MAX {
        return false;
    }
    let expect = |picked: &[(RowId, Row)]| {
        let view = Picked {
            catalog,
            table: rows.table,
            rows: picked,
        };
        asked
            .perform(seen, session, Views::one(&view), Heed::Compared)
            .0
            .expect
    };
    let mut missing: Vec<&Cells> = answer.rows.iter().collect();
    let mut picked: Vec<(RowId, Row)> = Vec::new();
    for (id, chain) in kept.chains() {
        let Some(versions) = versions(chain, &world.order, seen.window.done) else {
            return false;
        };
        let mut is_hidden = false;
        let mut shown = None;
        for version in versions {
            let Some(row) = version else {
                is_hidden = true;
                continue;
            };
            let expected = expect(&[(id, row.clone())]);
            is_hidden |= agrees(&expected, answer, Vec::new());
            let given = |cells: &&Cells| agrees(&expected, answer, vec![(*cells).clone()]);
            if let Some(place) = missing.iter().position(given) {
                shown = Some((place, row));
                break;
            }
        }
        match shown {
            Some((place, row)) => {
                missing.swap_remove(place);
                picked.push((id, row));
            }
            None if is_hidden => {}
            None => return false,
        }
    }
    missing.is_empty() && agrees(&expect(&picked), answer, answer.rows.clone())
}

/// Whether these rows are the whole of what is expected.
fn agrees(expected: &Expect, answer: &Answer, rows: Vec<Cells>) -> bool {
    let tag = Some(format!("SELECT {}", rows.len()));
    let part = Answer {
        rows,
        tag,
        ..answer.clone()
    };
    expected.is_exact() && matches!(expected.compare(&Outcome::Answer(part)), Match::Agrees { .. })
}

/// What a row was like in the states that were committed until then, newest first; `None` if that is not plain.
fn versions(chain: &Chain, order: &Order, until: Nanos) -> Option<Vec<Option<Row>>> {
    let mut all = Vec::new();
    for version in chain.versions.iter().rev() {
        let commit = order.get(version.commit);
        let doubtful = commit.is_some_and(|commit| commit.maybe);
        if doubtful || version.vague || version.perhaps || version.rewrite || version.since > 0 {
            return None;
        }
        if commit.is_none_or(|commit| commit.observed.sent <= until) {
            all.push(version.row.clone());
        }
    }
    let first = chain.versions.first()?;
    if order.get(first.commit).is_some() {
        // Before it was made.
        all.push(None);
    }
    Some(all)
}

/// Some rows of one table, and nothing else.
struct Picked<'a> {
    catalog: &'a Catalog,
    table: TableId,
    rows: &'a [(RowId, Row)],
}

impl View for Picked<'_> {
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    fn knowledge(&self, _table: TableId) -> Knowledge {
        Knowledge::Complete
    }

    fn scan(&self, table: TableId, each: &mut dyn FnMut(RowId, &Row)) {
        let rows = self.rows.iter().filter(|_| table == self.table);
        rows.for_each(|(id, row)| each(*id, row));
    }

    fn lookup(
        &self,
        table: TableId,
        columns: &[usize],
        key: &[Value],
        each: &mut dyn FnMut(RowId, &Row),
    ) -> bool {
        self.scan(table, &mut |id, row| {
            if has_key(row, columns, key) {
                each(id, row);
            }
        });
        true
    }

    fn row(&self, table: TableId, id: RowId) -> Option<Row> {
        let mut rows = self.rows.iter().filter(|_| table == self.table);
        rows.find(|(other, _)| *other == id).map(|(_, row)| row.clone())
    }
}
