//! Random expressions, as SQL and as the model sees them.

use super::cast;
use super::literals::{self, TYPES};
use pgassay_audit::value::catalog::CATALOG;
use pgassay_audit::value::{
    Accumulator, CastKind, Collation, Context, SqlError, TypeOid, Types, Value, call, common_type,
    encode_text, oid, resolve_aggregate, resolve_function, resolve_operator,
};
use std::sync::LazyLock;

#[derive(Clone, Debug)]
pub enum Expression {
    /// A literal without a type.
    Bare(String),
    /// `'…'::type`, or NULL::type.
    Typed(Option<String>, TypeOid),
    Cast(Box<Expression>, TypeOid, i32),
    Operator(&'static str, Option<Box<Expression>>, Box<Expression>),
    Function(&'static str, Vec<Expression>),
    Aggregate(&'static str, TypeOid, Vec<Option<String>>),
    /// The value that a column of the type holds after INSERT.
    Assign(Box<Expression>, TypeOid, i32),
    /// GREATEST and friends have no function; CASE shows the common type.
    Case(Box<Expression>, Box<Expression>),
}

pub enum Failure {
    Sql(SqlError),
    Unresolved(String),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Failure {
        Failure::Sql(error)
    }
}

type Typed = (Value, TypeOid);

/// Operators and functions that are modelled and take types that have literals here.
struct Vocabulary {
    operators: Vec<(&'static str, Option<TypeOid>, TypeOid)>,
    operator_names: Vec<&'static str>,
    functions: Vec<(&'static str, Vec<TypeOid>)>,
}

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let known = |type_oid: &TypeOid| TYPES.contains(type_oid);
    let mut operators = Vec::new();
    for row in &CATALOG.operators {
        let left = (row.left != 0).then_some(row.left);
        let usable = |t: TypeOid| known(&t) || is_generic(t);
        if usable(row.right) && left.is_none_or(usable) && modelled(row.function) {
            operators.push((row.name, left, row.right));
        }
    }
    let mut operator_names: Vec<&str> = operators.iter().map(|(name, ..)| *name).collect();
    operator_names.sort_unstable();
    operator_names.dedup();
    let mut functions = Vec::new();
    for (index, row) in CATALOG.functions.iter().enumerate() {
        let usable = row.arguments.iter().all(|t| known(t) || is_generic(*t)) && !row.arguments.is_empty();
        let named = row.kind == b'f' && !row.returns_set && row.volatility != b'v';
        if usable && named && modelled(index as u16) {
            functions.push((row.name, row.arguments.clone()));
        }
    }
    Vocabulary {
        operators,
        operator_names,
        functions,
    }
});

fn modelled(index: u16) -> bool {
    let row = &CATALOG.functions[index as usize];
    pgassay_audit::value::functions::implementation(row.source).is_some()
}

fn is_generic(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        oid::ANY
            | oid::ANYELEMENT
            | oid::ANYNONARRAY
            | oid::ANYARRAY
            | oid::ANYCOMPATIBLE
            | oid::ANYCOMPATIBLEARRAY
    )
}

fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

/// Columns that values are assigned to.
pub const COLUMNS: &[(TypeOid, i32)] = &[
    (oid::VARCHAR, 7),
    (oid::BPCHAR, 8),
    (oid::TEXT, -1),
    (oid::INT2, -1),
    (oid::INT4, -1),
    (oid::INT8, -1),
    (oid::NUMERIC, (5 << 16) + 2 + 4),
    (oid::NUMERIC, -1),
    (oid::FLOAT4, -1),
    (oid::FLOAT8, -1),
    (oid::BOOL, -1),
    (oid::DATE, -1),
    (oid::TIMESTAMP, 0),
    (oid::TIMESTAMPTZ, -1),
    (oid::JSONB, -1),
    (oid::UUID, -1),
];

const AGGREGATES: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "array_agg",
];

impl Expression {
    pub fn random(random: &mut fastrand::Rng) -> Expression {
        match random.u32(..100) {
            0..38 => Self::function(random),
            38..66 => Self::operator(random),
            66..74 => Self::loose_operator(random),
            74..84 => Self::cast(random),
            84..90 => {
                let (type_oid, typmod) = pick(random, COLUMNS);
                let inner = match random.u32(..3) {
                    0 => Expression::Bare(literals::random(random, type_oid)),
                    1 => Self::of_type(random, type_oid, 0),
                    _ => Self::value(random),
                };
                Expression::Assign(Box::new(inner), type_oid, typmod)
            }
            90..95 => Self::aggregate(random),
            _ => Self::Case(Box::new(Self::constant(random)), Box::new(Self::constant(random))),
        }
    }

