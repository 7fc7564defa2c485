//! Is what was answered one of the right answers? And if so, what does it teach?
//!
//! In: an [`Expect`] and the observed outcome. Out: a [`Match`].
//!
//! Always true:
//!   - an answer differs only if no way of pairing its rows with expected rows agrees;
//!   - a cell is learned only where the pairing leaves no choice.

use super::copy::as_rows;
use super::expect::{Expect, ExpectedRow, Group, Rows};
use crate::state::{RowId, TableId};
use crate::trace::{Answer, Outcome, ServerError};
use crate::value::compare::same;
use crate::value::{Collation, Key, Value, decode, encode_text};
use pgassay_rules::{Rule, anomaly};
use rustc_hash::FxHashMap;

/// Rows that a statement itself wrote are named by this bit and the index of the effect.
pub const WRITTEN: u64 = 1 << 63;

/// Pairing rows with unknown cells is quadratic at worst; beyond this many it is not tried.
const PAIRING_MAX: usize = 400;

#[derive(Clone, Debug)]
pub enum Match {
    Agrees { learned: Vec<Learned> },
    Differs(Difference),
    Unknown(String),
}

/// What an answer that agrees says about the state.
#[derive(Clone, Debug)]
pub enum Learned {
    /// An unknown cell of a known row.
    Cell {
        table: TableId,
        row: RowId,
        column: usize,
        value: Value,
    },
    /// An unknown cell of a row that the statement itself wrote: effect number `effect` of its execution.
    Written {
        effect: usize,
        column: usize,
        value: Value,
    },
    /// A never-seen row of a partial table, unknown where it was not selected.
    Row { table: TableId, values: Vec<Value> },
    /// Every row with this key is known now: those known before and those in this answer.
    Absent {
        table: TableId,
        columns: Vec<usize>,
        key: Vec<Value>,
    },
}

/// Why no right answer agrees, as data.
#[derive(Clone, Debug)]
pub struct Difference {
    pub rule: &'static Rule,
    pub observed: String,
    pub expected: String,
}

impl Expect {
    pub fn compare(&self, observed: &Outcome) -> Match {
        if let Some(reason) = &self.anything {
            return Match::Unknown(reason.clone());
        }
        match observed {
            Outcome::Answer(answer) => self.compare_answer(answer),
            Outcome::Error(error) => self.compare_error(error),
            Outcome::Lost => Match::Unknown("lost_answer".to_owned()),
            Outcome::Skipped => Match::Unknown("skipped".to_owned()),
        }
    }

    fn compare_error(&self, error: &ServerError) -> Match {
        let listed = self
            .errors
            .iter()
            .any(|expected| expected.sqlstate == error.sqlstate);
        if listed {
            return Match::Agrees { learned: Vec::new() };
        }
        if is_always_possible(&error.sqlstate) {
            return Match::Agrees { learned: Vec::new() };
        }
        if self.any_error
            || (self.any_data_error && error.sqlstate.starts_with("22"))
            || !is_judged(&error.sqlstate)
        {
            return Match::Unknown(format!("error_{}", error.sqlstate));
        }
        let mut observed = format!("ERROR {}: {}", error.sqlstate, error.message);
        if let Some(detail) = &error.detail {
            observed.push_str(&format!(" ({detail})"));
        }
        let expected = if self.success {
            "success".to_owned()
        } else {
            self.errors_in_words()
        };
        Match::Differs(Difference {
            rule: &anomaly::WRONG_ERROR,
            observed,
            expected,
        })
    }

    fn errors_in_words(&self) -> String {
        let words: Vec<String> = self
            .errors
            .iter()
            .map(|error| format!("ERROR {}: {}", error.sqlstate, error.why))
            .collect();
        words.join(" or ")
    }

