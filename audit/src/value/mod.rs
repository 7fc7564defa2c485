//! PostgreSQL's values: known, NULL, or unknown.
//!
//! Always true:
//!   - [`Value::Unknown`] (⊤) agrees with any observation and taints what is computed from it;
//!   - NULL is a known value;
//!   - the variant is the SQL type: an int4 never hides in an `Int8`.

pub mod aggregate;
pub mod array;
pub mod call;
pub mod cast;
pub mod catalog;
pub mod compare;
pub mod context;
pub mod datetime;
pub mod error;
pub mod float;
pub mod functions;
pub mod interval;
pub mod io;
pub mod json;
pub mod numeric;
pub mod oid;
pub mod pack;
pub mod resolve;
pub mod text;
pub mod types;

pub use aggregate::{Accumulator, ResolvedAggregate, resolve_aggregate};
pub use call::{FunctionId, call};
pub use cast::cast;
pub use compare::{Key, KeyRef, Truth};
pub use context::{Collation, Context, DateStyle, TimeZone, UserKind, UserType, UserTypes};
pub use error::SqlError;
pub use functions::subscript;
pub use io::{decode, encode_text, parse};
pub use numeric::Numeric;
pub use resolve::{FunctionKind, Resolved, Volatility, resolve_function, resolve_operator};
pub use types::{CastKind, Types, can_cast, common_type, type_by_name};

use std::sync::Arc;

/// pg_type.oid.
pub type TypeOid = u32;

#[derive(Clone, Debug)]
pub enum Value {
    /// ⊤: not known, and not known whether NULL.
    Unknown,
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Numeric),
    /// text, varchar, bpchar (kept with its padding), name, "char", citext is not modelled.
    Text(Arc<str>),
    Bytea(Arc<[u8]>),
    Uuid(u128),
    /// Days since 2000-01-01; `i32::MAX`/`MIN` are the infinities, as in the server.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 2000-01-01; `i64::MAX`/`MIN` are the infinities.
    Timestamp(i64),
    TimestampTz(i64),
    Interval {
        months: i32,
        days: i32,
        micros: i64,
    },
    Json(Arc<str>),
    /// Canonical text of a jsonb.
    Jsonb(Arc<str>),
    Array(Arc<Array>),
    /// A label of an enum type with its sort order.
    Enum {
        type_oid: TypeOid,
        order: u32,
        label: Arc<str>,
    },
    /// A value of a type that is only compared for equality of its text form.
    Opaque {
        type_oid: TypeOid,
        text: Arc<str>,
    },
}

#[derive(Clone, Debug)]
pub struct Array {
    pub element: TypeOid,
    /// (length, lower bound) per dimension; empty for the empty array.
    pub dimensions: Vec<(i32, i32)>,
    pub items: Vec<Value>,
}

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self, Value::Unknown)
    }

    pub fn text(text: impl Into<Arc<str>>) -> Value {
        Value::Text(text.into())
    }

    /// Whether the value, or an element of it, is unknown.
    pub fn has_unknown(&self) -> bool {
        match self {
            Value::Unknown => true,
            Value::Array(array) => array.items.iter().any(Value::has_unknown),
            _ => false,
        }
    }
}
