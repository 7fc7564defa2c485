//! One relation: the rows of a table, of a subquery or of a function, as far as its own conditions admit them.

use super::{Emit, Level};
use crate::interpret::run::{Derived, Fault, Frame, Outcome, Run, Scope, Slot};
use crate::interpret::{RowFilter, may_accept};
use crate::sql::plan::{Access, Distinct, Expr, Fit, RelationSource, Scan, SetFunction};
use crate::state::view::Knowledge;
use crate::state::{Row, RowId, TableId};
use crate::value::compare::total_order;
use crate::value::{Key, Value, oid};
use rustc_hash::FxHashSet;
use std::rc::Rc;
use std::sync::Arc;

pub(super) enum Fitted {
    Value(Value),
    /// No row can be equal to it.
    Nothing,
    Unknown,
}

impl Run<'_> {
    pub(super) fn scan(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        let relation = &level.select.relations[scan.relation];
        let mut each = |frame: &mut Frame, id: RowId, row: &Row, sure: bool| -> Outcome<()> {
            frame.slots[scan.relation] = Slot {
                row: Some(row.clone()),
                id,
            };
            let scope = Scope {
                frame,
                outer: level.outer,
            };
            match self.admits(&scan.filter, &scope, level.strict)? {
                Some(admitted) => emit(frame, certain && sure && admitted),
                None => Ok(()),
            }
        };
        match &relation.source {
            RelationSource::Table(table) => {
                let relies = self.may_rely_on_keys(level, *table);
                if !relies && (level.first.is_some() || scan.bounds.is_some()) {
                    let mut rows = |frame: &mut Frame, id: RowId, row: Row| {
                        let row = match row.len() < relation.width {
                            true => self.widen_row(*table, row),
                            false => row,
                        };
                        each(frame, id, &row, true)
                    };
                    if self.in_order(level, scan, *table, frame, &mut rows)? {
                        return Ok(());
                    }
                }
                let rows = self.table_rows(level, scan, *table, frame)?;
                self.work(rows.len() as u64 + 1)?;
                if relies && self.has_key_twice(*table, &rows) {
                    return Fault::unsure("two_rows_with_one_key");
                }
                for (id, row) in rows.iter() {
                    if row.len() < relation.width {
                        let row = self.widen_row(*table, row.clone());
                        each(frame, *id, &row, true)?;
                    } else {
                        each(frame, *id, row, true)?;
                    }
                }
                Ok(())
            }
            RelationSource::Query(query) => {
                let derived = {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    self.subquery(query, &scope)?
                };
                self.each_derived(level, &derived, frame, &mut each)
            }
            RelationSource::Cte(number) | RelationSource::Working(number) => {
                let derived = self.ctes.borrow().get(number).cloned();
                match derived {
                    Some(derived) => self.each_derived(level, &derived, frame, &mut each),
                    None => Fault::unsure("cte_order"),
                }
            }
            RelationSource::Function {
                function,
                arguments,
                ordinality,
            } => {
                let mut values = Vec::new();
                {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    for argument in arguments {
                        values.push(self.eval(argument, &scope)?);
                    }
                }
                let items = self.set_function(*function, &values)?;
                for (place, item) in items.into_iter().enumerate() {
                    self.work(1)?;
                    let mut cells = vec![item];
                    if *ordinality {
                        cells.push(Value::Int8(place as i64 + 1));
                    }
                    each(frame, RowId(place as u64), &Row::from(cells), true)?;
                }
                Ok(())
            }
            RelationSource::Unknown => Fault::unsure("unknown_relation"),
        }
    }

    pub(super) fn each_derived(
        &self,
        level: &Level<'_>,
        derived: &Derived,
        frame: &mut Frame,
        each: &mut dyn FnMut(&mut Frame, RowId, &Row, bool) -> Outcome<()>,
    ) -> Outcome<()> {
        if derived.open {
            level.open.set(true);
        }
        self.work(derived.rows.len() as u64 + 1)?;
        for (place, (row, sure)) in derived.rows.iter().enumerate() {
            each(frame, RowId(place as u64), row, *sure)?;
        }
        Ok(())
    }

    pub(super) fn set_function(&self, function: SetFunction, values: &[Value]) -> Outcome<Vec<Value>> {
        if values.iter().any(Value::has_unknown) {
            return Fault::unsure("set_function_of_unknown");
        }
        if values.iter().any(Value::is_null) {
            return Ok(Vec::new());
        }
        match function {
            SetFunction::Unnest => match &values[0] {
                Value::Array(array) => Ok(array.items.clone()),
                _ => Fault::unsure("unnest"),
            },
            SetFunction::GenerateSeries => {
                let number = |value: &Value| match value {
                    Value::Int4(number) => Some(i64::from(*number)),
                    Value::Int8(number) => Some(*number),
                    _ => None,
                };
                let narrow = matches!(values[0], Value::Int4(_));
                let (Some(from), Some(to)) = (number(&values[0]), number(&values[1])) else {
                    return Fault::unsure("generate_series");
                };
                let step = values.get(2).map_or(Some(1), number).unwrap_or(0);
                if step == 0 {
                    return Err(Fault::Raised {
                        sqlstate: "22023".to_owned(),
                        message: "step size cannot equal zero".to_owned(),
                    });
                }
                let mut items = Vec::new();
                let mut at = from;
                while (step > 0 && at <= to) || (step < 0 && at >= to) {
                    items.push(if narrow {
                        Value::Int4(at as i32)
                    } else {
                        Value::Int8(at)
                    });
                    if items.len() > 1_000_000 {
                        return Fault::unsure("work_budget");
                    }
                    match at.checked_add(step) {
                        Some(next) => at = next,
                        None => break,
                    }
                }
                Ok(items)
            }
        }
    }

    /// The rows of a base table that the access path gives; also records what was read.
    pub(super) fn table_rows(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        table: TableId,
        frame: &Frame,
    ) -> Outcome<Rc<Vec<(RowId, Row)>>> {
        let view = self.views.snapshot;
        let scope = Scope {
            frame,
            outer: level.outer,
        };
        match &scan.access {
            Access::All => self.whole_table(level, scan, table),
            Access::Lookup { columns, key } => {
                let mut values = Vec::with_capacity(key.len());
                for (expr, fit) in key {
                    match fitted(self.key(level, expr, &scope)?, *fit) {
                        Fitted::Value(value) => values.push(value),
                        Fitted::Nothing => return Ok(Rc::default()),
                        Fitted::Unknown => return self.whole_table(level, scan, table),
                    }
                }
                let mut rows = Vec::new();
                let sure = view.lookup(table, columns, &values, &mut |id, row| {
                    rows.push((id, row.clone()))
                });
                // Where the key is all that is asked for, nothing is left to filter.
                let filter = match scan.own.len() > columns.len() {
                    true => self.row_filter(level, scan),
                    false => None,
                };
                self.touch_key_if(table, columns, &values, filter);
                if !sure {
                    level.open.set(true);
                }
                Ok(Rc::new(rows))
            }
            Access::AnyOf {
                column,
                values,
                array,
            } => {
                let columns: Arc<[usize]> = Arc::from([*column]);
                let mut keys: Vec<Value> = Vec::new();
                for (expr, fit) in values {
                    let value = self.key(level, expr, &scope)?;
                    let items = match (array, value) {
                        (false, value) => vec![value],
                        (true, Value::Array(array)) => array.items.clone(),
                        (true, Value::Null) => Vec::new(),
                        (true, _) => return self.whole_table(level, scan, table),
                    };
                    for item in items {
                        match fitted(item, *fit) {
                            Fitted::Value(value) => {
                                let known = keys.iter().any(|other| total_order(other, &value).is_eq());
                                if !known {
                                    keys.push(value);
                                }
                            }
                            Fitted::Nothing => {}
                            Fitted::Unknown => return self.whole_table(level, scan, table),
                        }
                    }
                }
                let mut rows: Vec<(RowId, Row)> = Vec::new();
                for key in keys {
                    let key = [key];
                    let sure = view.lookup(table, &columns, &key, &mut |id, row| {
                        // A row with an unknown key comes with every lookup.
                        let repeated =
                            row[*column].has_unknown() && rows.iter().any(|(other, _)| *other == id);
                        if !repeated {
                            rows.push((id, row.clone()));
                        }
                    });
                    self.touch_key(table, &columns, &key);
                    if !sure {
                        level.open.set(true);
                    }
                }
                Ok(Rc::new(rows))
            }
        }
    }

    /// Whether the server may answer otherwise where two of these rows have the same key. A transaction that keeps its
    /// snapshot and inserts again what somebody else has deleted since sees both rows, and the server's planner does not
    /// expect that: a join ends with the first match, columns that a key determines are not grouped by.
    fn may_rely_on_keys(&self, level: &Level<'_>, table: TableId) -> bool {
        let select = level.select;
        let is_plain = select.group.as_ref().is_none_or(|group| group.keys.is_empty())
            && matches!(select.distinct, Distinct::No)
            && !self.planned.many_relations;
        !is_plain && self.views.snapshot.has_written(table)
    }

    /// Whether two of the rows agree in a key of their table.
    fn has_key_twice(&self, table: TableId, rows: &[(RowId, Row)]) -> bool {
        let Some(table) = self.views.snapshot.catalog().table(table) else {
            return false;
        };
        table.keys.iter().filter(|key| !key.deferrable).any(|key| {
            if key.expressions.iter().any(Option::is_some) {
                return !self.views.recheck && rows.len() > 1;
            }
            let mut seen = FxHashSet::default();
            let known = |row: &Row| {
                let cells = key.columns.iter().map(|&column| row.get(column));
                let cells = cells.map(|cell| cell.filter(|cell| !cell.is_null() && !cell.has_unknown()));
                cells
                    .map(|cell| cell.cloned().map(Key))
                    .collect::<Option<Vec<Key>>>()
            };
            let mut keys = rows.iter().filter_map(|(_, row)| known(row));
            keys.any(|key| !seen.insert(key))
        })
    }

    /// The value that a column is compared with: where relations are joined, the server may never come to it.
    pub(super) fn key(&self, level: &Level<'_>, expr: &Expr, scope: &Scope<'_>) -> Outcome<Value> {
        match self.eval(expr, scope) {
            Err(Fault::Raised { .. }) if !level.strict => Fault::unsure("error_in_condition"),
            other => other,
        }
    }

    pub(super) fn whole_table(
        &self,
        level: &Level<'_>,
        scan: &Scan,
        table: TableId,
    ) -> Outcome<Rc<Vec<(RowId, Row)>>> {
        let view = self.views.snapshot;
        if view.knowledge(table) == Knowledge::Partial {
            level.open.set(true);
        }
        let known = self.scans.borrow().get(&table).cloned();
        let rows = match known {
            Some(rows) => rows,
            None => {
                let mut rows = Vec::new();
                view.scan(table, &mut |id, row| rows.push((id, row.clone())));
                let rows = Rc::new(rows);
                self.scans.borrow_mut().insert(table, rows.clone());
                rows
            }
        };
        let filter = self.row_filter(level, scan);
        self.touch_scan(table, filter);
        Ok(rows)
    }

    /// The conditions on this relation alone, as something that can outlive the execution.
    pub(super) fn row_filter(&self, level: &Level<'_>, scan: &Scan) -> Option<RowFilter> {
        if scan.own.is_empty() {
            return None;
        }
        let own = scan.own.clone();
        let bound: Arc<[Value]> = Arc::from(&*self.bound);
        let context = self.context.clone();
        let (place, count) = (scan.relation, level.select.relations.len());
        Some(Arc::new(move |row: &Row| {
            may_accept(&own, &bound, &context, place, count, row)
        }))
    }
}