    fn value(random: &mut fastrand::Rng) -> Expression {
        let type_oid = pick(random, TYPES);
        Self::of_type(random, type_oid, 0)
    }

    fn constant(random: &mut fastrand::Rng) -> Expression {
        let type_oid = pick(random, TYPES);
        let literal = literals::random(random, type_oid);
        if random.bool() {
            Expression::Typed(Some(literal), type_oid)
        } else {
            Expression::Bare(literal)
        }
    }

    /// Whether a part of it may raise an error of its own, before or after the whole.
    pub fn may_fail_in_part(&self, context: &Context) -> bool {
        let whole = self.evaluate(context).is_err();
        self.errors(context).len() > usize::from(whole) || self.has_bare_operand()
    }

    fn has_bare_operand(&self) -> bool {
        let bare = |part: &Expression| matches!(part, Expression::Bare(_)) || part.has_bare_operand();
        match self {
            Expression::Bare(_) | Expression::Typed(..) | Expression::Aggregate(..) => false,
            Expression::Cast(inner, ..) | Expression::Assign(inner, ..) => inner.has_bare_operand(),
            Expression::Operator(_, left, right) => {
                left.as_ref().is_some_and(|left| bare(left)) || bare(right)
            }
            Expression::Function(_, arguments) => arguments.len() > 1 && arguments.iter().any(bare),
            Expression::Case(a, b) => bare(a) || bare(b),
        }
    }

    /// Every error that a part of the expression raises: which one the server meets first is its choice.
    fn errors(&self, context: &Context) -> Vec<&'static str> {
        let parts: Vec<&Expression> = match self {
            Expression::Bare(_) | Expression::Typed(..) | Expression::Aggregate(..) => Vec::new(),
            Expression::Cast(inner, ..) | Expression::Assign(inner, ..) => vec![inner],
            Expression::Operator(_, left, right) => {
                left.iter().map(|left| &**left).chain([&**right]).collect()
            }
            Expression::Function(_, arguments) => arguments.iter().collect(),
            Expression::Case(a, b) => vec![a, b],
        };
        let mut errors: Vec<&'static str> = parts.into_iter().flat_map(|part| part.errors(context)).collect();
        if let Expression::Aggregate(_, t, rows) = self {
            let values = rows.iter().map(|row| Expression::Typed(row.clone(), *t));
            errors.extend(values.flat_map(|value| value.errors(context)));
        }
        if let Err(Failure::Sql(SqlError::Raised { sqlstate, .. })) = self.evaluate(context) {
            errors.push(sqlstate);
        }
        errors
    }

    /// Something of a type: a literal, or now and then a bare literal or a nested expression.
    fn of_type(random: &mut fastrand::Rng, type_oid: TypeOid, depth: u32) -> Expression {
        let concrete = match type_oid {
            oid::ANYARRAY | oid::ANYCOMPATIBLEARRAY => {
                pick(random, &[oid::INT4_ARRAY, oid::TEXT_ARRAY, oid::NUMERIC_ARRAY])
            }
            oid::ANYCOMPATIBLE => pick(random, &[oid::INT4, oid::TEXT, oid::NUMERIC]),
            generic if is_generic(generic) => pick(random, TYPES),
            plain => plain,
        };
        let literal = literals::random(random, concrete);
        match random.u32(..100) {
            0..6 => Expression::Typed(None, concrete),
            6..16 => Expression::Bare(literal),
            16..34 if depth < 2 => {
                let makers: Vec<_> = VOCABULARY
                    .operators
                    .iter()
                    .filter(|(name, ..)| result_of(name) == Some(concrete))
                    .collect();
                if !makers.is_empty() && random.bool() {
                    let (name, left, right) = makers[random.usize(..makers.len())];
                    return Self::with_operands(random, name, *left, *right, depth + 1);
                }
                let source = pick(random, TYPES);
                let inner = Self::of_type(random, source, depth + 1);
                Expression::Cast(Box::new(inner), concrete, -1)
            }
            _ => Expression::Typed(Some(literal), concrete),
        }
    }

