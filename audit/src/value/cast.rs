//! Casting a value from one type to another.

use super::context::Context;
use super::types::CastKind;
use super::{SqlError, TypeOid, Value};

/// Casts `value` of type `from` to `to` with its modifier (-1: none). `from` = 705 is an unknown literal,
/// whose value is its text.
pub fn cast(
    value: &Value,
    from: TypeOid,
    to: TypeOid,
    typmod: i32,
    kind: CastKind,
    context: &Context,
) -> Result<Value, SqlError> {
    let _ = (value, from, to, typmod, kind, context);
    Err(SqlError::not_modelled("cast"))
}
