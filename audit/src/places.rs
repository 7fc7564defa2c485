//! Who read and who wrote where: finds the transactions that can have met on a row.
//!
//! In: the reads and writes of transactions, by number. Out: for one more, the numbers of those whose reads its
//! writes may touch, or whose writes its reads or writes may.
//!
//! Always true: two transactions that are not found for each other share no row. Some that are found may share
//! none either (keys are kept as hashes, and a scan meets every writer of its table): whoever asks compares.

use crate::certify::{Read, Written};
use crate::interpret::Touch;
use crate::state::{Row, TableId};
use crate::value::Value;
use crate::value::compare::hash_value;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::sync::Arc;

type Numbers = SmallVec<[u64; 2]>;

#[derive(Clone, Default)]
pub struct Places {
    tables: FxHashMap<TableId, Place>,
    /// Which transaction made a version of a row, by its address.
    made: FxHashMap<u64, Numbers>,
}

/// One table.
#[derive(Clone, Default)]
struct Place {
    shapes: Vec<Shape>,
    scanners: Vec<u64>,
    /// With what they wrote.
    writers: FxHashMap<u64, Vec<Row>>,
}

/// The columns by which rows of a table are looked up.
#[derive(Clone)]
struct Shape {
    columns: Arc<[usize]>,
    readers: FxHashMap<u64, Numbers>,
    writers: FxHashMap<u64, Numbers>,
    /// Who wrote rows in which one of the columns is unknown.
    unsure: Vec<u64>,
}

impl Places {
    /// Who may have met a transaction with these reads and writes, in order.
    pub fn meet(&mut self, reads: &[Read], writes: &[Written]) -> Vec<u64> {
        let mut met: Vec<u64> = Vec::new();
        for touch in reads.iter().flat_map(|read| &read.touches) {
            match touch {
                Touch::Key {
                    table, columns, key, ..
                } => {
                    let shape = self.tables.entry(*table).or_default().shape(columns);
                    met.extend(&shape.unsure);
                    met.extend(shape.writers.get(&hash_of(key.iter())).into_iter().flatten());
                }
                Touch::Scan { table, .. } => {
                    if let Some(place) = self.tables.get(table) {
                        met.extend(place.writers.keys());
                    }
                }
            }
        }
        for written in writes {
            for row in written.before.iter().chain(&written.after) {
                met.extend(self.made.get(&address(row)).into_iter().flatten());
            }
            let Some(place) = self.tables.get(&written.table) else {
                continue;
            };
            met.extend(&place.scanners);
            for row in written.before.iter().chain(&written.after) {
                for shape in &place.shapes {
                    match shape.key_of(row) {
                        Some(key) => met.extend(shape.readers.get(&key).into_iter().flatten()),
                        None => met.extend(shape.readers.values().flatten()),
                    }
                }
            }
        }
        met.sort_unstable();
        met.dedup();
        met
    }

    pub fn add(&mut self, number: u64, reads: &[Read], writes: &[Written]) {
        for touch in reads.iter().flat_map(|read| &read.touches) {
            match touch {
                Touch::Key {
                    table, columns, key, ..
                } => {
                    let shape = self.tables.entry(*table).or_default().shape(columns);
                    remember(shape.readers.entry(hash_of(key.iter())).or_default(), number);
                }
                Touch::Scan { table, .. } => {
                    let scanners = &mut self.tables.entry(*table).or_default().scanners;
                    if scanners.last() != Some(&number) {
                        scanners.push(number);
                    }
                }
            }
        }
        for written in writes {
            let place = self.tables.entry(written.table).or_default();
            for row in written.before.iter().chain(&written.after) {
                for shape in &mut place.shapes {
                    shape.add_writer(row, number);
                }
                place.writers.entry(number).or_default().push(row.clone());
            }
            for row in written.before.iter().chain(&written.after) {
                remember(self.made.entry(address(row)).or_default(), number);
            }
        }
    }

    pub fn remove(&mut self, number: u64, reads: &[Read], writes: &[Written]) {
        for touch in reads.iter().flat_map(|read| &read.touches) {
            match touch {
                Touch::Key {
                    table, columns, key, ..
                } => {
                    let shape = self.tables.entry(*table).or_default().shape(columns);
                    forget(&mut shape.readers, hash_of(key.iter()), number);
                }
                Touch::Scan { table, .. } => {
                    let scanners = &mut self.tables.entry(*table).or_default().scanners;
                    scanners.retain(|known| *known != number);
                }
            }
        }
        for written in writes {
            let place = self.tables.entry(written.table).or_default();
            for row in written.before.iter().chain(&written.after) {
                for shape in &mut place.shapes {
                    match shape.key_of(row) {
                        Some(key) => forget(&mut shape.writers, key, number),
                        None => shape.unsure.retain(|known| *known != number),
                    }
                }
                forget(&mut self.made, address(row), number);
            }
            place.writers.remove(&number);
        }
    }
}

impl Place {
    /// The shape, with everything that was written so far when it is first asked for.
    fn shape(&mut self, columns: &Arc<[usize]>) -> &mut Shape {
        let at = match self.shapes.iter().position(|shape| *shape.columns == **columns) {
            Some(at) => at,
            None => {
                let mut shape = Shape {
                    columns: columns.clone(),
                    readers: FxHashMap::default(),
                    writers: FxHashMap::default(),
                    unsure: Vec::new(),
                };
                for (number, rows) in &self.writers {
                    rows.iter().for_each(|row| shape.add_writer(row, *number));
                }
                self.shapes.push(shape);
                self.shapes.len() - 1
            }
        };
        &mut self.shapes[at]
    }
}

impl Shape {
    /// `None`: one of the columns is unknown.
    fn key_of(&self, row: &Row) -> Option<u64> {
        let is_known = |column: &usize| !matches!(row.get(*column), None | Some(Value::Unknown));
        let known = self.columns.iter().all(is_known);
        known.then(|| hash_of(self.columns.iter().map(|column| &row[*column])))
    }

    fn add_writer(&mut self, row: &Row, number: u64) {
        match self.key_of(row) {
            Some(key) => remember(self.writers.entry(key).or_default(), number),
            None => self.unsure.push(number),
        }
    }
}

fn hash_of<'v>(values: impl Iterator<Item = &'v Value>) -> u64 {
    let mut hasher = FxHasher::default();
    values.for_each(|value| hash_value(value, &mut hasher));
    hasher.finish()
}

fn address(row: &Row) -> u64 {
    Arc::as_ptr(row).cast::<Value>() as usize as u64
}

fn remember(numbers: &mut Numbers, number: u64) {
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}

fn forget(map: &mut FxHashMap<u64, Numbers>, key: u64, number: u64) {
    if let Some(numbers) = map.get_mut(&key) {
        numbers.retain(|known| *known != number);
        if numbers.is_empty() {
            map.remove(&key);
        }
    }
}
