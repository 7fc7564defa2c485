//! What the database says about itself: tables, columns, keys, types, sequences, views, functions.
//!
//! In: the rows of [`QUERIES`] (read at start), or the DDL that passes by.
//! Out: an immutable [`Catalog`], cheap to clone; DDL makes a new one.
//!
//! Always true:
//!   - two catalogs with the same [`Catalog::version`] are the same catalog, so a plan made for one is good
//!     for the other;
//!   - the position of a column never changes: a dropped column stays, marked, and a column that was added
//!     later is read from older rows as its `missing` value, as the server itself does;
//!   - nothing is guessed: what makes a table's statements mean more than they say (triggers, rules, row
//!     security) is kept as a reason in [`Table::unmodelled_write`] and [`Table::unmodelled_read`].

mod change;
mod load;
mod queries;
mod role;
mod sequence;

pub use change::Editor;
pub use queries::{QUERIES, VERSION};
pub use role::RoleSettings;
pub use sequence::Sequence;

use crate::value::{UserKind, UserType, UserTypes, Value};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// pg_class.oid, or a number that the audit made up for a table it saw being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    version: u64,
    /// Whether the server's own catalog was read. If not, a name that is not here may still exist.
    pub(crate) loaded: bool,
    pub(crate) has_sequences: bool,
    /// How many objects were created since, so that made-up numbers never repeat.
    pub(crate) created: u32,
    /// The database's default collation orders text byte by byte.
    pub(crate) collation_is_c: bool,
    pub(crate) schemas: Vec<String>,
    pub(crate) tables: FxHashMap<TableId, Arc<Table>>,
    pub(crate) names: FxHashMap<String, Vec<(String, TableId)>>,
    pub(crate) types: FxHashMap<u32, Arc<Type>>,
    pub(crate) type_names: FxHashMap<String, Vec<(String, u32)>>,
    pub(crate) functions: FxHashMap<String, Vec<Arc<Function>>>,
    pub(crate) function_count: u32,
    pub(crate) user_types: Arc<UserTypes>,
    pub(crate) role_settings: RoleSettings,
    /// What is called when the catalog is changed.
    pub(crate) event_triggers: Arc<[Trigger]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    Table,
    Partitioned,
    View,
    MaterializedView,
    Foreign,
    Sequence,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub id: TableId,
    pub schema: String,
    pub name: String,
    pub kind: TableKind,
    pub columns: Vec<Column>,
    pub keys: Vec<UniqueKey>,
    /// Names that its other indexes have or had: they say nothing of its rows, but names are found by them.
    pub plain_indexes: Vec<String>,
    pub checks: Vec<Check>,
    pub foreign_keys: Vec<ForeignKey>,
    /// Tables whose foreign keys point here.
    pub referenced_by: Vec<TableId>,
    /// Tables that inherit from this one, partitions included.
    pub children: Vec<TableId>,
    pub parents: Vec<TableId>,
    pub partitioning: Option<Partitioning>,
    /// `FOR VALUES …` of a partition, as SQL text.
    pub bound: Option<String>,
    /// A partition's rows are kept with the topmost table of its tree, in that table's columns; this is the
    /// condition (SQL text) that picks them out.
    pub partition_condition: Option<Arc<str>>,
    /// Where the rows of this table are kept: itself, or the root of the partition tree.
    pub storage: TableId,
    /// The query of a view, as SQL text.
    pub definition: Option<Arc<str>>,
    /// What is called when it is written.
    pub triggers: Vec<Trigger>,
    /// Why writes to this table mean more than they say (`trigger`, `rule`, `exclusion_constraint` …).
    pub unmodelled_write: Option<String>,
    /// Why reads of this table mean more than they say (`row_security`, `foreign_table` …).
    pub unmodelled_read: Option<String>,
    pub temporary: bool,
    /// A server that crashes comes back with it empty.
    pub unlogged: bool,
    /// How it goes on, if it is a sequence and that is known.
    pub sequence: Option<Sequence>,
}

/// A function without arguments, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    pub schema: String,
    pub function: String,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub type_modifier: i32,
    pub not_null: bool,
    /// SQL text of the default, or of the expression of a generated column.
    pub default: Option<Arc<str>>,
    pub identity: Identity,
    /// The sequence that its default draws from: of a serial or identity column.
    pub sequence: Option<TableId>,
    pub generated: bool,
    /// Values of this column sort byte by byte.
    pub collation_is_c: bool,
    pub dropped: bool,
    /// What rows that are older than this column hold in it.
    pub missing: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    None,
    Always,
    ByDefault,
}

