//! Random conditions, values and literals.

use super::generate::Generator;
use super::schema::{KINDS, Kind};

impl Generator<'_> {
    pub fn condition(&mut self) -> String {
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
    pub fn column(&mut self, kind: Kind) -> String {
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

    pub fn value(&mut self, kind: Kind) -> String {
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

    pub fn literal(&mut self, kind: Kind) -> String {
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
            Kind::Uuid => format!(
                "'0000000{}-0000-4000-8000-00000000000{}'",
                self.rng.u8(0..3),
                self.rng.u8(0..3)
            ),
            Kind::Bytea => format!("'\\x0{}ff'", self.rng.u8(0..3)),
            Kind::Interval => ["'1 day'", "'24:00:00'", "'2 hours'", "'1 mon'", "'-3 days'"]
                [self.rng.usize(0..5)]
            .to_owned(),
            Kind::Ints => {
                ["'{}'", "'{1}'", "'{1,2}'", "'{2,NULL}'", "'{3,1}'"][self.rng.usize(0..5)].to_owned()
            }
            Kind::Jsonb => [
                "'1'",
                "'\"a\"'",
                "'{\"k\": 1}'",
                "'[1, 2]'",
                "'null'",
                "'{\"k\": 1.0}'",
            ][self.rng.usize(0..6)]
            .to_owned(),
            Kind::Date => format!("'2024-0{}-{}'", self.rng.u8(1..10), self.rng.u8(10..29)),
            Kind::Timestamp => format!("'2024-01-0{} {}:30:00'", self.rng.u8(1..10), self.rng.u8(10..24)),
        }
    }
}
