//! Expressions: from parse tree to typed expression.

use super::{Analyzer, Collated, Result, Typed, Unmodelled, strings_of, unmodelled};
use crate::sql::plan::{Bind, Expr, Query, Source};
use crate::value::{self, CastKind, Collation, Context, FunctionKind, TypeOid, Value, Volatility, oid};
use pg_query::protobuf::{
    self as pg, AExprKind, BoolExprType, BoolTestType, MinMaxOp, NullTestType, SqlValueFunctionOp,
    SubLinkType, a_const,
};
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

impl Analyzer<'_> {
    /// An expression; what is not modelled in it becomes unknown.
    pub(super) fn expr_or_unknown(&mut self, node: &Node) -> Typed {
        let (levels, ctes, embedded) = (self.levels.len(), self.ctes.len(), self.embedded);
        match self.expr(node) {
            Ok(typed) => typed,
            Err(Unmodelled(reason)) => {
                self.levels.truncate(levels);
                self.ctes.truncate(ctes);
                self.embedded = embedded;
                if reason.starts_with("set_returning") {
                    // The number of rows changes: nothing of the query is known.
                    self.fatal = Some(reason.clone());
                }
                self.note(reason);
                if let Some(node) = &node.node {
                    self.raw_touches(node, false);
                }
                self.unknown(0)
            }
        }
    }

    /// A condition, as the list of things that must all hold.
    pub(super) fn conditions(&mut self, node: &Node, into: &mut Vec<Expr>) {
        if let Some(NodeEnum::BoolExpr(bool_expr)) = &node.node {
            if bool_expr.boolop == BoolExprType::AndExpr as i32 {
                for argument in &bool_expr.args {
                    self.conditions(argument, into);
                }
                return;
            }
        }
        let typed = self.expr_or_unknown(node);
        let expr = match self.coerce(typed, oid::BOOL, -1, CastKind::Implicit) {
            Ok(typed) => typed.expr,
            Err(Unmodelled(reason)) => {
                self.note(reason);
                Expr::Unknown
            }
        };
        match expr {
            Expr::And(parts) => into.extend(parts),
            other => into.push(other),
        }
    }

    pub(super) fn unknown(&self, type_oid: TypeOid) -> Typed {
        Typed {
            expr: Expr::Unknown,
            oid: type_oid,
            type_modifier: -1,
            collation: Collated::Default,
        }
    }

    pub(super) fn typed(&self, expr: Expr, type_oid: TypeOid) -> Typed {
        Typed {
            expr,
            oid: type_oid,
            type_modifier: -1,
            collation: Collated::Default,
        }
    }

    pub(super) fn expr(&mut self, node: &Node) -> Result<Typed> {
        let Some(node) = &node.node else {
            return unmodelled("empty_expression");
        };
        match node {
            NodeEnum::AConst(constant) => self.constant(constant),
            NodeEnum::ParamRef(parameter) => self.parameter(parameter.number),
            NodeEnum::ColumnRef(column) => self.column_ref(column),
            NodeEnum::AExpr(expression) => self.a_expr(expression),
            NodeEnum::BoolExpr(expression) => self.bool_expr(expression),
            NodeEnum::TypeCast(cast) => self.type_cast(cast),
            NodeEnum::FuncCall(call) => self.func_call(call),
            NodeEnum::NullTest(test) => {
                let argument = self.required(&test.arg)?;
                if matches!(argument.node, Some(NodeEnum::RowExpr(_))) {
                    return unmodelled("row_is_null");
                }
                let typed = self.expr(argument)?;
                let wants_null = test.nulltesttype == NullTestType::IsNull as i32;
                Ok(self.typed(Expr::IsNull(Box::new(typed.expr), wants_null), oid::BOOL))
            }
            NodeEnum::BooleanTest(test) => {
                let typed = self.expr(self.required(&test.arg)?)?;
                let typed = self.coerce(typed, oid::BOOL, -1, CastKind::Implicit)?;
                let (wanted, negated) = match BoolTestType::try_from(test.booltesttype) {
                    Ok(BoolTestType::IsTrue) => (Some(true), false),
                    Ok(BoolTestType::IsNotTrue) => (Some(true), true),
                    Ok(BoolTestType::IsFalse) => (Some(false), false),
                    Ok(BoolTestType::IsNotFalse) => (Some(false), true),
                    Ok(BoolTestType::IsUnknown) => (None, false),
                    _ => (None, true),
                };
                Ok(self.typed(
                    Expr::BoolTest {
                        argument: Box::new(typed.expr),
                        wanted,
                        negated,
                    },
                    oid::BOOL,
                ))
            }
            NodeEnum::CaseExpr(case) => self.case(case),
            NodeEnum::CoalesceExpr(coalesce) => {
                let arguments = self.exprs(&coalesce.args)?;
                let (arguments, type_oid, collation) = self.unify(arguments)?;
                Ok(Typed {
                    expr: Expr::Coalesce(arguments),
                    oid: type_oid,
                    type_modifier: -1,
                    collation,
                })
            }
            NodeEnum::MinMaxExpr(extreme) => {
                let arguments = self.exprs(&extreme.args)?;
                let (arguments, type_oid, collation) = self.unify(arguments)?;
                let Some(less) = self.types().resolve_operator("<", Some(type_oid), Some(type_oid)) else {
                    return unmodelled("greatest_least");
                };
                let greatest = extreme.op == MinMaxOp::IsGreatest as i32;
                let less = self.collated(less.function, collation);
                Ok(Typed {
                    expr: Expr::Extreme {
                        arguments,
                        less,
                        greatest,
                    },
                    oid: type_oid,
                    type_modifier: -1,
                    collation,
                })
            }
            NodeEnum::SubLink(link) => self.sub_link(link),
            NodeEnum::SqlvalueFunction(function) => self.sql_value(function),
            NodeEnum::AArrayExpr(array) => self.array(array, None),
            NodeEnum::AIndirection(indirection) => self.indirection(indirection),
            NodeEnum::CollateClause(clause) => {
                let typed = self.expr(self.required(&clause.arg)?)?;
                let typed = self.resolve_unknown(typed)?;
                let names = strings_of(&clause.collname);
                let collation = match names.last().copied() {
                    Some("default") => {
                        return Ok(Typed {
                            collation: Collated::Default,
                            ..typed
                        });
                    }
                    Some(name) => Collation::named(name),
                    None => return unmodelled("collate"),
                };
                if collation == Collation::Nondeterministic {
                    // Texts with different bytes may be equal: nothing is known of what is done with it.
                    self.note("collation");
                    return Ok(Typed {
                        expr: Expr::Unknown,
                        ..typed
                    });
                }
                Ok(Typed {
                    collation: Collated::Explicit(collation),
                    ..typed
                })
            }
            NodeEnum::RowExpr(_) => unmodelled("row_expression"),
            NodeEnum::SetToDefault(_) => unmodelled("default_in_expression"),
            NodeEnum::GroupingFunc(function) => self.grouping_function(function),
            NodeEnum::CurrentOfExpr(_) => unmodelled("where_current_of"),
            NodeEnum::XmlExpr(_) | NodeEnum::XmlSerialize(_) => unmodelled("xml"),
            _ => unmodelled("expression"),
        }
    }

    pub(super) fn exprs(&mut self, nodes: &[Node]) -> Result<Vec<Typed>> {
        nodes.iter().map(|node| self.expr(node)).collect()
    }

    pub(super) fn required<'n>(&self, node: &'n Option<Box<Node>>) -> Result<&'n Node> {
        match node {
            Some(node) => Ok(node),
            None => unmodelled("empty_expression"),
        }
    }

    fn constant(&mut self, constant: &pg::AConst) -> Result<Typed> {
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

    pub(super) fn parameter(&mut self, number: i32) -> Result<Typed> {
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

    fn a_expr(&mut self, expression: &pg::AExpr) -> Result<Typed> {
        let name = strings_of(&expression.name)
            .last()
            .copied()
            .unwrap_or("")
            .to_owned();
        let kind = AExprKind::try_from(expression.kind).unwrap_or(AExprKind::Undefined);
        match kind {
            AExprKind::AexprOp | AExprKind::AexprLike | AExprKind::AexprIlike | AExprKind::AexprSimilar => {
                let right = self.required(&expression.rexpr)?;
                let Some(left) = &expression.lexpr else {
                    let argument = self.expr(right)?;
                    return self.prefix_operator(&name, argument);
                };
                if let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::RowExpr(right))) =
                    (&left.node, &right.node)
                {
                    return self.row_compare(&name, &left.args, &right.args);
                }
                let left = self.expr(left)?;
                let right = self.expr(right)?;
                self.operator(&name, left, right)
            }
            AExprKind::AexprOpAny | AExprKind::AexprOpAll => {
                let left = self.expr(self.required(&expression.lexpr)?)?;
                let right = self.expr(self.required(&expression.rexpr)?)?;
                self.any_array(&name, left, right, kind == AExprKind::AexprOpAll)
            }
            AExprKind::AexprDistinct | AExprKind::AexprNotDistinct => {
                let left = self.expr(self.required(&expression.lexpr)?)?;
                let right = self.expr(self.required(&expression.rexpr)?)?;
                let (left, right, equal) = self.equality(left, right)?;
                let negated = kind == AExprKind::AexprNotDistinct;
                Ok(self.typed(
                    Expr::Distinct {
                        arguments: Box::new((left, right)),
                        equal,
                        negated,
                    },
                    oid::BOOL,
                ))
            }
            AExprKind::AexprNullif => {
                let left = self.expr(self.required(&expression.lexpr)?)?;
                let right = self.expr(self.required(&expression.rexpr)?)?;
                let Some(resolved) = self
                    .types()
                    .resolve_operator("=", Some(left.oid), Some(right.oid))
                else {
                    return unmodelled("nullif");
                };
                let (type_oid, collation) = (resolved.arguments[0], left.collation);
                let (first, second, equal) = self.equality(left, right)?;
                // The result is the left side as it was compared: NULLIF(varchar, varchar) is text.
                let expr = Expr::Case {
                    whens: vec![(
                        Expr::Equal {
                            sides: Box::new((first.clone(), second)),
                            function: equal,
                            types: (0, 0),
                        },
                        Expr::null(),
                    )],
                    otherwise: Box::new(first),
                };
                Ok(Typed {
                    expr,
                    oid: type_oid,
                    type_modifier: -1,
                    collation,
                })
            }
            AExprKind::AexprIn => {
                let negated = name == "<>";
                let left_node = self.required(&expression.lexpr)?;
                let Some(NodeEnum::List(list)) = &self.required(&expression.rexpr)?.node else {
                    return unmodelled("in_list");
                };
                if let Some(NodeEnum::RowExpr(row)) = &left_node.node {
                    let mut alternatives = Vec::new();
                    for item in &list.items {
                        let Some(NodeEnum::RowExpr(right)) = &item.node else {
                            return unmodelled("in_list");
                        };
                        alternatives.push(self.row_compare("=", &row.args, &right.args)?.expr);
                    }
                    let any = Expr::Or(alternatives);
                    let expr = if negated { Expr::Not(Box::new(any)) } else { any };
                    return Ok(self.typed(expr, oid::BOOL));
                }
                let left = self.expr(left_node)?;
                self.in_list(left, &list.items, negated)
            }
            AExprKind::AexprBetween | AExprKind::AexprNotBetween => {
                let Some(NodeEnum::List(list)) = &self.required(&expression.rexpr)?.node else {
                    return unmodelled("between");
                };
                let [low, high] = list.items.as_slice() else {
                    return unmodelled("between");
                };
                let left = self.required(&expression.lexpr)?;
                let (first, second) = if kind == AExprKind::AexprBetween {
                    (">=", "<=")
                } else {
                    ("<", ">")
                };
                let (value, low) = (self.expr(left)?, self.expr(low)?);
                let one = self.operator(first, value, low)?.expr;
                let (value, high) = (self.expr(left)?, self.expr(high)?);
                let other = self.operator(second, value, high)?.expr;
                let expr = match kind {
                    AExprKind::AexprBetween => Expr::And(vec![one, other]),
                    _ => Expr::Or(vec![one, other]),
                };
                Ok(self.typed(expr, oid::BOOL))
            }
            AExprKind::AexprBetweenSym | AExprKind::AexprNotBetweenSym => unmodelled("between_symmetric"),
            AExprKind::Undefined => unmodelled("expression"),
        }
    }

    /// Both sides cast to what `=` compares, and the function that does it.
    pub(super) fn equality(&mut self, left: Typed, right: Typed) -> Result<(Expr, Expr, value::FunctionId)> {
        let Some(resolved) = self
            .types()
            .resolve_operator("=", Some(left.oid), Some(right.oid))
        else {
            return unmodelled("operator_=");
        };
        let collation = self.combine(left.collation, right.collation);
        let left = self.coerce(left, resolved.arguments[0], -1, CastKind::Implicit)?;
        let right = self.coerce(right, resolved.arguments[1], -1, CastKind::Implicit)?;
        Ok((left.expr, right.expr, self.collated(resolved.function, collation)))
    }

    pub(super) fn operator(&mut self, name: &str, left: Typed, right: Typed) -> Result<Typed> {
        if left.oid == 0 || right.oid == 0 {
            let boolean = matches!(
                name,
                "=" | "<>" | "!=" | "<" | ">" | "<=" | ">=" | "~~" | "~" | "~*" | "!~~"
            );
            return Ok(self.unknown(if boolean { oid::BOOL } else { 0 }));
        }
        let Some(resolved) = self
            .types()
            .resolve_operator(name, Some(left.oid), Some(right.oid))
        else {
            return unmodelled(format!("operator_{name}"));
        };
        let collation = self.combine(left.collation, right.collation);
        let left = self.coerce(left, resolved.arguments[0], -1, CastKind::Implicit)?;
        let right = self.coerce(right, resolved.arguments[1], -1, CastKind::Implicit)?;
        if !resolved.function.is_modelled() {
            self.note(format!("operator_{name}"));
            return Ok(self.unknown(resolved.result));
        }
        let function = self.collated(resolved.function, collation);
        let expr = if name == "=" {
            let types = (resolved.arguments[0], resolved.arguments[1]);
            Expr::Equal {
                sides: Box::new((left.expr, right.expr)),
                function,
                types,
            }
        } else {
            let expr = Expr::Call {
                function,
                arguments: vec![left.expr, right.expr],
            };
            self.keep_constant(&expr);
            expr
        };
        Ok(Typed {
            expr,
            oid: resolved.result,
            type_modifier: -1,
            collation,
        })
    }

    fn prefix_operator(&mut self, name: &str, argument: Typed) -> Result<Typed> {
        if argument.oid == 0 {
            return Ok(self.unknown(0));
        }
        let Some(resolved) = self.types().resolve_operator(name, None, Some(argument.oid)) else {
            return unmodelled(format!("operator_{name}"));
        };
        let argument = self.coerce(argument, resolved.arguments[0], -1, CastKind::Implicit)?;
        if !resolved.function.is_modelled() {
            self.note(format!("operator_{name}"));
            return Ok(self.unknown(resolved.result));
        }
        let expr = Expr::Call {
            function: resolved.function,
            arguments: vec![argument.expr],
        };
        self.keep_constant(&expr);
        Ok(self.typed(expr, resolved.result))
    }

    fn row_compare(&mut self, name: &str, left: &[Node], right: &[Node]) -> Result<Typed> {
        if left.len() != right.len() || left.is_empty() {
            return unmodelled("row_comparison");
        }
        let mut sides = Vec::new();
        for (left, right) in left.iter().zip(right) {
            sides.push((self.expr(left)?, self.expr(right)?));
        }
        let expr = match name {
            "=" | "<>" | "!=" => {
                let mut parts = Vec::new();
                for (left, right) in sides {
                    parts.push(self.operator("=", left, right)?.expr);
                }
                let all = Expr::And(parts);
                if name == "=" {
                    all
                } else {
                    Expr::Not(Box::new(all))
                }
            }
            "<" | "<=" | ">" | ">=" => {
                let strict = &name[..1];
                let mut pairs = Vec::new();
                for (left, right) in sides {
                    let (first, second, equal) = self.equality(left.clone(), right.clone())?;
                    let Some(order) = self
                        .types()
                        .resolve_operator(strict, Some(left.oid), Some(right.oid))
                    else {
                        return unmodelled("row_comparison");
                    };
                    let collation = self.combine(left.collation, right.collation);
                    pairs.push((first, second, equal, self.collated(order.function, collation)));
                }
                Expr::RowCompare {
                    pairs,
                    or_equal: name.len() == 2,
                }
            }
            _ => return unmodelled("row_comparison"),
        };
        Ok(self.typed(expr, oid::BOOL))
    }

    fn in_list(&mut self, left: Typed, items: &[Node], negated: bool) -> Result<Typed> {
        let mut resolved = Vec::new();
        let left_type = left.oid;
        if left_type == 0 {
            return Ok(self.unknown(oid::BOOL));
        }
        for item in items {
            let item = self.expr(item)?;
            let Some(operator) = self
                .types()
                .resolve_operator("=", Some(left_type), Some(item.oid))
            else {
                return unmodelled("in_list");
            };
            resolved.push((operator, item));
        }
        let Some((first, _)) = resolved.first() else {
            return unmodelled("in_list");
        };
        let target = first.arguments[0];
        if resolved
            .iter()
            .any(|(operator, _)| operator.arguments[0] != target || !operator.function.is_modelled())
        {
            // Every item is compared in its own way.
            let mut alternatives = Vec::new();
            for (_, item) in resolved {
                alternatives.push(self.operator("=", left.clone(), item)?.expr);
            }
            let any = Expr::Or(alternatives);
            let expr = if negated { Expr::Not(Box::new(any)) } else { any };
            return Ok(self.typed(expr, oid::BOOL));
        }
        let collation = left.collation;
        let argument = self.coerce(left, target, -1, CastKind::Implicit)?;
        let mut list = Vec::new();
        for (operator, item) in resolved {
            let collation = self.combine(collation, item.collation);
            let item = self.coerce(item, operator.arguments[1], -1, CastKind::Implicit)?;
            list.push((
                self.collated(operator.function, collation),
                operator.arguments[1],
                item.expr,
            ));
        }
        let types = (target, list[0].1);
        let same = list.iter().all(|(_, type_oid, _)| *type_oid == types.1);
        let items = list
            .into_iter()
            .map(|(function, _, expr)| (function, expr))
            .collect();
        let types = if same { types } else { (0, 0) };
        Ok(self.typed(
            Expr::InList {
                argument: Box::new(argument.expr),
                items,
                negated,
                types,
            },
            oid::BOOL,
        ))
    }

    fn any_array(&mut self, name: &str, left: Typed, right: Typed, all: bool) -> Result<Typed> {
        if left.oid == 0 || right.oid == 0 {
            return Ok(self.unknown(oid::BOOL));
        }
        let element = match right.oid {
            oid::UNKNOWN => oid::UNKNOWN,
            array => match self.types().element(self.types().base(array)) {
                Some(element) => element,
                None => return unmodelled("any_of_non_array"),
            },
        };
        let Some(resolved) = self.types().resolve_operator(name, Some(left.oid), Some(element)) else {
            return unmodelled(format!("operator_{name}"));
        };
        let Some(array_type) = self.types().array_of(resolved.arguments[1]) else {
            return unmodelled("any_array");
        };
        let collation = self.combine(left.collation, right.collation);
        let left = self.coerce(left, resolved.arguments[0], -1, CastKind::Implicit)?;
        let right = self.coerce(right, array_type, -1, CastKind::Implicit)?;
        if !resolved.function.is_modelled() {
            self.note(format!("operator_{name}"));
            return Ok(self.unknown(oid::BOOL));
        }
        let types = if name == "=" {
            (resolved.arguments[0], resolved.arguments[1])
        } else {
            (0, 0)
        };
        let expr = Expr::AnyArray {
            argument: Box::new(left.expr),
            array: Box::new(right.expr),
            function: self.collated(resolved.function, collation),
            all,
            types,
        };
        Ok(self.typed(expr, oid::BOOL))
    }

    fn bool_expr(&mut self, expression: &pg::BoolExpr) -> Result<Typed> {
        let mut arguments = Vec::new();
        for argument in &expression.args {
            let typed = self.expr(argument)?;
            arguments.push(self.coerce(typed, oid::BOOL, -1, CastKind::Implicit)?.expr);
        }
        let expr = match BoolExprType::try_from(expression.boolop) {
            Ok(BoolExprType::AndExpr) => Expr::And(arguments),
            Ok(BoolExprType::OrExpr) => Expr::Or(arguments),
            _ => match arguments.pop() {
                Some(argument) => Expr::Not(Box::new(argument)),
                None => return unmodelled("not"),
            },
        };
        Ok(self.typed(expr, oid::BOOL))
    }

    fn case(&mut self, case: &pg::CaseExpr) -> Result<Typed> {
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for when in &case.args {
            let Some(NodeEnum::CaseWhen(when)) = &when.node else {
                return unmodelled("case");
            };
            let condition = self.expr(self.required(&when.expr)?)?;
            let condition = match &case.arg {
                Some(argument) => {
                    let argument = self.expr(argument)?;
                    let argument = self.resolve_unknown(argument)?;
                    self.operator("=", argument, condition)?
                }
                None => self.coerce(condition, oid::BOOL, -1, CastKind::Implicit)?,
            };
            conditions.push(condition.expr);
            results.push(self.expr(self.required(&when.result)?)?);
        }
        // PostgreSQL looks at the ELSE branch first when it chooses the type.
        let otherwise = match &case.defresult {
            Some(node) => self.expr(node)?,
            None => self.typed(Expr::null(), oid::UNKNOWN),
        };
        results.insert(0, otherwise);
        let (mut results, type_oid, collation) = self.unify(results)?;
        let otherwise = Box::new(results.remove(0));
        let whens = conditions.into_iter().zip(results).collect();
        Ok(Typed {
            expr: Expr::Case { whens, otherwise },
            oid: type_oid,
            type_modifier: -1,
            collation,
        })
    }

    /// Casts all to their common type.
    pub(super) fn unify(&mut self, typed: Vec<Typed>) -> Result<(Vec<Expr>, TypeOid, Collated)> {
        if typed.iter().any(|typed| typed.oid == 0) {
            return Ok((
                typed.iter().map(|_| Expr::Unknown).collect(),
                0,
                Collated::Default,
            ));
        }
        let oids: Vec<TypeOid> = typed.iter().map(|typed| typed.oid).collect();
        let common = if oids.iter().all(|type_oid| *type_oid == oid::UNKNOWN) {
            Some(oid::TEXT)
        } else {
            self.types().common_type(&oids)
        };
        let Some(common) = common else {
            return unmodelled("common_type");
        };
        let collation = typed.iter().fold(Collated::Default, |so_far, typed| {
            self.combine(so_far, typed.collation)
        });
        let mut exprs = Vec::new();
        for typed in typed {
            exprs.push(self.coerce(typed, common, -1, CastKind::Implicit)?.expr);
        }
        Ok((exprs, common, collation))
    }

    fn type_cast(&mut self, cast: &pg::TypeCast) -> Result<Typed> {
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

    fn array(&mut self, array: &pg::AArrayExpr, wanted: Option<(TypeOid, TypeOid, i32)>) -> Result<Typed> {
        if array
            .elements
            .iter()
            .any(|element| matches!(element.node, Some(NodeEnum::AArrayExpr(_))))
        {
            return unmodelled("multidimensional_array");
        }
        let items = self.exprs(&array.elements)?;
        if items.iter().any(|item| item.oid == 0) {
            return Ok(self.unknown(wanted.map_or(0, |(_, array, _)| array)));
        }
        if let Some((element, array_type, type_modifier)) = wanted {
            let mut cast = Vec::new();
            for item in items {
                cast.push(
                    self.coerce(item, element, type_modifier, CastKind::Explicit)?
                        .expr,
                );
            }
            return Ok(self.typed(Expr::Array { element, items: cast }, array_type));
        }
        if items.is_empty() {
            return unmodelled("empty_array");
        }
        let (items, element, collation) = self.unify(items)?;
        if self.types().element(element).is_some() {
            return unmodelled("multidimensional_array");
        }
        let Some(array_type) = self.types().array_of(element) else {
            return unmodelled("array_type");
        };
        Ok(Typed {
            expr: Expr::Array { element, items },
            oid: array_type,
            type_modifier: -1,
            collation,
        })
    }

    fn indirection(&mut self, indirection: &pg::AIndirection) -> Result<Typed> {
        let mut typed = self.expr(self.required(&indirection.arg)?)?;
        for step in &indirection.indirection {
            let Some(NodeEnum::AIndices(indices)) = &step.node else {
                return unmodelled("field_selection");
            };
            if indices.is_slice {
                return unmodelled("array_slice");
            }
            let Some(element) = self.types().element(self.types().base(typed.oid)) else {
                return unmodelled("subscript");
            };
            let index = self.expr(self.required(&indices.uidx)?)?;
            let index = self.coerce(index, oid::INT4, -1, CastKind::Assignment)?;
            typed = Typed {
                expr: Expr::Subscript {
                    array: Box::new(typed.expr),
                    index: Box::new(index.expr),
                },
                oid: element,
                type_modifier: -1,
                collation: typed.collation,
            };
        }
        Ok(typed)
    }

    fn sql_value(&mut self, function: &pg::SqlValueFunction) -> Result<Typed> {
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

    fn sub_link(&mut self, link: &pg::SubLink) -> Result<Typed> {
        let select = match self.required(&link.subselect)?.node.as_ref() {
            Some(NodeEnum::SelectStmt(select)) => select,
            _ => return unmodelled("subquery"),
        };
        let kind = SubLinkType::try_from(link.sub_link_type).unwrap_or(SubLinkType::Undefined);
        let query = self.query(select, false)?;
        self.reads_snapshot = true;
        match kind {
            SubLinkType::ExistsSublink => Ok(self.typed(Expr::Exists(Box::new(query)), oid::BOOL)),
            SubLinkType::ExprSublink => {
                if query.visible != 1 {
                    return unmodelled("row_subquery");
                }
                let type_oid = query.types[0];
                Ok(self.typed(Expr::Scalar(Box::new(query)), type_oid))
            }
            SubLinkType::ArraySublink => {
                let element = query.types[0];
                let Some(array) = self.types().array_of(element) else {
                    return unmodelled("array_type");
                };
                Ok(self.typed(
                    Expr::ArrayQuery {
                        element,
                        query: Box::new(query),
                    },
                    array,
                ))
            }
            SubLinkType::AnySublink | SubLinkType::AllSublink => {
                let name = match strings_of(&link.oper_name).last() {
                    Some(name) => (*name).to_owned(),
                    None => "=".to_owned(),
                };
                self.any_query(link, &name, query, kind == SubLinkType::AllSublink)
            }
            _ => unmodelled("subquery"),
        }
    }

    fn any_query(&mut self, link: &pg::SubLink, name: &str, query: Query, all: bool) -> Result<Typed> {
        let test = self.required(&link.testexpr)?;
        let left = match &test.node {
            Some(NodeEnum::RowExpr(row)) => self.exprs(&row.args)?,
            _ => vec![self.expr(test)?],
        };
        if left.len() != query.visible {
            return unmodelled("row_subquery");
        }
        if left.len() > 1 && (name != "=" || all) {
            return unmodelled("row_subquery");
        }
        let mut arguments = Vec::new();
        let mut functions = Vec::new();
        let mut casts = Vec::new();
        for (place, left) in left.into_iter().enumerate() {
            let right_type = query.types[place];
            if left.oid == 0 || right_type == 0 {
                return Ok(self.unknown(oid::BOOL));
            }
            let Some(resolved) = self
                .types()
                .resolve_operator(name, Some(left.oid), Some(right_type))
            else {
                return unmodelled(format!("operator_{name}"));
            };
            if !resolved.function.is_modelled() {
                return unmodelled(format!("operator_{name}"));
            }
            let collation = left.collation;
            let left = self.coerce(left, resolved.arguments[0], -1, CastKind::Implicit)?;
            arguments.push(left.expr);
            functions.push(self.collated(resolved.function, collation));
            let needed = resolved.arguments[1];
            casts.push((!self.is_relabel(right_type, needed)).then_some((right_type, needed)));
        }
        let expr = Expr::AnyQuery {
            arguments,
            functions,
            casts,
            query: Box::new(query),
            all,
        };
        Ok(self.typed(expr, oid::BOOL))
    }

    fn func_call(&mut self, call: &pg::FuncCall) -> Result<Typed> {
        let names = strings_of(&call.funcname);
        let Some(name) = names.last().map(|name| (*name).to_owned()) else {
            return unmodelled("function");
        };
        let schema = (names.len() > 1).then(|| names[0].to_owned());
        let built_in = schema.as_deref().is_none_or(|schema| schema == "pg_catalog");

        if built_in && matches!(name.as_str(), "nextval" | "currval" | "lastval" | "setval") {
            // Sequences are not followed: the value is whatever the answer says.
            self.mark_volatile();
            return Ok(self.unknown(oid::INT8));
        }
        if call
            .args
            .iter()
            .any(|argument| matches!(argument.node, Some(NodeEnum::NamedArgExpr(_))))
        {
            self.raw_call(&name, schema.as_deref());
            return unmodelled("named_arguments");
        }
        if let Some(over) = &call.over {
            let kept = (
                self.levels.len(),
                self.level().windows.len(),
                self.level().aggregates.len(),
            );
            let windowed = match built_in {
                true => self.window_call(&name, call, over),
                false => unmodelled("window_function"),
            };
            return windowed.or_else(|Unmodelled(reason)| {
                self.levels.truncate(kept.0);
                self.level().windows.truncate(kept.1);
                self.level().aggregates.truncate(kept.2);
                self.note(reason);
                Ok(self.unknown(self.window_type(&name, call)))
            });
        }
        let path = &self.settings.search_path;
        let users = self.catalog.find_functions(schema.as_deref(), &name, path);
        if !users.is_empty() {
            let known = self
                .types()
                .resolve_function(&name, &vec![oid::UNKNOWN; call.args.len()])
                .is_some();
            if !(built_in && known && schema.is_none()) {
                let users: Vec<_> = users.into_iter().cloned().collect();
                return self.user_function(&name, users, call);
            }
        }
        if !built_in {
            self.raw_call(&name, schema.as_deref());
            return unmodelled(format!("function_{name}"));
        }
        if call.func_variadic {
            return unmodelled("variadic_call");
        }

        // What stands inside an aggregate may not hold another one of the same level.
        let arguments = self.exprs(&call.args)?;
        let oids: Vec<TypeOid> = arguments.iter().map(|argument| argument.oid).collect();
        if oids.contains(&0) {
            let is_aggregate = self.is_aggregate(&name);
            if !is_aggregate {
                return unmodelled(format!("argument_of_{name}"));
            }
        }
        if call.agg_star || self.is_aggregate(&name) {
            return self.aggregate(&name, call, arguments, &oids);
        }
        let Some(resolved) = self.types().resolve_function(&name, &oids) else {
            // name(x) may also be a cast: int4('1').
            if let (Some(target), [_]) = (value::type_by_name(&name), oids.as_slice()) {
                let argument = arguments.into_iter().next().expect("one argument");
                return self.coerce(argument, target, -1, CastKind::Explicit);
            }
            self.raw_call(&name, schema.as_deref());
            return unmodelled(format!("function_{name}"));
        };
        match resolved.kind {
            FunctionKind::Plain => {}
            FunctionKind::Set => return unmodelled(format!("set_returning_{name}")),
            _ => return unmodelled(format!("function_{name}")),
        }
        let mut collation = Collated::Default;
        let mut cast = Vec::new();
        for (argument, target) in arguments.into_iter().zip(&resolved.arguments) {
            collation = self.combine(collation, argument.collation);
            cast.push(self.coerce(argument, *target, -1, CastKind::Implicit)?.expr);
        }
        if resolved.volatility == Volatility::Volatile {
            self.mark_volatile();
            return Ok(self.unknown(resolved.result));
        }
        if !resolved.function.is_modelled() {
            self.note(format!("function_{name}"));
            return Ok(self.unknown(resolved.result));
        }
        let function = self.collated(resolved.function, collation);
        let expr = Expr::Call {
            function,
            arguments: cast,
        };
        self.keep_constant(&expr);
        Ok(Typed {
            expr,
            oid: resolved.result,
            type_modifier: -1,
            collation,
        })
    }

    pub(super) fn is_aggregate(&self, name: &str) -> bool {
        let kind = |count: usize| {
            let inputs = vec![oid::INT4; count];
            self.types()
                .resolve_function(name, &inputs)
                .map(|resolved| resolved.kind)
        };
        matches!(
            name,
            "count"
                | "sum"
                | "avg"
                | "min"
                | "max"
                | "bool_and"
                | "bool_or"
                | "every"
                | "string_agg"
                | "array_agg"
                | "json_agg"
                | "jsonb_agg"
                | "json_object_agg"
                | "jsonb_object_agg"
                | "stddev"
                | "variance"
                | "bit_and"
                | "bit_or"
                | "stddev_pop"
                | "stddev_samp"
                | "var_pop"
                | "var_samp"
        ) || kind(1) == Some(FunctionKind::Aggregate)
            || kind(2) == Some(FunctionKind::Aggregate)
    }

    fn window_type(&self, name: &str, call: &pg::FuncCall) -> TypeOid {
        match name {
            "row_number" | "rank" | "dense_rank" | "count" => oid::INT8,
            _ if call.args.is_empty() => self
                .types()
                .resolve_function(name, &[])
                .map_or(0, |resolved| resolved.result),
            _ => 0,
        }
    }

    pub(super) fn mark_volatile(&mut self) {
        self.volatile = true;
        for level in &mut self.levels {
            level.volatile = true;
        }
    }

    /// A function that nobody here can look into is called: it may write, unless it promises not to.
    pub(super) fn raw_call(&mut self, name: &str, schema: Option<&str>) {
        if schema == Some("pg_catalog") {
            return;
        }
        let found = self
            .catalog
            .find_functions(schema, name, &self.settings.search_path);
        let harmless = match found.is_empty() {
            true => {
                self.catalog.is_loaded()
                    || crate::value::catalog::CATALOG
                        .functions_by_name
                        .contains_key(name)
            }
            false => found.iter().all(|function| function.volatility != 'v'),
        };
        if !harmless {
            self.touches.writes_everything = true;
        }
        self.touches.reads_everything = true;
    }

    pub(super) fn collated(&self, function: value::FunctionId, collation: Collated) -> value::FunctionId {
        match collation {
            Collated::Default => function,
            Collated::Implicit(collation) | Collated::Explicit(collation) => {
                function.with_collation(collation)
            }
            Collated::Conflict => function.with_collation(Collation::Deterministic),
        }
    }

    pub(super) fn combine(&self, left: Collated, right: Collated) -> Collated {
        use Collated::{Conflict, Default, Explicit, Implicit};
        match (left, right) {
            (Explicit(collation), _) | (_, Explicit(collation)) => Explicit(collation),
            (Conflict, _) | (_, Conflict) => Conflict,
            (Implicit(one), Implicit(other)) if one == other => Implicit(one),
            (Implicit(_), Implicit(_)) => Conflict,
            (Implicit(one), Default) | (Default, Implicit(one)) => Implicit(one),
            (Default, Default) => Default,
        }
    }
}

/// make_const: a number without a point that fits is an integer.
fn number_type(text: &str) -> TypeOid {
    match text.parse::<i64>() {
        Ok(value) if i32::try_from(value).is_ok() => oid::INT4,
        Ok(_) => oid::INT8,
        Err(_) => oid::NUMERIC,
    }
}