/// A unique index, whether or not a constraint declared it.
#[derive(Clone, Debug)]
pub struct UniqueKey {
    pub name: String,
    pub columns: Vec<usize>,
    /// Key expressions as SQL text, in place of a column where the index has one.
    pub expressions: Vec<Option<Arc<str>>>,
    pub predicate: Option<Arc<str>>,
    /// Columns that are kept beside the key: it goes with them.
    pub included: Vec<usize>,
    pub primary: bool,
    /// Declared as a constraint, so that ON CONFLICT ON CONSTRAINT may name it.
    pub constraint: bool,
    pub nulls_not_distinct: bool,
    pub deferrable: bool,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    /// The condition as SQL text.
    pub condition: Arc<str>,
}

#[derive(Clone, Debug)]
pub struct ForeignKey {
    pub name: String,
    pub columns: Vec<usize>,
    pub target: TableId,
    pub target_columns: Vec<usize>,
    pub on_update: Action,
    pub on_delete: Action,
    pub deferrable: bool,
    pub match_full: bool,
    pub validated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

#[derive(Clone, Debug)]
pub struct Partitioning {
    /// `l`, `r` or `h`, as in pg_partitioned_table.
    pub strategy: char,
    /// Key columns; empty where the key is an expression.
    pub columns: Vec<usize>,
}

/// A type that the database defines itself.
#[derive(Clone, Debug)]
pub struct Type {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub kind: TypeKind,
    pub array_oid: u32,
}

#[derive(Clone, Debug)]
pub enum TypeKind {
    /// Labels in their sort order.
    Enum(Arc<[Arc<str>]>),
    Domain {
        base: u32,
        type_modifier: i32,
        not_null: bool,
        checks: bool,
    },
    Array {
        element: u32,
    },
    Composite,
    Other,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub language: String,
    pub procedure: bool,
    /// `f` function, `p` procedure, `a` aggregate, `w` window.
    pub kind: char,
    pub volatility: char,
    pub strict: bool,
    pub returns: u32,
    pub returns_set: bool,
    pub arguments: Vec<Argument>,
    pub source: Arc<str>,
    /// The whole CREATE statement, for languages whose body is parsed from it.
    pub definition: Arc<str>,
    /// SECURITY DEFINER or a SET clause: it runs with other settings than its caller.
    pub own_settings: bool,
}

#[derive(Clone, Debug)]
pub struct Argument {
    pub name: Option<String>,
    pub type_oid: u32,
    /// `i`, `o`, `b`, `v` or `t`.
    pub mode: char,
    pub has_default: bool,
}

static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// Where an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexed {
    Nowhere,
    On(TableId),
    Unsure,
}

