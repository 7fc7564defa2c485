//! Queries: SELECT, VALUES, set operations, WITH.

use super::visit::walk;
use super::{Analyzer, Collated, Level, Result, Typed, VisibleCte, string_of, strings_of, unmodelled};
use crate::sql::plan::{
    Aggregate, Body, Cte, CteQuery, Distinct, Expr, Group, Kind, Locking, OutputColumn, Query,
    RelationSource, Select, SetOperation, SortKey, Source, Window,
};
use crate::value::{CastKind, Collation, TypeOid, Value, oid};
use pg_query::protobuf::{
    self as pg, LimitOption, LockClauseStrength, LockWaitPolicy, SortByDir, SortByNulls,
};
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

/// Aggregates are numbered from here until the number of keys is known.
const AGGREGATES: u16 = 0x8000;

/// One entry of the select list.
pub(super) struct Target {
    pub name: String,
    pub typed: Typed,
}

impl Analyzer<'_> {
    pub(super) fn select_statement(&mut self, select: &pg::SelectStmt) -> Result<Kind> {
        if select.into_clause.is_some() {
            return unmodelled("select_into");
        }
        self.tag = "SELECT";
        self.reads_snapshot = true;
        let node = NodeEnum::SelectStmt(Box::new(select.clone()));
        match self.query(select, false) {
            Ok(query) => {
                self.output(&query.names, &query.types, query.visible);
                Ok(Kind::Select(Box::new(query)))
            }
            Err(error) => {
                self.raw_touches(&node, false);
                Err(error)
            }
        }
    }

    pub(super) fn output(&mut self, names: &[String], types: &[TypeOid], visible: usize) {
        self.columns = names
            .iter()
            .zip(types)
            .take(visible)
            .map(|(name, type_oid)| OutputColumn {
                name: name.clone(),
                type_oid: *type_oid,
            })
            .collect();
    }

    /// A query; bare literals in its select list stay untyped if `keep_unknown`.
    pub(super) fn query(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let ctes_before = self.ctes.len();
        let ctes = self.take_ctes(select.with_clause.as_ref())?;
        let result = self.query_body(select, keep_unknown);
        self.ctes.truncate(ctes_before);
        let mut query = result?;
        if let Some(reason) = self.fatal.take() {
            return unmodelled(reason);
        }
        query.volatile |= ctes.iter().any(|cte| match &cte.query {
            CteQuery::Plain(query) => query.volatile,
            _ => true,
        });
        query.correlated |= ctes.iter().any(|cte| match &cte.query {
            CteQuery::Plain(query) => query.correlated,
            CteQuery::Recursive { first, next, .. } => first.correlated || next.correlated,
            _ => false,
        });
        query.ctes = ctes;
        Ok(query)
    }

    fn query_body(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let number = self.next_query();
        let mut query = if select.op > pg::SetOperation::SetopNone as i32 {
            self.set_operation(select)?
        } else if !select.values_lists.is_empty() {
            self.values(select, keep_unknown)?
        } else {
            self.simple_select(select, keep_unknown)?
        };
        query.number = number;
        query.with_ties = select.limit_option == LimitOption::WithTies as i32;
        query.limit = self.row_count(select.limit_count.as_deref())?;
        query.offset = self.row_count(select.limit_offset.as_deref())?;
        Ok(query)
    }

    /// LIMIT or OFFSET: a number that no column of the query can give.
    fn row_count(&mut self, node: Option<&Node>) -> Result<Option<Expr>> {
        let Some(node) = node else { return Ok(None) };
        // Evaluated outside the query; a level of its own keeps expressions happy where there is none.
        let typed = if self.levels.is_empty() {
            self.levels.push(Level::default());
            let typed = self.expr(node);
            self.levels.pop();
            typed?
        } else {
            self.expr(node)?
        };
        let typed = self.coerce(typed, oid::INT8, -1, CastKind::Assignment)?;
        Ok(match typed.expr {
            Expr::Const(Value::Null) => None,
            expr => Some(expr),
        })
    }

    fn set_operation(&mut self, select: &pg::SelectStmt) -> Result<Query> {
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
        let mut order = Vec::new();
        for node in &select.sort_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let target = self.required(&sort.node)?;
            let Some(column) = self.output_position(target, &names)? else {
                return unmodelled("set_operation_order");
            };
            order.push(self.sort_key(sort, column, types[column], Collated::Default)?);
        }
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
    pub(super) fn cast_output(&mut self, query: &mut Query, types: &[TypeOid]) -> Result<()> {
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

    fn cast_one(&mut self, expr: Expr, from: TypeOid, to: TypeOid) -> Result<Expr> {
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

    fn values(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        self.levels.push(Level::default());
        let mut rows: Vec<Vec<Typed>> = Vec::new();
        for list in &select.values_lists {
            let Some(NodeEnum::List(list)) = &list.node else {
                return unmodelled("values");
            };
            rows.push(self.exprs(&list.items)?);
        }
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return unmodelled("values");
        }
        let mut columns: Vec<Vec<Expr>> = Vec::new();
        let mut types = Vec::new();
        for place in 0..width {
            let cells: Vec<Typed> = rows.iter().map(|row| row[place].clone()).collect();
            if keep_unknown && cells.iter().all(|cell| cell.oid == oid::UNKNOWN) {
                columns.push(cells.into_iter().map(|cell| cell.expr).collect());
                types.push(oid::UNKNOWN);
            } else {
                let (exprs, type_oid, _) = self.unify(cells)?;
                columns.push(exprs);
                types.push(type_oid);
            }
        }
        let level = self.levels.pop().unwrap_or_default();
        let count = rows.len();
        let body: Vec<Vec<Expr>> = (0..count)
            .map(|row| columns.iter().map(|column| column[row].clone()).collect())
            .collect();
        let names: Vec<String> = (1..=width).map(|place| format!("column{place}")).collect();
        let mut order = Vec::new();
        for node in &select.sort_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let target = self.required(&sort.node)?;
            let Some(column) = self.output_position(target, &names)? else {
                return unmodelled("values_order");
            };
            order.push(self.sort_key(sort, column, types[column], Collated::Default)?);
        }
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            body: Body::Values(body),
            order,
            limit: None,
            offset: None,
            with_ties: false,
            visible: width,
            types,
            names,
            correlated: level.correlated,
            volatile: level.volatile,
            number: 0,
        })
    }

    fn simple_select(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let depth = self.levels.len();
        self.levels.push(Level {
            aggregates_allowed: true,
            ..Level::default()
        });
        let result = self.simple_select_in_level(select, keep_unknown);
        self.levels.truncate(depth + 1);
        let level = self.levels.pop().unwrap_or_default();
        let mut query = result?;
        query.correlated = level.correlated;
        query.volatile = level.volatile;
        Ok(query)
    }

    fn simple_select_in_level(&mut self, select: &pg::SelectStmt, keep_unknown: bool) -> Result<Query> {
        let mut relations = Vec::new();
        let tree = self.from_clause(&select.from_clause, &mut relations)?;
        let mut conditions = Vec::new();
        if let Some(node) = &select.where_clause {
            self.conditions(node, &mut conditions);
        }

        self.window_clause(select);
        let mut targets = self.target_list(&select.target_list, keep_unknown)?;
        let visible = targets.len();

        // GROUP BY: a bare name is an input column first, then an output name.
        let (keys, sets) = self.group_by(select, &targets[..visible])?;
        let mut having = Vec::new();
        if let Some(node) = &select.having_clause {
            self.conditions(node, &mut having);
        }

        let mut order = Vec::new();
        for node in &select.sort_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let column = self.sort_target(self.required(&sort.node)?, &mut targets, visible)?;
            let (type_oid, collation) = (targets[column].typed.oid, targets[column].typed.collation);
            order.push(self.sort_key(sort, column, type_oid, collation)?);
        }
        let distinct = match select.distinct_clause.as_slice() {
            [] => Distinct::No,
            [only] if only.node.is_none() => Distinct::All,
            nodes => {
                let mut places = Vec::new();
                for node in nodes {
                    places.push(self.sort_target(node, &mut targets, visible)?);
                }
                Distinct::On(places)
            }
        };

        let aggregates = std::mem::take(&mut self.level().aggregates);
        let mut windows = std::mem::take(&mut self.level().windows);
        let grouped =
            !select.group_clause.is_empty() || !aggregates.is_empty() || select.having_clause.is_some();
        let group = if grouped {
            Some(self.group(
                keys,
                aggregates,
                having,
                &mut targets,
                &mut windows,
                sets,
                select.group_clause.is_empty(),
            )?)
        } else {
            None
        };

        let tables = self.level().tables.clone();
        let origins: Vec<Option<(u16, u16)>> = targets[..visible]
            .iter()
            .map(|target| match target.typed.expr {
                Expr::Column {
                    up: 0,
                    relation,
                    column,
                } if tables.get(relation as usize).copied().flatten().is_some() => Some((relation, column)),
                _ => None,
            })
            .collect();
        let locking = self.locking(select, &relations)?;

        let mut recheckable = true;
        let mut recheck = Vec::new();
        let (from, filter) = match tree {
            None => (None, conditions),
            Some(tree) => {
                if !locking.is_empty() {
                    recheckable = collect_recheck(&tree, &mut recheck);
                    recheck.extend(conditions.iter().cloned());
                }
                let (from, filter) = self.plan_joins(tree, conditions, &[], &relations);
                (Some(from), filter)
            }
        };
        let types = targets.iter().map(|target| target.typed.oid).collect();
        let names = targets.iter().map(|target| target.name.clone()).collect();
        let body = Select {
            relations,
            from,
            filter,
            recheck,
            recheckable,
            group,
            windows,
            targets: targets.into_iter().map(|target| target.typed.expr).collect(),
            distinct,
            locking,
            origins: origins.into(),
        };
        Ok(Query {
            described: Default::default(),
            ctes: Vec::new(),
            body: Body::Select(Box::new(body)),
            order,
            limit: None,
            offset: None,
            with_ties: false,
            visible,
            types,
            names,
            correlated: false,
            volatile: false,
            number: 0,
        })
    }

    fn target_list(&mut self, nodes: &[Node], keep_unknown: bool) -> Result<Vec<Target>> {
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
    pub(super) fn plain_targets(&mut self, nodes: &[Node]) -> Result<(Vec<Expr>, Vec<TypeOid>, Vec<String>)> {
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
    fn sort_target(&mut self, node: &Node, targets: &mut Vec<Target>, visible: usize) -> Result<usize> {
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

    fn output_position(&mut self, node: &Node, names: &[String]) -> Result<Option<usize>> {
        self.output_position_in(node, names, names.len())
    }

    /// A position or a bare output name.
    pub(super) fn output_position_in(
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

    pub(super) fn sort_key(
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

    /// Turns targets and HAVING into expressions over the grouped row.
    fn group(
        &mut self,
        mut keys: Vec<Expr>,
        aggregates: Vec<Aggregate>,
        mut having: Vec<Expr>,
        targets: &mut [Target],
        windows: &mut [Window],
        sets: Vec<Vec<usize>>,
        plain: bool,
    ) -> Result<Group> {
        let fingerprints: Vec<(String, Vec<usize>)> = keys.iter().map(|key| self.fingerprint(key)).collect();
        let mut pins = Vec::new();
        let mut extra: Vec<Expr> = Vec::new();
        let base = keys.len();
        let exprs = targets
            .iter_mut()
            .map(|target| &mut target.typed.expr)
            .chain(having.iter_mut())
            .chain(windows.iter_mut().flat_map(Window::exprs_mut));
        for expr in exprs {
            walk(expr, 0, &mut |expr, depth| {
                if depth == 0 {
                    let (wanted, used) = self.fingerprint(expr);
                    if let Some(position) = fingerprints.iter().position(|(key, _)| *key == wanted) {
                        pins.extend(used);
                        pins.extend(fingerprints[position].1.iter().copied());
                        *expr = Expr::Grouped {
                            up: 0,
                            position: position as u16,
                        };
                        return false;
                    }
                }
                if let Expr::Column { up, relation, column } = *expr {
                    if up == depth {
                        // A key itself, or functionally dependent on the keys.
                        let own = Expr::Column {
                            up: 0,
                            relation,
                            column,
                        };
                        let (wanted, _) = self.fingerprint(&own);
                        let position = fingerprints
                            .iter()
                            .position(|(key, _)| *key == wanted)
                            .unwrap_or_else(|| {
                                let found = extra.iter().position(|key| self.fingerprint(key).0 == wanted);
                                base + found.unwrap_or_else(|| {
                                    extra.push(own.clone());
                                    extra.len() - 1
                                })
                            });
                        *expr = Expr::Grouped {
                            up,
                            position: position as u16,
                        };
                    }
                }
                true
            });
        }
        self.pins.extend(pins);
        if !sets.is_empty() && !extra.is_empty() {
            // A column that depends on a key which is not in every set.
            return unmodelled("grouping_sets");
        }
        keys.extend(extra);
        let count = keys.len() as u16;
        let groupings = self.grouping_positions(&fingerprints)?;
        let exprs = targets
            .iter_mut()
            .map(|target| &mut target.typed.expr)
            .chain(having.iter_mut())
            .chain(windows.iter_mut().flat_map(Window::exprs_mut));
        for expr in exprs {
            walk(expr, 0, &mut |expr, depth| {
                if let Expr::Grouped { up, position } = expr {
                    if *up == depth && *position >= AGGREGATES {
                        *position = *position - AGGREGATES + count;
                    }
                }
                if let Expr::Grouping(places) = expr {
                    if let [place] = places.as_slice() {
                        let found = groupings.get(*place as usize).cloned().unwrap_or_default();
                        *expr = match sets.is_empty() {
                            true => Expr::Const(Value::Int4(0)),
                            false => Expr::Grouping(found),
                        };
                        return false;
                    }
                }
                true
            });
        }
        Ok(Group {
            keys,
            aggregates,
            having,
            plain,
            sets,
        })
    }

    /// An expression as text that is equal for equal expressions, and the constants in it.
    pub(super) fn fingerprint(&self, expr: &Expr) -> (String, Vec<usize>) {
        let mut used = Vec::new();
        let text = format!("{expr:?}");
        if !text.contains("Bound(") {
            return (text, used);
        }
        let mut result = String::new();
        let mut rest = text.as_str();
        while let Some(place) = rest.find("Bound(") {
            let (before, after) = rest.split_at(place + "Bound(".len());
            result.push_str(before);
            let end = after.find(')').unwrap_or(0);
            let bind = after[..end]
                .parse()
                .ok()
                .and_then(|slot: usize| self.binds.get(slot));
            if let Some(bind) = bind {
                match bind.source {
                    Source::Literal(index) => {
                        used.push(index);
                        result.push_str(&format!(
                            "{:?} {:?} {}",
                            self.literal_values[index], bind.casts, bind.negate
                        ));
                    }
                    source => result.push_str(&format!("{source:?} {:?}", bind.casts)),
                }
            }
            rest = &after[end..];
        }
        result.push_str(rest);
        (result, used)
    }

    pub(super) fn aggregate(
        &mut self,
        name: &str,
        call: &pg::FuncCall,
        arguments: Vec<Typed>,
        oids: &[TypeOid],
    ) -> Result<Typed> {
        if call.agg_within_group {
            return unmodelled(format!("aggregate_{name}"));
        }
        if !self.levels.last().is_some_and(|level| level.aggregates_allowed) {
            return unmodelled("aggregate_not_allowed");
        }
        let mut own = arguments.is_empty();
        let mut outer = false;
        for argument in &arguments {
            let mut copy = argument.expr.clone();
            walk(&mut copy, 0, &mut |expr, depth| {
                if let Expr::Column { up, .. } = expr {
                    own |= *up == depth;
                    outer |= *up > depth;
                }
                true
            });
        }
        if outer && !own {
            return unmodelled("outer_aggregate");
        }
        let filter = match &call.agg_filter {
            Some(node) => {
                let typed = self.expr(node)?;
                Some(self.coerce(typed, oid::BOOL, -1, CastKind::Implicit)?.expr)
            }
            None => None,
        };
        let mut order = Vec::new();
        for node in &call.agg_order {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let typed = self.expr(self.required(&sort.node)?)?;
            let typed = self.resolve_unknown(typed)?;
            let key = self.sort_key(sort, 0, typed.oid, typed.collation)?;
            order.push((typed.expr, key.descending, key.nulls_first));
        }
        let resolved = if oids.contains(&0) {
            None
        } else {
            crate::value::resolve_aggregate(name, oids)
        };
        let collation = arguments
            .first()
            .map_or(Collated::Default, |argument| argument.collation);
        let (function, result) = match resolved {
            Some(resolved) => {
                if !resolved.modelled {
                    self.note(format!("aggregate_{name}"));
                }
                let result = resolved.result;
                (resolved.modelled.then(|| Arc::new(resolved)), result)
            }
            None if oids.contains(&0) => (None, 0),
            None => return unmodelled(format!("aggregate_{name}")),
        };
        let mut cast = Vec::new();
        for (place, argument) in arguments.into_iter().enumerate() {
            cast.push(match &function {
                Some(function) => {
                    self.coerce(argument, function.arguments[place], -1, CastKind::Implicit)?
                        .expr
                }
                None => argument.expr,
            });
        }
        let aggregate = Aggregate {
            function,
            collation: match collation {
                Collated::Default => None,
                Collated::Implicit(collation) | Collated::Explicit(collation) => Some(collation),
                Collated::Conflict => Some(Collation::Deterministic),
            },
            arguments: cast,
            star: call.agg_star,
            distinct: call.agg_distinct,
            filter,
            order,
        };
        let level = self.level();
        level.aggregates.push(aggregate);
        let position = AGGREGATES + (level.aggregates.len() - 1) as u16;
        Ok(Typed {
            expr: Expr::Grouped { up: 0, position },
            oid: result,
            type_modifier: -1,
            collation,
        })
    }

    fn locking(
        &mut self,
        select: &pg::SelectStmt,
        relations: &[crate::sql::plan::Relation],
    ) -> Result<Vec<Locking>> {
        let mut locking: Vec<Locking> = Vec::new();
        for node in &select.locking_clause {
            let Some(NodeEnum::LockingClause(clause)) = &node.node else {
                continue;
            };
            let names: Vec<String> = clause
                .locked_rels
                .iter()
                .filter_map(|node| match &node.node {
                    Some(NodeEnum::RangeVar(range)) => Some(range.relname.clone()),
                    _ => None,
                })
                .collect();
            for (place, relation) in relations.iter().enumerate() {
                if !names.is_empty() && !names.contains(&relation.alias) {
                    continue;
                }
                if !matches!(relation.source, RelationSource::Table(_)) {
                    if !matches!(
                        relation.source,
                        RelationSource::Cte(_) | RelationSource::Function { .. }
                    ) {
                        self.note("locking_subquery");
                    }
                    continue;
                }
                locking.push(Locking {
                    relation: place,
                    skip_locked: clause.wait_policy == LockWaitPolicy::LockWaitSkip as i32,
                    no_wait: clause.wait_policy == LockWaitPolicy::LockWaitError as i32,
                    exclusive: clause.strength >= LockClauseStrength::LcsFornokeyupdate as i32,
                });
            }
        }
        Ok(locking)
    }

    pub(super) fn with_clause(&mut self, with: &pg::WithClause) -> Result<Vec<Cte>> {
        let mut ctes = Vec::new();
        for node in &with.ctes {
            let Some(NodeEnum::CommonTableExpr(cte)) = &node.node else {
                return unmodelled("with");
            };
            if cte.search_clause.is_some() || cte.cycle_clause.is_some() {
                return unmodelled("cte_search_cycle");
            }
            let number = self.cte_count;
            self.cte_count += 1;
            let aliases: Vec<String> = strings_of(&cte.aliascolnames)
                .into_iter()
                .map(str::to_owned)
                .collect();
            let Some(inner) = self.required(&cte.ctequery)?.node.as_ref() else {
                return unmodelled("with");
            };
            let (query, names, types) = match inner {
                NodeEnum::SelectStmt(select) if with.recursive && self.refers_to(select, &cte.ctename) => {
                    self.recursive_cte(select, &cte.ctename, number, &aliases)?
                }
                NodeEnum::SelectStmt(select) => {
                    let query = self.query(select, false)?;
                    let names = query.names[..query.visible].to_vec();
                    let types = query.types[..query.visible].to_vec();
                    (CteQuery::Plain(query), names, types)
                }
                NodeEnum::InsertStmt(insert) => {
                    let insert = self.insert(insert)?;
                    let (names, types) = returned(insert.returning.as_ref());
                    (CteQuery::Insert(Box::new(insert)), names, types)
                }
                NodeEnum::UpdateStmt(update) => {
                    let update = self.update(update)?;
                    let (names, types) = returned(update.returning.as_ref());
                    (CteQuery::Update(Box::new(update)), names, types)
                }
                NodeEnum::DeleteStmt(delete) => {
                    let delete = self.delete(delete)?;
                    let (names, types) = returned(delete.returning.as_ref());
                    (CteQuery::Delete(Box::new(delete)), names, types)
                }
                _ => return unmodelled("with"),
            };
            let columns = names
                .into_iter()
                .zip(types)
                .enumerate()
                .map(|(place, (name, type_oid))| (aliases.get(place).cloned().unwrap_or(name), type_oid, -1))
                .collect();
            self.ctes.push(VisibleCte {
                name: cte.ctename.clone(),
                number,
                columns,
                working: false,
                known: true,
            });
            ctes.push(Cte {
                name: cte.ctename.clone(),
                query,
                number,
            });
        }
        Ok(ctes)
    }

    fn refers_to(&self, select: &pg::SelectStmt, name: &str) -> bool {
        let node = NodeEnum::SelectStmt(Box::new(select.clone()));
        node.nodes().into_iter().any(|(node, _, _, _)| match node {
            pg_query::NodeRef::RangeVar(range) => range.schemaname.is_empty() && range.relname == name,
            _ => false,
        })
    }

    fn recursive_cte(
        &mut self,
        select: &pg::SelectStmt,
        name: &str,
        number: usize,
        aliases: &[String],
    ) -> Result<(CteQuery, Vec<String>, Vec<TypeOid>)> {
        if select.op != pg::SetOperation::SetopUnion as i32
            || !select.sort_clause.is_empty()
            || select.limit_count.is_some()
            || select.limit_offset.is_some()
        {
            return unmodelled("recursive_cte");
        }
        let (Some(left), Some(right)) = (&select.larg, &select.rarg) else {
            return unmodelled("recursive_cte");
        };
        let first = self.query(left, false)?;
        let names = first.names[..first.visible].to_vec();
        let types = first.types[..first.visible].to_vec();
        let columns = names
            .iter()
            .zip(&types)
            .enumerate()
            .map(|(place, (name, type_oid))| {
                (aliases.get(place).cloned().unwrap_or(name.clone()), *type_oid, -1)
            })
            .collect();
        self.ctes.push(VisibleCte {
            name: name.to_owned(),
            number,
            columns,
            working: true,
            known: true,
        });
        let next = self.query(right, true);
        self.ctes.pop();
        let mut next = next?;
        if next.visible != first.visible {
            return unmodelled("recursive_cte");
        }
        self.cast_output(&mut next, &types)?;
        let visible = first.visible;
        Ok((
            CteQuery::Recursive {
                first,
                next,
                all: select.all,
                visible,
            },
            names,
            types,
        ))
    }
}

fn returned(returning: Option<&crate::sql::plan::Returning>) -> (Vec<String>, Vec<TypeOid>) {
    returning.map_or_else(Default::default, |returning| {
        (returning.names.to_vec(), returning.types.to_vec())
    })
}

/// Gathers the conditions of inner joins; says whether there are only such joins.
pub(super) fn collect_recheck(tree: &super::from::Tree, into: &mut Vec<Expr>) -> bool {
    use super::from::Tree;
    match tree {
        Tree::Relation(_) => true,
        Tree::Inner(left, right, on) => {
            into.extend(on.iter().cloned());
            collect_recheck(left, into) && collect_recheck(right, into)
        }
        Tree::Left(..) | Tree::Full(..) => false,
    }
}

/// FigureColname: what PostgreSQL calls a column that has no alias.
fn default_name(node: &Node) -> String {
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
