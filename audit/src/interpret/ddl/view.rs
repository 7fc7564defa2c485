//! CREATE VIEW.

use super::DdlRun;
use super::statement_text;
use super::string_of;
use crate::interpret::run::{Fault, Outcome};
use crate::sql::{self};
use crate::state::TableId;
use crate::state::catalog::{Column, Table, TableKind};
use pg_query::protobuf::{self as pg};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn create_view(&self, view: &pg::ViewStmt) -> Outcome<()> {
        let Some(range) = &view.view else {
            return Fault::unsure("create_view");
        };
        let schema = self.schema_for(range);
        let Some(query) = view.query.as_ref().and_then(|node| node.node.clone()) else {
            return Fault::unsure("create_view");
        };
        let Some(text) = statement_text(query) else {
            return Fault::unsure("create_view");
        };
        // Which tables it means is decided once and for all.
        let schema_of = |name: &str| {
            let found = self.catalog.find(None, name, &self.settings.search_path)?;
            Some(found.schema.clone())
        };
        let Some(text) = sql::qualified(&text, schema_of) else {
            return Fault::unsure("create_view");
        };
        let columns = sql::columns_of(&self.catalog, self.settings, &text);
        let names: Vec<&str> = view.aliases.iter().filter_map(string_of).collect();
        let old = self
            .catalog
            .find(Some(&schema), &range.relname, &[])
            .map(|table| table.id);
        self.edit(|editor| {
            if let Some(old) = old {
                editor.drop_table(old);
            }
            let id = TableId(editor.new_id(&schema, &range.relname));
            let mut table = Table::new(id, &schema, &range.relname, TableKind::View);
            match columns {
                Some(columns) => {
                    for (place, column) in columns.iter().enumerate() {
                        let name = names.get(place).copied().unwrap_or(&column.name);
                        table.columns.push(Column::new(name, column.type_oid, -1));
                    }
                    table.definition = Some(Arc::from(text));
                }
                None => table.unmodelled_read = Some("view_definition".to_owned()),
            }
            editor.put(table);
        });
        Ok(())
    }
}