    fn with_operands(
        random: &mut fastrand::Rng,
        name: &'static str,
        left: Option<TypeOid>,
        right: TypeOid,
        depth: u32,
    ) -> Expression {
        let left = left.map(|t| Box::new(Self::of_type(random, t, depth)));
        Expression::Operator(name, left, Box::new(Self::of_type(random, right, depth)))
    }

    fn operator(random: &mut fastrand::Rng) -> Expression {
        let (name, left, right) = pick(random, &VOCABULARY.operators);
        Self::with_operands(random, name, left, right, 0)
    }

    /// Any two types around any operator: does the name resolve to the same function?
    fn loose_operator(random: &mut fastrand::Rng) -> Expression {
        let name = pick(random, &VOCABULARY.operator_names);
        let (left, right) = (Self::value(random), Self::value(random));
        Expression::Operator(name, Some(Box::new(left)), Box::new(right))
    }

    fn function(random: &mut fastrand::Rng) -> Expression {
        let (name, declared) = &VOCABULARY.functions[random.usize(..VOCABULARY.functions.len())];
        let mut arguments: Vec<Expression> = declared.iter().map(|t| Self::of_type(random, *t, 0)).collect();
        // These take words of their own; a random text would seldom be one.
        if matches!(*name, "date_trunc" | "date_part" | "extract") {
            arguments[0] = Expression::Bare(pick(random, literals::UNITS).to_owned());
        }
        // Huge texts and the divisors of huge numbers take the server minutes.
        if matches!(*name, "repeat" | "lpad" | "rpad") {
            arguments[1] = Expression::Typed(Some(random.i32(-3..40).to_string()), oid::INT4);
        }
        if matches!(*name, "gcd" | "numeric_gcd") && declared[0] == oid::NUMERIC {
            let mut small = || {
                Expression::Typed(
                    Some(format!("{}.{}", random.i32(-99..9999), random.u8(..))),
                    oid::NUMERIC,
                )
            };
            arguments = vec![small(), small()];
        }
        if matches!(*name, "to_char" | "to_date" | "to_timestamp") && arguments.len() == 2 {
            arguments[1] = Expression::Bare(pick(random, literals::TEMPLATES).to_owned());
        }
        if declared.last() == Some(&oid::ANY) {
            for _ in 0..random.u32(..3) {
                arguments.push(Self::of_type(random, oid::ANY, 0));
            }
        }
        Expression::Function(name, arguments)
    }

    fn cast(random: &mut fastrand::Rng) -> Expression {
        let to = pick(random, TYPES);
        let typmod = match to {
            oid::VARCHAR | oid::BPCHAR => pick(random, &[-1, 5, 7, 9]),
            oid::NUMERIC => pick(
                random,
                &[
                    -1,
                    (5 << 16) + 2 + 4,
                    (3 << 16) + 4,
                    (20 << 16) + 10 + 4,
                    (1000 << 16) + 4,
                ],
            ),
            oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::TIME => pick(random, &[-1, 0, 2, 6]),
            _ => -1,
        };
        let inner = match random.bool() {
            true => Expression::Bare(literals::random(random, to)),
            false => Self::value(random),
        };
        Expression::Cast(Box::new(inner), to, typmod)
    }

    fn aggregate(random: &mut fastrand::Rng) -> Expression {
        let name = pick(random, AGGREGATES);
        let type_oid = pick(random, TYPES);
        let rows = (0..random.usize(1..5))
            .map(|_| {
                if random.u32(..6) == 0 {
                    None
                } else {
                    Some(literals::random(random, type_oid))
                }
            })
            .collect();
        Expression::Aggregate(name, type_oid, rows)
    }

