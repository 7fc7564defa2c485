//! Calling a function on values.
//!
//! In: a function that was resolved, values of the types it asks for, and the context. Out: its value,
//! the error that the server raises, or unknown.
//!
//! Always true: a strict function of a NULL is NULL; an unknown input gives an unknown result.

use super::catalog::CATALOG;
use super::context::{Collation, Context};
use super::functions;
use super::{SqlError, Value};
use std::sync::LazyLock;

/// A built-in function, and the collation it compares text under where that is not the database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionId {
    index: u16,
    collation: Option<Collation>,
}

/// What an implementation gets beside its arguments.
pub struct Call<'a> {
    pub context: &'a Context,
    pub collation: Collation,
}

/// How a built-in function is computed.
pub type Implementation = fn(&[Value], &Call<'_>) -> Result<Value, SqlError>;

static IMPLEMENTATIONS: LazyLock<Vec<Option<Implementation>>> = LazyLock::new(|| {
    CATALOG
        .functions
        .iter()
        .map(|row| functions::implementation(row.source))
        .collect()
});

impl FunctionId {
    pub(super) fn new(index: u16) -> FunctionId {
        FunctionId {
            index,
            collation: None,
        }
    }

    /// The same function under an explicit or column collation.
    pub fn with_collation(self, collation: Collation) -> FunctionId {
        FunctionId {
            collation: Some(collation),
            ..self
        }
    }

    pub fn name(self) -> &'static str {
        CATALOG.functions[self.index as usize].name
    }

    /// The C function's name: unique where the SQL name is overloaded.
    pub fn source(self) -> &'static str {
        CATALOG.functions[self.index as usize].source
    }

    /// Whether values are computed at all; otherwise every call is unknown.
    pub fn is_modelled(self) -> bool {
        IMPLEMENTATIONS[self.index as usize].is_some()
    }
}

/// Calls `function`. An unknown argument gives [`Value::Unknown`]; what is not modelled is an error that
/// says so.
pub fn call(function: FunctionId, arguments: &[Value], context: &Context) -> Result<Value, SqlError> {
    let row = &CATALOG.functions[function.index as usize];
    let mut unknown = false;
    for argument in arguments {
        match argument {
            Value::Unknown => unknown = true,
            Value::Null if row.strict => return Ok(Value::Null),
            _ => {}
        }
    }
    if unknown {
        return Ok(Value::Unknown);
    }
    let collation = function.collation.unwrap_or(context.collation);
    match IMPLEMENTATIONS[function.index as usize] {
        Some(implementation) => implementation(arguments, &Call { context, collation }),
        None => Err(SqlError::not_modelled(row.name)),
    }
}
