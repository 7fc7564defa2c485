//! Values as they travel: text and binary, in and out.

use super::context::Context;
use super::{SqlError, TypeOid, Value};
use bytes::Bytes;

/// A cell of an answer or a parameter: `format` 0 is text, 1 binary; `None` is NULL. What is not
/// modelled, or not a value of the type, is unknown.
pub fn decode(type_oid: TypeOid, format: i16, bytes: Option<&Bytes>, context: &Context) -> Value {
    let _ = (type_oid, format, bytes, context);
    Value::Unknown
}

/// The text that the server prints, or `None` where that is not known. NULL has none.
pub fn encode_text(value: &Value, context: &Context) -> Option<String> {
    let _ = (value, context);
    None
}

/// Reads a literal of `type_oid`, as a cast of a string constant does. `typmod` is -1 for none.
pub fn parse(text: &str, type_oid: TypeOid, typmod: i32, context: &Context) -> Result<Value, SqlError> {
    let _ = (text, type_oid, typmod, context);
    Err(SqlError::not_modelled("literal"))
}