    /// What the statistics count it under.
    pub fn construct(&self) -> String {
        let name = |t: TypeOid| literals::type_name(t);
        match self {
            Expression::Bare(_) | Expression::Typed(..) => "literal".to_owned(),
            Expression::Cast(inner, to, _) => match &**inner {
                Expression::Bare(_) => format!("literal::{}", name(*to)),
                Expression::Typed(_, from) => format!("{}::{}", name(*from), name(*to)),
                _ => format!("…::{}", name(*to)),
            },
            Expression::Assign(_, to, _) => format!("assignment to {}", name(*to)),
            Expression::Operator(name, ..) => format!("operator {name}"),
            Expression::Function(name, _) => format!("{name}()"),
            Expression::Aggregate(aggregate, t, _) => format!("aggregate {aggregate}({})", name(*t)),
            Expression::Case(..) => "CASE".to_owned(),
        }
    }

    pub fn sql(&self) -> String {
        match self {
            Expression::Bare(literal) => literals::quoted(literal),
            Expression::Typed(Some(literal), t) => literals::typed(*t, literal),
            Expression::Typed(None, t) => format!("NULL::{}", literals::type_name(*t)),
            Expression::Cast(inner, to, typmod) => {
                format!("({})::{}", inner.sql(), with_typmod(*to, *typmod))
            }
            Expression::Assign(inner, to, typmod) => {
                format!(
                    "assigned({}, {})",
                    literals::quoted(&with_typmod(*to, *typmod)),
                    literals::quoted(&inner.sql())
                )
            }
            Expression::Operator(name, None, right) => format!("({name} ({}))", right.sql()),
            Expression::Operator(name, Some(left), right) => {
                format!("(({}) {name} ({}))", left.sql(), right.sql())
            }
            Expression::Function(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(Expression::sql).collect();
                format!("pg_catalog.\"{name}\"({})", arguments.join(", "))
            }
            Expression::Aggregate(name, t, rows) => {
                let rows: Vec<String> = rows
                    .iter()
                    .map(|row| format!("({})", Expression::Typed(row.clone(), *t).sql()))
                    .collect();
                format!("(SELECT {name}(v.x) FROM (VALUES {}) v(x))", rows.join(", "))
            }
            Expression::Case(a, b) => format!("CASE WHEN 1 = 1 THEN {} ELSE {} END", a.sql(), b.sql()),
        }
    }