    fn compare_answer(&self, answer: &Answer) -> Match {
        if !self.success {
            if self.errors.is_empty() {
                return Match::Unknown("no_right_answer".to_owned());
            }
            let observed = answer.tag.clone().unwrap_or_else(|| "rows".to_owned());
            return Match::Differs(Difference {
                rule: &anomaly::MISSING_ERROR,
                observed,
                expected: self.errors_in_words(),
            });
        }
        let copied = match (&self.copy, &self.rows) {
            (Some(format), Some(rows)) => match as_rows(answer, format, &rows.types) {
                Some(copied) => Some(copied),
                None => return Match::Unknown("copy_data".to_owned()),
            },
            _ => None,
        };
        let rows = match &self.rows {
            Some(rows) => self.compare_rows(rows, copied.as_ref().unwrap_or(answer)),
            None => Match::Agrees { learned: Vec::new() },
        };
        match (rows, self.compare_tag(answer)) {
            (Match::Agrees { learned }, None) => Match::Agrees { learned },
            (Match::Agrees { .. }, Some(difference)) => Match::Differs(difference),
            (other, _) => other,
        }
    }

    fn compare_tag(&self, answer: &Answer) -> Option<Difference> {
        let (expected, observed) = (self.tag.as_ref()?, answer.tag.as_ref()?);
        if !expected.counted {
            return None;
        }
        let count: u64 = observed.rsplit(' ').next()?.parse().ok()?;
        let fits = count >= expected.min && expected.max.is_none_or(|max| count <= max);
        if fits {
            return None;
        }
        let words = match expected.max {
            Some(max) if max == expected.min => format!("{} {max}", expected.command),
            Some(max) => format!("{} {} to {max}", expected.command, expected.min),
            None => format!("{} {} or more", expected.command, expected.min),
        };
        Some(Difference {
            rule: &anomaly::WRONG_COUNT,
            observed: observed.clone(),
            expected: words,
        })
    }

    /// The rows that were observed, as values of the types that are expected; or why nobody can tell.
    pub fn decoded(&self, rows: &Rows, answer: &Answer) -> Result<Vec<Vec<Value>>, &'static str> {
        // A story that a person wrote names no columns for an empty answer, and no types at all.
        let nothing = answer.columns.is_empty() && answer.counts_none();
        if answer.columns.len() != rows.types.len() && !nothing {
            if answer.columns.is_empty() && answer.rows.is_empty() {
                // The rows were not captured (a portal described elsewhere).
                return Err("no_row_description");
            }
            return Err("column_count");
        }
        for (column, expected) in answer.columns.iter().zip(rows.types.iter()) {
            if *expected != 0 && column.type_oid != 0 && column.type_oid != *expected {
                return Err("column_type");
            }
        }
        let row = |cells: &Vec<Option<bytes::Bytes>>| {
            let decoded = cells.iter().zip(answer.columns.iter()).zip(rows.types.iter());
            decoded
                .map(|((cell, column), expected)| {
                    let type_oid = if column.type_oid == 0 {
                        *expected
                    } else {
                        column.type_oid
                    };
                    decode(type_oid, column.format, cell.as_deref(), &self.context)
                })
                .collect()
        };
        Ok(answer.rows.iter().map(row).collect())
    }

    fn compare_rows(&self, rows: &Rows, answer: &Answer) -> Match {
        let observed = match self.decoded(rows, answer) {
            Ok(observed) => observed,
            Err(reason) => return Match::Unknown(reason.to_owned()),
        };
        let suspended = answer.tag.is_none() && !self.in_parts;
        let total = answer.cut.as_ref().map_or(observed.len() as u64, |cut| cut.rows);
        Pairing {
            expect: self,
            rows,
            observed: &observed,
            total,
            whole: answer.cut.is_none() && !suspended,
        }
        .decide()
    }

    fn row_in_words(&self, values: &[Value]) -> String {
        let cells: Vec<String> = values.iter().map(|value| self.cell_in_words(value)).collect();
        format!("({})", cells.join(", "))
    }

    fn cell_in_words(&self, value: &Value) -> String {
        match value {
            Value::Unknown => "?".to_owned(),
            Value::Null => "NULL".to_owned(),
            Value::Text(text) => format!("'{text}'"),
            other => encode_text(other, &self.context).unwrap_or_else(|| format!("{other:?}")),
        }
    }
}

