//! From PostgreSQL's parse tree to a plan: names and types resolved, paths chosen.
//!
//! In: the text of one statement with its shape. Out: a [`Planned`] and the constants it depends on.
//!
//! Always true:
//!   - a construct that is not modelled leaves a reason behind and an unknown in its place;
//!   - whatever might be written is in the plan's touches, even if the statement is not modelled.

mod expr;
mod name;
mod from;
mod select;
mod window;
mod grouping;
mod join;
mod write;
mod view;
mod option;
mod utility;
mod routine;
mod visit;
mod asks;
mod columns;
mod once;
mod reach;
mod extent;

use super::plan::{
    Asks, Bind, BindCast, Body, Cte, Expr, Kind, OutputColumn, Planned, RelationSource, Source, TableChecks,
    Touches,
};
use super::planner::{SessionSettings, bare};
use super::token::Shape;
use crate::sql::config::{self, SetConfig};
use crate::state::catalog::{Column, Function};
use crate::state::{Catalog, TableId};
use crate::value::{CastKind, Collation, Context, TypeOid, Types, UserTypes, Value, oid};
use pg_query::NodeEnum;
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub(crate) use routine::Variables;

/// Views within views and functions within functions end here.
const DEPTH_MAX: usize = 16;

/// Plans one statement; also returns which constants the plan depends on.
pub(super) fn statement(
    catalog: &Catalog,
    text: &str,
    shape: &Shape,
    settings: &SessionSettings,
    parameter_types: &[TypeOid],
) -> (Planned, Vec<usize>) {
    let parsed = match pg_query::parse(text, pg_query::ParserOptions::default()) {
        Ok(parsed) => parsed,
        Err(_) => {
            let mut planned = bare(shape, Kind::Unmodelled("syntax".to_owned()));
            planned.reasons.push("syntax".to_owned());
            return (planned, Vec::new());
        }
    };
    let node = parsed
        .protobuf
        .stmts
        .into_iter()
        .next()
        .and_then(|raw| raw.stmt)
        .and_then(|node| node.node);
    let Some(node) = node else {
        return (bare(shape, Kind::Empty), Vec::new());
    };
    let mut analyzer = Analyzer::new(catalog, settings, parameter_types);
    for (index, literal) in shape.literals.iter().enumerate() {
        analyzer
            .literals
            .insert((literal.location - shape.start) as i32, index);
    }
    analyzer.literal_values = shape
        .literals
        .iter()
        .map(|literal| literal.text.clone())
        .collect();
    analyzer.text = text.to_owned();
    if config::is_mentioned(text) {
        analyzer.sets = config::calls_in(&node);
        analyzer.pin_all();
    }
    let kind = analyzer.statement(node);
    let pins = analyzer.pins.clone();
    (analyzer.finish(shape, kind), pins)
}

/// Plans SQL inside a routine: `variables` are its parameters, by name.
fn embedded(
    catalog: &Catalog,
    text: &str,
    settings: &SessionSettings,
    variables: Arc<Variables>,
    depth: usize,
) -> Planned {
    let shape = Shape {
        text: text.to_owned(),
        ..Shape::default()
    };
    let node = pg_query::parse(text, pg_query::ParserOptions::default())
        .ok()
        .and_then(|parsed| parsed.protobuf.stmts.into_iter().next())
        .and_then(|raw| raw.stmt)
        .and_then(|node| node.node);
    let Some(node) = node else {
        let mut planned = bare(&shape, Kind::Unmodelled("syntax".to_owned()));
        planned.reasons.push("syntax".to_owned());
        planned.touches.writes_everything = true;
        return planned;
    };
    let mut analyzer = Analyzer::new(catalog, settings, &variables.types);
    analyzer.variables = Some(variables);
    analyzer.depth = depth;
    analyzer.embedded = 1;
    analyzer.text = text.to_owned();
    let kind = analyzer.statement(node);
    analyzer.finish(&shape, kind)
}

/// The type that a type name means.
pub(crate) fn resolve_type(
    catalog: &Catalog,
    settings: &SessionSettings,
    name: &pg_query::protobuf::TypeName,
) -> Option<(TypeOid, i32)> {
    let mut analyzer = Analyzer::new(catalog, settings, &[]);
    analyzer.embedded = 1;
    analyzer.type_name(name).ok()
}