    pub fn evaluate(&self, context: &Context) -> Result<Typed, Failure> {
        match self {
            Expression::Bare(literal) => Ok((Value::text(literal.as_str()), oid::UNKNOWN)),
            Expression::Typed(None, t) => Ok((Value::Null, *t)),
            Expression::Typed(Some(literal), t) => Ok((
                cast(
                    &Value::text(literal.as_str()),
                    oid::UNKNOWN,
                    *t,
                    -1,
                    CastKind::Explicit,
                    context,
                )?,
                *t,
            )),
            Expression::Cast(inner, to, typmod) => {
                let (value, from) = inner.evaluate(context)?;
                if !Types::BUILT_IN.can_cast(from, *to, CastKind::Explicit) {
                    return Err(Failure::Unresolved(format!("cast {from} to {to}")));
                }
                Ok((
                    cast(&value, from, *to, *typmod, CastKind::Explicit, context)?,
                    *to,
                ))
            }
            Expression::Assign(inner, to, typmod) => {
                let (value, from) = inner.evaluate(context)?;
                if !Types::BUILT_IN.can_cast(from, *to, CastKind::Assignment) {
                    return Err(Failure::Unresolved(format!("assignment {from} to {to}")));
                }
                let value = cast(&value, from, *to, *typmod, CastKind::Assignment, context)?;
                // The helper on the server prints it.
                match value {
                    Value::Null | Value::Unknown => Ok((value, oid::TEXT)),
                    known => {
                        let text =
                            encode_text(&known, context).ok_or_else(|| SqlError::not_modelled("text"))?;
                        Ok((Value::text(text), oid::TEXT))
                    }
                }
            }
            Expression::Operator(name, left, right) => {
                let left = left.as_ref().map(|left| left.evaluate(context)).transpose()?;
                let right = right.evaluate(context)?;
                let resolved = resolve_operator(name, left.as_ref().map(|(_, t)| *t), Some(right.1))
                    .ok_or_else(|| Failure::Unresolved(format!("operator {name}")))?;
                let operands: Vec<Typed> = left.into_iter().chain([right]).collect();
                Ok((
                    apply(resolved.function, &resolved.arguments, operands, context)?,
                    resolved.result,
                ))
            }
            Expression::Function(name, arguments) => {
                let arguments: Result<Vec<Typed>, Failure> =
                    arguments.iter().map(|a| a.evaluate(context)).collect();
                let arguments = arguments?;
                let types: Vec<TypeOid> = arguments.iter().map(|(_, t)| *t).collect();
                if let Some(to) = Types::BUILT_IN.function_is_cast(name, &types) {
                    return Ok((
                        cast(&arguments[0].0, types[0], to, -1, CastKind::Explicit, context)?,
                        to,
                    ));
                }
                let resolved =
                    resolve_function(name, &types).ok_or_else(|| Failure::Unresolved(format!("{name}()")))?;
                Ok((
                    apply(resolved.function, &resolved.arguments, arguments, context)?,
                    resolved.result,
                ))
            }
            Expression::Aggregate(name, t, rows) => {
                let resolved = resolve_aggregate(name, &[*t])
                    .ok_or_else(|| Failure::Unresolved(format!("aggregate {name}")))?;
                let mut accumulator = Accumulator::new(&resolved, Collation::Bytes);
                let mut values = Vec::new();
                for row in rows {
                    let (value, from) = Expression::Typed(row.clone(), *t).evaluate(context)?;
                    values.push(cast(
                        &value,
                        from,
                        resolved.arguments[0],
                        -1,
                        CastKind::Implicit,
                        context,
                    )?);
                }
                for value in values {
                    accumulator.add(&[value], context)?;
                }
                Ok((accumulator.finish(context)?, resolved.result))
            }
            Expression::Case(a, b) => {
                let ((value, from), (_, other)) = (a.evaluate(context)?, b.evaluate(context)?);
                // The ELSE arm comes first in the server's choice of the type.
                let to = common_type(&[other, from]).ok_or_else(|| Failure::Unresolved("CASE".to_owned()))?;
                if other == oid::UNKNOWN {
                    cast(
                        &b.evaluate(context)?.0,
                        other,
                        to,
                        -1,
                        CastKind::Implicit,
                        context,
                    )?;
                }
                Ok((cast(&value, from, to, -1, CastKind::Implicit, context)?, to))
            }
        }
    }
}

/// Casts the arguments as the resolution says, and calls.
fn apply(
    function: pgassay_audit::value::FunctionId,
    wanted: &[TypeOid],
    arguments: Vec<Typed>,
    context: &Context,
) -> Result<Value, Failure> {
    let mut values = Vec::with_capacity(arguments.len());
    for ((value, from), to) in arguments.into_iter().zip(wanted) {
        values.push(cast(&value, from, *to, -1, CastKind::Implicit, context)?);
    }
    Ok(call(function, &values, context)?)
}

/// The type that an operator of this name gives, where all of that name give one.
fn result_of(name: &str) -> Option<TypeOid> {
    let mut results = CATALOG
        .operators
        .iter()
        .filter(|row| row.name == name)
        .map(|row| row.result);
    let first = results.next()?;
    (matches!(name, "=" | "<" | "||" | "+" | "*" | "-" | "/")).then_some(first)
}

pub fn with_typmod(type_oid: TypeOid, typmod: i32) -> String {
    let plain = literals::type_name(type_oid);
    if typmod < 0 {
        return plain;
    }
    match type_oid {
        oid::VARCHAR => format!("varchar({})", typmod - 4),
        oid::BPCHAR => format!("char({})", typmod - 4),
        oid::NUMERIC => format!("numeric({},{})", (typmod - 4) >> 16, (typmod - 4) & 0x7ff),
        oid::TIMESTAMP => format!("timestamp({typmod})"),
        oid::TIMESTAMPTZ => format!("timestamptz({typmod})"),
        oid::TIME => format!("time({typmod})"),
        _ => plain,
    }
}
