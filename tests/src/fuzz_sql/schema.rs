//! Random schemas: types, keys, defaults, checks, foreign keys, partitions, views.

use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int2,
    Int4,
    Int8,
    Numeric,
    Float,
    Text,
    Varchar,
    Char,
    Bool,
    Date,
    Timestamp,
    Uuid,
    Bytea,
    Interval,
    Ints,
    Jsonb,
}

pub const KINDS: &[Kind] = &[
    Kind::Int4,
    Kind::Int4,
    Kind::Int4,
    Kind::Int8,
    Kind::Int2,
    Kind::Numeric,
    Kind::Numeric,
    Kind::Float,
    Kind::Text,
    Kind::Text,
    Kind::Varchar,
    Kind::Char,
    Kind::Bool,
    Kind::Date,
    Kind::Timestamp,
    Kind::Uuid,
    Kind::Bytea,
    Kind::Interval,
    Kind::Ints,
    Kind::Jsonb,
];

impl Kind {
    pub fn sql(self) -> &'static str {
        match self {
            Kind::Int2 => "smallint",
            Kind::Int4 => "int",
            Kind::Int8 => "bigint",
            Kind::Numeric => "numeric(10,2)",
            Kind::Float => "float8",
            Kind::Text => "text",
            Kind::Varchar => "varchar(6)",
            Kind::Char => "char(4)",
            Kind::Bool => "bool",
            Kind::Date => "date",
            Kind::Timestamp => "timestamp",
            Kind::Uuid => "uuid",
            Kind::Bytea => "bytea",
            Kind::Interval => "interval",
            Kind::Ints => "int[]",
            Kind::Jsonb => "jsonb",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric | Kind::Float
        )
    }
}

pub struct FuzzTable {
    pub name: String,
    pub columns: Vec<(String, Kind)>,
    /// The columns of the primary key; empty if there is none.
    pub key: Vec<&'static str>,
    pub create: Vec<String>,
    /// Rows are kept elsewhere.
    pub is_view: bool,
}

pub struct Schema {
    pub tables: Vec<FuzzTable>,
}

impl Schema {
    pub fn random(rng: &mut Rng) -> Schema {
        let mut tables: Vec<FuzzTable> = Vec::new();
        for number in 0..rng.usize(1..=3) {
            let table = table(rng, number, &tables);
            tables.push(table);
        }
        if rng.u8(0..3) == 0 {
            let view = view(rng, &tables);
            tables.push(view);
        }
        Schema { tables }
    }

    pub fn create(&self) -> Vec<String> {
        self.tables
            .iter()
            .flat_map(|table| table.create.iter().cloned())
            .collect()
    }
}