/// The output columns of a query, if it can be analysed.
pub(crate) fn columns_of(
    catalog: &Catalog,
    settings: &SessionSettings,
    text: &str,
) -> Option<Vec<OutputColumn>> {
    let planned = embedded(catalog, text, settings, Arc::default(), 0);
    match planned.kind {
        Kind::Select(_) if planned.columns.iter().all(|column| column.type_oid != 0) => {
            Some(planned.columns.to_vec())
        }
        _ => None,
    }
}

/// The columns of a table that is made of a query, and whether all of them are as they would be there: the length of
/// a text or the scale of a number follows from more than its type.
pub(crate) fn stored_columns_of(
    catalog: &Catalog,
    settings: &SessionSettings,
    text: &str,
) -> Option<(Vec<Column>, bool)> {
    let planned = embedded(catalog, text, settings, Arc::default(), 0);
    let Kind::Select(query) = &planned.kind else {
        return None;
    };
    let source = |place: usize| {
        let Body::Select(select) = &query.body else {
            return None;
        };
        let Some(Expr::Column {
            up: 0,
            relation,
            column,
        }) = select.targets.get(place)
        else {
            return None;
        };
        match select.relations.get(*relation as usize)?.source {
            RelationSource::Table(table) => catalog.table(table)?.columns.get(*column as usize),
            _ => None,
        }
    };
    let mut certain = true;
    let mut columns = Vec::new();
    for (place, output) in planned.columns.iter().enumerate() {
        if output.type_oid == 0 {
            return None;
        }
        let mut column = Column::new(&output.name, output.type_oid, -1);
        match source(place).filter(|source| source.type_oid == output.type_oid) {
            Some(source) => {
                column.type_modifier = source.type_modifier;
                column.collation_is_c = source.collation_is_c;
            }
            None => {
                certain &= matches!(
                    output.type_oid,
                    oid::BOOL
                        | oid::INT2
                        | oid::INT4
                        | oid::INT8
                        | oid::FLOAT4
                        | oid::FLOAT8
                        | oid::TEXT
                        | oid::DATE
                )
            }
        }
        columns.push(column);
    }
    Some((columns, certain))
}

/// The value of an expression that reads nothing and is the same at any time.
pub(crate) fn constant(
    catalog: &Catalog,
    settings: &SessionSettings,
    text: &str,
    type_oid: TypeOid,
    type_modifier: i32,
    context: &Arc<Context>,
) -> Option<Value> {
    let mut analyzer = Analyzer::new(catalog, settings, &[]);
    let typed = analyzer.catalog_expression(text, Vec::new()).ok()?;
    analyzer.embedded = 1;
    let typed = analyzer
        .coerce(typed, type_oid, type_modifier, CastKind::Assignment)
        .ok()?;
    if analyzer.volatile || !analyzer.reasons.is_empty() {
        return None;
    }
    crate::interpret::constant(&typed.expr, context)
}

pub(super) struct Analyzer<'a> {
    catalog: &'a Catalog,
    settings: &'a SessionSettings,
    user_types: Arc<UserTypes>,
    text: String,
    /// Index of the constant at each place of the text.
    literals: FxHashMap<i32, usize>,
    literal_values: Vec<String>,
    pins: Vec<usize>,
    binds: Vec<Bind>,
    constants: Vec<Expr>,
    /// Declared or inferred; 0: not yet.
    parameter_types: Vec<TypeOid>,
    reasons: Vec<String>,
    touches: Touches,
    volatile: bool,
    relation_total: usize,
    levels: Vec<Level>,
    /// CTEs that are visible, innermost last.
    ctes: Vec<VisibleCte>,
    query_count: usize,
    cte_count: usize,
    /// Above zero while text of the catalog is analysed: its constants are not those of the statement.
    embedded: usize,
    depth: usize,
    variables: Option<Arc<Variables>>,
    columns: Vec<OutputColumn>,
    tag: &'static str,
    reads_snapshot: bool,
    may_write: bool,
    checks: FxHashMap<TableId, Arc<TableChecks>>,
    sets: Vec<SetConfig>,
    /// Routines that are not followed, whose touches are there already.
    reached: Vec<Arc<Function>>,
    /// What is met is done by one of them.
    is_unfollowed: bool,
    /// Something that makes the whole query unknown, found deep inside it.
    fatal: Option<String>,
    /// Defaults are computed row by row, in the order of the rows.
    is_orderly: bool,
}

