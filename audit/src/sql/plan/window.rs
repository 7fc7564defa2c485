//! Window functions and their frames.

use super::{Aggregate, Expr, SortKey};

/// A window function with its OVER.
#[derive(Clone, Debug)]
pub struct Window {
    pub function: WindowFunction,
    pub partition: Vec<Expr>,
    pub order: Vec<WindowKey>,
    pub frame: WindowFrame,
}

#[derive(Clone, Debug)]
pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(Expr),
    /// lag (`back`) and lead.
    Shifted {
        value: Expr,
        offset: Option<Expr>,
        default: Option<Expr>,
        back: bool,
    },
    First(Expr),
    Last(Expr),
    Nth(Expr, Expr),
    Aggregate(Aggregate),
}

#[derive(Clone, Debug)]
pub struct WindowKey {
    pub expr: Expr,
    pub key: SortKey,
}

#[derive(Clone, Debug)]
pub struct WindowFrame {
    pub mode: FrameMode,
    pub start: Bound,
    pub end: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMode {
    Rows,
    Range,
    Groups,
}

#[derive(Clone, Debug)]
pub enum Bound {
    /// UNBOUNDED PRECEDING
    First,
    Before(Expr),
    /// CURRENT ROW
    Current,
    After(Expr),
    /// UNBOUNDED FOLLOWING
    Last,
}

impl Window {
    /// Every expression in it, to be turned into one over the grouped row.
    pub fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        let mut exprs: Vec<&mut Expr> = self.partition.iter_mut().collect();
        exprs.extend(self.order.iter_mut().map(|order| &mut order.expr));
        match &mut self.function {
            WindowFunction::Ntile(expr) | WindowFunction::First(expr) | WindowFunction::Last(expr) => {
                exprs.push(expr);
            }
            WindowFunction::Shifted {
                value,
                offset,
                default,
                ..
            } => {
                exprs.push(value);
                exprs.extend(offset.iter_mut().chain(default));
            }
            WindowFunction::Nth(value, place) => exprs.extend([value, place]),
            WindowFunction::Aggregate(aggregate) => {
                exprs.extend(aggregate.arguments.iter_mut().chain(&mut aggregate.filter));
            }
            _ => {}
        }
        for bound in [&mut self.frame.start, &mut self.frame.end] {
            if let Bound::Before(expr) | Bound::After(expr) = bound {
                exprs.push(expr);
            }
        }
        exprs
    }
}