impl Catalog {
    pub(crate) fn from_inner(mut inner: Inner) -> Catalog {
        inner.version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        inner.user_types = Arc::new(user_types(&inner));
        inner.has_sequences = inner.tables.values().any(|table| table.sequence.is_some());
        Catalog {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Equal only for the same catalog. Nothing else may be concluded from it; it is not in any report.
    pub fn version(&self) -> u64 {
        self.inner.version
    }

    /// Whether the server's own catalog was read; if not, unknown names may exist.
    pub fn is_loaded(&self) -> bool {
        self.inner.loaded
    }

    pub fn collation_is_c(&self) -> bool {
        self.inner.collation_is_c
    }

    /// What is called when the catalog is changed.
    pub fn event_triggers(&self) -> &Arc<[Trigger]> {
        &self.inner.event_triggers
    }

    pub fn role_settings(&self) -> &RoleSettings {
        &self.inner.role_settings
    }

    /// Whether there are tables of types that every database has, and nothing else.
    pub fn is_plain(&self) -> bool {
        self.inner.types.is_empty() && self.inner.functions.is_empty()
    }

    /// Whether both are the same but for temporary tables, one made from the other.
    pub fn is_as_lasting(&self, other: &Catalog) -> bool {
        let (a, b) = (&*self.inner, &*other.inner);
        if a.version == b.version {
            return true;
        }
        let lasting = |inner: &Inner| inner.tables.values().filter(|t| !t.is_temporary()).count();
        let mut tables = a.tables.iter().filter(|(_, t)| !t.is_temporary());
        let mut functions = a.functions.iter();
        let mut types = a.types.iter();
        a.schemas == b.schemas
            && a.types.len() == b.types.len()
            && a.functions.len() == b.functions.len()
            && lasting(a) == lasting(b)
            && tables.all(|(id, t)| b.tables.get(id).is_some_and(|o| Arc::ptr_eq(t, o)))
            && types.all(|(oid, t)| b.types.get(oid).is_some_and(|o| Arc::ptr_eq(t, o)))
            && functions.all(|(name, all)| {
                b.functions.get(name).is_some_and(|others| {
                    all.len() == others.len() && all.iter().zip(others).all(|(f, o)| Arc::ptr_eq(f, o))
                })
            })
    }

    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.inner.tables.get(&id)
    }

    /// Where the rows of this table are kept: the table itself, or for a partition the root of its tree.
    pub fn storage(&self, id: TableId) -> TableId {
        self.table(id).map_or(id, |table| table.storage)
    }

    /// Whether there is a sequence of which something is known.
    pub fn has_sequences(&self) -> bool {
        self.inner.has_sequences
    }

    /// Every table, in the order of its number.
    pub fn tables(&self) -> Vec<&Arc<Table>> {
        let mut tables: Vec<_> = self.inner.tables.values().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    pub fn has_schema(&self, name: &str) -> bool {
        self.inner.schemas.iter().any(|schema| schema == name)
    }

    /// The relation that a name means: in `schema` if given, else in the first schema of `path` that has it.
    /// A session that has temporary tables searches their schema first. Where the path is not known, a name must be the only one of its kind.
    pub fn find(&self, schema: Option<&str>, name: &str, path: &[String]) -> Option<&Arc<Table>> {
        let entries = self.inner.names.get(name)?;
        let in_schema = |wanted: &str| {
            entries
                .iter()
                .find(|(schema, _)| schema == wanted)
                .and_then(|(_, id)| self.table(*id))
        };
        match schema {
            Some(TEMPORARY) => {
                let own = path.iter().find(|schema| schema.starts_with(TEMPORARY));
                in_schema(own.map_or(TEMPORARY, String::as_str))
            }
            Some(schema) => in_schema(schema),
            None if is_anywhere(path) => match entries.as_slice() {
                [(_, id)] => self.table(*id),
                _ => None,
            },
            None => in_schema(TEMPORARY).or_else(|| path.iter().find_map(|schema| in_schema(schema))),
        }
    }

    /// Whether triggers or rules are fired when a table is written, or a part of it.
    pub fn fires(&self, id: TableId) -> bool {
        let is_fired =
            |table: &Arc<Table>| table.fires() || table.children.iter().any(|child| self.fires(*child));
        self.table(id).is_none_or(is_fired)
    }

    /// The table that has the index which a name means.
    pub fn find_index(&self, schema: Option<&str>, name: &str, path: &[String]) -> Indexed {
        let named: Vec<&Arc<Table>> = self.tables().into_iter().filter(|t| t.has_index(name)).collect();
        let in_schema = |wanted: &str| {
            let mut here = named.iter().filter(|table| table.schema == wanted);
            // No two have the same name; of plain ones it may be an old name.
            here.clone().find(|t| t.has_key(name)).or_else(|| here.next())
        };
        let mut found = match schema {
            Some(schema) => in_schema(schema).into_iter().collect::<Vec<_>>(),
            None if is_anywhere(path) => named.iter().collect(),
            None => path.iter().filter_map(|schema| in_schema(schema)).collect(),
        }
        .into_iter();
        match found.next() {
            None => Indexed::Nowhere,
            Some(_) if schema.is_none() && is_anywhere(path) => Indexed::Unsure,
            Some(first) if first.has_key(name) || !found.any(|t| t.has_key(name)) => Indexed::On(first.id),
            Some(_) => Indexed::Unsure,
        }
    }

    /// The relations that a name may mean: several where the path is not known.
    pub fn candidates(&self, schema: Option<&str>, name: &str, path: &[String]) -> Vec<Arc<Table>> {
        if let Some(table) = self.find(schema, name, path) {
            return vec![table.clone()];
        }
        if schema.is_some() || !is_anywhere(path) {
            return Vec::new();
        }
        let entries = self.inner.names.get(name).into_iter().flatten();
        entries.filter_map(|(_, id)| self.table(*id).cloned()).collect()
    }

    /// The database's own types, as the values need them.
    pub fn user_types(&self) -> Arc<UserTypes> {
        self.inner.user_types.clone()
    }

    pub fn type_by_oid(&self, oid: u32) -> Option<&Arc<Type>> {
        self.inner.types.get(&oid)
    }

    pub fn find_type(&self, schema: Option<&str>, name: &str, path: &[String]) -> Option<&Arc<Type>> {
        let entries = self.inner.type_names.get(name)?;
        let in_schema = |wanted: &str| {
            entries
                .iter()
                .find(|(schema, _)| schema == wanted)
                .and_then(|(_, oid)| self.type_by_oid(*oid))
        };
        match schema {
            Some(schema) => in_schema(schema),
            None => path.iter().find_map(|schema| in_schema(schema)),
        }
    }

    /// Functions and procedures of this name that the path reaches.
    /// Whether any schema has a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.inner.functions.contains_key(name)
    }

    pub fn find_functions(&self, schema: Option<&str>, name: &str, path: &[String]) -> Vec<&Arc<Function>> {
        let Some(entries) = self.inner.functions.get(name) else {
            return Vec::new();
        };
        let visible = |function: &&Arc<Function>| match schema {
            Some(schema) => function.schema == schema,
            None => path.contains(&function.schema) || is_anywhere(path),
        };
        entries.iter().filter(visible).collect()
    }
}

fn user_types(inner: &Inner) -> UserTypes {
    let mut types = UserTypes::default();
    for found in inner.types.values() {
        let kind = match &found.kind {
            TypeKind::Enum(labels) => UserKind::Enum(labels.to_vec()),
            TypeKind::Domain {
                base, type_modifier, ..
            } => UserKind::Domain(*base, *type_modifier),
            TypeKind::Array { element } => UserKind::Array(*element),
            TypeKind::Composite | TypeKind::Other => UserKind::Other,
        };
        types.by_oid.insert(
            found.oid,
            UserType {
                name: found.name.clone(),
                kind,
                array: found.array_oid,
            },
        );
    }
    types
}

/// Stands for a search path that nobody knows.
pub const ANYWHERE: &str = "*";

/// Whether it is not known which schemas are searched.
pub fn is_anywhere(path: &[String]) -> bool {
    path.iter().any(|schema| schema == ANYWHERE)
}

/// What the names of the schemas begin with under which temporary tables are kept, one for each session.
pub const TEMPORARY: &str = "pg_temp";

impl Table {
    /// Neither reads of it nor writes to it mean what they say any more.
    pub fn give_up(&mut self, reason: &str) {
        self.unmodelled_read = Some(reason.to_owned());
        self.unmodelled_write = Some(reason.to_owned());
    }

