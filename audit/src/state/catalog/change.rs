//! Catalogs made from catalogs: what DDL does.

use super::{Catalog, Inner, Table, TableId, TableKind, Type};
use std::sync::Arc;

impl Catalog {
    /// A copy that `change` may alter.
    pub fn with(&self, change: impl FnOnce(&mut Editor)) -> Catalog {
        let mut editor = Editor {
            inner: self.inner().clone(),
        };
        change(&mut editor);
        Catalog::from_inner(editor.inner)
    }

    /// This catalog, and the temporary tables of another. What they are made of must be known here.
    pub fn with_temporary_of(&self, other: &Catalog) -> Catalog {
        let mut temporary = other.tables();
        temporary.retain(|table| table.is_temporary());
        self.with(|editor| {
            editor.inner.created = editor.inner.created.max(other.inner().created);
            for table in temporary {
                let is_known = |oid: u32| oid < FIRST_USER_OID || self.type_by_oid(oid).is_some();
                let mut table = (**table).clone();
                if !table.columns.iter().all(|column| is_known(column.type_oid)) {
                    table.give_up("unknown_type");
                }
                editor.put(table);
            }
        })
    }
}

/// Object identifiers below this one are PostgreSQL's own (FirstNormalObjectId).
const FIRST_USER_OID: u32 = 16_384;

/// A catalog that is being changed.
pub struct Editor {
    inner: Inner,
}

impl Editor {
    /// A number for a new object that no other object has, the same on every run.
    pub fn new_id(&mut self, schema: &str, name: &str) -> u32 {
        self.inner.created += 1;
        let mut hash: u32 = 0x811c_9dc5;
        for byte in schema
            .bytes()
            .chain([0])
            .chain(name.bytes())
            .chain(self.inner.created.to_le_bytes())
        {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        // Real object identifiers of user objects are small in practice; ours have the high bit.
        let mut id = hash | 0x8000_0000;
        while self.inner.tables.contains_key(&TableId(id)) || self.inner.types.contains_key(&id) {
            id = id.wrapping_add(1) | 0x8000_0000;
        }
        id
    }

    pub fn put(&mut self, table: Table) {
        self.inner.put(table);
    }

    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.inner.tables.get(&id)
    }

    /// Whether a relation of this name is there.
    pub fn finds(&self, schema: &str, name: &str) -> bool {
        let named = self.inner.names.get(name);
        named.is_some_and(|entries| entries.iter().any(|(other, _)| other == schema))
    }

    /// Changes one table.
    pub fn alter(&mut self, id: TableId, change: impl FnOnce(&mut Table)) {
        if let Some(table) = self.inner.tables.get(&id) {
            let mut table = (**table).clone();
            self.inner.forget_name(&table);
            change(&mut table);
            self.inner.put(table);
        }
    }

    pub fn drop_table(&mut self, id: TableId) {
        let Some(table) = self.inner.tables.remove(&id) else {
            return;
        };
        self.inner.forget_name(&table);
        for key in &table.foreign_keys {
            self.alter(key.target, |target| {
                target.referenced_by.retain(|source| *source != id)
            });
        }
        for source in &table.referenced_by {
            self.alter(*source, |source| {
                source.foreign_keys.retain(|key| key.target != id)
            });
        }
        for parent in &table.parents {
            self.alter(*parent, |parent| parent.children.retain(|child| *child != id));
        }
        let is_owned = |other: &&Arc<Table>| other.sequence.is_some_and(|s| s.owner == Some(id));
        let owned: Vec<TableId> = self
            .inner
            .tables
            .values()
            .filter(is_owned)
            .map(|t| t.id)
            .collect();
        owned.into_iter().for_each(|sequence| self.drop_table(sequence));
    }

    pub fn add_type(&mut self, new: Type) {
        self.inner.add_type(new);
    }

    pub fn drop_type(&mut self, oid: u32) {
        if let Some(gone) = self.inner.types.remove(&oid) {
            if let Some(entries) = self.inner.type_names.get_mut(&gone.name) {
                entries.retain(|(_, entry)| *entry != oid);
            }
        }
    }

    pub fn add_schema(&mut self, name: &str) {
        if !self.inner.schemas.iter().any(|schema| schema == name) {
            self.inner.schemas.push(name.to_owned());
        }
    }

    /// Replaces a function with the same schema, name and input types, or adds it.
    pub fn put_function(&mut self, new: super::Function) {
        let entries = self.inner.functions.entry(new.name.clone()).or_default();
        entries.retain(|old| old.schema != new.schema || inputs(old) != inputs(&new));
        entries.push(Arc::new(new));
        self.inner.function_count += 1;
    }

    /// Takes away the function with these input types, if they are known. Of several that may be meant all stay, since
    /// a function that nobody looks into may do anything.
    pub fn drop_functions(
        &mut self,
        schema: Option<&str>,
        name: &str,
        path: &[String],
        types: Option<&[u32]>,
    ) {
        let Some(entries) = self.inner.functions.get_mut(name) else {
            return;
        };
        let is_meant = |old: &Arc<super::Function>| {
            schema.is_none_or(|schema| schema == old.schema) && types.is_none_or(|types| inputs(old) == types)
        };
        let is_found = |old: &Arc<super::Function>| schema.is_some() || path.contains(&old.schema);
        if entries.iter().filter(|old| is_meant(old)).count() == 1 {
            entries.retain(|old| !is_meant(old) || !is_found(old));
        }
        if entries.is_empty() {
            self.inner.functions.remove(name);
        }
    }

    pub fn set_collation_is_c(&mut self, is_c: bool) {
        self.inner.collation_is_c = is_c;
    }

    /// From now on a name that is not in the catalog does not exist.
    pub fn set_loaded(&mut self) {
        self.inner.loaded = true;
    }
}

/// The types by which functions of one name are told apart.
fn inputs(function: &super::Function) -> Vec<u32> {
    let inputs = function
        .arguments
        .iter()
        .filter(|a| matches!(a.mode, 'i' | 'b' | 'v'));
    inputs.map(|a| a.type_oid).collect()
}

impl Inner {
    pub(super) fn put(&mut self, table: Table) {
        self.forget_name(&table);
        self.names
            .entry(table.name.clone())
            .or_default()
            .push((table.schema.clone(), table.id));
        self.tables.insert(table.id, Arc::new(table));
    }

    fn forget_name(&mut self, table: &Table) {
        if let Some(entries) = self.names.get_mut(&table.name) {
            entries.retain(|(_, id)| *id != table.id);
        }
    }

    pub(super) fn add_type(&mut self, new: Type) {
        self.type_names
            .entry(new.name.clone())
            .or_default()
            .push((new.schema.clone(), new.oid));
        self.types.insert(new.oid, Arc::new(new));
    }
}

impl Table {
    pub fn new(id: TableId, schema: &str, name: &str, kind: TableKind) -> Table {
        Table {
            id,
            schema: schema.to_owned(),
            name: name.to_owned(),
            kind,
            columns: Vec::new(),
            keys: Vec::new(),
            plain_indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
            children: Vec::new(),
            parents: Vec::new(),
            partitioning: None,
            bound: None,
            partition_condition: None,
            storage: id,
            definition: None,
            triggers: Vec::new(),
            unmodelled_write: None,
            unmodelled_read: None,
            temporary: false,
            unlogged: false,
            sequence: None,
        }
    }
}
