//! Window functions: OVER, WINDOW, frames.
//!
//! A window function's value is a slot of its query level, computed when all rows of the level are known and before
//! the select list is.

use super::{Analyzer, Result, Typed, unmodelled};
use crate::sql::plan::{Bound, Expr, FrameMode, Window, WindowFrame, WindowFunction, WindowKey};
use crate::value::{CastKind, TypeOid, oid};
use pg_query::NodeEnum;
use pg_query::protobuf as pg;

/// Frame options of parsenodes.h.
const RANGE: i32 = 0x0000_0002;
const ROWS: i32 = 0x0000_0004;
const GROUPS: i32 = 0x0000_0008;
const START_UNBOUNDED_PRECEDING: i32 = 0x0000_0020;
const END_UNBOUNDED_PRECEDING: i32 = 0x0000_0040;
const START_UNBOUNDED_FOLLOWING: i32 = 0x0000_0080;
const END_UNBOUNDED_FOLLOWING: i32 = 0x0000_0100;
const START_CURRENT_ROW: i32 = 0x0000_0200;
const END_CURRENT_ROW: i32 = 0x0000_0400;
const START_OFFSET_PRECEDING: i32 = 0x0000_0800;
const END_OFFSET_PRECEDING: i32 = 0x0000_1000;
const START_OFFSET_FOLLOWING: i32 = 0x0000_2000;
const END_OFFSET_FOLLOWING: i32 = 0x0000_4000;
const EXCLUDE: i32 = 0x0003_8000;