    pub fn has_key(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }

    pub fn has_constraint(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.constraint && key.name == name)
            || self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
    }

    pub fn has_index(&self, name: &str) -> bool {
        self.has_key(name) || self.plain_indexes.iter().any(|index| index == name)
    }

    pub fn drop_index(&mut self, name: &str) {
        self.keys.retain(|key| key.name != name);
        self.plain_indexes.retain(|index| index != name);
    }

    /// Whether triggers or rules of its own are fired when it is written, those of foreign and deferrable keys among them.
    fn fires(&self) -> bool {
        let is_bound = !self.foreign_keys.is_empty() || !self.referenced_by.is_empty();
        is_bound
            || !self.triggers.is_empty()
            || self.unmodelled_write.is_some()
            || !matches!(self.kind, TableKind::Table | TableKind::Partitioned)
            || self.keys.iter().any(|key| key.deferrable)
    }

    /// Whether a write to it may write to tables that neither its keys nor its triggers name.
    pub fn writes_reach_anywhere(&self) -> bool {
        match self.unmodelled_write.as_deref() {
            None => self.kind == TableKind::Foreign,
            Some("trigger") => self.triggers.is_empty(),
            Some(
                "alter_partition"
                | "check_constraint"
                | "exclusion_constraint"
                | "partition_constraint"
                | "partition_columns"
                | "create_table_as",
            ) => self.kind == TableKind::Foreign,
            Some(_) => true,
        }
    }

    /// Whether it is some session's own.
    pub fn is_temporary(&self) -> bool {
        self.schema.starts_with(TEMPORARY)
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns
            .iter()
            .position(|column| !column.dropped && column.name == name)
    }

    /// Whether no two rows can agree in these columns.
    pub fn is_unique(&self, columns: &[usize]) -> bool {
        let mut keys = self.keys.iter().filter(|key| key.is_plain());
        keys.any(|key| key.columns.iter().all(|c| columns.contains(c)))
    }

    pub fn primary_key(&self) -> Option<&UniqueKey> {
        self.keys.iter().find(|key| key.primary)
    }

    pub fn qualified_name(&self) -> String {
        if self.schema == "public" {
            self.name.clone()
        } else {
            format!("{}.{}", self.schema, self.name)
        }
    }

    pub fn live_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.dropped)
    }
}

impl Column {
    /// A plain nullable column.
    pub fn new(name: &str, type_oid: u32, type_modifier: i32) -> Column {
        Column {
            name: name.to_owned(),
            type_oid,
            type_modifier,
            not_null: false,
            default: None,
            identity: Identity::None,
            sequence: None,
            generated: false,
            collation_is_c: false,
            dropped: false,
            missing: Value::Null,
        }
    }
}

impl UniqueKey {
    /// A key over plain columns of all rows: a row is found by it with one lookup.
    pub fn is_plain(&self) -> bool {
        self.predicate.is_none() && self.expressions.iter().all(Option::is_none)
    }
}
