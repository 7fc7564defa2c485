//! GROUP BY and aggregates: the keys of a group and what is added up over it.

use super::Target;
use crate::sql::analyze::visit::walk;
use crate::sql::analyze::{Analyzer, Collated, Result, Typed, unmodelled};
use crate::sql::plan::{Aggregate, Expr, Group, Source, Window};
use crate::value::{CastKind, Collation, TypeOid, Value, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};
use std::sync::Arc;

/// Aggregates are numbered from here until the number of keys is known.
pub(super) const AGGREGATES: u16 = 0x8000;

impl Analyzer<'_> {
    /// Turns targets and HAVING into expressions over the grouped row.
    pub(super) fn group(
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
        for expr in over_groups(targets, &mut having, windows) {
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
        for expr in over_groups(targets, &mut having, windows) {
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
    pub(in crate::sql::analyze) fn fingerprint(&self, expr: &Expr) -> (String, Vec<usize>) {
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

    pub(in crate::sql::analyze) fn aggregate(
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
}

/// Everything that is said over grouped rows: targets, HAVING, window functions.
fn over_groups<'e>(
    targets: &'e mut [Target],
    having: &'e mut [Expr],
    windows: &'e mut [Window],
) -> impl Iterator<Item = &'e mut Expr> {
    targets
        .iter_mut()
        .map(|target| &mut target.typed.expr)
        .chain(having)
        .chain(windows.iter_mut().flat_map(Window::exprs_mut))
}
