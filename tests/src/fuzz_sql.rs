//! The interpreter against PostgreSQL itself: random schemas, data and statements from a seed.
//!
//! The same statement runs on a real server and on the interpreter, from the same state. The server's answer must
//! be one that the interpreter expects, or the interpreter must say that it does not know. After every write the
//! tables are compared, too.

use crate::raw::{Client, Message};
use bytes::Bytes;
use fastrand::Rng;
use pgassay_audit::interpret::memory::Memory;
use pgassay_audit::interpret::{Effect, Match};
use pgassay_audit::trace::{Answer, Column, Outcome, ServerError};
use std::collections::BTreeMap;

/// How often each construct was met, and how often the interpreter did not know.
#[derive(Debug, Default)]
pub struct Tally {
    pub constructs: BTreeMap<&'static str, (u64, u64)>,
    pub reasons: BTreeMap<String, u64>,
    pub statements: u64,
    pub rejected: u64,
}

/// A difference, with everything that is needed to see it again.
#[derive(Debug)]
pub struct Difference {
    pub seed: u64,
    pub history: Vec<String>,
    pub text: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for statement in &self.history {
            writeln!(f, "{statement};")?;
        }
        write!(f, "{}", self.text)
    }
}

/// One database made from a seed, and statements on it.
pub fn round(
    client: &mut Client,
    seed: u64,
    statements: usize,
    tally: &mut Tally,
) -> Result<(), Box<Difference>> {
    let mut rng = Rng::with_seed(seed);
    let mut memory = Memory::new();
    let mut history = Vec::new();
    let schema = Schema::random(&mut rng);
    client.query("drop schema if exists public cascade; create schema public");
    for statement in schema.create() {
        history.push(statement.clone());
        let outcome = outcome(&client.query(&statement));
        if let Outcome::Error(error) = &outcome {
            return Err(fail(
                seed,
                &history,
                format!("the server refuses the schema: {error:?}"),
            ));
        }
        let (verdict, execution) = memory.observe(&statement, &outcome);
        if !matches!(verdict, Match::Agrees { .. }) {
            return Err(fail(
                seed,
                &history,
                format!("DDL is not followed: {verdict:?} {:?}", execution.reasons),
            ));
        }
    }
    for _ in 0..statements {
        let mut generator = Generator {
            rng: &mut rng,
            schema: &schema,
            depth: 0,
            construct: "",
            aliases: Vec::new(),
        };
        let statement = generator.statement();
        let construct = generator.construct;
        let outcome = outcome(&client.query(&statement));
        tally.statements += 1;
        if let Outcome::Error(error) = &outcome {
            if error.sqlstate.starts_with("42") {
                // The generator made nonsense; no harm done.
                tally.rejected += 1;
                continue;
            }
        }
        let (verdict, execution) = memory.observe(&statement, &outcome);
        let entry = tally.constructs.entry(construct).or_default();
        entry.0 += 1;
        let wrote = !execution.effects.is_empty();
        match verdict {
            Match::Agrees { .. } if execution.reasons.is_empty() => {}
            Match::Agrees { .. } => {
                entry.1 += 1;
                for reason in &execution.reasons {
                    *tally.reasons.entry(reason.clone()).or_default() += 1;
                }
            }
            Match::Unknown(reason) => {
                entry.1 += 1;
                *tally.reasons.entry(reason).or_default() += 1;
            }
            Match::Differs(difference) => {
                history.push(statement);
                return Err(fail(
                    seed,
                    &history,
                    format!(
                        "{}: the server answered\n  {}\nthe interpreter expects\n  {}",
                        difference.rule.name, difference.observed, difference.expected
                    ),
                ));
            }
        }
        if matches!(outcome, Outcome::Answer(_)) && (wrote || !statement.starts_with("select")) {
            history.push(statement.clone());
            let widened = execution
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Havoc { .. } | Effect::HavocEverything { .. }));
            resynchronise(client, &mut memory, &schema, widened, seed, &history)?;
        }
    }
    Ok(())
}

