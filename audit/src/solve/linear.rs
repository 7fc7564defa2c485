//! Answers to which every row of one table gives its own part.
//!
//! In: a planned statement; the answers that the interpreter expects of parts of the table, and the one that was
//! observed. Out: for every row, group and number of the answer one equation over the commits that are open.
//!
//! A list of rows is as good as a count for each of them; sums and counts add up, also by group; what is said by other
//! columns (an average, a maximum) is left out, so that the equations never say more than the answer does.
//!
//! Always true:
//!   - if the snapshot saw a set of commits, that set satisfies all equations: where they have no solution, no set
//!     explains the answer;
//!   - a set that satisfies them need not be right: it is run before it is believed.

use super::smt::{Is, Total};
use crate::interpret::Expect;
use crate::sql::Planned;
use crate::sql::plan::{Body, Distinct, Expr, From, Group, Kind, RelationSource};
use crate::state::TableId;
use crate::trace::Answer;
use crate::value::{Key, Numeric, TypeOid, Value, oid};
use std::collections::{BTreeMap, BTreeSet};

/// How an answer is made of the parts that single rows give.
#[derive(Debug)]
pub struct Linear {
    /// The table whose rows give the parts.
    pub table: TableId,
    made: Made,
}

#[derive(Debug)]
enum Made {
    /// A row for each row that is found; or only the different ones of them.
    Rows { distinct: bool },
    /// A row for each group; `plain`: one row, even of nothing.
    Groups { columns: Vec<Column>, plain: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Key,
    /// A number that adds up; NULL is nothing.
    Number,
    Other,
}

/// An aggregate that adds up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Adds {
    Integers,
    Decimals,
}

impl Linear {
    pub fn of(planned: &Planned) -> Option<Linear> {
        let Kind::Select(query) = &planned.kind else {
            return None;
        };
        let Body::Select(select) = &query.body else {
            return None;
        };
        // Where the columns that are read are known, there are neither subqueries nor routines nor locks.
        let whole = query.ctes.is_empty()
            && query.limit.is_none()
            && query.offset.is_none()
            && planned.columns_read.is_some()
            && planned.reasons.is_empty()
            && !planned.may_write
            && !planned.volatile
            && !query.volatile
            && select.windows.is_empty();
        let ([relation], Some(From::Scan(_) | From::Filter(..)), true) =
            (select.relations.as_slice(), &select.from, whole)
        else {
            return None;
        };
        let RelationSource::Table(table) = relation.source else {
            return None;
        };
        let made = match (&select.group, &select.distinct) {
            (None, Distinct::No) => Made::Rows { distinct: false },
            (None, Distinct::All) => Made::Rows { distinct: true },
            (Some(group), Distinct::No) => grouped(group, &select.targets[..query.visible])?,
            _ => return None,
        };
        Some(Linear { table, made })
    }

    /// Whether the numbers of no rows at all are zero, or NULL: that is what is expected of an empty table.
    pub fn starts_at_zero(&self, empty: &Expect) -> bool {
        let Made::Groups { columns, plain: true } = &self.made else {
            return true;
        };
        let rows = empty.rows.iter().flat_map(|rows| &rows.groups);
        rows.flat_map(|group| &group.rows).all(|row| {
            let cells = columns.iter().zip(&row.values);
            let mut numbers = cells.filter(|(column, _)| **column == Column::Number);
            numbers.all(|(_, value)| value.is_null() || number(value).is_some_and(|n| n.is_zero()))
        })
    }

    /// Starts to add up.
    pub fn sums(&self) -> Sums<'_> {
        Sums {
            linear: self,
            parts: BTreeMap::new(),
        }
    }
}

fn grouped(group: &Group, targets: &[Expr]) -> Option<Made> {
    if !group.having.is_empty() || !group.sets.is_empty() || (group.plain && !group.keys.is_empty()) {
        return None;
    }
    let is_key = |target: &Expr, place: usize| matches!(target, Expr::Grouped { up: 0, position } if usize::from(*position) == place);
    let shown = |place: usize| targets.iter().any(|target| is_key(target, place));
    if !(0..group.keys.len()).all(shown) {
        // Nobody can tell the groups apart.
        return None;
    }
    let column = |target: &Expr| match target {
        target if (0..group.keys.len()).any(|place| is_key(target, place)) => Column::Key,
        target if adds(target, group).is_some() => Column::Number,
        _ => Column::Other,
    };
    Some(Made::Groups {
        columns: targets.iter().map(column).collect(),
        plain: group.plain,
    })
}

