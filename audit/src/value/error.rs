//! How the evaluation of an expression can fail: as the server would, or because it is not modelled.

use std::borrow::Cow;

/// Why a value could not be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlError {
    /// The server raises this error too.
    Raised { sqlstate: &'static str, message: String },
    /// Nothing is known of the result, nor whether the server raises an error. Names the construct.
    NotModelled(Cow<'static, str>),
}

impl SqlError {
    pub fn raised(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
        SqlError::Raised {
            sqlstate,
            message: message.into(),
        }
    }

    pub fn not_modelled(construct: impl Into<Cow<'static, str>>) -> SqlError {
        SqlError::NotModelled(construct.into())
    }

    pub fn sqlstate(&self) -> Option<&'static str> {
        match self {
            SqlError::Raised { sqlstate, .. } => Some(sqlstate),
            SqlError::NotModelled(_) => None,
        }
    }

    pub fn division_by_zero() -> SqlError {
        SqlError::raised("22012", "division by zero")
    }

    pub fn out_of_range(kind: &str) -> SqlError {
        SqlError::raised("22003", format!("{kind} out of range"))
    }

    /// The text is not one of the type: 22P02.
    pub fn invalid_text(kind: &str, text: &str) -> SqlError {
        SqlError::raised(
            "22P02",
            format!("invalid input syntax for type {kind}: \"{text}\""),
        )
    }

    pub fn invalid_parameter(message: impl Into<String>) -> SqlError {
        SqlError::raised("22023", message)
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SqlError::Raised { sqlstate, message } => write!(f, "{message} ({sqlstate})"),
            SqlError::NotModelled(construct) => write!(f, "not modelled: {construct}"),
        }
    }
}

impl std::error::Error for SqlError {}
