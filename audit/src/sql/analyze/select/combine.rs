//! UNION, INTERSECT and EXCEPT: both sides are brought to the same types.

use crate::sql::analyze::{Analyzer, Collated, Result, Typed, unmodelled};
use crate::sql::plan::{Body, Expr, Query, SetOperation};
use crate::value::{CastKind, TypeOid, oid};
use pg_query::protobuf::{self as pg};

impl Analyzer<'_> {
    pub(super) fn set_operation(&mut self, select: &pg::SelectStmt) -> Result<Query> {
        let (Some(left), Some(right)) = (&select.larg, &select.rarg) else {
            return unmodelled("set_operation");
        };
        if !select.locking_clause.is_empty() {
            return unmodelled("set_operation_locking");
        }
        let mut left = self.query(left, true)?;
        let mut right = self.query(right, true)?;
        if left.visible != right.visible {
            return unmodelled("set_operation");
        }
        let mut types = Vec::new();
        for place in 0..left.visible {
            let pair = [left.types[place], right.types[place]];
            let common = match pair {
                [0, _] | [_, 0] => 0,
                [oid::UNKNOWN, oid::UNKNOWN] => oid::TEXT,
                pair => match self.types().common_type(&pair) {
                    Some(common) => common,
                    None => return unmodelled("common_type"),
                },
            };
            types.push(common);
        }
        self.cast_output(&mut left, &types)?;
        self.cast_output(&mut right, &types)?;
        let operation = match select.op {
            op if op == pg::SetOperation::SetopUnion as i32 => SetOperation::Union,
            op if op == pg::SetOperation::SetopIntersect as i32 => SetOperation::Intersect,
            _ => SetOperation::Except,
        };
        let names = left.names[..left.visible].to_vec();
        let order = self.order_of_output(select, &names, &types, "set_operation_order")?;
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            visible: left.visible,
            correlated: left.correlated || right.correlated,
            volatile: left.volatile || right.volatile,
            body: Body::SetOperation {
                operation,
                all: select.all,
                left: Box::new(left),
                right: Box::new(right),
            },
            order,
            limit: None,
            offset: None,
            with_ties: false,
            types,
            names,
            number: 0,
        })
    }

    /// Casts the output columns of a finished query.
    pub(in crate::sql::analyze) fn cast_output(
        &mut self,
        query: &mut Query,
        types: &[TypeOid],
    ) -> Result<()> {
        let from = query.types.clone();
        match &mut query.body {
            Body::Select(select) => {
                for (place, target) in types.iter().enumerate() {
                    let expr = std::mem::replace(&mut select.targets[place], Expr::Unknown);
                    select.targets[place] = self.cast_one(expr, from[place], *target)?;
                }
            }
            Body::Values(rows) => {
                for row in rows {
                    for (place, target) in types.iter().enumerate() {
                        let expr = std::mem::replace(&mut row[place], Expr::Unknown);
                        row[place] = self.cast_one(expr, from[place], *target)?;
                    }
                }
            }
            Body::SetOperation { left, right, .. } => {
                self.cast_output(left, types)?;
                self.cast_output(right, types)?;
            }
        }
        query.types[..types.len()].copy_from_slice(types);
        Ok(())
    }

    pub(super) fn cast_one(&mut self, expr: Expr, from: TypeOid, to: TypeOid) -> Result<Expr> {
        if from == to && from != oid::UNKNOWN {
            return Ok(expr);
        }
        let typed = Typed {
            expr,
            oid: from,
            type_modifier: -1,
            collation: Collated::Default,
        };
        Ok(self.coerce(typed, to, -1, CastKind::Implicit)?.expr)
    }
}
