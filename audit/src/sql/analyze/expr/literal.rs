//! Constants, parameters and casts.

use crate::sql::analyze::{Analyzer, Result, Typed, unmodelled};
use crate::sql::plan::{Bind, Expr, Source};
use crate::value::{self, CastKind, Context, TypeOid, Value, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, SqlValueFunctionOp, a_const};
use std::sync::Arc;

impl Analyzer<'_> {
    pub(super) fn constant(&mut self, constant: &pg::AConst) -> Result<Typed> {
        if constant.isnull {
            return Ok(self.typed(Expr::null(), oid::UNKNOWN));
        }
        let Some(val) = &constant.val else {
            return unmodelled("constant");
        };
        if self.embedded == 0 {
            if let a_const::Val::Boolval(_) = val {
            } else if let Some(index) = self.literals.get(&constant.location).copied() {
                let bind = Bind {
                    source: Source::Literal(index),
                    casts: Vec::new(),
                    negate: false,
                };
                let type_oid = match val {
                    a_const::Val::Ival(_) => oid::INT4,
                    a_const::Val::Sval(_) => oid::UNKNOWN,
                    a_const::Val::Fval(float) => number_type(&float.fval),
                    _ => return unmodelled("bit_string"),
                };
                let expr = self.bind(bind);
                return Ok(self.typed(expr, type_oid));
            } else if let a_const::Val::Ival(integer) = val {
                // The grammar folds the sign into the constant, which then stands where the sign is.
                let following = (constant.location + 1..)
                    .take(32)
                    .find_map(|place| self.literals.get(&place).copied());
                if let Some(index) = following {
                    if integer.ival < 0
                        && self.literal_values[index] == integer.ival.unsigned_abs().to_string()
                    {
                        let expr = self.bind(Bind {
                            source: Source::Literal(index),
                            casts: Vec::new(),
                            negate: true,
                        });
                        return Ok(self.typed(expr, oid::INT4));
                    }
                }
                self.pin_all();
            } else {
                self.pin_all();
            }
        }
        Ok(match val {
            a_const::Val::Ival(integer) => self.typed(Expr::Const(Value::Int4(integer.ival)), oid::INT4),
            a_const::Val::Boolval(boolean) => {
                self.typed(Expr::Const(Value::Bool(boolean.boolval)), oid::BOOL)
            }
            a_const::Val::Sval(string) => self.typed(
                Expr::Const(Value::Text(Arc::from(string.sval.as_str()))),
                oid::UNKNOWN,
            ),
            a_const::Val::Fval(float) => {
                let type_oid = number_type(&float.fval);
                let value = match type_oid {
                    oid::INT4 => float.fval.parse().map_or(Value::Unknown, Value::Int4),
                    oid::INT8 => float.fval.parse().map_or(Value::Unknown, Value::Int8),
                    _ => value::parse(&float.fval, oid::NUMERIC, -1, &Context::defaults())
                        .unwrap_or(Value::Unknown),
                };
                self.typed(Expr::Const(value), type_oid)
            }
            a_const::Val::Bsval(_) => return unmodelled("bit_string"),
        })
    }

    pub(in crate::sql::analyze) fn parameter(&mut self, number: i32) -> Result<Typed> {
        if !(1..=65_535).contains(&number) {
            return unmodelled("parameter_number");
        }
        let number = number as usize - 1;
        if self.parameter_types.len() <= number {
            self.parameter_types.resize(number + 1, 0);
        }
        let type_oid = match self.parameter_types[number] {
            0 => oid::UNKNOWN,
            known => known,
        };
        let expr = self.bind(Bind {
            source: Source::Parameter(number),
            casts: Vec::new(),
            negate: false,
        });
        Ok(self.typed(expr, type_oid))
    }

    pub(super) fn sql_value(&mut self, function: &pg::SqlValueFunction) -> Result<Typed> {
        use SqlValueFunctionOp as Op;
        let (name, target) = match Op::try_from(function.op) {
            Ok(Op::SvfopCurrentDate) => ("now", oid::DATE),
            Ok(Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN) => ("now", oid::TIMESTAMPTZ),
            Ok(Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN) => ("now", oid::TIMESTAMP),
            Ok(Op::SvfopLocaltime | Op::SvfopLocaltimeN) => ("now", oid::TIME),
            Ok(Op::SvfopCurrentUser | Op::SvfopCurrentRole | Op::SvfopUser) => ("current_user", oid::NAME),
            Ok(Op::SvfopSessionUser) => ("session_user", oid::NAME),
            Ok(Op::SvfopCurrentCatalog) => ("current_database", oid::NAME),
            Ok(Op::SvfopCurrentSchema) => ("current_schema", oid::NAME),
            _ => return unmodelled("current_time"),
        };
        let Some(resolved) = self.types().resolve_function(name, &[]) else {
            return Ok(self.unknown(target));
        };
        if !resolved.function.is_modelled() {
            return Ok(self.unknown(target));
        }
        let call = Expr::Call {
            function: resolved.function,
            arguments: Vec::new(),
        };
        let call = self.typed(call, resolved.result);
        self.coerce(call, target, function.typmod, CastKind::Explicit)
    }

    pub(super) fn type_cast(&mut self, cast: &pg::TypeCast) -> Result<Typed> {
        let Some(type_name) = &cast.type_name else {
            return unmodelled("cast");
        };
        let (target, type_modifier) = self.type_name(type_name)?;
        let argument = self.required(&cast.arg)?;
        if let (Some(NodeEnum::AArrayExpr(array)), Some(element)) =
            (&argument.node, self.types().element(target))
        {
            return self.array(array, Some((element, target, type_modifier)));
        }
        if target == oid::REGCLASS || target == oid::REGTYPE || target == oid::REGPROC {
            return unmodelled("reg_type");
        }
        let typed = self.expr(argument)?;
        let collation = typed.collation;
        if self.domain_has_checks(target) {
            return unmodelled("domain_constraint");
        }
        let result = self.coerce(typed, target, type_modifier, CastKind::Explicit)?;
        Ok(Typed { collation, ..result })
    }
}

/// make_const: a number without a point that fits is an integer.
pub(super) fn number_type(text: &str) -> TypeOid {
    match text.parse::<i64>() {
        Ok(value) if i32::try_from(value).is_ok() => oid::INT4,
        Ok(_) => oid::INT8,
        Err(_) => oid::NUMERIC,
    }
}