/// One query level: what names mean in it.
#[derive(Default)]
struct Level {
    items: Vec<Item>,
    relation_count: usize,
    /// Base tables by relation, for telling where an output column comes from.
    tables: Vec<Option<TableId>>,
    /// Aggregates met in this level's expressions.
    aggregates: Vec<super::plan::Aggregate>,
    aggregates_allowed: bool,
    /// Window functions met in them, and the windows that the WINDOW clause names.
    windows: Vec<super::plan::Window>,
    named_windows: Vec<pg_query::protobuf::WindowDef>,
    /// Arguments of GROUPING(…), by number, until the keys are known.
    groupings: Vec<Vec<Expr>>,
    /// Refers to a level outside.
    correlated: bool,
    volatile: bool,
}

/// One name in a FROM clause.
#[derive(Clone)]
struct Item {
    /// Qualifier; `None` for the merged columns of a join.
    alias: Option<String>,
    schema: Option<String>,
    columns: Vec<ItemColumn>,
    /// Only usable with its qualifier (EXCLUDED in ON CONFLICT, the target of an INSERT …).
    qualified_only: bool,
}

#[derive(Clone)]
struct ItemColumn {
    name: String,
    typed: Typed,
    /// Hidden behind a merged column of USING, unless qualified.
    hidden: bool,
}

#[derive(Clone)]
struct VisibleCte {
    name: String,
    number: usize,
    columns: Vec<(String, TypeOid, i32)>,
    /// The recursive part is being analysed: a reference means the working table.
    working: bool,
    known: bool,
}

/// An expression with its type.
#[derive(Clone)]
pub(super) struct Typed {
    expr: Expr,
    oid: TypeOid,
    type_modifier: i32,
    collation: Collated,
}

/// How text of this expression is ordered, by PostgreSQL's rules of collation derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collated {
    /// Nothing said: the database's default.
    Default,
    Implicit(Collation),
    Explicit(Collation),
    /// Two columns with different collations meet.
    Conflict,
}

/// A construct that makes the whole statement unmodelled.
pub(super) struct Unmodelled(pub String);

type Result<T> = std::result::Result<T, Unmodelled>;

pub(super) fn unmodelled<T>(reason: impl Into<String>) -> Result<T> {
    Err(Unmodelled(reason.into()))
}

