//! Expressions: from parse tree to typed expression.
//!
//! In: a node of the parse tree and the names in scope. Out: an expression with its type and collation.
//!
//! Always true: what is not modelled becomes unknown, with a reason; it is never guessed.

mod literal;
mod operator;
mod subquery;
mod call;

use super::{Analyzer, Collated, Result, Typed, Unmodelled, strings_of, unmodelled};
use crate::sql::plan::Expr;
use crate::value::{self, CastKind, Collation, TypeOid, oid};
use pg_query::protobuf::{self as pg, BoolExprType, BoolTestType, MinMaxOp, NullTestType};
use pg_query::{Node, NodeEnum};

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
