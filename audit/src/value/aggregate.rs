//! Aggregates: which one a name means, and its running value.
//!
//! In: the arguments of each row of a group, cast to the types that were resolved. Out: the aggregate's
//! value.
//!
//! Always true:
//!   - where the result depends on the order of the input, either `order_sensitive` says so, or the result
//!     is unknown as soon as two orders can differ (floats, ties between values that print differently);
//!   - DISTINCT, FILTER and ORDER BY are the caller's.

use super::call::{Call, FunctionId};
use super::compare::{comparable, identical, sort_compare};
use super::context::{Collation, Context};
use super::functions::documents::{from_sql, json_text, jsonb, object_key};
use super::interval::Interval;
use super::json::{Json, push_json_string};
use super::resolve::FunctionKind;
use super::types::Types;
use super::{Array, Numeric, SqlError, TypeOid, Value, oid};
use std::cmp::Ordering;
use std::sync::Arc;

/// An aggregate function and the types to cast its arguments to.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedAggregate {
    pub function: FunctionId,
    pub arguments: Vec<TypeOid>,
    pub result: TypeOid,
    /// The result depends on the order of the input (`string_agg`, `array_agg` …): without ORDER BY the
    /// executor must not call it known, unless there is at most one row.
    pub order_sensitive: bool,
    /// Whether its values are computed at all; otherwise they are unknown.
    pub modelled: bool,
}

/// `count(*)` is the name `count` without arguments.
pub fn resolve_aggregate(name: &str, arguments: &[TypeOid]) -> Option<ResolvedAggregate> {
    Types::BUILT_IN.resolve_aggregate(name, arguments)
}

impl Types<'_> {
    /// [`resolve_aggregate`] with the types of one database.
    pub fn resolve_aggregate(self, name: &str, arguments: &[TypeOid]) -> Option<ResolvedAggregate> {
        let resolved = self.resolve_function(name, arguments)?;
        if resolved.kind != FunctionKind::Aggregate {
            return None;
        }
        let order_sensitive = !matches!(
            name,
            "count"
                | "sum"
                | "avg"
                | "min"
                | "max"
                | "bool_and"
                | "bool_or"
                | "every"
                | "bit_and"
                | "bit_or"
                | "bit_xor"
        );
        Some(ResolvedAggregate {
            modelled: !matches!(running(name, &resolved.arguments), Running::NotModelled),
            function: resolved.function,
            arguments: resolved.arguments,
            result: resolved.result,
            order_sensitive,
        })
    }
}

/// The running value of one aggregate over one group.
#[derive(Clone, Debug)]
pub struct Accumulator {
    running: Running,
    collation: Collation,
    /// An input was unknown, and it matters.
    unknown: bool,
}

#[derive(Clone, Debug)]
enum Running {
    CountRows(i64),
    Count(i64),
    /// sum of int2 or int4, as int8.
    SumInt(Option<i64>),
    /// sum of int8 or numeric.
    SumNumeric(Option<Numeric>),
    AvgNumeric(Numeric, i64),
    /// sum or average of floats: the sum so far, how many, whether every order gives the same.
    Float {
        sum: f64,
        count: i64,
        exact: bool,
        average: bool,
        single: bool,
    },
    SumInterval(Option<Interval>),
    AvgInterval(Option<Interval>, i64),
    /// min or max: the best so far, and whether a tie printed differently.
    Extreme {
        best: Value,
        wanted: Ordering,
        ambiguous: bool,
        type_oid: TypeOid,
    },
    /// every/bool_and and bool_or: the value that decides at once, and what was seen.
    Bool {
        decisive: bool,
        seen: Option<bool>,
    },
    Bits {
        seen: Value,
        with: fn(i64, i64) -> i64,
    },
    Text(Option<String>),
    List {
        element: TypeOid,
        items: Option<Vec<Value>>,
    },
    /// json_agg and jsonb_agg: the elements as text, or as documents.
    JsonArray(Option<Vec<String>>),
    JsonbArray(Option<Vec<Json>>),
    /// json_object_agg and jsonb_object_agg.
    JsonObject(Option<Vec<String>>),
    JsonbObject(Option<Vec<(String, Json)>>),
    NotModelled,
}

