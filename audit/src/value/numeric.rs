//! Arbitrary-precision decimals with PostgreSQL's display scale rules.

/// Placeholder representation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Numeric;