fn fail(seed: u64, history: &[String], text: String) -> Box<Difference> {
    Box::new(Difference {
        seed,
        history: history.to_vec(),
        text,
    })
}

/// Compares every table with the server's, then takes over the server's contents.
fn resynchronise(
    client: &mut Client,
    memory: &mut Memory,
    schema: &Schema,
    widened: bool,
    seed: u64,
    history: &[String],
) -> Result<(), Box<Difference>> {
    for table in &schema.tables {
        let question = format!("select * from {}", table.name);
        let outcome = outcome(&client.query(&question));
        let Outcome::Answer(answer) = &outcome else {
            continue;
        };
        if !widened {
            let execution = memory.run(&question, &[]);
            if let Match::Differs(difference) = execution.expect.compare(&outcome) {
                return Err(fail(
                    seed,
                    history,
                    format!(
                        "after this, {} holds\n  {}\nbut the interpreter thinks\n  {}",
                        table.name, difference.observed, difference.expected
                    ),
                ));
            }
        }
        let rows: Vec<Vec<Option<String>>> = answer
            .rows
            .iter()
            .map(|row| {
                row.iter()
                    .map(|cell| {
                        cell.as_ref()
                            .map(|cell| String::from_utf8_lossy(cell).into_owned())
                    })
                    .collect()
            })
            .collect();
        if let Some(found) = memory
            .catalog
            .find(None, &table.name, &["public".to_owned()])
            .map(|found| found.id)
        {
            memory.load(found, &rows);
        }
    }
    Ok(())
}

/// The messages that answer one simple query.
pub fn outcome(messages: &[Message]) -> Outcome {
    let mut answer = Answer::default();
    for message in messages {
        match message.tag {
            b'E' => {
                return Outcome::Error(ServerError {
                    sqlstate: message.field('C').unwrap_or_default(),
                    message: message.field('M').unwrap_or_default(),
                    detail: message.field('D'),
                    constraint: None,
                    table: None,
                });
            }
            b'T' => answer.columns = columns(&message.body).into(),
            b'D' => answer.rows.push(cells(&message.body)),
            b'C' => {
                answer.tag =
                    Some(String::from_utf8_lossy(&message.body[..message.body.len() - 1]).into_owned())
            }
            _ => {}
        }
    }
    Outcome::Answer(answer)
}

fn columns(body: &[u8]) -> Vec<Column> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut at = 2;
    let mut columns = Vec::new();
    for _ in 0..count {
        let end = at
            + body[at..]
                .iter()
                .position(|byte| *byte == 0)
                .expect("a name ends");
        let name = String::from_utf8_lossy(&body[at..end]).into_owned();
        let type_oid = u32::from_be_bytes(body[end + 7..end + 11].try_into().expect("four bytes"));
        let type_modifier = i32::from_be_bytes(body[end + 13..end + 17].try_into().expect("four bytes"));
        columns.push(Column {
            name,
            type_oid,
            type_modifier,
            format: 0,
        });
        at = end + 19;
    }
    columns
}

fn cells(body: &[u8]) -> Vec<Option<Bytes>> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    let mut at = 2;
    let mut cells = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(body[at..at + 4].try_into().expect("four bytes"));
        at += 4;
        if length < 0 {
            cells.push(None);
        } else {
            cells.push(Some(Bytes::copy_from_slice(&body[at..at + length as usize])));
            at += length as usize;
        }
    }
    cells
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
}

const KINDS: &[Kind] = &[
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
];

impl Kind {
    fn sql(self) -> &'static str {
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
        }
    }

    fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric | Kind::Float
        )
    }
}

struct FuzzTable {
    name: String,
    columns: Vec<(String, Kind)>,
    create: String,
}

struct Schema {
    tables: Vec<FuzzTable>,
}