impl<'a> Analyzer<'a> {
    fn new(catalog: &'a Catalog, settings: &'a SessionSettings, parameter_types: &[TypeOid]) -> Analyzer<'a> {
        Analyzer {
            catalog,
            settings,
            user_types: catalog.user_types(),
            text: String::new(),
            literals: FxHashMap::default(),
            literal_values: Vec::new(),
            pins: Vec::new(),
            binds: Vec::new(),
            constants: Vec::new(),
            parameter_types: parameter_types.to_vec(),
            reasons: Vec::new(),
            touches: Touches::default(),
            volatile: false,
            relation_total: 0,
            levels: Vec::new(),
            ctes: Vec::new(),
            query_count: 0,
            cte_count: 0,
            embedded: 0,
            depth: 0,
            variables: None,
            columns: Vec::new(),
            tag: "",
            reads_snapshot: false,
            may_write: false,
            checks: FxHashMap::default(),
            sets: Vec::new(),
            reached: Vec::new(),
            is_unfollowed: false,
            fatal: None,
            is_orderly: false,
        }
    }

    fn finish(mut self, shape: &Shape, kind: Kind) -> Planned {
        self.reasons.sort();
        self.reasons.dedup();
        for list in [&mut self.touches.read, &mut self.touches.written] {
            list.sort();
            list.dedup();
        }
        let is_plain = self.reasons.is_empty() && !self.touches.writes_everything;
        self.touches.draws_everything |= !is_plain || matches!(kind, Kind::Unmodelled(_));
        reach::reach(&kind, &mut self.touches, is_plain, self.catalog);
        let columns_read = match self.reasons.is_empty() {
            true => columns::columns_read(&kind, self.catalog),
            false => None,
        };
        let asks = match is_plain {
            true => asks::asks(&kind, self.catalog),
            false => Asks::everything(),
        };
        let is_fired = |table: &TableId| self.catalog.fires(*table);
        // What DDL does to the catalog it does all the same.
        let heeds_role = !matches!(kind, Kind::Ddl(_) | Kind::Truncate { .. })
            && (self.touches.writes_everything || self.touches.written.iter().any(is_fired));
        Planned {
            heeds_role,
            shape: Arc::from(shape.text.as_str()),
            looks_once: is_plain && once::looks_once(&kind),
            columns_read,
            asks: Arc::new(asks),
            kind,
            parameter_types: self.parameter_types,
            binds: self.binds,
            constants: self.constants,
            columns: self.columns.into(),
            may_write: self.may_write || !self.touches.written.is_empty() || self.touches.writes_everything,
            reads_snapshot: self.reads_snapshot,
            touches: self.touches,
            reasons: self.reasons,
            tag: self.tag,
            volatile: self.volatile,
            many_relations: self.relation_total > 1,
            sets: self.sets.into(),
        }
    }

    /// Decides what kind of statement this is.
    fn statement(&mut self, node: NodeEnum) -> Kind {
        let result = match node {
            NodeEnum::SelectStmt(select) => self.select_statement(&select),
            NodeEnum::InsertStmt(insert) => self.insert_statement(&insert),
            NodeEnum::UpdateStmt(update) => self.update_statement(&update),
            NodeEnum::DeleteStmt(delete) => self.delete_statement(&delete),
            NodeEnum::MergeStmt(ref merge) => {
                let merge = merge.clone();
                self.merge_statement(&merge)
            }
            ref other => {
                let other = other.clone();
                let result = self.utility(other);
                return result.unwrap_or_else(|error| self.give_up(&node, error.0));
            }
        };
        match result {
            Ok(kind) => kind,
            Err(Unmodelled(reason)) => Kind::Unmodelled(self.note(reason)),
        }
    }

    fn give_up(&mut self, _node: &NodeEnum, reason: String) -> Kind {
        Kind::Unmodelled(self.note(reason))
    }

    /// Counts a construct that is not modelled.
    fn note(&mut self, reason: impl Into<String>) -> String {
        let reason = reason.into();
        self.reasons.push(reason.clone());
        reason
    }

    fn types(&self) -> Types<'_> {
        Types::with(&self.user_types)
    }

    /// A new slot for a constant or parameter.
    fn bind(&mut self, bind: Bind) -> Expr {
        self.binds.push(bind);
        Expr::Bound(self.binds.len() - 1)
    }

    /// The plan depends on this constant.
    fn pin(&mut self, location: i32) {
        if self.embedded == 0 {
            if let Some(index) = self.literals.get(&location) {
                self.pins.push(*index);
            }
        }
    }

    fn pin_all(&mut self) {
        self.pins = (0..self.literal_values.len()).collect();
    }

    fn level(&mut self) -> &mut Level {
        self.levels
            .last_mut()
            .expect("an expression is analysed within a query level")
    }

    fn next_query(&mut self) -> usize {
        self.query_count += 1;
        self.query_count - 1
    }

    /// Casts an expression, or says why the server would not.
    fn coerce(&mut self, typed: Typed, target: TypeOid, type_modifier: i32, kind: CastKind) -> Result<Typed> {
        let collation = typed.collation;
        if typed.oid == 0 || target == 0 {
            return Ok(Typed {
                expr: Expr::Unknown,
                oid: target,
                type_modifier,
                collation,
            });
        }
        let result = |expr| Typed {
            expr,
            oid: target,
            type_modifier,
            collation,
        };
        if typed.oid == oid::UNKNOWN {
            if let Expr::Bound(slot) = typed.expr {
                if let Source::Parameter(number) = self.binds[slot].source {
                    if self.parameter_types[number] == 0 {
                        // The first use of a parameter decides its type.
                        self.parameter_types[number] = target;
                        let bound = result(self.bind(Bind {
                            source: Source::Parameter(number),
                            casts: Vec::new(),
                            negate: false,
                        }));
                        return self.with_modifier(bound, target, type_modifier, kind);
                    }
                    let from = self.parameter_types[number];
                    let bound = Typed {
                        expr: typed.expr,
                        oid: from,
                        type_modifier: -1,
                        collation,
                    };
                    return self.coerce(bound, target, type_modifier, kind);
                }
            }
        } else if typed.oid == target {
            return self.with_modifier(typed, target, type_modifier, kind);
        } else if !self.types().can_cast(typed.oid, target, kind) {
            return unmodelled("cast_not_allowed");
        }
        if typed.oid != oid::UNKNOWN && self.is_relabel(typed.oid, target) {
            return self.with_modifier(
                Typed {
                    oid: target,
                    type_modifier: -1,
                    ..typed
                },
                target,
                type_modifier,
                kind,
            );
        }
        if self.domain_has_checks(target) && kind != CastKind::Implicit {
            self.note("domain_constraint");
            return Ok(result(Expr::Unknown));
        }
        Ok(result(self.cast_expr(
            typed.expr,
            typed.oid,
            target,
            type_modifier,
            kind,
        )))
    }

    fn with_modifier(
        &mut self,
        typed: Typed,
        target: TypeOid,
        type_modifier: i32,
        kind: CastKind,
    ) -> Result<Typed> {
        if type_modifier < 0 || type_modifier == typed.type_modifier {
            return Ok(Typed { oid: target, ..typed });
        }
        let collation = typed.collation;
        let expr = self.cast_expr(typed.expr, target, target, type_modifier, kind);
        Ok(Typed {
            expr,
            oid: target,
            type_modifier,
            collation,
        })
    }

    /// Casts of constants and parameters are done once, at the beginning.
    fn cast_expr(
        &mut self,
        expr: Expr,
        from: TypeOid,
        to: TypeOid,
        type_modifier: i32,
        kind: CastKind,
    ) -> Expr {
        match expr {
            Expr::Bound(slot) => {
                let mut bind = self.binds[slot].clone();
                bind.casts.push(BindCast {
                    from,
                    to,
                    type_modifier,
                    kind,
                });
                self.bind(bind)
            }
            Expr::Const(Value::Null) => Expr::null(),
            Expr::Unknown => Expr::Unknown,
            argument => {
                let expr = Expr::Cast {
                    argument: Box::new(argument),
                    from,
                    to,
                    type_modifier,
                    kind,
                };
                self.keep_constant(&expr);
                expr
            }
        }
    }

    /// Remembers a call that the server's planner computes by itself.
    fn keep_constant(&mut self, expr: &Expr) {
        if visit::is_constant(expr) {
            self.constants.push(expr.clone());
        }
    }

    /// Values of both types look the same.
    fn is_relabel(&self, from: TypeOid, to: TypeOid) -> bool {
        let (from, to) = (self.types().base(from), self.types().base(to));
        let text = |type_oid| matches!(type_oid, oid::TEXT | oid::VARCHAR);
        from == to || (text(from) && text(to))
    }

    fn domain_has_checks(&self, type_oid: TypeOid) -> bool {
        use crate::state::catalog::TypeKind;
        match self.catalog.type_by_oid(type_oid).map(|found| &found.kind) {
            Some(TypeKind::Domain { checks: true, .. }) => true,
            Some(TypeKind::Domain { base, .. }) => self.domain_has_checks(*base),
            _ => false,
        }
    }

    /// A literal that nobody asked anything of is text.
    fn resolve_unknown(&mut self, typed: Typed) -> Result<Typed> {
        if typed.oid == oid::UNKNOWN {
            self.coerce(typed, oid::TEXT, -1, CastKind::Implicit)
        } else {
            Ok(typed)
        }
    }

    /// Looks at a name of the catalog whose text was analysed elsewhere: constants in it are its own.
    fn within_catalog_text<T>(&mut self, analyse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth > DEPTH_MAX {
            return unmodelled("nesting_depth");
        }
        self.embedded += 1;
        self.depth += 1;
        let levels = std::mem::take(&mut self.levels);
        let ctes = std::mem::take(&mut self.ctes);
        let variables = self.variables.take();
        let result = analyse(self);
        self.levels = levels;
        self.ctes = ctes;
        self.variables = variables;
        self.embedded -= 1;
        self.depth -= 1;
        result
    }

    fn take_ctes(&mut self, with: Option<&pg_query::protobuf::WithClause>) -> Result<Vec<Cte>> {
        match with {
            Some(with) => self.with_clause(with),
            None => Ok(Vec::new()),
        }
    }
}

/// The string in a String node.
pub(super) fn string_of(node: &pg_query::Node) -> Option<&str> {
    match node.node.as_ref()? {
        NodeEnum::String(string) => Some(&string.sval),
        _ => None,
    }
}

pub(super) fn strings_of(nodes: &[pg_query::Node]) -> Vec<&str> {
    nodes.iter().filter_map(string_of).collect()
}
