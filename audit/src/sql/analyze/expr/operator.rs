//! Operators: arithmetic, comparison, IN, ANY, rows.

use crate::sql::analyze::{Analyzer, Result, Typed, strings_of, unmodelled};
use crate::sql::plan::Expr;
use crate::value::{self, CastKind, oid};
use pg_query::protobuf::{self as pg, AExprKind};
use pg_query::{Node, NodeEnum};

impl Analyzer<'_> {
    pub(super) fn a_expr(&mut self, expression: &pg::AExpr) -> Result<Typed> {
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
    pub(in crate::sql::analyze) fn equality(
        &mut self,
        left: Typed,
        right: Typed,
    ) -> Result<(Expr, Expr, value::FunctionId)> {
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

    pub(in crate::sql::analyze) fn operator(
        &mut self,
        name: &str,
        left: Typed,
        right: Typed,
    ) -> Result<Typed> {
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

    pub(super) fn prefix_operator(&mut self, name: &str, argument: Typed) -> Result<Typed> {
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

    pub(super) fn row_compare(&mut self, name: &str, left: &[Node], right: &[Node]) -> Result<Typed> {
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

    pub(super) fn in_list(&mut self, left: Typed, items: &[Node], negated: bool) -> Result<Typed> {
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

    pub(super) fn any_array(&mut self, name: &str, left: Typed, right: Typed, all: bool) -> Result<Typed> {
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
}
