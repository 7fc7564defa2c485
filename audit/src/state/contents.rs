//! The rows of a copied table, in the shape of the table that keeps them.
//!
//! In: a copy as text, the catalog and the settings it was read under. Out: its rows, decoded when they are asked for.

use super::{Catalog, Row, TableId};
use crate::trace::{Rows, TableCopy};
use crate::value::{self, Context, TimeZone, Value};

#[derive(Clone, Debug)]
pub struct Contents {
    rows: Rows,
    /// For each column of the copy its place in the table, and its type.
    places: Vec<(usize, u32)>,
    width: usize,
    context: Context,
}

impl Contents {
    /// `None` if the rows were not copied, or if the table does not look like that any more.
    pub fn of(
        catalog: &Catalog,
        table: TableId,
        copy: &TableCopy,
        settings: &[(String, String)],
    ) -> Option<Contents> {
        let target = catalog.table(catalog.table(table)?.storage)?;
        let zone = settings
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case("TimeZone"))
            .map(|(_, v)| v.as_str());
        // Columns by name: a partition may have them in another order than its parent.
        let places: Option<Vec<(usize, u32)>> = copy
            .columns
            .iter()
            .map(|name| target.column(name).map(|at| (at, target.columns[at].type_oid)))
            .collect();
        Some(Contents {
            rows: copy.rows.clone()?,
            places: places.filter(|places| places.len() == target.live_columns().count())?,
            width: target.columns.len(),
            context: Context {
                time_zone: zone.map_or(TimeZone::Unknown, TimeZone::from_setting),
                user_types: catalog.user_types(),
                ..Context::defaults()
            },
        })
    }

    /// One column of int4: the numbers from 0 on.
    #[cfg(test)]
    pub fn of_numbers(len: usize) -> Contents {
        Contents {
            rows: (0..len).map(|number| vec![Some(number.to_string())]).collect(),
            places: vec![(0, value::oid::INT4)],
            width: 1,
            context: Context::defaults(),
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().map(|cells| self.decode(&cells))
    }

    /// A row by its number.
    pub fn row(&self, number: usize) -> Option<Row> {
        self.rows.row(number).map(|cells| self.decode(&cells))
    }

    fn decode(&self, cells: &[Option<&str>]) -> Row {
        let mut row: Vec<Value> = vec![Value::Null; self.width];
        for (cell, (at, type_oid)) in cells.iter().zip(&self.places) {
            if let Some(text) = cell {
                row[*at] = value::decode(*type_oid, 0, Some(text.as_bytes()), &self.context);
            }
        }
        row.into()
    }
}