struct Pairing<'a> {
    expect: &'a Expect,
    rows: &'a Rows,
    observed: &'a [Vec<Value>],
    /// How many rows the answer has in all.
    total: u64,
    /// All rows of the answer are in `observed`.
    whole: bool,
}

impl Pairing<'_> {
    fn decide(&self) -> Match {
        let loose = self.rows.open
            || self.rows.limit.is_some()
            || !self.whole
            || self
                .rows
                .groups
                .iter()
                .any(|group| group.rows.iter().any(|row| !row.certain));
        if loose {
            self.decide_loosely()
        } else {
            self.decide_strictly()
        }
    }

    /// Every expected row is certain: the answer is cut into the slices that the groups foretell.
    fn decide_strictly(&self) -> Match {
        let mut learned = Vec::new();
        let mut start = 0;
        let mut fits = true;
        for group in &self.rows.groups {
            let size = group.take.map_or(group.rows.len(), |take| take as usize);
            let Some(slice) = self.observed.get(start..start + size) else {
                fits = false;
                break;
            };
            start += size;
            if slice.is_empty() || is_the_same(group, slice) {
                continue;
            }
            let all: Vec<&ExpectedRow> = group.rows.iter().collect();
            let Some(pairs) = pair(&all, slice) else {
                return Match::Unknown("pairing_budget".to_owned());
            };
            if pairs.iter().any(Option::is_none) {
                fits = false;
                break;
            }
            if group.take.is_none_or(|take| take as usize == group.rows.len()) {
                self.learn(&all, slice, &pairs, &mut learned);
            }
        }
        if fits && start == self.observed.len() {
            return Match::Agrees { learned };
        }
        self.difference()
    }

    /// Rows may be missing or come unforeseen: check each direction alone.
    fn decide_loosely(&self) -> Match {
        let all: Vec<&ExpectedRow> = self.rows.groups.iter().flat_map(|group| &group.rows).collect();
        let mut learned = Vec::new();
        if let Some(limit) = self.rows.limit {
            if self.total > limit {
                return self.differs(
                    &anomaly::EXTRA_ROW,
                    format!("{} rows", self.total),
                    format!("at most {limit} rows"),
                );
            }
        }
        let Some(pairs) = pair(&all, self.observed) else {
            return Match::Unknown("pairing_budget".to_owned());
        };
        if !self.rows.open {
            if let Some(extra) = pairs.iter().position(Option::is_none) {
                return self.extra(extra, &all);
            }
        }
        let complete = self.whole
            && self.rows.limit.is_none()
            && self.rows.groups.iter().all(|group| group.take.is_none());
        if complete {
            let certain: Vec<&ExpectedRow> = all.iter().copied().filter(|row| row.certain).collect();
            let Some(covered) = pair_expected(&certain, self.observed) else {
                return Match::Unknown("pairing_budget".to_owned());
            };
            if let Some(missing) = covered.iter().position(Option::is_none) {
                return self.differs(
                    &anomaly::MISSING_ROW,
                    self.observed_in_words(),
                    format!("a row {}", self.expect.row_in_words(&certain[missing].values)),
                );
            }
            self.learn(&all, self.observed, &pairs, &mut learned);
            self.learn_rows(&pairs, &mut learned);
        }
        Match::Agrees { learned }
    }

    fn learn(
        &self,
        all: &[&ExpectedRow],
        slice: &[Vec<Value>],
        pairs: &[Option<usize>],
        learned: &mut Vec<Learned>,
    ) {
        if self.rows.origins.is_empty() {
            return;
        }
        for (place, pair) in pairs.iter().enumerate() {
            let Some(partner) = *pair else { continue };
            let row = all[partner];
            if !row.values.iter().any(Value::is_unknown) {
                continue;
            }
            // A row that nobody has seen may be meant, unless this one must be in the answer.
            let unambiguous = (row.certain || !self.rows.open)
                && slice.iter().filter(|other| agrees(&row.values, other)).count() == 1
                && all
                    .iter()
                    .filter(|other| agrees(&other.values, &slice[place]))
                    .count()
                    == 1;
            if !unambiguous {
                continue;
            }
            for (column, origin) in self.rows.origins.iter().enumerate() {
                let (Some((source, attribute)), Some(Value::Unknown)) = (origin, row.values.get(column))
                else {
                    continue;
                };
                let value = slice[place][column].clone();
                let Some((table, id)) = row.sources.get(*source as usize).copied() else {
                    continue;
                };
                if value.is_unknown() {
                    continue;
                }
                let column = *attribute as usize;
                learned.push(if id.0 & WRITTEN != 0 {
                    Learned::Written {
                        effect: (id.0 & !WRITTEN) as usize,
                        column,
                        value,
                    }
                } else {
                    Learned::Cell {
                        table,
                        row: id,
                        column,
                        value,
                    }
                });
            }
        }
    }

    /// Rows of a partial table that were never seen before.
    fn learn_rows(&self, pairs: &[Option<usize>], learned: &mut Vec<Learned>) {
        let Some(opening) = &self.rows.opening else { return };
        for (place, pair) in pairs.iter().enumerate() {
            if pair.is_some() {
                continue;
            }
            let mut values = vec![Value::Unknown; opening.width];
            for (column, origin) in self.rows.origins.iter().enumerate() {
                if let Some((0, attribute)) = origin {
                    values[*attribute as usize] = self.observed[place][column].clone();
                }
            }
            for (column, value) in &opening.fixed {
                if values[*column].is_unknown() {
                    values[*column] = value.clone();
                }
            }
            learned.push(Learned::Row {
                table: opening.table,
                values,
            });
        }
        if opening.exact && !opening.fixed.is_empty() {
            learned.push(Learned::Absent {
                table: opening.table,
                columns: opening.fixed.iter().map(|(column, _)| *column).collect(),
                key: opening.fixed.iter().map(|(_, value)| value.clone()).collect(),
            });
        }
    }

    /// A strict comparison failed: what is wrong?
    fn difference(&self) -> Match {
        let all: Vec<&ExpectedRow> = self.rows.groups.iter().flat_map(|group| &group.rows).collect();
        let size = |group: &Group| group.take.map_or(group.rows.len() as u64, |take| take);
        let wanted: u64 = self.rows.groups.iter().map(size).sum();
        let choice = self
            .rows
            .groups
            .iter()
            .any(|group| group.take.is_some_and(|take| take < group.rows.len() as u64));
        let Some(pairs) = pair(&all, self.observed) else {
            return Match::Unknown("pairing_budget".to_owned());
        };
        let extra = pairs.iter().position(Option::is_none);
        let observed = self.observed_in_words();
        let expected = self.expected_in_words();
        let count = self.observed.len() as u64;
        match extra {
            None if count == wanted && !choice && self.rows.groups.len() > 1 => {
                self.differs(&anomaly::WRONG_ORDER, observed, expected)
            }
            None if count < wanted => self.differs(&anomaly::MISSING_ROW, observed, expected),
            None if count > wanted => self.differs(&anomaly::EXTRA_ROW, observed, expected),
            // The right number of rows, each of them possible, but not these of the choice.
            None => self.differs(&anomaly::WRONG_ORDER, observed, expected),
            Some(_) if count == wanted => self.differs(&anomaly::WRONG_VALUE, observed, expected),
            Some(_) if count < wanted => self.differs(&anomaly::MISSING_ROW, observed, expected),
            Some(extra) => self.extra(extra, &all),
        }
    }

    fn extra(&self, extra: usize, all: &[&ExpectedRow]) -> Match {
        let row = &self.observed[extra];
        let repeated = self
            .observed
            .iter()
            .enumerate()
            .any(|(place, other)| place != extra && agrees(other, row));
        let known = all.iter().any(|expected| agrees(&expected.values, row));
        let rule = if repeated && known && all.iter().any(|row| !row.sources.is_empty()) {
            &anomaly::DUPLICATE_KEY
        } else {
            &anomaly::EXTRA_ROW
        };
        self.differs(
            rule,
            format!("a row {}", self.expect.row_in_words(row)),
            self.expected_in_words(),
        )
    }

    fn differs(&self, rule: &'static Rule, observed: String, expected: String) -> Match {
        Match::Differs(Difference {
            rule,
            observed,
            expected,
        })
    }

    fn observed_in_words(&self) -> String {
        in_words(
            self.observed.iter().map(|row| self.expect.row_in_words(row)),
            self.total as usize,
        )
    }

    fn expected_in_words(&self) -> String {
        let all: Vec<&ExpectedRow> = self.rows.groups.iter().flat_map(|group| &group.rows).collect();
        let mut words = in_words(
            all.iter().map(|row| self.expect.row_in_words(&row.values)),
            all.len(),
        );
        if self
            .rows
            .groups
            .iter()
            .any(|group| group.take.is_some_and(|take| take < group.rows.len() as u64))
        {
            let size = |group: &Group| group.take.map_or(group.rows.len() as u64, |take| take);
            let wanted: u64 = self.rows.groups.iter().map(size).sum();
            words = format!("{wanted} of {words}");
        }
        words
    }
}

