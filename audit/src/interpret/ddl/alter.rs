//! ALTER TABLE and RENAME.

use super::DdlRun;
use super::constraint::{mentions, without_twins};
use super::table::Draft;
use crate::interpret::Effect;
use crate::interpret::run::{Fault, Outcome};
use crate::sql::{self};
use crate::state::TableId;
use crate::state::catalog::{Editor, ForeignKey, Identity, Indexed, Table, UniqueKey};
use crate::value::Value;
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg, AlterTableType, ObjectType};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn alter_table(&self, alter: &pg::AlterTableStmt) -> Outcome<()> {
        if alter.objtype != ObjectType::ObjectTable as i32 {
            return Ok(());
        }
        let Some(table) = self.find(alter.relation.as_ref()) else {
            return if alter.missing_ok {
                Ok(())
            } else {
                Fault::unsure("unknown_table")
            };
        };
        let mut changed = (*table).clone();
        let mut references = Vec::new();
        let mut havoc = false;
        let commands = alter.cmds.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::AlterTableCmd(command)) => Some(&**command),
            _ => None,
        });
        let mut commands: Vec<(AlterTableType, &pg::AlterTableCmd)> = commands
            .map(|command| {
                let kind = AlterTableType::try_from(command.subtype);
                (kind.unwrap_or(AlterTableType::Undefined), command)
            })
            .collect();
        // What the server does first it does first, wherever it stands.
        commands.sort_by_key(|(kind, _)| pass(*kind));
        for (kind, command) in commands {
            let definition = command.def.as_ref().and_then(|node| node.node.as_ref());
            let column = changed.column(&command.name);
            match (kind, definition) {
                (AlterTableType::AtAddColumn, Some(NodeEnum::ColumnDef(definition))) => {
                    if changed.column(&definition.colname).is_some() {
                        if command.missing_ok {
                            continue;
                        }
                        return Fault::unsure("column_exists");
                    }
                    let mut draft = Draft {
                        table: changed.clone(),
                        constraints: Vec::new(),
                        // Rows that are there draw from it, too: it is not followed.
                        sequences: Vec::new(),
                    };
                    self.add_column(&mut draft, definition)?;
                    changed = draft.table;
                    let place = changed.columns.len() - 1;
                    let column = &changed.columns[place];
                    let missing = if column.identity != Identity::None || column.generated {
                        Value::Unknown
                    } else {
                        match &column.default {
                            None => Value::Null,
                            Some(default) => self.constant(default, column.type_oid, column.type_modifier),
                        }
                    };
                    changed.columns[place].missing = missing;
                    for (column, constraint) in &without_twins(draft.constraints) {
                        self.add_constraint(&mut changed, column.as_deref(), constraint, &mut references)?;
                    }
                }
                (AlterTableType::AtDropColumn, _) => match column {
                    Some(column) => {
                        changed.columns[column].sequence = None;
                        changed.columns[column].dropped = true;
                        changed.columns[column].not_null = false;
                        // What used the column went with it.
                        let is_in = |text: &Arc<str>| mentions(text, &command.name);
                        changed.keys.retain(|key| {
                            let mut expressions = key.expressions.iter().flatten().chain(&key.predicate);
                            let mut columns = key.columns.iter().chain(&key.included);
                            !columns.any(|of| *of == column) && !expressions.any(is_in)
                        });
                        changed.foreign_keys.retain(|key| !key.columns.contains(&column));
                        changed.checks.retain(|check| !is_in(&check.condition));
                        if sql::plan::cascades(alter)
                            && !self.views_over(std::slice::from_ref(&table)).is_empty()
                        {
                            self.run.note("drop_cascade");
                        }
                    }
                    None if command.missing_ok => {}
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtSetNotNull, _) => match column {
                    Some(column) => changed.columns[column].not_null = true,
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtDropNotNull, _) => match column {
                    Some(column) => changed.columns[column].not_null = false,
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtColumnDefault, _) => match column {
                    Some(column) => {
                        changed.columns[column].sequence = None;
                        changed.columns[column].default = match &command.def {
                            Some(node) => Some(self.expression_text(node)?),
                            None => None,
                        };
                    }
                    None => return Fault::unsure("unknown_column"),
                },
                (AlterTableType::AtAddConstraint, Some(NodeEnum::Constraint(constraint))) => {
                    self.add_constraint(&mut changed, None, constraint, &mut references)?;
                }
                (AlterTableType::AtDropConstraint, _) if !changed.has_constraint(&command.name) => {
                    // Perhaps it has another name than was thought.
                    if !command.missing_ok || !changed.checks.is_empty() {
                        return Fault::unsure("unknown_constraint");
                    }
                }
                (AlterTableType::AtDropConstraint, _) => {
                    changed
                        .keys
                        .retain(|key| !key.constraint || key.name != command.name);
                    changed.checks.retain(|check| check.name != command.name);
                    changed.foreign_keys.retain(|key| key.name != command.name);
                }
                (AlterTableType::AtAlterColumnType, Some(NodeEnum::ColumnDef(definition))) => {
                    let (Some(column), Some(type_name)) = (column, &definition.type_name) else {
                        return Fault::unsure("unknown_column");
                    };
                    let Some((type_oid, type_modifier)) =
                        sql::resolve_type(&self.catalog, self.settings, type_name)
                    else {
                        return Fault::unsure("unknown_type");
                    };
                    changed.columns[column].type_oid = type_oid;
                    changed.columns[column].type_modifier = type_modifier;
                    havoc = true;
                }
                (AlterTableType::AtEnableRowSecurity | AlterTableType::AtForceRowSecurity, _) => {
                    changed.unmodelled_read = Some("row_security".to_owned());
                    changed.unmodelled_write = Some("row_security".to_owned());
                }
                (
                    AlterTableType::AtAttachPartition
                    | AlterTableType::AtDetachPartition
                    | AlterTableType::AtAddInherit
                    | AlterTableType::AtDropInherit,
                    _,
                ) => return Fault::unsure("alter_partition"),
                (
                    AlterTableType::AtChangeOwner
                    | AlterTableType::AtSetStatistics
                    | AlterTableType::AtSetStorage
                    | AlterTableType::AtSetRelOptions
                    | AlterTableType::AtResetRelOptions
                    | AlterTableType::AtClusterOn
                    | AlterTableType::AtDropCluster
                    | AlterTableType::AtReplicaIdentity
                    | AlterTableType::AtValidateConstraint
                    | AlterTableType::AtDisableTrigUser
                    | AlterTableType::AtEnableTrig
                    | AlterTableType::AtEnableTrigUser
                    | AlterTableType::AtSetTableSpace
                    | AlterTableType::AtSetOptions
                    | AlterTableType::AtResetOptions
                    | AlterTableType::AtSetCompression,
                    _,
                ) => {}
                (AlterTableType::AtSetLogged, _) => changed.unlogged = false,
                (AlterTableType::AtSetUnLogged, _) => changed.unlogged = true,
                // Those that enforce foreign keys may be among them.
                (AlterTableType::AtDisableTrig, _) if !command.name.starts_with("RI_") => {}
                _ => return Fault::unsure("alter_table"),
            }
        }
        let id = changed.id;
        let released = match sql::plan::cascades(alter) {
            true => self.release(&table, &mut changed),
            false => Vec::new(),
        };
        let points_at = |other: TableId| changed.foreign_keys.iter().any(|key| key.target == other);
        let mut left: Vec<TableId> = table.foreign_keys.iter().map(|key| key.target).collect();
        left.retain(|target| !points_at(*target));
        if left.contains(&id) {
            changed.referenced_by.retain(|source| *source != id);
        }
        self.edit(|editor| {
            editor.put(changed);
            for target in left.into_iter().filter(|target| *target != id) {
                editor.alter(target, |target| {
                    target.referenced_by.retain(|source| *source != id)
                });
            }
            for (source, gone) in released {
                editor.alter(source, |source| {
                    source.foreign_keys.retain(|key| !gone.contains(&key.name))
                });
            }
            for target in references {
                editor.alter(target, |target| {
                    if !target.referenced_by.contains(&id) {
                        target.referenced_by.push(id);
                    }
                });
            }
        });
        if havoc {
            self.run.effects.borrow_mut().push(Effect::Havoc {
                table: table.storage,
                reason: "alter_column_type".to_owned(),
            });
        }
        Ok(())
    }

    /// With keys that are gone go the foreign keys that point to them: of which other tables, and their names.
    fn release(&self, table: &Table, changed: &mut Table) -> Vec<(TableId, Vec<String>)> {
        let count = |keys: &[UniqueKey], columns: &[usize]| {
            let is_of = |key: &&UniqueKey| {
                key.columns.len() == columns.len() && key.columns.iter().all(|c| columns.contains(c))
            };
            keys.iter().filter(is_of).count()
        };
        let left = changed.keys.clone();
        let is_gone = |key: &&ForeignKey| key.target == table.id && count(&left, &key.target_columns) == 0;
        // Of two keys of the same columns it points to one.
        let is_open = |key: &ForeignKey| {
            let fewer = count(&table.keys, &key.target_columns) > count(&left, &key.target_columns);
            key.target == table.id && fewer && !is_gone(&key)
        };
        if changed.foreign_keys.iter().any(is_open) {
            self.run.note("drop_cascade");
        }
        changed.foreign_keys.retain(|key| !is_gone(&key));
        let mut released = Vec::new();
        for source in table.referenced_by.iter().filter(|source| **source != table.id) {
            let Some(other) = self.catalog.table(*source) else {
                continue;
            };
            if other.foreign_keys.iter().any(is_open) {
                self.run.note("drop_cascade");
            }
            let gone = other.foreign_keys.iter().filter(is_gone);
            released.push((*source, gone.map(|key| key.name.clone()).collect()));
            let mut others = other.foreign_keys.iter();
            if !others.any(|key| key.target == table.id && !is_gone(&key)) {
                changed.referenced_by.retain(|other| other != source);
            }
        }
        released
    }

    /// The value of a constant expression, or unknown.
    pub(super) fn constant(&self, text: &str, type_oid: u32, type_modifier: i32) -> Value {
        sql::constant(
            &self.catalog,
            self.settings,
            text,
            type_oid,
            type_modifier,
            self.run.context,
        )
        .unwrap_or(Value::Unknown)
    }

    pub(super) fn rename(&self, rename: &pg::RenameStmt) -> Outcome<()> {
        let kind = ObjectType::try_from(rename.rename_type).unwrap_or(ObjectType::Undefined);
        if kind == ObjectType::ObjectIndex {
            return self.rename_index(rename);
        }
        let Some(table) = self.find(rename.relation.as_ref()) else {
            return if rename.missing_ok {
                Ok(())
            } else {
                Fault::unsure("rename")
            };
        };
        match kind {
            ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectSequence
            | ObjectType::ObjectMatview => {
                let views = self.views_over(std::slice::from_ref(&table));
                self.edit(|editor| {
                    editor.alter(table.id, |table| table.name.clone_from(&rename.newname));
                    outdate(editor, &views);
                });
            }
            ObjectType::ObjectColumn => {
                let Some(column) = table.column(&rename.subname) else {
                    return Fault::unsure("unknown_column");
                };
                let used = |text: &str| text.contains(&rename.subname);
                if table.checks.iter().any(|check| used(&check.condition))
                    || table.columns.iter().any(|column| column.generated)
                    || table.keys.iter().any(|key| !key.is_plain())
                {
                    return Fault::unsure("rename_column");
                }
                let views = self.views_over(std::slice::from_ref(&table));
                self.edit(|editor| {
                    editor.alter(table.id, |table| {
                        table.columns[column].name.clone_from(&rename.newname)
                    });
                    outdate(editor, &views);
                });
            }
            ObjectType::ObjectTabconstraint => {
                self.edit(|editor| {
                    editor.alter(table.id, |table| {
                        let keys = table.keys.iter_mut().map(|key| &mut key.name);
                        let checks = table.checks.iter_mut().map(|check| &mut check.name);
                        let references = table.foreign_keys.iter_mut().map(|key| &mut key.name);
                        let all = keys.chain(checks).chain(references);
                        for name in all.filter(|name| **name == rename.subname) {
                            name.clone_from(&rename.newname);
                        }
                    });
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn rename_index(&self, rename: &pg::RenameStmt) -> Outcome<()> {
        let Some(old) = &rename.relation else {
            return Fault::unsure("rename");
        };
        let path = &self.settings.search_path;
        match self.catalog.find_index(sql::schema_of(old), &old.relname, path) {
            Indexed::On(owner) => self.edit(|editor| {
                editor.alter(owner, |table| {
                    let keys = table.keys.iter_mut().map(|key| &mut key.name);
                    let all = keys.chain(&mut table.plain_indexes);
                    for name in all.filter(|name| **name == old.relname) {
                        name.clone_from(&rename.newname);
                    }
                });
            }),
            Indexed::Nowhere if rename.missing_ok => {}
            Indexed::Nowhere | Indexed::Unsure => return Fault::unsure("rename"),
        }
        Ok(())
    }
}

/// When the server does what a command says: it drops before it adds, and adds columns before constraints.
fn pass(kind: AlterTableType) -> u8 {
    match kind {
        AlterTableType::AtDropColumn | AlterTableType::AtDropConstraint | AlterTableType::AtDropNotNull => 0,
        AlterTableType::AtAlterColumnType => 1,
        AlterTableType::AtAddColumn => 2,
        AlterTableType::AtColumnDefault | AlterTableType::AtSetNotNull => 3,
        AlterTableType::AtAddConstraint => 4,
        _ => 5,
    }
}

/// Views follow what they are made of under its new name, their texts do not.
fn outdate(editor: &mut Editor, views: &[Arc<Table>]) {
    for view in views {
        editor.alter(view.id, |view| {
            view.unmodelled_read = Some("renamed_under_a_view".to_owned());
            view.unmodelled_write = Some("renamed_under_a_view".to_owned());
        });
    }
}
