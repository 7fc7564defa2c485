//! GROUP BY: plain keys, GROUPING SETS, ROLLUP, CUBE, and GROUPING(…).

use super::select::Target;
use super::{Analyzer, Result, Typed, string_of, unmodelled};
use crate::sql::plan::Expr;
use crate::value::oid;
use pg_query::protobuf::{self as pg, GroupingSetKind};
use pg_query::{Node, NodeEnum};

/// Beyond this many sets a query is not modelled.
const SETS_MAX: usize = 64;

/// The keys of one grouping set, as positions.
type Set = Vec<usize>;

impl Analyzer<'_> {
    /// The keys of GROUP BY and, unless they always count together, the sets that are grouped by.
    pub(super) fn group_by(
        &mut self,
        select: &pg::SelectStmt,
        targets: &[Target],
    ) -> Result<(Vec<Expr>, Vec<Set>)> {
        let mut keys = Vec::new();
        let is_set = |node: &Node| matches!(node.node, Some(NodeEnum::GroupingSet(_)));
        if !select.group_clause.iter().any(is_set) {
            for node in &select.group_clause {
                let key = self.group_key(node, targets)?;
                keys.push(key);
            }
            return Ok((keys, Vec::new()));
        }
        let mut sets: Vec<Set> = vec![Vec::new()];
        for node in &select.group_clause {
            let parts = self.grouping_sets(node, targets, &mut keys)?;
            let mut product = Vec::new();
            for set in &sets {
                for part in &parts {
                    let mut both = set.clone();
                    both.extend(part.iter().filter(|key| !set.contains(key)));
                    product.push(both);
                }
            }
            sets = product;
            if sets.len() > SETS_MAX {
                return unmodelled("grouping_sets");
            }
        }
        if select.group_distinct {
            let mut seen: Vec<Set> = Vec::new();
            sets.retain(|set| {
                let mut sorted = set.clone();
                sorted.sort();
                let fresh = !seen.contains(&sorted);
                seen.push(sorted);
                fresh
            });
        }
        Ok((keys, sets))
    }

    /// A bare name is an input column first, then an output name; a number is an output position.
    fn group_key(&mut self, node: &Node, targets: &[Target]) -> Result<Expr> {
        match &node.node {
            Some(NodeEnum::AConst(_)) => match self.output_position_in(node, &[], targets.len())? {
                Some(place) => Ok(targets[place].typed.expr.clone()),
                None => unmodelled("group_by"),
            },
            Some(NodeEnum::ColumnRef(column)) if column.fields.len() == 1 => {
                let name = string_of(&column.fields[0]).unwrap_or("");
                let own = self.levels.last().is_some_and(|level| {
                    level
                        .items
                        .iter()
                        .any(|item| item.columns.iter().any(|c| c.name == name && !c.hidden))
                });
                match targets.iter().position(|target| target.name == name) {
                    Some(place) if !own => Ok(targets[place].typed.expr.clone()),
                    _ => Ok(self.expr(node)?.expr),
                }
            }
            _ => {
                let typed = self.expr(node)?;
                Ok(self.resolve_unknown(typed)?.expr)
            }
        }
    }

    /// The position of a key, the same for equal expressions.
    fn key_position(&mut self, node: &Node, targets: &[Target], keys: &mut Vec<Expr>) -> Result<usize> {
        let key = self.group_key(node, targets)?;
        let (wanted, used) = self.fingerprint(&key);
        let found = keys.iter().position(|other| self.fingerprint(other).0 == wanted);
        self.pins.extend(used);
        Ok(found.unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        }))
    }

    /// One element of ROLLUP or CUBE, or a plain set: one key, or several in parentheses.
    fn simple_set(&mut self, node: &Node, targets: &[Target], keys: &mut Vec<Expr>) -> Result<Set> {
        match &node.node {
            Some(NodeEnum::RowExpr(row)) => {
                let mut set = Vec::new();
                for node in &row.args {
                    set.push(self.key_position(node, targets, keys)?);
                }
                Ok(set)
            }
            _ => Ok(vec![self.key_position(node, targets, keys)?]),
        }
    }

    fn grouping_sets(&mut self, node: &Node, targets: &[Target], keys: &mut Vec<Expr>) -> Result<Vec<Set>> {
        let Some(NodeEnum::GroupingSet(grouping)) = &node.node else {
            return Ok(vec![self.simple_set(node, targets, keys)?]);
        };
        let kind = GroupingSetKind::try_from(grouping.kind).unwrap_or(GroupingSetKind::Undefined);
        if kind == GroupingSetKind::GroupingSetSets {
            let mut sets = Vec::new();
            for node in &grouping.content {
                sets.extend(self.grouping_sets(node, targets, keys)?);
            }
            return Ok(sets);
        }
        let mut parts: Vec<Set> = Vec::new();
        for node in &grouping.content {
            parts.push(self.simple_set(node, targets, keys)?);
        }
        Ok(match kind {
            GroupingSetKind::GroupingSetEmpty => vec![Vec::new()],
            GroupingSetKind::GroupingSetSimple => vec![parts.concat()],
            GroupingSetKind::GroupingSetRollup => (0..=parts.len())
                .rev()
                .map(|count| parts[..count].concat())
                .collect(),
            GroupingSetKind::GroupingSetCube if parts.len() <= 6 => (0..1_usize << parts.len())
                .rev()
                .map(|chosen| {
                    let picked = parts
                        .iter()
                        .enumerate()
                        .filter(|(place, _)| chosen >> place & 1 == 1);
                    picked.flat_map(|(_, part)| part.iter().copied()).collect()
                })
                .collect(),
            _ => return unmodelled("grouping_sets"),
        })
    }

    /// GROUPING(…): which keys it asks for is known when all of them are.
    pub(super) fn grouping_function(&mut self, function: &pg::GroupingFunc) -> Result<Typed> {
        let mut arguments = Vec::new();
        for node in &function.args {
            arguments.push(self.expr(node)?.expr);
        }
        let level = self.level();
        level.groupings.push(arguments);
        let number = level.groupings.len() - 1;
        Ok(self.typed(Expr::Grouping(vec![number as u16]), oid::INT4))
    }

    /// The positions of the keys that each GROUPING(…) of this level asks for.
    pub(super) fn grouping_positions(&mut self, keys: &[(String, Vec<usize>)]) -> Result<Vec<Vec<u16>>> {
        let groupings = std::mem::take(&mut self.level().groupings);
        let mut positions = Vec::new();
        for arguments in &groupings {
            let mut places = Vec::new();
            for argument in arguments {
                let (wanted, _) = self.fingerprint(argument);
                match keys.iter().position(|(key, _)| *key == wanted) {
                    Some(place) => places.push(place as u16),
                    None => return unmodelled("grouping_function"),
                }
            }
            // A marker in front keeps one key apart from the number of a call.
            places.insert(0, u16::MAX);
            positions.push(places);
        }
        Ok(positions)
    }
}
