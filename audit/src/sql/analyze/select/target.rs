//! The select list and ORDER BY: what is answered, under which name, and by what it is sorted.

use super::Target;
use crate::sql::analyze::{Analyzer, Collated, Result, string_of, strings_of, unmodelled};
use crate::sql::plan::{Expr, SortKey};
use crate::value::{Collation, TypeOid, oid};
use pg_query::protobuf::{self as pg, SortByDir, SortByNulls};
use pg_query::{Node, NodeEnum};

impl Analyzer<'_> {
    pub(super) fn target_list(&mut self, nodes: &[Node], keep_unknown: bool) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for node in nodes {
            let Some(NodeEnum::ResTarget(target)) = &node.node else {
                return unmodelled("select_list");
            };
            let value = self.required(&target.val)?;
            if let Some(NodeEnum::ColumnRef(column)) = &value.node {
                if let Some(NodeEnum::AStar(_)) = column.fields.last().and_then(|field| field.node.as_ref()) {
                    for column in self.star(&column.fields[..column.fields.len() - 1])? {
                        targets.push(Target {
                            name: column.name,
                            typed: column.typed,
                        });
                    }
                    continue;
                }
            }
            let mut typed = self.expr_or_unknown(value);
            if !keep_unknown {
                typed = self.resolve_unknown(typed)?;
            }
            let name = if target.name.is_empty() {
                default_name(value)
            } else {
                target.name.clone()
            };
            targets.push(Target { name, typed });
        }
        Ok(targets)
    }

    /// RETURNING and the like: a select list at the present level.
    pub(in crate::sql::analyze) fn plain_targets(
        &mut self,
        nodes: &[Node],
    ) -> Result<(Vec<Expr>, Vec<TypeOid>, Vec<String>)> {
        let targets = self.target_list(nodes, false)?;
        let types = targets.iter().map(|target| target.typed.oid).collect();
        let names = targets.iter().map(|target| target.name.clone()).collect();
        Ok((
            targets.into_iter().map(|target| target.typed.expr).collect(),
            types,
            names,
        ))
    }

    /// The output column that an ORDER BY or DISTINCT ON item means; new ones are added behind the visible ones.
    pub(super) fn sort_target(
        &mut self,
        node: &Node,
        targets: &mut Vec<Target>,
        visible: usize,
    ) -> Result<usize> {
        let names: Vec<String> = targets[..visible]
            .iter()
            .map(|target| target.name.clone())
            .collect();
        if let Some(place) = self.output_position_in(node, &names, visible)? {
            return Ok(place);
        }
        let typed = self.expr_or_unknown(node);
        let typed = self.resolve_unknown(typed)?;
        let wanted = self.fingerprint(&typed.expr);
        if !matches!(typed.expr, Expr::Unknown) {
            let place =
                (0..targets.len()).find(|place| self.fingerprint(&targets[*place].typed.expr).0 == wanted.0);
            if let Some(place) = place {
                let other = self.fingerprint(&targets[place].typed.expr);
                self.pins.extend(wanted.1);
                self.pins.extend(other.1);
                return Ok(place);
            }
        }
        targets.push(Target {
            name: String::new(),
            typed,
        });
        Ok(targets.len() - 1)
    }

    /// ORDER BY where nothing but columns of the output can be named.
    pub(super) fn order_of_output(
        &mut self,
        select: &pg::SelectStmt,
        names: &[String],
        types: &[TypeOid],
        otherwise: &str,
    ) -> Result<Vec<SortKey>> {
        let mut order = Vec::new();
        for node in &select.sort_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let target = self.required(&sort.node)?;
            let Some(column) = self.output_position(target, names)? else {
                return unmodelled(otherwise);
            };
            order.push(self.sort_key(sort, column, types[column], Collated::Default)?);
        }
        Ok(order)
    }

    pub(super) fn output_position(&mut self, node: &Node, names: &[String]) -> Result<Option<usize>> {
        self.output_position_in(node, names, names.len())
    }

    /// A position or a bare output name.
    pub(in crate::sql::analyze) fn output_position_in(
        &mut self,
        node: &Node,
        names: &[String],
        visible: usize,
    ) -> Result<Option<usize>> {
        match &node.node {
            Some(NodeEnum::AConst(constant)) => match &constant.val {
                Some(pg::a_const::Val::Ival(integer)) => {
                    self.pin(constant.location);
                    let place = integer.ival as usize;
                    if place < 1 || place > visible {
                        return unmodelled("position_out_of_range");
                    }
                    Ok(Some(place - 1))
                }
                _ => unmodelled("non_integer_position"),
            },
            Some(NodeEnum::ColumnRef(column)) if column.fields.len() == 1 => {
                let Some(name) = string_of(&column.fields[0]) else {
                    return Ok(None);
                };
                Ok(names.iter().position(|other| other == name))
            }
            _ => Ok(None),
        }
    }

    pub(in crate::sql::analyze) fn sort_key(
        &mut self,
        sort: &pg::SortBy,
        column: usize,
        type_oid: TypeOid,
        collation: Collated,
    ) -> Result<SortKey> {
        let descending = match SortByDir::try_from(sort.sortby_dir) {
            Ok(SortByDir::SortbyDesc) => true,
            Ok(SortByDir::SortbyUsing) => return unmodelled("order_by_using"),
            _ => false,
        };
        let nulls_first = match SortByNulls::try_from(sort.sortby_nulls) {
            Ok(SortByNulls::SortbyNullsFirst) => true,
            Ok(SortByNulls::SortbyNullsLast) => false,
            _ => descending,
        };
        let collation_is_c = match collation {
            Collated::Default => self.catalog.collation_is_c(),
            Collated::Implicit(collation) | Collated::Explicit(collation) => collation == Collation::Bytes,
            Collated::Conflict => false,
        };
        // Names always compare by bytes.
        let collation_is_c = collation_is_c || self.types().base(type_oid) == oid::NAME;
        Ok(SortKey {
            column,
            descending,
            nulls_first,
            collation_is_c,
        })
    }
}