impl Schema {
    fn random(rng: &mut Rng) -> Schema {
        let mut tables: Vec<FuzzTable> = Vec::new();
        for number in 0..rng.usize(1..=3) {
            let name = format!("t{number}");
            let mut columns = vec![("id".to_owned(), Kind::Int4)];
            let mut parts = vec![
                if rng.u8(0..5) > 0 {
                    "id int primary key"
                } else {
                    "id int"
                }
                .to_owned(),
            ];
            for place in 0..rng.usize(1..=4) {
                let kind = *rng.choice(KINDS).expect("some kinds");
                let column = format!("c{place}");
                let mut part = format!("{column} {}", kind.sql());
                match rng.u8(0..12) {
                    0 => part.push_str(" not null"),
                    1 if kind.is_number() => part.push_str(" default 7"),
                    2 if kind.is_number() => part.push_str(&format!(" check ({column} > -50)")),
                    3 => part.push_str(" unique"),
                    _ => {}
                }
                columns.push((column, kind));
                parts.push(part);
            }
            if number > 0 && rng.bool() {
                let parent = &tables[rng.usize(0..tables.len())];
                if parent.create.contains("primary key") {
                    let action = rng
                        .choice([
                            "",
                            " on delete cascade",
                            " on delete set null",
                            " on update cascade",
                        ])
                        .expect("one");
                    parts.push(format!("parent int references {}(id){action}", parent.name));
                    columns.push(("parent".to_owned(), Kind::Int4));
                }
            }
            let create = format!("create table {name} ({})", parts.join(", "));
            tables.push(FuzzTable {
                name,
                columns,
                create,
            });
        }
        Schema { tables }
    }

    fn create(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.create.clone()).collect()
    }
}

struct Generator<'g> {
    rng: &'g mut Rng,
    schema: &'g Schema,
    depth: usize,
    construct: &'static str,
    /// Relations in scope: alias and table.
    aliases: Vec<(String, usize)>,
}

