//! PostgreSQL's own tables of types, operators, functions and casts, as initdb makes them.
//!
//! In: four text files, written by PostgreSQL 15 itself (`regenerate.sql` beside them). Out: lookups.
//!
//! Even operators and functions that are not modelled are listed: they take part in the resolution of
//! overloaded names, and without them a name would be resolved to another function than the server's.

use super::TypeOid;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

#[derive(Clone, Debug)]
pub struct TypeRow {
    pub oid: TypeOid,
    pub name: &'static str,
    /// pg_type.typtype: b, p, r, m.
    pub kind: u8,
    pub category: u8,
    pub preferred: bool,
    pub element: TypeOid,
    pub array: TypeOid,
    /// pg_type.typlen: only types of variable length (-1) with an element are true arrays.
    pub length: i16,
}

#[derive(Clone, Debug)]
pub struct FunctionRow {
    pub oid: u32,
    pub name: &'static str,
    pub arguments: Vec<TypeOid>,
    pub result: TypeOid,
    /// pg_proc.prokind: f, a, w.
    pub kind: u8,
    pub strict: bool,
    /// pg_proc.provolatile: i, s, v.
    pub volatility: u8,
    /// The element type of a VARIADIC last argument, or 0.
    pub variadic: TypeOid,
    pub defaults: u8,
    pub returns_set: bool,
    /// The name of the C function behind it.
    pub source: &'static str,
}

#[derive(Clone, Debug)]
pub struct OperatorRow {
    pub name: &'static str,
    /// 0 for a prefix operator.
    pub left: TypeOid,
    pub right: TypeOid,
    pub result: TypeOid,
    /// Index into [`Catalog::functions`].
    pub function: u16,
}

#[derive(Clone, Copy, Debug)]
pub struct CastRow {
    /// Index into [`Catalog::functions`], where the method is `f`.
    pub function: Option<u16>,
    /// pg_cast.castcontext: i, a, e.
    pub context: u8,
    /// pg_cast.castmethod: f, b, i.
    pub method: u8,
}

pub struct Catalog {
    pub types: FxHashMap<TypeOid, TypeRow>,
    pub types_by_name: FxHashMap<&'static str, TypeOid>,
    pub functions: Vec<FunctionRow>,
    pub functions_by_name: FxHashMap<&'static str, Vec<u16>>,
    pub functions_by_oid: FxHashMap<u32, u16>,
    pub operators: Vec<OperatorRow>,
    pub operators_by_name: FxHashMap<&'static str, Vec<u16>>,
    pub casts: FxHashMap<(TypeOid, TypeOid), CastRow>,
}

pub static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::load);

impl Catalog {
    fn load() -> Catalog {
        let mut catalog = Catalog {
            types: FxHashMap::default(),
            types_by_name: FxHashMap::default(),
            functions: Vec::new(),
            functions_by_name: FxHashMap::default(),
            functions_by_oid: FxHashMap::default(),
            operators: Vec::new(),
            operators_by_name: FxHashMap::default(),
            casts: FxHashMap::default(),
        };
        for field in rows(include_str!("types.tsv")) {
            let row = TypeRow {
                oid: number(field[0]),
                name: field[1],
                kind: letter(field[2]),
                category: letter(field[3]),
                preferred: field[4] == "1",
                element: number(field[5]),
                array: number(field[6]),
                length: field[7].parse().expect("a type length"),
            };
            catalog.types_by_name.insert(row.name, row.oid);
            catalog.types.insert(row.oid, row);
        }
        for field in rows(include_str!("functions.tsv")) {
            let index = catalog.functions.len() as u16;
            let row = FunctionRow {
                oid: number(field[0]),
                name: field[1],
                arguments: field[2].split_ascii_whitespace().map(number).collect(),
                result: number(field[3]),
                kind: letter(field[4]),
                strict: field[5] == "1",
                volatility: letter(field[6]),
                variadic: number(field[7]),
                defaults: number(field[8]) as u8,
                returns_set: field[9] == "1",
                source: field[10],
            };
            catalog.functions_by_name.entry(row.name).or_default().push(index);
            catalog.functions_by_oid.insert(row.oid, index);
            catalog.functions.push(row);
        }
        for field in rows(include_str!("operators.tsv")) {
            let Some(&function) = catalog.functions_by_oid.get(&number(field[5])) else {
                continue;
            };
            let index = catalog.operators.len() as u16;
            let row = OperatorRow {
                name: field[1],
                left: number(field[2]),
                right: number(field[3]),
                result: number(field[4]),
                function,
            };
            catalog.operators_by_name.entry(row.name).or_default().push(index);
            catalog.operators.push(row);
        }
        for field in rows(include_str!("casts.tsv")) {
            let row = CastRow {
                function: catalog.functions_by_oid.get(&number(field[2])).copied(),
                context: letter(field[3]),
                method: letter(field[4]),
            };
            catalog.casts.insert((number(field[0]), number(field[1])), row);
        }
        catalog
    }
}

fn rows(file: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    file.lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split('\t').collect())
}

fn number(field: &str) -> u32 {
    field.parse().expect("a number in the catalog tables")
}

fn letter(field: &str) -> u8 {
    field.as_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::CATALOG;

    #[test]
    fn tables_load_and_refer_to_each_other() {
        assert!(CATALOG.operators.len() > 700);
        assert!(CATALOG.functions.len() > 2000);
        let plus = CATALOG
            .operators
            .iter()
            .find(|o| o.name == "+" && o.left == 23 && o.right == 23)
            .unwrap();
        assert_eq!(CATALOG.functions[plus.function as usize].source, "int4pl");
    }
}