/// At most eight rows, then how many more.
fn in_words(rows: impl Iterator<Item = String>, total: usize) -> String {
    let shown: Vec<String> = rows.take(8).collect();
    match total {
        0 => "no rows".to_owned(),
        _ if total > shown.len() => format!("{} and {} more", shown.join(", "), total - shown.len()),
        _ => shown.join(", "),
    }
}

/// Row by row the same, and nothing unknown: there is nothing to pair and nothing to learn.
fn is_the_same(group: &Group, slice: &[Vec<Value>]) -> bool {
    let same_row = |expected: &ExpectedRow, observed: &Vec<Value>| {
        expected.values.len() == observed.len()
            && expected
                .values
                .iter()
                .zip(observed)
                .all(|(left, right)| same(left, right, Collation::Bytes) == Some(true))
    };
    group.rows.len() == slice.len()
        && group
            .rows
            .iter()
            .zip(slice)
            .all(|(expected, observed)| same_row(expected, observed))
}

/// Two rows could be the same row.
fn agrees(left: &[Value], right: &[Value]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| same(left, right, Collation::Bytes) != Some(false))
}

/// Pairs every observed row with an expected row of its own, as many as possible. `None`: too many.
fn pair(expected: &[&ExpectedRow], observed: &[Vec<Value>]) -> Option<Vec<Option<usize>>> {
    let mut pairs = vec![None; observed.len()];
    let mut used = vec![false; expected.len()];
    if expected.len().min(observed.len()) > 6 {
        exact_pairs(expected, observed, &mut pairs, &mut used);
    }
    let open_expected: Vec<usize> = (0..expected.len()).filter(|index| !used[*index]).collect();
    let open_observed: Vec<usize> = (0..observed.len())
        .filter(|index| pairs[*index].is_none())
        .collect();
    if open_expected.is_empty() || open_observed.is_empty() {
        return Some(pairs);
    }
    if open_expected.len().min(open_observed.len()) > PAIRING_MAX {
        return None;
    }
    let fits = |left: usize, right: usize| {
        agrees(
            &expected[open_expected[right]].values,
            &observed[open_observed[left]],
        )
    };
    let partners = maximum_matching(open_observed.len(), open_expected.len(), &fits);
    for (place, partner) in partners.into_iter().enumerate() {
        pairs[open_observed[place]] = partner.map(|partner| open_expected[partner]);
    }
    Some(pairs)
}

