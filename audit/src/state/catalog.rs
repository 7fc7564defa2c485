//! What the database says about itself: tables, columns, keys, types, sequences, views, functions.

use serde::{Deserialize, Serialize};

/// pg_class.oid, or a number that the audit made up for a table it saw being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct Catalog {}