/// Makes the value of a key comparable with its column.
pub(super) fn fitted(value: Value, fit: Fit) -> Fitted {
    let number = |value: &Value| match value {
        Value::Int2(number) => Some(i64::from(*number)),
        Value::Int4(number) => Some(i64::from(*number)),
        Value::Int8(number) => Some(*number),
        _ => None,
    };
    match (&value, fit) {
        (Value::Null, _) => Fitted::Nothing,
        (value, _) if value.has_unknown() => Fitted::Unknown,
        (_, Fit::Same) => Fitted::Value(value),
        (_, Fit::Integer(target)) => {
            let Some(number) = number(&value) else {
                return Fitted::Unknown;
            };
            let fitted = match target {
                oid::INT2 => i16::try_from(number).ok().map(Value::Int2),
                oid::INT4 => i32::try_from(number).ok().map(Value::Int4),
                _ => Some(Value::Int8(number)),
            };
            fitted.map_or(Fitted::Nothing, Fitted::Value)
        }
        (Value::Text(text), Fit::Pad(length)) => {
            let trimmed = text.trim_end_matches(' ');
            let count = trimmed.chars().count();
            if count > length {
                return Fitted::Nothing;
            }
            let padded = format!("{trimmed}{}", " ".repeat(length - count));
            Fitted::Value(Value::Text(Arc::from(padded)))
        }
        _ => Fitted::Unknown,
    }
}