/// Whether an expression over a group is the sum of its values over the rows of the group.
fn adds(target: &Expr, group: &Group) -> Option<Adds> {
    let is_integer = |type_oid: TypeOid| matches!(type_oid, oid::INT2 | oid::INT4 | oid::INT8);
    match target {
        Expr::Grouped { up: 0, position } => {
            let aggregate = group
                .aggregates
                .get(usize::from(*position).checked_sub(group.keys.len())?)?;
            let function = aggregate.function.as_ref().filter(|_| !aggregate.distinct)?;
            match (function.function.name(), function.arguments.as_slice()) {
                ("count", _) => Some(Adds::Integers),
                ("sum", [of]) if is_integer(*of) => Some(Adds::Integers),
                ("sum", [oid::NUMERIC]) => Some(Adds::Decimals),
                _ => None,
            }
        }
        // Of nothing it must be zero: see [`Linear::starts_at_zero`].
        Expr::Coalesce(items) if group.plain => match items.as_slice() {
            [first, Expr::Const(_) | Expr::Bound(_)] => adds(first, group),
            _ => None,
        },
        Expr::Cast {
            argument,
            from,
            to,
            type_modifier: -1,
            ..
        } => {
            let adds = adds(argument, group)?;
            let wide = match *to {
                oid::NUMERIC => is_integer(*from) || *from == oid::NUMERIC,
                oid::INT8 => adds == Adds::Integers && (is_integer(*from) || *from == oid::NUMERIC),
                _ => false,
            };
            wide.then_some(adds)
        }
        _ => None,
    }
}

fn number(value: &Value) -> Option<Numeric> {
    match value {
        Value::Int2(n) => Some(Numeric::from(i64::from(*n))),
        Value::Int4(n) => Some(Numeric::from(*n)),
        Value::Int8(n) => Some(Numeric::from(*n)),
        Value::Numeric(n) if !n.is_nan() && !n.is_infinite() => Some(n.clone()),
        _ => None,
    }
}

/// A number without the open commits, and what each of them adds.
#[derive(Clone, Debug, Default)]
struct Sum {
    base: Option<Numeric>,
    added: BTreeMap<usize, Numeric>,
}

impl Sum {
    fn add(&mut self, value: &Numeric, at: Option<usize>, negative: bool) -> Option<()> {
        let value = if negative { value.neg() } else { value.clone() };
        let place = match at {
            None => self.base.get_or_insert(Numeric::ZERO),
            Some(at) => self.added.entry(at).or_insert(Numeric::ZERO),
        };
        *place = place.add(&value).ok()?;
        Some(())
    }

    fn scale(&self) -> u16 {
        let all = self.base.iter().chain(self.added.values());
        all.map(|n| n.trim_scale().scale()).max().unwrap_or(0)
    }

    /// The equation, in integers.
    fn total(&self, is: Is, scale: u16) -> Option<Total> {
        let base = scaled(self.base.as_ref().unwrap_or(&Numeric::ZERO), scale)?;
        let added: Option<Vec<(usize, i64)>> = self
            .added
            .iter()
            .filter(|(_, n)| !n.is_zero())
            .map(|(at, n)| scaled(n, scale).map(|n| (*at, n)))
            .collect();
        Some(Total {
            base,
            added: added?,
            is,
        })
    }
}

fn scaled(number: &Numeric, scale: u16) -> Option<i64> {
    let factor = Numeric::from(10i64.checked_pow(u32::from(scale))?);
    number.mul(&factor).ok()?.to_exact_i64()
}

/// What is known of one row or group of the answer.
#[derive(Clone, Debug, Default)]
struct Part {
    /// How many rows there are; of groups, at least.
    rows: Sum,
    /// For each column its sum, and how many values are not NULL (at least).
    numbers: Vec<(Sum, Sum)>,
}

/// The parts of an answer as they come together.
pub struct Sums<'l> {
    linear: &'l Linear,
    parts: BTreeMap<Vec<Key>, Part>,
}