fn running(name: &str, arguments: &[TypeOid]) -> Running {
    let float = |average: bool, single: bool| Running::Float {
        sum: 0.0,
        count: 0,
        exact: true,
        average,
        single,
    };
    let extreme = |wanted, type_oid| Running::Extreme {
        best: Value::Null,
        wanted,
        ambiguous: false,
        type_oid,
    };
    match (name, arguments) {
        ("count", []) => Running::CountRows(0),
        ("count", [_]) => Running::Count(0),
        ("sum", [oid::INT2 | oid::INT4]) => Running::SumInt(None),
        ("sum", [oid::INT8 | oid::NUMERIC]) => Running::SumNumeric(None),
        ("sum", [oid::FLOAT4]) => float(false, true),
        ("sum", [oid::FLOAT8]) => float(false, false),
        ("sum", [oid::INTERVAL]) => Running::SumInterval(None),
        ("avg", [oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC]) => Running::AvgNumeric(Numeric::ZERO, 0),
        ("avg", [oid::FLOAT4 | oid::FLOAT8]) => float(true, false),
        ("avg", [oid::INTERVAL]) => Running::AvgInterval(None, 0),
        ("min", [type_oid]) => extreme(Ordering::Less, *type_oid),
        ("max", [type_oid]) => extreme(Ordering::Greater, *type_oid),
        ("bool_and" | "every", [_]) => Running::Bool {
            decisive: false,
            seen: None,
        },
        ("bool_or", [_]) => Running::Bool {
            decisive: true,
            seen: None,
        },
        ("bit_and", [oid::INT2 | oid::INT4 | oid::INT8]) => Running::Bits {
            seen: Value::Null,
            with: |a, b| a & b,
        },
        ("bit_or", [oid::INT2 | oid::INT4 | oid::INT8]) => Running::Bits {
            seen: Value::Null,
            with: |a, b| a | b,
        },
        ("bit_xor", [oid::INT2 | oid::INT4 | oid::INT8]) => Running::Bits {
            seen: Value::Null,
            with: |a, b| a ^ b,
        },
        ("string_agg", [oid::TEXT, oid::TEXT]) => Running::Text(None),
        ("array_agg", [element]) if Types::BUILT_IN.element(*element).is_none() => Running::List {
            element: *element,
            items: None,
        },
        ("json_agg", [_]) => Running::JsonArray(None),
        ("jsonb_agg", [_]) => Running::JsonbArray(None),
        ("json_object_agg", [_, _]) => Running::JsonObject(None),
        ("jsonb_object_agg", [_, _]) => Running::JsonbObject(None),
        _ => Running::NotModelled,
    }
}

fn wide(value: &Value) -> Result<i64, SqlError> {
    match value {
        Value::Int2(v) => Ok(i64::from(*v)),
        Value::Int4(v) => Ok(i64::from(*v)),
        Value::Int8(v) => Ok(*v),
        _ => Err(SqlError::not_modelled("argument of an unexpected type")),
    }
}

fn exact(value: &Value) -> Result<Numeric, SqlError> {
    match value {
        Value::Numeric(number) => Ok(number.clone()),
        other => wide(other).map(Numeric::from),
    }
}

impl Accumulator {
    pub fn new(aggregate: &ResolvedAggregate, collation: Collation) -> Accumulator {
        let running = running(aggregate.function.name(), &aggregate.arguments);
        Accumulator {
            running,
            collation,
            unknown: false,
        }
    }