impl Analyzer<'_> {
    /// The windows that the WINDOW clause names.
    pub(super) fn window_clause(&mut self, select: &pg::SelectStmt) {
        let named = select.window_clause.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::WindowDef(window)) => Some((**window).clone()),
            _ => None,
        });
        self.level().named_windows = named.collect();
    }

    pub(super) fn window_call(
        &mut self,
        name: &str,
        call: &pg::FuncCall,
        over: &pg::WindowDef,
    ) -> Result<Typed> {
        if self.levels.is_empty() || call.agg_distinct || !call.agg_order.is_empty() || call.func_variadic {
            return unmodelled("window_function");
        }
        let definition = self.window_definition(over)?;
        // An aggregate of the rows stands inside a window function, never the other way round.
        let arguments = self.exprs(&call.args)?;
        let mut resolved = Vec::new();
        for argument in arguments {
            resolved.push(self.resolve_unknown(argument)?);
        }
        let (function, result) = self.window_function(name, call, resolved)?;
        let mut partition = Vec::new();
        for node in &definition.partition_clause {
            let typed = self.expr(node)?;
            partition.push(self.resolve_unknown(typed)?.expr);
        }
        let mut order = Vec::new();
        for node in &definition.order_clause {
            let Some(NodeEnum::SortBy(sort)) = &node.node else {
                return unmodelled("order_by");
            };
            let typed = self.expr(self.required(&sort.node)?)?;
            let typed = self.resolve_unknown(typed)?;
            let key = self.sort_key(sort, 0, typed.oid, typed.collation)?;
            order.push(WindowKey {
                expr: typed.expr,
                key,
            });
        }
        let frame = self.window_frame(&definition)?;
        let level = self.level();
        level.windows.push(Window {
            function,
            partition,
            order,
            frame,
        });
        let position = (level.windows.len() - 1) as u16;
        Ok(Typed {
            expr: Expr::Windowed(position),
            ..result
        })
    }

    /// OVER name, OVER (name …) and OVER (…).
    fn window_definition(&mut self, over: &pg::WindowDef) -> Result<pg::WindowDef> {
        let base = if over.name.is_empty() {
            &over.refname
        } else {
            &over.name
        };
        if base.is_empty() {
            return Ok(over.clone());
        }
        let named = self
            .level()
            .named_windows
            .iter()
            .find(|window| window.name == *base);
        let Some(named) = named.cloned() else {
            return unmodelled("unknown_window");
        };
        let named = if named.refname.is_empty() {
            named
        } else {
            self.window_definition(&pg::WindowDef {
                name: String::new(),
                ..named
            })?
        };
        if !over.name.is_empty() {
            return Ok(named);
        }
        let mut definition = over.clone();
        definition.partition_clause = named.partition_clause;
        if !named.order_clause.is_empty() {
            definition.order_clause = named.order_clause;
        }
        Ok(definition)
    }

    fn window_function(
        &mut self,
        name: &str,
        call: &pg::FuncCall,
        arguments: Vec<Typed>,
    ) -> Result<(WindowFunction, Typed)> {
        let oids: Vec<TypeOid> = arguments.iter().map(|argument| argument.oid).collect();
        // These are hypothetical-set aggregates too, but not where they have an OVER.
        let own = ["rank", "dense_rank", "percent_rank", "cume_dist"].contains(&name);
        if (self.is_aggregate(name) && !own) || call.agg_star {
            let typed = self.aggregate(name, call, arguments, &oids)?;
            let Some(aggregate) = self.level().aggregates.pop() else {
                return unmodelled("window_function");
            };
            return Ok((WindowFunction::Aggregate(aggregate), typed));
        }
        if oids.contains(&0) || call.agg_filter.is_some() {
            return unmodelled("window_function");
        }
        let first = arguments.first().cloned();
        let mut exprs = Vec::new();
        for (place, argument) in arguments.into_iter().enumerate() {
            exprs.push(match (name, place) {
                ("ntile", 0) | ("nth_value" | "lag" | "lead", 1) => {
                    self.coerce(argument, oid::INT4, -1, CastKind::Implicit)?.expr
                }
                ("lag" | "lead", 2) if argument.oid != oids[0] => return unmodelled("window_default"),
                _ => argument.expr,
            });
        }
        let number = |analyzer: &Self, type_oid| analyzer.unknown(type_oid);
        let found = match (name, exprs.len()) {
            ("row_number", 0) => (WindowFunction::RowNumber, number(self, oid::INT8)),
            ("rank", 0) => (WindowFunction::Rank, number(self, oid::INT8)),
            ("dense_rank", 0) => (WindowFunction::DenseRank, number(self, oid::INT8)),
            ("percent_rank", 0) => (WindowFunction::PercentRank, number(self, oid::FLOAT8)),
            ("cume_dist", 0) => (WindowFunction::CumeDist, number(self, oid::FLOAT8)),
            ("ntile", 1) => (WindowFunction::Ntile(exprs.remove(0)), number(self, oid::INT4)),
            ("lag" | "lead", 1..=3) => {
                let mut rest = exprs.split_off(1).into_iter();
                let function = WindowFunction::Shifted {
                    value: exprs.remove(0),
                    offset: rest.next(),
                    default: rest.next(),
                    back: name == "lag",
                };
                (function, first.unwrap_or_else(|| self.unknown(0)))
            }
            ("first_value" | "last_value", 1) => {
                let value = exprs.remove(0);
                let function = match name {
                    "first_value" => WindowFunction::First(value),
                    _ => WindowFunction::Last(value),
                };
                (function, first.unwrap_or_else(|| self.unknown(0)))
            }
            ("nth_value", 2) => {
                let place = exprs.remove(1);
                let function = WindowFunction::Nth(exprs.remove(0), place);
                (function, first.unwrap_or_else(|| self.unknown(0)))
            }
            _ => return unmodelled(format!("window_function_{name}")),
        };
        Ok(found)
    }

    fn window_frame(&mut self, window: &pg::WindowDef) -> Result<WindowFrame> {
        let options = window.frame_options;
        if options & EXCLUDE != 0 {
            return unmodelled("window_exclusion");
        }
        let has = |option: i32| options & option != 0;
        let mode = match () {
            () if has(ROWS) => FrameMode::Rows,
            () if has(GROUPS) => FrameMode::Groups,
            () if has(RANGE) => FrameMode::Range,
            () => return unmodelled("window_frame"),
        };
        let offset = |analyzer: &mut Self, node: &Option<Box<pg_query::Node>>| -> Result<Expr> {
            if mode == FrameMode::Range {
                return unmodelled("window_range_offset");
            }
            let typed = analyzer.expr(analyzer.required(node)?)?;
            Ok(analyzer.coerce(typed, oid::INT8, -1, CastKind::Implicit)?.expr)
        };
        let start = match () {
            () if has(START_UNBOUNDED_PRECEDING) => Bound::First,
            () if has(START_UNBOUNDED_FOLLOWING) => Bound::Last,
            () if has(START_CURRENT_ROW) => Bound::Current,
            () if has(START_OFFSET_PRECEDING) => Bound::Before(offset(self, &window.start_offset)?),
            () if has(START_OFFSET_FOLLOWING) => Bound::After(offset(self, &window.start_offset)?),
            () => return unmodelled("window_frame"),
        };
        let end = match () {
            () if has(END_UNBOUNDED_PRECEDING) => Bound::First,
            () if has(END_UNBOUNDED_FOLLOWING) => Bound::Last,
            () if has(END_CURRENT_ROW) => Bound::Current,
            () if has(END_OFFSET_PRECEDING) => Bound::Before(offset(self, &window.end_offset)?),
            () if has(END_OFFSET_FOLLOWING) => Bound::After(offset(self, &window.end_offset)?),
            () => return unmodelled("window_frame"),
        };
        Ok(WindowFrame { mode, start, end })
    }
}
