//! FROM: which relations a query reads and how they are joined.

use super::name::alias_names;
use super::{Analyzer, Collated, Item, ItemColumn, Result, Typed, strings_of, unmodelled};
use crate::sql::plan::{Expr, Query, Relation, RelationSource, SetFunction};
use crate::state::catalog::{Table, TableKind};
use crate::value::{CastKind, TypeOid, oid};
use pg_query::protobuf::{self as pg, JoinType};
use pg_query::{Node, NodeEnum};
use std::sync::Arc;

/// The joins as they were written.
#[derive(Debug)]
pub(super) enum Tree {
    Relation(usize),
    Inner(Box<Tree>, Box<Tree>, Vec<Expr>),
    Left(Box<Tree>, Box<Tree>, Vec<Expr>),
    Full(Box<Tree>, Box<Tree>, Vec<Expr>),
}

impl Tree {
    pub(super) fn relations(&self, into: &mut Vec<usize>) {
        match self {
            // A partition's condition hangs on a join with nothing.
            Tree::Relation(usize::MAX) => {}
            Tree::Relation(relation) => into.push(*relation),
            Tree::Inner(left, right, _) | Tree::Left(left, right, _) | Tree::Full(left, right, _) => {
                left.relations(into);
                right.relations(into);
            }
        }
    }
}