/// FigureColname: what PostgreSQL calls a column that has no alias.
pub(super) fn default_name(node: &Node) -> String {
    match &node.node {
        Some(NodeEnum::ColumnRef(column)) => column
            .fields
            .iter()
            .rev()
            .find_map(string_of)
            .unwrap_or("?column?")
            .to_owned(),
        Some(NodeEnum::FuncCall(call)) => strings_of(&call.funcname)
            .last()
            .copied()
            .unwrap_or("?column?")
            .to_owned(),
        Some(NodeEnum::TypeCast(cast)) => {
            let inner = cast.arg.as_ref().map(|arg| default_name(arg));
            match inner {
                Some(name) if name != "?column?" => name,
                _ => {
                    let names = cast
                        .type_name
                        .as_ref()
                        .map(|name| strings_of(&name.names))
                        .unwrap_or_default();
                    names.last().copied().unwrap_or("?column?").to_owned()
                }
            }
        }
        Some(NodeEnum::CollateClause(clause)) => clause
            .arg
            .as_ref()
            .map_or("?column?".to_owned(), |arg| default_name(arg)),
        Some(NodeEnum::CaseExpr(_)) => "case".to_owned(),
        Some(NodeEnum::CoalesceExpr(_)) => "coalesce".to_owned(),
        Some(NodeEnum::MinMaxExpr(extreme)) => if extreme.op == pg::MinMaxOp::IsGreatest as i32 {
            "greatest"
        } else {
            "least"
        }
        .to_owned(),
        Some(NodeEnum::SubLink(link)) => match pg::SubLinkType::try_from(link.sub_link_type) {
            Ok(pg::SubLinkType::ExistsSublink) => "exists".to_owned(),
            Ok(pg::SubLinkType::ArraySublink) => "array".to_owned(),
            Ok(pg::SubLinkType::ExprSublink) => {
                match link.subselect.as_ref().and_then(|node| node.node.as_ref()) {
                    Some(NodeEnum::SelectStmt(select)) => {
                        match select.target_list.first().and_then(|t| t.node.as_ref()) {
                            Some(NodeEnum::ResTarget(target)) if !target.name.is_empty() => {
                                target.name.clone()
                            }
                            Some(NodeEnum::ResTarget(target)) => target
                                .val
                                .as_ref()
                                .map_or("?column?".to_owned(), |v| default_name(v)),
                            _ => "?column?".to_owned(),
                        }
                    }
                    _ => "?column?".to_owned(),
                }
            }
            _ => "?column?".to_owned(),
        },
        Some(NodeEnum::AArrayExpr(_)) => "array".to_owned(),
        _ => "?column?".to_owned(),
    }
}