/// The same from the other side: every expected row with an observed row of its own.
fn pair_expected(expected: &[&ExpectedRow], observed: &[Vec<Value>]) -> Option<Vec<Option<usize>>> {
    let mut pairs = vec![None; observed.len()];
    let mut used = vec![false; expected.len()];
    if expected.len().min(observed.len()) > 6 {
        exact_pairs(expected, observed, &mut pairs, &mut used);
    }
    let mut found: Vec<Option<usize>> = vec![None; expected.len()];
    for (place, partner) in pairs.iter().enumerate() {
        if let Some(partner) = partner {
            found[*partner] = Some(place);
        }
    }
    let open_expected: Vec<usize> = (0..expected.len()).filter(|index| !used[*index]).collect();
    let open_observed: Vec<usize> = (0..observed.len())
        .filter(|index| pairs[*index].is_none())
        .collect();
    if open_expected.is_empty() {
        return Some(found);
    }
    if open_expected.len().min(open_observed.len()) > PAIRING_MAX {
        return None;
    }
    let fits = |left: usize, right: usize| {
        agrees(
            &expected[open_expected[left]].values,
            &observed[open_observed[right]],
        )
    };
    for (place, partner) in maximum_matching(open_expected.len(), open_observed.len(), &fits)
        .into_iter()
        .enumerate()
    {
        found[open_expected[place]] = partner.map(|partner| open_observed[partner]);
    }
    Some(found)
}

