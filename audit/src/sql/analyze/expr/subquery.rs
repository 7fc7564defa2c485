//! Subqueries in expressions: EXISTS, IN, ANY, ALL, scalar and ARRAY.

use crate::sql::analyze::{Analyzer, Result, Typed, strings_of, unmodelled};
use crate::sql::plan::{Expr, Query};
use crate::value::{CastKind, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, SubLinkType};

impl Analyzer<'_> {
    pub(super) fn sub_link(&mut self, link: &pg::SubLink) -> Result<Typed> {
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

    pub(super) fn any_query(
        &mut self,
        link: &pg::SubLink,
        name: &str,
        query: Query,
        all: bool,
    ) -> Result<Typed> {
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
}