    /// One row's arguments (none for `count(*)`).
    pub fn add(&mut self, arguments: &[Value], context: &Context) -> Result<(), SqlError> {
        if let Running::CountRows(count) = &mut self.running {
            *count += 1;
            return Ok(());
        }
        let value = match arguments.first() {
            Some(value) => value,
            None => return Err(SqlError::not_modelled("aggregate without an argument")),
        };
        if arguments.iter().any(Value::has_unknown) {
            self.unknown = true;
            return Ok(());
        }
        let keeps_nulls = matches!(
            self.running,
            Running::List { .. }
                | Running::JsonArray(_)
                | Running::JsonbArray(_)
                | Running::JsonObject(_)
                | Running::JsonbObject(_)
        );
        if value.is_null() && !keeps_nulls {
            return Ok(());
        }
        let call = Call {
            context,
            collation: self.collation,
        };
        match &mut self.running {
            Running::CountRows(_) | Running::NotModelled => {}
            Running::Count(count) => *count += 1,
            Running::SumInt(sum) => {
                *sum = Some(
                    sum.unwrap_or(0)
                        .checked_add(wide(value)?)
                        .ok_or_else(|| SqlError::out_of_range("bigint"))?,
                );
            }
            Running::SumNumeric(sum) => {
                let next = exact(value)?;
                *sum = Some(match sum.take() {
                    Some(before) => before.add(&next)?,
                    None => next,
                });
            }
            Running::AvgNumeric(sum, count) => {
                *sum = sum.add(&exact(value)?)?;
                *count += 1;
            }
            Running::Float {
                sum,
                count,
                exact,
                single,
                ..
            } => {
                let next = match value {
                    Value::Float4(v) => f64::from(*v),
                    Value::Float8(v) => *v,
                    _ => return Err(SqlError::not_modelled("argument of an unexpected type")),
                };
                // Whole numbers add up the same in any order while the sums stay exact. The sum of the
                // magnitudes bounds every partial sum.
                let limit = if *single {
                    16_777_216.0
                } else {
                    9_007_199_254_740_992.0
                };
                *exact &=
                    next.fract() == 0.0 && !(next == 0.0 && next.is_sign_negative()) && next.abs() < limit;
                *sum = if *count == 0 { next } else { *sum + next };
                *exact &= sum.abs() < limit && (*count < 1 << 20) && next.abs() < limit / 1_048_576.0;
                *count += 1;
            }
            Running::SumInterval(sum) | Running::AvgInterval(sum, _) => {
                let Value::Interval { months, days, micros } = *value else {
                    return Err(SqlError::not_modelled("argument of an unexpected type"));
                };
                let next = Interval { months, days, micros };
                *sum = Some(match *sum {
                    Some(before) => before.checked_add(next)?,
                    None => next,
                });
                if let Running::AvgInterval(_, count) = &mut self.running {
                    *count += 1;
                }
            }
            Running::Extreme {
                best,
                wanted,
                ambiguous,
                type_oid,
            } => match best {
                Value::Null => *best = value.clone(),
                _ => match sort_compare(
                    &comparable(value, *type_oid),
                    &comparable(best, *type_oid),
                    self.collation,
                ) {
                    None => self.unknown = true,
                    Some(Ordering::Equal) => *ambiguous |= identical(value, best) != Some(true),
                    Some(order) if order == *wanted => {
                        *best = value.clone();
                        *ambiguous = false;
                    }
                    Some(_) => {}
                },
            },
            Running::Bool { decisive, seen } => {
                let Value::Bool(value) = *value else {
                    return Err(SqlError::not_modelled("argument of an unexpected type"));
                };
                *seen = Some(match *seen {
                    Some(before) if before == *decisive => before,
                    _ => value,
                });
            }
            Running::Bits { seen, with } => {
                let next = wide(value)?;
                let joined = if seen.is_null() {
                    next
                } else {
                    with(wide(seen)?, next)
                };
                *seen = match value {
                    Value::Int2(_) => Value::Int2(joined as i16),
                    Value::Int4(_) => Value::Int4(joined as i32),
                    _ => Value::Int8(joined),
                };
            }
            Running::Text(so_far) => {
                let Value::Text(next) = value else {
                    return Err(SqlError::not_modelled("argument of an unexpected type"));
                };
                match so_far {
                    None => *so_far = Some(next.to_string()),
                    Some(text) => {
                        if let Some(Value::Text(separator)) = arguments.get(1) {
                            text.push_str(separator);
                        }
                        text.push_str(next);
                    }
                }
            }
            Running::List { items, .. } => items.get_or_insert_default().push(value.clone()),
            Running::JsonArray(items) => items.get_or_insert_default().push(json_text(value, &call)?),
            Running::JsonbArray(items) => items.get_or_insert_default().push(from_sql(value, &call)?),
            Running::JsonObject(items) => {
                let mut member = String::new();
                push_json_string(&mut member, &object_key(value, &call)?);
                member.push_str(" : ");
                member.push_str(&json_text(&arguments[1], &call)?);
                items.get_or_insert_default().push(member);
            }
            Running::JsonbObject(items) => {
                let member = (object_key(value, &call)?, from_sql(&arguments[1], &call)?);
                items.get_or_insert_default().push(member);
            }
        }
        Ok(())
    }

