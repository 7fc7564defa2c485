//! Expressions over rows.
//!
//! Always true: an unknown input makes the result unknown unless it does not matter (`false AND ?` is false).

use super::run::{Fault, Outcome, Run, Scope};
use crate::sql::plan::{Expr, Query};
use crate::value::compare::{Truth, same};
use crate::value::{self, Array, Collation, FunctionId, Value};
use std::sync::Arc;

impl Run<'_> {
    pub(super) fn eval(&self, expr: &Expr, scope: &Scope<'_>) -> Outcome<Value> {
        match expr {
            Expr::Const(value) => Ok(value.clone()),
            Expr::Bound(slot) => Ok(self.bound.get(*slot).cloned().unwrap_or(Value::Unknown)),
            Expr::Column { up, relation, column } => {
                let frame = if *up == 0 {
                    Some(scope.frame)
                } else {
                    scope.up(*up)
                };
                let Some(slot) = frame.and_then(|frame| frame.slots.get(*relation as usize)) else {
                    return Ok(Value::Unknown);
                };
                Ok(match &slot.row {
                    None => Value::Null,
                    Some(row) => row.get(*column as usize).cloned().unwrap_or(Value::Unknown),
                })
            }
            Expr::RowPresent { up, relation } => {
                let present = scope
                    .up(*up)
                    .and_then(|frame| frame.slots.get(*relation as usize));
                Ok(Value::Bool(present.is_some_and(|slot| slot.row.is_some())))
            }
            Expr::Grouped { up, position } => {
                let value = scope
                    .up(*up)
                    .and_then(|frame| frame.grouped.get(*position as usize));
                Ok(value.cloned().unwrap_or(Value::Unknown))
            }
            Expr::Windowed(position) => {
                let value = scope.frame.windowed.get(*position as usize);
                Ok(value.cloned().unwrap_or(Value::Unknown))
            }
            Expr::Grouping(keys) => {
                let Some(Value::Int8(present)) = scope.frame.grouped.last() else {
                    return Ok(Value::Unknown);
                };
                let absent = |key: &u16| i32::from(present >> key & 1 == 0);
                let keys = keys.iter().filter(|key| **key != u16::MAX);
                Ok(Value::Int4(keys.fold(0, |bits, key| bits << 1 | absent(key))))
            }
            Expr::Call { function, arguments } => {
                let mut values: smallvec::SmallVec<[Value; 3]> =
                    smallvec::SmallVec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.eval(argument, scope)?);
                }
                self.call(*function, &values)
            }
            Expr::Equal { sides, function, .. } => {
                let left = self.eval(&sides.0, scope)?;
                let right = self.eval(&sides.1, scope)?;
                self.equal(*function, &left, &right)
            }
            Expr::And(parts) => {
                let mut result = Truth::True;
                for part in parts {
                    match Truth::of(&self.eval(part, scope)?) {
                        Truth::False => return Ok(Value::Bool(false)),
                        Truth::True => {}
                        Truth::Unknown => result = Truth::Unknown,
                        Truth::Null if result == Truth::True => result = Truth::Null,
                        Truth::Null => {}
                    }
                }
                Ok(result.value())
            }
            Expr::Or(parts) => {
                let mut result = Truth::False;
                for part in parts {
                    match Truth::of(&self.eval(part, scope)?) {
                        Truth::True => return Ok(Value::Bool(true)),
                        Truth::False => {}
                        Truth::Unknown => result = Truth::Unknown,
                        Truth::Null if result == Truth::False => result = Truth::Null,
                        Truth::Null => {}
                    }
                }
                Ok(result.value())
            }
            Expr::Not(argument) => Ok(match Truth::of(&self.eval(argument, scope)?) {
                Truth::True => Value::Bool(false),
                Truth::False => Value::Bool(true),
                other => other.value(),
            }),
            Expr::IsNull(argument, wants_null) => Ok(match self.eval(argument, scope)? {
                Value::Unknown => Value::Unknown,
                value => Value::Bool(value.is_null() == *wants_null),
            }),
            Expr::BoolTest {
                argument,
                wanted,
                negated,
            } => {
                let value = self.eval(argument, scope)?;
                let holds = match (&value, wanted) {
                    (Value::Unknown, _) => return Ok(Value::Unknown),
                    (Value::Bool(value), Some(wanted)) => value == wanted,
                    (_, Some(_)) => false,
                    (value, None) => value.is_null(),
                };
                Ok(Value::Bool(holds != *negated))
            }
            Expr::Distinct {
                arguments,
                equal,
                negated,
            } => {
                let left = self.eval(&arguments.0, scope)?;
                let right = self.eval(&arguments.1, scope)?;
                let distinct = match (&left, &right) {
                    (Value::Unknown, _) | (_, Value::Unknown) => return Ok(Value::Unknown),
                    (Value::Null, Value::Null) => false,
                    (Value::Null, _) | (_, Value::Null) => true,
                    _ => match self.equal(*equal, &left, &right)? {
                        Value::Bool(equal) => !equal,
                        _ => return Ok(Value::Unknown),
                    },
                };
                Ok(Value::Bool(distinct != *negated))
            }
            Expr::Case { whens, otherwise } => self.case(whens, otherwise, scope),
            Expr::Coalesce(arguments) => {
                for argument in arguments {
                    match self.eval(argument, scope)? {
                        Value::Null => {}
                        value => return Ok(value),
                    }
                }
                Ok(Value::Null)
            }
            Expr::Extreme {
                arguments,
                less,
                greatest,
            } => {
                let mut best = Value::Null;
                for argument in arguments {
                    let value = self.eval(argument, scope)?;
                    best = match (&best, &value) {
                        (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
                        (Value::Null, _) => value,
                        (_, Value::Null) => best,
                        _ => match self.call(*less, &[value.clone(), best.clone()])? {
                            Value::Bool(smaller) if smaller != *greatest => value,
                            Value::Bool(_) => match self.call(*less, &[best.clone(), value.clone()])? {
                                Value::Bool(smaller) if smaller == *greatest => value,
                                Value::Bool(_) => best,
                                _ => Value::Unknown,
                            },
                            _ => Value::Unknown,
                        },
                    };
                }
                Ok(best)
            }
            Expr::Cast {
                argument,
                from,
                to,
                type_modifier,
                kind,
            } => {
                let value = self.eval(argument, scope)?;
                if value.is_unknown() {
                    return Ok(Value::Unknown);
                }
                self.settle(value::cast(
                    &value,
                    *from,
                    *to,
                    *type_modifier,
                    *kind,
                    self.context,
                ))
            }
            Expr::AnyArray {
                argument,
                array,
                function,
                all,
                ..
            } => {
                let value = self.eval(argument, scope)?;
                match self.eval(array, scope)? {
                    Value::Unknown => Ok(Value::Unknown),
                    Value::Array(array) => self.any_of(array.items.iter().cloned(), *all, |item| {
                        self.call(*function, &[value.clone(), item])
                    }),
                    _ => Ok(Value::Null),
                }
            }
            Expr::InList {
                argument,
                items,
                negated,
                ..
            } => {
                let value = self.eval(argument, scope)?;
                let mut result = Truth::False;
                for (function, item) in items {
                    let item = self.eval(item, scope)?;
                    match Truth::of(&self.equal(*function, &value, &item)?) {
                        Truth::True => {
                            result = Truth::True;
                            break;
                        }
                        Truth::False => {}
                        Truth::Unknown => result = Truth::Unknown,
                        Truth::Null if result == Truth::False => result = Truth::Null,
                        Truth::Null => {}
                    }
                }
                Ok(match (result, negated) {
                    (Truth::True, true) => Value::Bool(false),
                    (Truth::False, true) => Value::Bool(true),
                    (other, _) => other.value(),
                })
            }
            Expr::Array { element, items } => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(self.eval(item, scope)?);
                }
                if values.iter().any(Value::has_unknown) {
                    return Ok(Value::Unknown);
                }
                Ok(array_of(*element, values))
            }
            Expr::Subscript { array, index } => {
                let array = self.eval(array, scope)?;
                let index = self.eval(index, scope)?;
                Ok(match (array, index) {
                    (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
                    (Value::Array(array), Value::Int4(index)) => match array.dimensions.as_slice() {
                        [(length, lower)] if index >= *lower && index < lower + length => {
                            array.items[(index - lower) as usize].clone()
                        }
                        [_] | [] => Value::Null,
                        _ => Value::Unknown,
                    },
                    _ => Value::Null,
                })
            }
            Expr::Exists(query) => self.exists(query, scope),
            Expr::Scalar(query) => self.scalar(query, scope),
            Expr::AnyQuery {
                arguments,
                functions,
                casts,
                query,
                all,
            } => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.eval(argument, scope)?);
                }
                self.any_query(&values, functions, casts, query, *all, scope)
            }
            Expr::ArrayQuery { element, query } => {
                let derived = self.subquery(query, scope)?;
                if derived.open || derived.rows.iter().any(|(_, certain)| !certain) {
                    return Ok(Value::Unknown);
                }
                let items: Vec<Value> = derived.rows.iter().map(|(row, _)| row[0].clone()).collect();
                let ordered = items.len() < 2 || self.has_total_order(query);
                if !ordered || items.iter().any(Value::has_unknown) {
                    return Ok(Value::Unknown);
                }
                Ok(array_of(*element, items))
            }
            Expr::RowCompare { pairs, or_equal } => {
                for (left, right, equal, order) in pairs {
                    let left = self.eval(left, scope)?;
                    let right = self.eval(right, scope)?;
                    match Truth::of(&self.equal(*equal, &left, &right)?) {
                        Truth::True => {}
                        Truth::False => return self.call(*order, &[left, right]),
                        other => return Ok(other.value()),
                    }
                }
                Ok(Value::Bool(*or_equal))
            }
            Expr::Routine { routine, arguments } => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.eval(argument, scope)?);
                }
                self.call_routine(routine, values)
            }
            Expr::Draw(sequence) => Ok(self.draw(*sequence)),
            Expr::Unknown => Ok(Value::Unknown),
        }
    }

    pub(super) fn call(&self, function: FunctionId, arguments: &[Value]) -> Outcome<Value> {
        let value = self.settle(value::call(function, arguments, self.context))?;
        if value.is_unknown() && !arguments.is_empty() && !arguments.iter().any(Value::has_unknown) {
            let texts = arguments
                .iter()
                .all(|argument| matches!(argument, Value::Text(_)));
            self.note(if texts { "collation" } else { "value_not_known" });
        }
        Ok(value)
    }

    /// Equality, with the frequent cases done here.
    pub(super) fn equal(&self, function: FunctionId, left: &Value, right: &Value) -> Outcome<Value> {
        match (left, right) {
            (Value::Int4(left), Value::Int4(right)) => Ok(Value::Bool(left == right)),
            (Value::Int8(left), Value::Int8(right)) => Ok(Value::Bool(left == right)),
            (Value::Int4(left), Value::Int8(right)) => Ok(Value::Bool(i64::from(*left) == *right)),
            (Value::Int8(left), Value::Int4(right)) => Ok(Value::Bool(*left == i64::from(*right))),
            (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
            (Value::Unknown, _) | (_, Value::Unknown) => Ok(Value::Unknown),
            _ => self.call(function, &[left.clone(), right.clone()]),
        }
    }

    fn case(&self, whens: &[(Expr, Expr)], otherwise: &Expr, scope: &Scope<'_>) -> Outcome<Value> {
        for (place, (condition, result)) in whens.iter().enumerate() {
            match Truth::of(&self.eval(condition, scope)?) {
                Truth::True => return self.eval(result, scope),
                Truth::False | Truth::Null => {}
                Truth::Unknown => {
                    // Either branch may be taken; where they agree the value is known all the same.
                    let taken = self.tolerant(result, scope);
                    let rest = match self.case(&whens[place + 1..], otherwise, scope) {
                        Ok(value) => value,
                        Err(Fault::Raised { sqlstate, message }) => {
                            self.may_fail(&sqlstate, message);
                            Value::Unknown
                        }
                        Err(other) => return Err(other),
                    };
                    let taken = taken?;
                    return Ok(match same(&taken, &rest, Collation::Bytes) {
                        Some(true) => taken,
                        _ => Value::Unknown,
                    });
                }
            }
        }
        self.eval(otherwise, scope)
    }

    /// A value that may not be asked for: its error is only possible.
    pub(super) fn tolerant(&self, expr: &Expr, scope: &Scope<'_>) -> Outcome<Value> {
        match self.eval(expr, scope) {
            Err(Fault::Raised { sqlstate, message }) => {
                self.may_fail(&sqlstate, message);
                Ok(Value::Unknown)
            }
            other => other,
        }
    }

    fn any_of(
        &self,
        items: impl Iterator<Item = Value>,
        all: bool,
        mut holds: impl FnMut(Value) -> Outcome<Value>,
    ) -> Outcome<Value> {
        let decided = if all { Truth::False } else { Truth::True };
        let mut result = if all { Truth::True } else { Truth::False };
        let neutral = result;
        for item in items {
            match Truth::of(&holds(item)?) {
                truth if truth == decided => return Ok(decided.value()),
                Truth::Unknown => result = Truth::Unknown,
                Truth::Null if result == neutral => result = Truth::Null,
                _ => {}
            }
        }
        Ok(result.value())
    }

    fn exists(&self, query: &Query, scope: &Scope<'_>) -> Outcome<Value> {
        let derived = self.subquery(query, scope)?;
        Ok(if derived.rows.iter().any(|(_, certain)| *certain) {
            Value::Bool(true)
        } else if derived.open || !derived.rows.is_empty() {
            Value::Unknown
        } else {
            Value::Bool(false)
        })
    }

    fn scalar(&self, query: &Query, scope: &Scope<'_>) -> Outcome<Value> {
        let derived = self.subquery(query, scope)?;
        let certain = derived.rows.iter().filter(|(_, certain)| *certain).count();
        if certain > 1 {
            return Err(Fault::Raised {
                sqlstate: "21000".to_owned(),
                message: "more than one row returned by a subquery used as an expression".to_owned(),
            });
        }
        if derived.open || derived.rows.len() != certain {
            self.may_fail(
                "21000",
                "more than one row returned by a subquery used as an expression",
            );
            return Ok(Value::Unknown);
        }
        Ok(derived
            .rows
            .first()
            .map_or(Value::Null, |(row, _)| row[0].clone()))
    }

    fn any_query(
        &self,
        values: &[Value],
        functions: &[FunctionId],
        casts: &[Option<(u32, u32)>],
        query: &Query,
        all: bool,
        scope: &Scope<'_>,
    ) -> Outcome<Value> {
        let derived = self.subquery(query, scope)?;
        self.work(derived.rows.len() as u64)?;
        let decided = if all { Truth::False } else { Truth::True };
        let neutral = if all { Truth::True } else { Truth::False };
        let mut result = neutral;
        for (row, certain) in &derived.rows {
            let mut whole = Truth::True;
            for (place, value) in values.iter().enumerate() {
                let mut other = row[place].clone();
                if let Some((from, to)) = casts[place] {
                    if !other.is_unknown() {
                        other = self.settle(value::cast(
                            &other,
                            from,
                            to,
                            -1,
                            value::CastKind::Implicit,
                            self.context,
                        ))?;
                    }
                }
                match Truth::of(&self.call(functions[place], &[value.clone(), other])?) {
                    Truth::False => {
                        whole = Truth::False;
                        break;
                    }
                    Truth::True => {}
                    Truth::Unknown => whole = Truth::Unknown,
                    Truth::Null if whole == Truth::True => whole = Truth::Null,
                    Truth::Null => {}
                }
            }
            if whole == neutral {
                continue;
            }
            if !certain {
                result = Truth::Unknown;
            } else if whole == decided {
                return Ok(decided.value());
            } else if whole == Truth::Unknown {
                result = Truth::Unknown;
            } else if result == neutral {
                result = Truth::Null;
            }
        }
        if derived.open {
            result = Truth::Unknown;
        }
        Ok(result.value())
    }

    /// All conditions of a list: whether the row is in, maybe in, or out.
    ///
    /// PostgreSQL may check them in any order, so an error in one of them is certain only if no other one
    /// rejects the row.
    pub(super) fn admits(
        &self,
        conditions: &[Expr],
        scope: &Scope<'_>,
        strict: bool,
    ) -> Outcome<Option<bool>> {
        let mut certain = true;
        let mut fault: Option<Fault> = None;
        for condition in conditions {
            match self.eval(condition, scope) {
                Ok(value) => match Truth::of(&value) {
                    Truth::True => {}
                    Truth::Unknown => certain = false,
                    Truth::False | Truth::Null => {
                        if let Some(Fault::Raised { sqlstate, message }) = fault {
                            self.may_fail(&sqlstate, message);
                        }
                        return Ok(None);
                    }
                },
                Err(Fault::Raised { sqlstate, message }) => fault = Some(Fault::Raised { sqlstate, message }),
                Err(other) => return Err(other),
            }
        }
        match fault {
            None => Ok(Some(certain)),
            Some(fault) if strict && certain && conditions.iter().all(is_plain) => Err(fault),
            Some(_) => Fault::unsure("error_in_condition"),
        }
    }
}

/// Nothing but calls over columns and constants: the server evaluates it as it is written. Elsewhere its planner
/// may simplify an error away.
pub(super) fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Column { .. } | Expr::Grouped { .. } | Expr::Windowed(_) | Expr::Bound(_) => true,
        Expr::Const(value) => !value.is_null(),
        Expr::Call { arguments, .. } | Expr::Routine { arguments, .. } => arguments.iter().all(is_plain),
        Expr::Equal { sides, .. } => is_plain(&sides.0) && is_plain(&sides.1),
        Expr::Cast { argument, .. } => is_plain(argument),
        _ => false,
    }
}

pub(super) fn array_of(element: u32, items: Vec<Value>) -> Value {
    let dimensions = if items.is_empty() {
        Vec::new()
    } else {
        vec![(items.len() as i32, 1)]
    };
    Value::Array(Arc::new(Array {
        element,
        dimensions,
        items,
    }))
}