impl Sums<'_> {
    /// Adds what is expected of a part of the table: always there (`None`), or there if a commit is seen; `negative`:
    /// not there any more. `None`: that cannot be told.
    pub fn add(&mut self, expect: &Expect, at: Option<usize>, negative: bool) -> Option<()> {
        let rows = expect.rows.as_ref()?;
        if expect.anything.is_some() || !expect.success || !expect.errors.is_empty() {
            return None;
        }
        if rows.open || rows.limit.is_some() || rows.groups.iter().any(|group| group.take.is_some()) {
            return None;
        }
        let one = Numeric::from(1i64);
        for row in rows.groups.iter().flat_map(|group| &group.rows) {
            if !row.certain {
                return None;
            }
            let key = self.key(&row.values, &rows.types)?;
            let part = self.parts.entry(key).or_default();
            part.rows.add(&one, at, negative)?;
            let Made::Groups { columns, .. } = &self.linear.made else {
                continue;
            };
            part.numbers.resize_with(columns.len(), Default::default);
            for ((column, value), (sum, there)) in columns.iter().zip(&row.values).zip(&mut part.numbers) {
                match (column, value) {
                    (Column::Number, Value::Null) => {}
                    (Column::Number, value) => {
                        sum.add(&number(value)?, at, negative)?;
                        there.add(&one, at, negative)?;
                    }
                    _ => {}
                }
            }
        }
        Some(())
    }

    fn key(&self, values: &[Value], types: &[TypeOid]) -> Option<Vec<Key>> {
        let cells = values.iter().zip(types).enumerate();
        let wanted = cells.filter(|(at, _)| match &self.linear.made {
            Made::Rows { .. } => true,
            Made::Groups { columns, .. } => columns.get(*at) == Some(&Column::Key),
        });
        wanted
            .map(|(_, (value, type_oid))| (!value.has_unknown()).then(|| Key::of(value, *type_oid)))
            .collect()
    }

    /// The equations that the observed answer makes of the parts; `None` where it is not plain.
    pub fn totals(&self, expect: &Expect, answer: &Answer) -> Option<Vec<Total>> {
        let rows = expect.rows.as_ref()?;
        if answer.cut.is_some() || answer.tag.is_none() || answer.copy.is_some() {
            return None;
        }
        let observed = expect.decoded(rows, answer).ok()?;
        let mut seen: BTreeMap<Vec<Key>, (i64, &Vec<Value>)> = BTreeMap::new();
        for values in &observed {
            if values.len() != rows.types.len() {
                return None;
            }
            let key = self.key(values, &rows.types)?;
            seen.entry(key).or_insert((0, values)).0 += 1;
        }
        let keys: BTreeSet<&Vec<Key>> = self.parts.keys().chain(seen.keys()).collect();
        let nothing = Part::default();
        let mut totals = Vec::new();
        for key in keys {
            let part = self.parts.get(key).unwrap_or(&nothing);
            let here = seen.get(key);
            match &self.linear.made {
                Made::Rows { distinct: false } => {
                    let count = here.map_or(0, |(count, _)| *count);
                    totals.push(part.rows.total(Is::Exactly(count), 0)?);
                }
                Made::Rows { distinct: true } => totals.push(part.rows.total(presence(here.is_some()), 0)?),
                Made::Groups { columns, plain } => {
                    if here.map_or(0, |(count, _)| *count) > 1 || (*plain && here.is_none()) {
                        return None;
                    }
                    if !plain {
                        totals.push(part.rows.total(presence(here.is_some()), 0)?);
                    }
                    let Some((_, values)) = here else { continue };
                    for (at, (column, value)) in columns.iter().zip(*values).enumerate() {
                        if *column != Column::Number {
                            continue;
                        }
                        let empty = Default::default();
                        let (sum, there) = part.numbers.get(at).unwrap_or(&empty);
                        if value.is_null() {
                            totals.push(there.total(Is::Exactly(0), 0)?);
                        } else {
                            let value = number(value)?;
                            let scale = sum.scale().max(value.trim_scale().scale());
                            totals.push(sum.total(Is::Exactly(scaled(&value, scale)?), scale)?);
                        }
                    }
                }
            }
        }
        Some(totals)
    }
}

fn presence(there: bool) -> Is {
    match there {
        true => Is::AtLeast(1),
        false => Is::Exactly(0),
    }
}