    pub fn finish(&self, context: &Context) -> Result<Value, SqlError> {
        let _ = context;
        if let Running::Bool {
            decisive,
            seen: Some(seen),
        } = self.running
            && seen == decisive
        {
            return Ok(Value::Bool(seen));
        }
        if self.unknown {
            return Ok(Value::Unknown);
        }
        Ok(match &self.running {
            Running::CountRows(count) | Running::Count(count) => Value::Int8(*count),
            Running::SumInt(sum) => sum.map_or(Value::Null, Value::Int8),
            Running::SumNumeric(sum) => sum.clone().map_or(Value::Null, Value::Numeric),
            Running::AvgNumeric(_, 0) | Running::Float { count: 0, .. } => Value::Null,
            Running::AvgNumeric(sum, count) => Value::Numeric(sum.div(&Numeric::from(*count))?),
            Running::Float {
                sum,
                count,
                exact,
                average,
                single,
            } => match (average, single) {
                _ if *count > 1 && !exact => Value::Unknown,
                (true, _) => Value::Float8((0.0 + sum) / *count as f64),
                (false, true) => Value::Float4(*sum as f32),
                (false, false) => Value::Float8(*sum),
            },
            Running::SumInterval(sum) => sum.map_or(Value::Null, Value::from),
            Running::AvgInterval(None, _) => Value::Null,
            Running::AvgInterval(Some(sum), 1) => (*sum).into(),
            Running::AvgInterval(Some(_), _) => Value::Unknown,
            Running::Extreme { ambiguous: true, .. } => Value::Unknown,
            Running::Extreme { best, .. } => best.clone(),
            Running::Bool { seen, .. } => seen.map_or(Value::Null, Value::Bool),
            Running::Bits { seen, .. } => seen.clone(),
            Running::Text(text) => text.as_deref().map_or(Value::Null, Value::text),
            Running::List { items: None, .. } => Value::Null,
            Running::List {
                element,
                items: Some(items),
            } => Value::Array(Arc::new(Array::vector(*element, items.clone()))),
            Running::JsonArray(None)
            | Running::JsonbArray(None)
            | Running::JsonObject(None)
            | Running::JsonbObject(None) => Value::Null,
            Running::JsonArray(Some(items)) => Value::Json(format!("[{}]", items.join(", ")).into()),
            Running::JsonbArray(Some(items)) => jsonb(Some(&Json::Array(items.clone()))),
            Running::JsonObject(Some(items)) => Value::Json(format!("{{ {} }}", items.join(", ")).into()),
            Running::JsonbObject(Some(items)) => jsonb(Some(&Json::object(items.clone()))),
            Running::NotModelled => return Err(SqlError::not_modelled("aggregate")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::encode_text;

    fn aggregate(name: &str, type_oid: TypeOid, inputs: &[Value]) -> Value {
        let context = Context::defaults();
        let resolved = resolve_aggregate(name, &[type_oid]).unwrap();
        let mut accumulator = Accumulator::new(&resolved, Collation::Bytes);
        for input in inputs {
            accumulator.add(std::slice::from_ref(input), &context).unwrap();
        }
        accumulator.finish(&context).unwrap()
    }

    fn shown(name: &str, type_oid: TypeOid, inputs: &[Value]) -> Option<String> {
        encode_text(&aggregate(name, type_oid, inputs), &Context::defaults())
    }

    #[test]
    fn sums_and_averages() {
        let ints = [Value::Int4(1), Value::Null, Value::Int4(2)];
        assert_eq!(shown("sum", oid::INT4, &ints).as_deref(), Some("3"));
        assert_eq!(
            shown("avg", oid::INT4, &ints).as_deref(),
            Some("1.5000000000000000")
        );
        assert_eq!(shown("count", oid::INT4, &ints).as_deref(), Some("2"));
        assert!(aggregate("sum", oid::INT4, &[Value::Null]).is_null());
    }

    #[test]
    fn what_depends_on_order_is_unknown() {
        let floats = [Value::Float8(0.1), Value::Float8(0.2)];
        assert!(aggregate("sum", oid::FLOAT8, &floats).is_unknown());
        assert_eq!(
            shown("sum", oid::FLOAT8, &[Value::Float8(1.0), Value::Float8(2.0)]).as_deref(),
            Some("3")
        );
        let ties = [
            Value::Numeric(Numeric::new(10, 1)),
            Value::Numeric(Numeric::new(100, 2)),
        ];
        assert!(aggregate("max", oid::NUMERIC, &ties).is_unknown());
        assert!(
            resolve_aggregate("string_agg", &[oid::TEXT, oid::TEXT])
                .unwrap()
                .order_sensitive
        );
    }

    #[test]
    fn one_true_decides() {
        let inputs = [Value::Unknown, Value::Bool(true)];
        assert!(matches!(
            aggregate("bool_or", oid::BOOL, &inputs),
            Value::Bool(true)
        ));
        assert!(aggregate("bool_and", oid::BOOL, &inputs).is_unknown());
    }
}