impl Analyzer<'_> {
    /// The whole FROM clause; `None` if there is none.
    pub(super) fn from_clause(
        &mut self,
        nodes: &[Node],
        relations: &mut Vec<Relation>,
    ) -> Result<Option<Tree>> {
        let mut whole: Option<Tree> = None;
        for node in nodes {
            let tree = self.from_item(node, relations)?;
            whole = Some(match whole {
                None => tree,
                Some(left) => Tree::Inner(Box::new(left), Box::new(tree), Vec::new()),
            });
        }
        Ok(whole)
    }

    fn from_item(&mut self, node: &Node, relations: &mut Vec<Relation>) -> Result<Tree> {
        match &node.node {
            Some(NodeEnum::RangeVar(range)) => self.range_var(range, relations),
            Some(NodeEnum::RangeSubselect(subselect)) => {
                let Some(NodeEnum::SelectStmt(select)) = self.required(&subselect.subquery)?.node.as_ref()
                else {
                    return unmodelled("subquery");
                };
                let hidden = (!subselect.lateral).then(|| std::mem::take(&mut self.level().items));
                let query = self.query(select, false);
                if let Some(items) = hidden {
                    self.level().items = items;
                }
                let query = query?;
                let alias = subselect.alias.as_ref().map(|alias| alias.aliasname.clone());
                self.add_query(query, alias, &alias_names(subselect.alias.as_ref()), relations)
            }
            Some(NodeEnum::JoinExpr(join)) => self.join(join, relations),
            Some(NodeEnum::RangeFunction(function)) => self.range_function(function, relations),
            Some(NodeEnum::RangeTableSample(_)) => unmodelled("tablesample"),
            _ => unmodelled("from_item"),
        }
    }

    fn add_relation(
        &mut self,
        alias: &str,
        source: RelationSource,
        width: usize,
        relations: &mut Vec<Relation>,
    ) -> usize {
        let table = match &source {
            RelationSource::Table(table) => Some(*table),
            _ => None,
        };
        relations.push(Relation {
            alias: alias.to_owned(),
            source,
            width,
        });
        self.level().tables.push(table);
        self.level().relation_count += 1;
        self.relation_total += 1;
        relations.len() - 1
    }

    fn range_var(&mut self, range: &pg::RangeVar, relations: &mut Vec<Relation>) -> Result<Tree> {
        let alias = range
            .alias
            .as_ref()
            .map_or(range.relname.clone(), |alias| alias.aliasname.clone());
        let names = alias_names(range.alias.as_ref());
        if range.schemaname.is_empty() {
            if let Some(cte) = self
                .ctes
                .iter()
                .rev()
                .find(|cte| cte.name == range.relname)
                .cloned()
            {
                if !cte.known {
                    return unmodelled("unmodelled_cte");
                }
                let source = if cte.working {
                    RelationSource::Working(cte.number)
                } else {
                    RelationSource::Cte(cte.number)
                };
                let relation = self.add_relation(&alias, source, cte.columns.len(), relations);
                let columns =
                    cte.columns
                        .iter()
                        .enumerate()
                        .map(|(place, (name, type_oid, type_modifier))| ItemColumn {
                            name: names.get(place).unwrap_or(name).clone(),
                            typed: Typed {
                                expr: Expr::column(relation, place),
                                oid: *type_oid,
                                type_modifier: *type_modifier,
                                collation: Collated::Default,
                            },
                            hidden: false,
                        });
                let item = Item {
                    alias: Some(alias),
                    schema: None,
                    columns: columns.collect(),
                    qualified_only: false,
                };
                self.level().items.push(item);
                return Ok(Tree::Relation(relation));
            }
        }
        let Some(table) = self.find_table(range) else {
            let system = matches!(range.schemaname.as_str(), "pg_catalog" | "information_schema")
                || (range.schemaname.is_empty() && range.relname.starts_with("pg_"));
            return unmodelled(if system { "system_catalog" } else { "unknown_table" });
        };
        self.reads_snapshot = true;
        self.touch_read(&table);
        self.table_relation(&table, &alias, &names, range.inh, relations)
    }

    /// A table or view by its catalog entry.
    pub(super) fn table_relation(
        &mut self,
        table: &Arc<Table>,
        alias: &str,
        names: &[String],
        inherits: bool,
        relations: &mut Vec<Relation>,
    ) -> Result<Tree> {
        if let Some(reason) = &table.unmodelled_read {
            return unmodelled(reason.clone());
        }
        match table.kind {
            TableKind::View => {
                let Some(definition) = table.definition.clone() else {
                    return unmodelled("view_definition");
                };
                let query = self.within_catalog_text(|analyzer| analyzer.catalog_query(&definition))?;
                let mut names = names.to_vec();
                for (_, column) in table.live_columns().skip(names.len()) {
                    names.push(column.name.clone());
                }
                return self.add_query(query, Some(alias.to_owned()), &names, relations);
            }
            TableKind::Sequence => return unmodelled("sequence_as_table"),
            TableKind::Foreign => return unmodelled("foreign_table"),
            TableKind::Table | TableKind::Partitioned | TableKind::MaterializedView => {}
        }
        let separate = table
            .children
            .iter()
            .any(|child| self.catalog.storage(*child) != table.storage);
        if separate && inherits {
            return unmodelled("inheritance");
        }
        if table.kind == TableKind::Partitioned && !inherits {
            return unmodelled("only_partitioned");
        }
        let relation = self.add_relation(
            alias,
            RelationSource::Table(table.storage),
            table.columns.len(),
            relations,
        );
        let item = self.table_item(table, alias, relation, names);
        self.level().items.push(item);
        if table.storage == table.id {
            return Ok(Tree::Relation(relation));
        }
        // A partition is the part of its root's rows that its bound picks out.
        let condition = self.partition_condition(table, relation)?;
        let mut conditions = Vec::new();
        match condition {
            Expr::And(parts) => conditions.extend(parts),
            one => conditions.push(one),
        }
        Ok(Tree::Inner(
            Box::new(Tree::Relation(relation)),
            Box::new(Tree::Relation(usize::MAX)),
            conditions,
        ))
    }

    pub(super) fn partition_condition(&mut self, table: &Arc<Table>, relation: usize) -> Result<Expr> {
        let Some(condition) = table.partition_condition.clone() else {
            return unmodelled("partition");
        };
        let item = self.table_item(table, &table.name, relation, &[]);
        let expr = self.catalog_expression(&condition, vec![item])?;
        let typed = self.coerce(expr, oid::BOOL, -1, CastKind::Implicit)?;
        Ok(typed.expr)
    }

    /// An expression of the catalog over the given names, at a level of its own.
    pub(super) fn catalog_expression(&mut self, text: &str, items: Vec<Item>) -> Result<Typed> {
        let parsed = match pg_query::parse(&format!("SELECT {text}"), pg_query::ParserOptions::default()) {
            Ok(parsed) => parsed,
            Err(_) => return unmodelled("catalog_expression"),
        };
        let target = parsed
            .protobuf
            .stmts
            .into_iter()
            .next()
            .and_then(|raw| raw.stmt)
            .and_then(|node| match node.node {
                Some(NodeEnum::SelectStmt(select)) => select.target_list.into_iter().next(),
                _ => None,
            })
            .and_then(|node| match node.node {
                Some(NodeEnum::ResTarget(target)) => target.val,
                _ => None,
            });
        let Some(target) = target else {
            return unmodelled("catalog_expression");
        };
        self.within_catalog_text(|analyzer| {
            analyzer.levels.push(super::Level {
                items,
                ..super::Level::default()
            });
            analyzer.expr(&target)
        })
    }

    fn catalog_query(&mut self, text: &str) -> Result<Query> {
        let node = pg_query::parse(text, pg_query::ParserOptions::default())
            .ok()
            .and_then(|parsed| parsed.protobuf.stmts.into_iter().next())
            .and_then(|raw| raw.stmt)
            .and_then(|node| node.node);
        match node {
            Some(NodeEnum::SelectStmt(select)) => self.query(&select, false),
            _ => unmodelled("view_definition"),
        }
    }

    fn add_query(
        &mut self,
        query: Query,
        alias: Option<String>,
        names: &[String],
        relations: &mut Vec<Relation>,
    ) -> Result<Tree> {
        let types: Vec<(String, TypeOid)> = query
            .names
            .iter()
            .cloned()
            .zip(query.types.iter().copied())
            .take(query.visible)
            .collect();
        let shown = alias.clone().unwrap_or_default();
        let relation = self.add_relation(
            &shown,
            RelationSource::Query(Box::new(query)),
            types.len(),
            relations,
        );
        let columns = types
            .into_iter()
            .enumerate()
            .map(|(place, (name, type_oid))| ItemColumn {
                name: names.get(place).cloned().unwrap_or(name),
                typed: Typed {
                    expr: Expr::column(relation, place),
                    oid: type_oid,
                    type_modifier: -1,
                    collation: Collated::Default,
                },
                hidden: false,
            });
        let item = Item {
            alias,
            schema: None,
            columns: columns.collect(),
            qualified_only: false,
        };
        self.level().items.push(item);
        Ok(Tree::Relation(relation))
    }

    fn range_function(
        &mut self,
        function: &pg::RangeFunction,
        relations: &mut Vec<Relation>,
    ) -> Result<Tree> {
        if function.is_rowsfrom || !function.coldeflist.is_empty() || function.functions.len() != 1 {
            return unmodelled("rows_from");
        }
        let Some(NodeEnum::List(list)) = &function.functions[0].node else {
            return unmodelled("function_in_from");
        };
        let Some(Some(NodeEnum::FuncCall(call))) = list.items.first().map(|node| &node.node) else {
            return unmodelled("function_in_from");
        };
        let name = strings_of(&call.funcname)
            .last()
            .copied()
            .unwrap_or("")
            .to_owned();
        let users = self
            .catalog
            .find_functions(None, &name, &self.settings.search_path);
        if !users.is_empty() {
            self.raw_call(&name, None);
            return unmodelled(format!("function_{name}"));
        }
        let arguments = self.exprs(&call.args)?;
        let oids: Vec<TypeOid> = arguments.iter().map(|argument| argument.oid).collect();
        let (kind, type_oid, arguments) = match name.as_str() {
            "generate_series" if oids.len() >= 2 => {
                let Some(resolved) = self.types().resolve_function(&name, &oids) else {
                    return unmodelled("function_generate_series");
                };
                if !matches!(resolved.result, oid::INT4 | oid::INT8) {
                    return unmodelled("function_generate_series");
                }
                let mut cast = Vec::new();
                for (argument, target) in arguments.into_iter().zip(&resolved.arguments) {
                    cast.push(self.coerce(argument, *target, -1, CastKind::Implicit)?.expr);
                }
                (SetFunction::GenerateSeries, resolved.result, cast)
            }
            "unnest" if oids.len() == 1 => {
                let Some(element) = self.types().element(self.types().base(oids[0])) else {
                    return unmodelled("function_unnest");
                };
                (
                    SetFunction::Unnest,
                    element,
                    arguments.into_iter().map(|argument| argument.expr).collect(),
                )
            }
            _ => {
                self.raw_call(&name, None);
                return unmodelled(format!("function_{name}"));
            }
        };
        let alias = function
            .alias
            .as_ref()
            .map_or(name.clone(), |alias| alias.aliasname.clone());
        let names = alias_names(function.alias.as_ref());
        let source = RelationSource::Function {
            function: kind,
            arguments,
            ordinality: function.ordinality,
        };
        let relation = self.add_relation(&alias, source, 1 + usize::from(function.ordinality), relations);
        let mut columns = vec![ItemColumn {
            // A function of one column gives it the alias of the relation.
            name: names.first().cloned().unwrap_or_else(|| alias.clone()),
            typed: Typed {
                expr: Expr::column(relation, 0),
                oid: type_oid,
                type_modifier: -1,
                collation: Collated::Default,
            },
            hidden: false,
        }];
        if function.ordinality {
            columns.push(ItemColumn {
                name: names.get(1).cloned().unwrap_or_else(|| "ordinality".to_owned()),
                typed: Typed {
                    expr: Expr::column(relation, 1),
                    oid: oid::INT8,
                    type_modifier: -1,
                    collation: Collated::Default,
                },
                hidden: false,
            });
        }
        self.level().items.push(Item {
            alias: Some(alias),
            schema: None,
            columns,
            qualified_only: false,
        });
        Ok(Tree::Relation(relation))
    }

    fn join(&mut self, join: &pg::JoinExpr, relations: &mut Vec<Relation>) -> Result<Tree> {
        let first = self.level().items.len();
        let left = self.from_item(self.required(&join.larg)?, relations)?;
        let middle = self.level().items.len();
        let right = self.from_item(self.required(&join.rarg)?, relations)?;
        let kind = JoinType::try_from(join.jointype).unwrap_or(JoinType::Undefined);

        let mut using: Vec<String> = strings_of(&join.using_clause)
            .into_iter()
            .map(str::to_owned)
            .collect();
        if join.is_natural {
            let visible = |items: &[Item]| -> Vec<String> {
                items
                    .iter()
                    .filter(|item| !item.qualified_only)
                    .flat_map(|item| {
                        item.columns
                            .iter()
                            .filter(|column| !column.hidden)
                            .map(|column| column.name.clone())
                    })
                    .collect()
            };
            let right_names = visible(&self.level().items[middle..]);
            using = visible(&self.level().items[first..middle]);
            using.retain(|name| right_names.contains(name));
        }
        let mut conditions = Vec::new();
        let mut merged = Vec::new();
        for name in &using {
            let left = self.hide(first..middle, name)?;
            let end = self.level().items.len();
            let right = self.hide(middle..end, name)?;
            let condition = self.operator("=", left.clone(), right.clone())?;
            conditions.push(condition.expr);
            let typed = match kind {
                JoinType::JoinRight => right,
                JoinType::JoinFull => {
                    let (arguments, type_oid, collation) = self.unify(vec![left, right])?;
                    Typed {
                        expr: Expr::Coalesce(arguments),
                        oid: type_oid,
                        type_modifier: -1,
                        collation,
                    }
                }
                _ => left,
            };
            merged.push(ItemColumn {
                name: name.clone(),
                typed,
                hidden: false,
            });
        }
        if !merged.is_empty() {
            let item = Item {
                alias: None,
                schema: None,
                columns: merged,
                qualified_only: false,
            };
            self.level().items.insert(first, item);
        }
        if let Some(quals) = &join.quals {
            // ON sees only the relations of this join (and what is outside the query).
            let others: Vec<Item> = self.level().items.drain(..first).collect();
            self.conditions(quals, &mut conditions);
            self.level().items.splice(0..0, others);
        }
        if let Some(alias) = &join.alias {
            let names = alias_names(Some(alias));
            let items: Vec<Item> = self.level().items.drain(first..).collect();
            let mut columns: Vec<ItemColumn> = items
                .into_iter()
                .filter(|item| !item.qualified_only)
                .flat_map(|item| item.columns.into_iter().filter(|column| !column.hidden))
                .collect();
            for (column, name) in columns.iter_mut().zip(names) {
                column.name = name;
            }
            let item = Item {
                alias: Some(alias.aliasname.clone()),
                schema: None,
                columns,
                qualified_only: false,
            };
            self.level().items.push(item);
        }
        Ok(match kind {
            JoinType::JoinInner => Tree::Inner(Box::new(left), Box::new(right), conditions),
            JoinType::JoinLeft => Tree::Left(Box::new(left), Box::new(right), conditions),
            JoinType::JoinRight => Tree::Left(Box::new(right), Box::new(left), conditions),
            JoinType::JoinFull => Tree::Full(Box::new(left), Box::new(right), conditions),
            _ => return unmodelled("join_type"),
        })
    }

    /// Finds the column that USING means among some items, and hides it behind the merged one.
    fn hide(&mut self, range: std::ops::Range<usize>, name: &str) -> Result<Typed> {
        let mut found = None;
        for item in &mut self.level().items[range] {
            if item.qualified_only {
                continue;
            }
            for column in &mut item.columns {
                if column.name == name && !column.hidden {
                    if found.is_some() {
                        return unmodelled("ambiguous_column");
                    }
                    column.hidden = true;
                    found = Some(column.typed.clone());
                }
            }
        }
        match found {
            Some(typed) => Ok(typed),
            None => unmodelled("unknown_column"),
        }
    }
}