impl Generator<'_> {
    fn statement(&mut self) -> String {
        match self.rng.u8(0..100) {
            0..=29 => self.insert(),
            30..=44 => self.update(),
            45..=51 => self.delete(),
            52..=54 => self.upsert(),
            55..=56 => self.merge(),
            _ => self.select(),
        }
    }

    fn table(&mut self) -> usize {
        self.rng.usize(0..self.schema.tables.len())
    }

    fn insert(&mut self) -> String {
        self.construct = "insert";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        if self.rng.u8(0..8) == 0 {
            self.construct = "insert_select";
            self.aliases = vec![(target.name.clone(), table)];
            let condition = self.condition();
            let columns: Vec<String> = target.columns.iter().map(|(name, _)| name.clone()).collect();
            let values: Vec<String> = target
                .columns
                .iter()
                .map(|(name, _)| {
                    if name == "id" {
                        "id + 100".to_owned()
                    } else {
                        name.clone()
                    }
                })
                .collect();
            return format!(
                "insert into {} ({}) select {} from {} where {condition}",
                target.name,
                columns.join(", "),
                values.join(", "),
                target.name
            );
        }
        let rows = self.rng.usize(1..=3);
        let used: Vec<usize> = (0..target.columns.len())
            .filter(|place| *place == 0 || self.rng.u8(0..6) > 0)
            .collect();
        self.aliases.clear();
        let mut lists = Vec::new();
        for _ in 0..rows {
            let cells: Vec<String> = used
                .iter()
                .map(|place| match self.rng.u8(0..30) {
                    0 => "default".to_owned(),
                    1..=3 => self.value(target.columns[*place].1),
                    _ => self.literal(target.columns[*place].1),
                })
                .collect();
            lists.push(format!("({})", cells.join(", ")));
        }
        let names: Vec<&str> = used
            .iter()
            .map(|place| target.columns[*place].0.as_str())
            .collect();
        let returning = self.returning(table);
        format!(
            "insert into {} ({}) values {}{returning}",
            target.name,
            names.join(", "),
            lists.join(", ")
        )
    }

    fn upsert(&mut self) -> String {
        self.construct = "on_conflict";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        let cells: Vec<String> = target
            .columns
            .iter()
            .map(|(_, kind)| self.literal(*kind))
            .collect();
        let action = if self.rng.bool() {
            " on conflict do nothing".to_owned()
        } else {
            let (name, kind) = &target.columns[1];
            self.aliases = vec![(target.name.clone(), table)];
            let value = if self.rng.bool() {
                format!("excluded.{name}")
            } else {
                self.value(*kind)
            };
            format!(" on conflict (id) do update set {name} = {value}")
        };
        let returning = self.returning(table);
        format!(
            "insert into {} values ({}){action}{returning}",
            target.name,
            cells.join(", ")
        )
    }

    fn merge(&mut self) -> String {
        self.construct = "merge";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        let (name, kind) = &target.columns[1];
        let source = self.rng.i32(0..9);
        let value = self.literal(*kind);
        format!(
            "merge into {} t using (values ({source}), ({})) s(k) on t.id = s.k when matched then update set {name} = {value} when not matched then insert (id, {name}) values (s.k, {value})",
            target.name,
            source + 1
        )
    }

    fn returning(&mut self, table: usize) -> String {
        match self.rng.u8(0..4) {
            0 => " returning *".to_owned(),
            1 => {
                let schema = self.schema;
                let (name, kind) = self.pick_column(&schema.tables[table]);
                let _ = kind;
                format!(" returning id, {name}")
            }
            _ => String::new(),
        }
    }

    fn pick_column(&mut self, table: &FuzzTable) -> (String, Kind) {
        table.columns[self.rng.usize(0..table.columns.len())].clone()
    }

    fn update(&mut self) -> String {
        self.construct = "update";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        self.aliases = vec![(target.name.clone(), table)];
        let (name, kind) = self.pick_column(target);
        let mut from = String::new();
        let mut join = String::new();
        if self.rng.u8(0..8) == 0 {
            self.construct = "update_from";
            let other = self.table();
            from = format!(" from {} o", schema.tables[other].name);
            join = format!("{}.id = o.id and ", target.name);
        }
        let value = match (self.rng.u8(0..3), kind.is_number()) {
            (0, true) => format!("{}.{name} + {}", target.name, self.rng.i32(-3..9)),
            (1, _) => self.value(kind),
            _ => self.literal(kind),
        };
        let condition = self.condition();
        let returning = if from.is_empty() {
            self.returning(table)
        } else {
            String::new()
        };
        format!(
            "update {} set {name} = {value}{from} where {join}{condition}{returning}",
            target.name
        )
    }

    fn delete(&mut self) -> String {
        self.construct = "delete";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        self.aliases = vec![(target.name.clone(), table)];
        let condition = self.condition();
        let returning = self.returning(table);
        format!("delete from {} where {condition}{returning}", target.name)
    }

    fn select(&mut self) -> String {
        match self.rng.u8(0..20) {
            0 => {
                self.construct = "set_operation";
                let operation = *self
                    .rng
                    .choice(
                        [
                            "union",
                            "union all",
                            "intersect",
                            "except",
                            "intersect all",
                            "except all",
                        ]
                        .as_slice(),
                    )
                    .expect("one");
                let left = self.column_query(Kind::Int4);
                let right = self.column_query(Kind::Int4);
                format!("select * from ({left}) x {operation} ({right}) order by 1")
            }
            1 => {
                self.construct = "cte";
                let inner = self.column_query(Kind::Int4);
                format!("with w(x) as ({inner}) select x, count(*) from w group by x order by x nulls first")
            }
            2..=6 => self.aggregate_query(),
            _ => self.plain_query(),
        }
    }

    fn column_query(&mut self, kind: Kind) -> String {
        let table = self.table();
        let schema = self.schema;
        let outer = std::mem::take(&mut self.aliases);
        let alias = format!("q{}", self.depth);
        self.aliases = vec![(alias.clone(), table)];
        let value = self.value(kind);
        let condition = self.condition();
        self.aliases = outer;
        format!(
            "select {value} from {} {alias} where {condition}",
            schema.tables[table].name
        )
    }

    fn from(&mut self) -> String {
        let schema = self.schema;
        let first = self.table();
        self.aliases = vec![("a".to_owned(), first)];
        let mut from = format!("{} a", schema.tables[first].name);
        if self.rng.u8(0..3) == 0 {
            let second = self.table();
            let kind = *self
                .rng
                .choice(["join", "left join", "right join", "full join"].as_slice())
                .expect("one");
            self.construct = match kind {
                "join" => "join",
                "full join" => "full_join",
                _ => "outer_join",
            };
            self.aliases.push(("b".to_owned(), second));
            let on = if self.rng.bool() || kind == "full join" {
                "a.id = b.id".to_owned()
            } else {
                self.condition()
            };
            from.push_str(&format!(" {kind} {} b on {on}", schema.tables[second].name));
        }
        from
    }

    fn plain_query(&mut self) -> String {
        self.construct = "select";
        let from = self.from();
        let condition = if self.rng.u8(0..5) == 0 {
            "true".to_owned()
        } else {
            self.condition()
        };
        let mut targets = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            let kind = *self.rng.choice(KINDS).expect("some kinds");
            targets.push(self.value(kind));
        }
        let distinct = if self.rng.u8(0..8) == 0 { "distinct " } else { "" };
        let mut query = format!(
            "select {distinct}{} from {from} where {condition}",
            targets.join(", ")
        );
        if self.rng.u8(0..3) == 0 {
            let place = self.rng.usize(1..=targets.len());
            let direction = *self
                .rng
                .choice(["", " desc", " nulls first", " desc nulls last"].as_slice())
                .expect("one");
            query.push_str(&format!(" order by {place}{direction}"));
        }
        if self.rng.u8(0..5) == 0 {
            query.push_str(&format!(" limit {}", self.rng.u8(0..5)));
            if self.rng.bool() {
                query.push_str(&format!(" offset {}", self.rng.u8(0..3)));
            }
        } else if self.rng.u8(0..12) == 0 && distinct.is_empty() && !from.contains("join") {
            query.push_str(" for update");
        }
        query
    }

    fn aggregate_query(&mut self) -> String {
        let from = self.from();
        self.construct = "aggregate";
        let condition = if self.rng.bool() {
            "true".to_owned()
        } else {
            self.condition()
        };
        let mut targets = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            let kind = *self
                .rng
                .choice([Kind::Int4, Kind::Int8, Kind::Numeric, Kind::Text, Kind::Date].as_slice())
                .expect("one");
            let value = self.value(kind);
            let name = *self
                .rng
                .choice(if kind.is_number() {
                    ["count", "sum", "avg", "min", "max", "count"].as_slice()
                } else {
                    ["count", "min", "max"].as_slice()
                })
                .expect("one");
            let distinct = if name == "count" && self.rng.u8(0..3) == 0 {
                "distinct "
            } else {
                ""
            };
            targets.push(format!("{name}({distinct}{value})"));
        }
        if self.rng.bool() {
            return format!(
                "select count(*), {} from {from} where {condition}",
                targets.join(", ")
            );
        }
        let schema = self.schema;
        let (alias, table) = self.aliases[0].clone();
        let (column, _) = self.pick_column(&schema.tables[table]);
        let having = if self.rng.u8(0..3) == 0 {
            " having count(*) > 1"
        } else {
            ""
        };
        format!(
            "select {alias}.{column}, {} from {from} where {condition} group by {alias}.{column}{having}",
            targets.join(", ")
        )
    }

    fn condition(&mut self) -> String {
        self.depth += 1;
        let result = match self.rng.u8(0..(if self.depth > 3 { 12 } else { 20 })) {
            0..=3 => {
                let kind = *self.rng.choice(KINDS).expect("some kinds");
                let operator = *self
                    .rng
                    .choice(["=", "<>", "<", ">", "<=", ">="].as_slice())
                    .expect("one");
                format!("{} {operator} {}", self.value(kind), self.value(kind))
            }
            4..=5 => format!("{} = {}", self.column(Kind::Int4), self.literal(Kind::Int4)),
            6 => {
                let kind = *self.rng.choice(KINDS).expect("some kinds");
                let negated = if self.rng.bool() { "not " } else { "" };
                format!("{} is {negated}null", self.value(kind))
            }
            7 => {
                let negated = if self.rng.bool() { "not " } else { "" };
                format!(
                    "{} {negated}in ({}, {}, {})",
                    self.value(Kind::Int4),
                    self.literal(Kind::Int4),
                    self.literal(Kind::Int4),
                    self.literal(Kind::Int4)
                )
            }
            8 => format!(
                "{} between {} and {}",
                self.value(Kind::Int4),
                self.literal(Kind::Int4),
                self.literal(Kind::Int4)
            ),
            9 => {
                let pattern = *self
                    .rng
                    .choice(["a%", "%b", "_", "%", "a_", ""].as_slice())
                    .expect("one");
                format!("{} like '{pattern}'", self.value(Kind::Text))
            }
            10 => format!(
                "{} is not distinct from {}",
                self.value(Kind::Int4),
                self.value(Kind::Int4)
            ),
            11 => self.value(Kind::Bool),
            12..=13 => format!("({} and {})", self.condition(), self.condition()),
            14..=15 => format!("({} or {})", self.condition(), self.condition()),
            16 => format!("not ({})", self.condition()),
            17 => {
                let query = self.column_query(Kind::Int4);
                let negated = if self.rng.bool() { "not " } else { "" };
                format!("{} {negated}in ({query})", self.value(Kind::Int4))
            }
            18 => {
                let query = self.correlated();
                let negated = if self.rng.bool() { "not " } else { "" };
                format!("{negated}exists ({query})")
            }
            _ => format!(
                "{} = any (array[{}, {}])",
                self.column(Kind::Int4),
                self.literal(Kind::Int4),
                self.literal(Kind::Int4)
            ),
        };
        self.depth -= 1;
        result
    }

    fn correlated(&mut self) -> String {
        let schema = self.schema;
        let table = self.table();
        let alias = format!("s{}", self.depth);
        let outer = self.column(Kind::Int4);
        format!(
            "select 1 from {} {alias} where {alias}.id = {outer}",
            schema.tables[table].name
        )
    }

    /// A column of this kind, or a literal if there is none.
    fn column(&mut self, kind: Kind) -> String {
        let mut found = Vec::new();
        for (alias, table) in &self.aliases {
            for (name, other) in &self.schema.tables[*table].columns {
                if *other == kind {
                    found.push(format!("{alias}.{name}"));
                }
            }
        }
        match self.rng.choice(&found) {
            Some(column) => column.clone(),
            None => self.typed_literal(kind),
        }
    }

    fn typed_literal(&mut self, kind: Kind) -> String {
        let literal = self.literal(kind);
        format!("{literal}::{}", kind.sql())
    }

    fn value(&mut self, kind: Kind) -> String {
        self.depth += 1;
        let simple = self.depth > 4 || self.rng.bool();
        let result = if simple {
            if self.rng.u8(0..4) == 0 {
                self.typed_literal(kind)
            } else {
                self.column(kind)
            }
        } else {
            match (self.rng.u8(0..10), kind) {
                (0, _) => format!("coalesce({}, {})", self.value(kind), self.typed_literal(kind)),
                (1, _) => format!(
                    "case when {} then {} else {} end",
                    self.condition(),
                    self.value(kind),
                    self.value(kind)
                ),
                (2, _) => format!("nullif({}, {})", self.value(kind), self.typed_literal(kind)),
                (3, Kind::Int4) => {
                    let query = self.correlated();
                    format!(
                        "({})",
                        query
                            .replacen("select 1", "select max(1)", 1)
                            .replace("max(1)", "count(*)::int")
                    )
                }
                (4, kind) if kind != Kind::Bool => {
                    format!("greatest({}, {})", self.value(kind), self.value(kind))
                }
                (5..=8, Kind::Int4 | Kind::Int8 | Kind::Numeric | Kind::Int2) => {
                    let operator = *self
                        .rng
                        .choice(["+", "-", "*", "/", "%"].as_slice())
                        .expect("one");
                    format!("({} {operator} {})", self.value(kind), self.value(kind))
                }
                (5, Kind::Text) => format!("upper({})", self.value(Kind::Text)),
                (6, Kind::Text) => format!("({} || {})", self.value(Kind::Text), self.value(Kind::Varchar)),
                (7, Kind::Text) => format!("substr({}, 1, 2)", self.value(Kind::Text)),
                (8, Kind::Text) => format!("{}::text", self.value(Kind::Int4)),
                (5, Kind::Bool) => format!("({} = {})", self.value(Kind::Int4), self.value(Kind::Int4)),
                (6, Kind::Bool) => format!("({} < {})", self.value(Kind::Text), self.value(Kind::Text)),
                (5, Kind::Date) => format!("({} + {})", self.value(Kind::Date), self.rng.i32(-40..40)),
                (9, Kind::Int4) => format!("length({})", self.value(Kind::Text)),
                (9, Kind::Int8) => format!("{}::bigint", self.value(Kind::Int4)),
                (9, Kind::Numeric) => format!("round({}, 1)", self.value(Kind::Numeric)),
                _ => self.column(kind),
            }
        };
        self.depth -= 1;
        result
    }

    fn literal(&mut self, kind: Kind) -> String {
        if self.rng.u8(0..12) == 0 {
            return "null".to_owned();
        }
        match kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => {
                let number = match self.rng.u8(0..40) {
                    0 if kind == Kind::Int4 => i32::MAX - self.rng.i32(0..2),
                    1 if kind == Kind::Int2 => 32_767,
                    _ => self.rng.i32(-3..12),
                };
                if number < 0 {
                    format!("({number})")
                } else {
                    number.to_string()
                }
            }
            Kind::Numeric => {
                let sign = if self.rng.u8(0..5) == 0 { "-" } else { "" };
                format!("'{sign}{}.{}'", self.rng.u8(0..12), self.rng.u8(0..99))
            }
            Kind::Float => format!("'{}'", ["0", "1.5", "-2.25", "1e10", "0.1"][self.rng.usize(0..5)]),
            Kind::Text | Kind::Varchar | Kind::Char => {
                let choices = ["''", "'a'", "'b'", "'ab'", "'B'", "'a '", "'ba'", "'x''y'", "'é'"];
                (*self.rng.choice(choices.as_slice()).expect("one")).to_owned()
            }
            Kind::Bool => if self.rng.bool() { "true" } else { "false" }.to_owned(),
            Kind::Date => format!("'2024-0{}-{}'", self.rng.u8(1..10), self.rng.u8(10..29)),
            Kind::Timestamp => format!("'2024-01-0{} {}:30:00'", self.rng.u8(1..10), self.rng.u8(10..24)),
        }
    }
}

impl Tally {
    /// The share of unknown per construct.
    pub fn report(&self) -> String {
        let mut text = format!(
            "{} statements, {} rejected by the server's parser\n",
            self.statements, self.rejected
        );
        for (construct, (all, unknown)) in &self.constructs {
            text.push_str(&format!(
                "  {construct:<16} {all:>7}  unknown {:>6.2} %\n",
                100.0 * *unknown as f64 / *all as f64
            ));
        }
        for (reason, count) in &self.reasons {
            text.push_str(&format!("  reason {reason}: {count}\n"));
        }
        text
    }
}