/// Rows without unknown cells are paired by hash. Taking an equal certain row first never spoils a pairing:
/// whoever else could use it is equal to the row that got it.
fn exact_pairs(
    expected: &[&ExpectedRow],
    observed: &[Vec<Value>],
    pairs: &mut [Option<usize>],
    used: &mut [bool],
) {
    let key = |values: &[Value]| -> Option<Vec<Key>> {
        values
            .iter()
            .map(|value| (!value.has_unknown()).then(|| Key(value.clone())))
            .collect()
    };
    let mut waiting: FxHashMap<Vec<Key>, Vec<usize>> = FxHashMap::default();
    for (index, row) in expected.iter().enumerate().rev() {
        if row.certain {
            if let Some(key) = key(&row.values) {
                waiting.entry(key).or_default().push(index);
            }
        }
    }
    for (place, row) in observed.iter().enumerate() {
        let partner = key(row).and_then(|key| waiting.get_mut(&key)).and_then(Vec::pop);
        if let Some(partner) = partner {
            pairs[place] = Some(partner);
            used[partner] = true;
        }
    }
}

/// Kuhn's algorithm: for each left node its right partner in a maximum matching.
fn maximum_matching(left: usize, right: usize, fits: &dyn Fn(usize, usize) -> bool) -> Vec<Option<usize>> {
    let mut owner: Vec<Option<usize>> = vec![None; right];
    for node in 0..left {
        let mut seen = vec![false; right];
        augment(node, fits, &mut owner, &mut seen);
    }
    let mut partners = vec![None; left];
    for (place, node) in owner.into_iter().enumerate() {
        if let Some(node) = node {
            partners[node] = Some(place);
        }
    }
    partners
}

fn augment(
    node: usize,
    fits: &dyn Fn(usize, usize) -> bool,
    owner: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for place in 0..owner.len() {
        if seen[place] || !fits(node, place) {
            continue;
        }
        seen[place] = true;
        let free = match owner[place] {
            None => true,
            Some(other) => augment(other, fits, owner, seen),
        };
        if free {
            owner[place] = Some(node);
            return true;
        }
    }
    false
}

/// Errors that any correct server may give at any time.
fn is_always_possible(sqlstate: &str) -> bool {
    matches!(
        sqlstate,
        "40001" | "40P01" | "57014" | "55P03" | "25P02" | "25006" | "42501"
    ) || ["53", "54", "57", "58", "08", "XX", "F0"]
        .iter()
        .any(|class| sqlstate.starts_with(class))
}

/// Errors that are a statement about the data, so that an unexplained one is a wrong answer.
fn is_judged(sqlstate: &str) -> bool {
    matches!(
        sqlstate,
        "23505"
            | "23503"
            | "23502"
            | "23514"
            | "22012"
            | "22003"
            | "22P02"
            | "22001"
            | "21000"
            | "22007"
            | "22008"
            | "22011"
    )
}