fn one_of(rng: &mut Rng, choices: &[&'static str]) -> &'static str {
    choices[rng.usize(0..choices.len())]
}

fn table(rng: &mut Rng, number: usize, others: &[FuzzTable]) -> FuzzTable {
    let name = format!("t{number}");
    let mut columns = vec![("id".to_owned(), Kind::Int4)];
    let mut parts = Vec::new();
    let key: Vec<&'static str> = match rng.u8(0..10) {
        0..=1 => Vec::new(),
        2..=3 => vec!["id", "k"],
        _ => vec!["id"],
    };
    parts.push(match key.len() {
        1 => "id int primary key".to_owned(),
        _ => "id int".to_owned(),
    });
    if key.len() == 2 {
        parts.push("k int default 1".to_owned());
        columns.push(("k".to_owned(), Kind::Int4));
    }
    for place in 0..rng.usize(1..=4) {
        let kind = *rng.choice(KINDS).expect("some kinds");
        let column = format!("c{place}");
        let mut part = format!("{column} {}", kind.sql());
        match rng.u8(0..12) {
            0 => part.push_str(" not null"),
            1 if kind.is_number() => part.push_str(" default 7"),
            2 if kind.is_number() => part.push_str(&format!(" check ({column} > -50)")),
            3 if key.len() < 2 => part.push_str(" unique"),
            _ => {}
        }
        columns.push((column, kind));
        parts.push(part);
    }
    if rng.u8(0..10) == 0 {
        parts.push("doubled int generated always as (id * 2) stored".to_owned());
    }
    if key.len() == 2 {
        parts.push("primary key (id, k)".to_owned());
    }
    let parents: Vec<&FuzzTable> = others.iter().filter(|other| !other.key.is_empty()).collect();
    if !parents.is_empty() && rng.bool() {
        let parent = parents[rng.usize(0..parents.len())];
        let action = one_of(
            rng,
            &[
                "",
                " on delete cascade",
                " on delete cascade",
                " on delete set null",
                " on update cascade",
                " on update cascade on delete cascade",
                " on delete restrict",
                " on delete set default",
                " on update set null",
            ],
        );
        columns.push(("parent".to_owned(), Kind::Int4));
        if parent.key.len() == 1 {
            parts.push(format!("parent int references {}(id){action}", parent.name));
        } else {
            columns.push(("parent_k".to_owned(), Kind::Int4));
            parts.push("parent int".to_owned());
            parts.push("parent_k int".to_owned());
            let full = one_of(rng, &["", "", " match full"]);
            parts.push(format!(
                "foreign key (parent, parent_k) references {}(id, k){full}{action}",
                parent.name
            ));
        }
    }
    // A partition key must be part of every unique key.
    let can_be_split = !parts.iter().any(|part| part.contains("unique")) && key.first() == Some(&"id");
    let mut create = Vec::new();
    let body = parts.join(", ");
    match rng.u8(0..10) {
        0 if can_be_split => {
            create.push(format!("create table {name} ({body}) partition by range (id)"));
            create.push(format!(
                "create table {name}_a partition of {name} for values from (minvalue) to (4)"
            ));
            let end = one_of(rng, &["maxvalue", "9"]);
            create.push(format!(
                "create table {name}_b partition of {name} for values from (4) to ({end})"
            ));
        }
        1 if can_be_split => {
            create.push(format!("create table {name} ({body}) partition by list (id)"));
            create.push(format!(
                "create table {name}_a partition of {name} for values in (1, 2, 3)"
            ));
            create.push(format!("create table {name}_b partition of {name} default"));
        }
        2 if can_be_split => {
            create.push(format!("create table {name} ({body}) partition by hash (id)"));
            for remainder in 0..2 {
                create.push(format!(
                    "create table {name}_{remainder} partition of {name} for values with (modulus 2, remainder {remainder})"
                ));
            }
        }
        _ => create.push(format!("create table {name} ({body})")),
    }
    FuzzTable {
        name,
        columns,
        key,
        create,
        is_view: false,
    }
}

/// A view of some columns and rows of one table, or of a join with another.
fn view(rng: &mut Rng, tables: &[FuzzTable]) -> FuzzTable {
    let base = &tables[rng.usize(0..tables.len())];
    let mut columns: Vec<(String, Kind)> = base.columns.clone();
    if columns.len() > 2 {
        columns.truncate(rng.usize(2..=columns.len()));
    }
    let list: Vec<String> = columns.iter().map(|(name, _)| format!("a.{name}")).collect();
    let list = list.join(", ");
    let query = match rng.u8(0..4) {
        0 => {
            let other = &tables[rng.usize(0..tables.len())];
            format!(
                "select {list} from {} a join {} b on a.id = b.id",
                base.name, other.name
            )
        }
        1 => format!("select {list} from {} a", base.name),
        _ => {
            let check = one_of(rng, &["", "", " with check option"]);
            format!("select {list} from {} a where a.id < 6{check}", base.name)
        }
    };
    FuzzTable {
        name: "v0".to_owned(),
        columns,
        key: Vec::new(),
        create: vec![format!("create view v0 as {query}")],
        is_view: true,
    }
}
