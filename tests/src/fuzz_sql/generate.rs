//! Random statements that write.

use super::schema::{FuzzTable, Kind, Schema};
use fastrand::Rng;

pub struct Generator<'g> {
    pub rng: &'g mut Rng,
    pub schema: &'g Schema,
    pub depth: usize,
    pub construct: &'static str,
    /// Relations in scope: alias and table.
    pub aliases: Vec<(String, usize)>,
}

impl Generator<'_> {
    pub fn statement(&mut self) -> String {
        match self.rng.u8(0..100) {
            0..=29 => self.insert(),
            30..=44 => self.update(),
            45..=51 => self.delete(),
            52..=55 => self.upsert(),
            56..=58 => self.merge(),
            59..=60 => self.writing_cte(),
            61 => self.truncate(),
            _ => self.select(),
        }
    }

    pub fn table(&mut self) -> usize {
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
        let mut rows = Vec::new();
        for _ in 0..self.rng.usize(1..=2) {
            let cells: Vec<String> = target
                .columns
                .iter()
                .map(|(_, kind)| self.literal(*kind))
                .collect();
            rows.push(format!("({})", cells.join(", ")));
        }
        let key = match target.key.is_empty() {
            true => "id".to_owned(),
            false => target.key.join(", "),
        };
        let action = match self.rng.u8(0..4) {
            0 => " on conflict do nothing".to_owned(),
            1 => format!(" on conflict ({key}) do nothing"),
            _ => {
                let (name, kind) = target.columns[target.columns.len() - 1].clone();
                self.aliases = vec![(target.name.clone(), table)];
                let value = match self.rng.u8(0..3) {
                    0 => self.value(kind),
                    _ => format!("excluded.{name}"),
                };
                let condition = match self.rng.u8(0..3) {
                    0 => format!(" where {}", self.condition()),
                    _ => String::new(),
                };
                format!(" on conflict ({key}) do update set {name} = {value}{condition}")
            }
        };
        let names: Vec<&str> = target.columns.iter().map(|(name, _)| name.as_str()).collect();
        let returning = self.returning(table);
        format!(
            "insert into {} ({}) values {}{action}{returning}",
            target.name,
            names.join(", "),
            rows.join(", ")
        )
    }

    fn merge(&mut self) -> String {
        self.construct = "merge";
        let table = self.table();
        let schema = self.schema;
        let target = &schema.tables[table];
        let (name, kind) = self.pick_column(target);
        let first = self.rng.i32(0..9);
        let source = match self.rng.bool() {
            true => format!("(values ({first}), ({})) s(k)", first + 1),
            false => format!(
                "(select distinct id as k from {}) s",
                schema.tables[self.table()].name
            ),
        };
        self.aliases = vec![("t".to_owned(), table)];
        let mut whens = Vec::new();
        if self.rng.u8(0..3) == 0 {
            let condition = self.condition();
            let action = ["delete", "do nothing"][self.rng.usize(0..2)];
            whens.push(format!("when matched and {condition} then {action}"));
        }
        let value = match self.rng.bool() {
            true => self.value(kind),
            false => self.literal(kind),
        };
        whens.push(format!("when matched then update set {name} = {value}"));
        if self.rng.bool() {
            let literal = self.literal(kind);
            let insert = match name == "id" {
                true => "insert (id) values (s.k)".to_owned(),
                false => format!("insert (id, {name}) values (s.k, {literal})"),
            };
            whens.push(format!("when not matched and s.k > 2 then {insert}"));
        }
        format!(
            "merge into {} t using {source} on t.id = s.k {}",
            target.name,
            whens.join(" ")
        )
    }

    /// WITH … (INSERT, UPDATE or DELETE … RETURNING …) and a query or another write of what was returned.
    fn writing_cte(&mut self) -> String {
        let table = self.table();
        let schema = self.schema;
        let name = &schema.tables[table].name;
        self.aliases = vec![(name.clone(), table)];
        let condition = self.condition();
        let inner = match self.rng.u8(0..3) {
            0 => format!("delete from {name} where {condition} returning id"),
            1 => {
                let (column, kind) = self.pick_column(&schema.tables[table]);
                let value = self.value(kind);
                format!("update {name} set {column} = {value} where {condition} returning id")
            }
            _ => {
                let id = self.rng.i32(0..20);
                format!("insert into {name} (id) values ({id}), ({}) returning id", id + 1)
            }
        };
        let other = &schema.tables[self.table()];
        let outer = match self.rng.u8(0..4) {
            0 => format!(
                "select count(*), min(id) from w, (select count(*) from {}) n",
                other.name
            ),
            1 => "select id from w order by id".to_owned(),
            2 => format!(
                "insert into {} (id) select id + 50 from w returning id",
                other.name
            ),
            _ => format!(
                "delete from {} o using w where o.id = w.id + 1 returning o.id",
                other.name
            ),
        };
        self.construct = "writing_cte";
        format!("with w as ({inner}) {outer}")
    }

    fn truncate(&mut self) -> String {
        self.construct = "truncate";
        let table = self.table();
        let cascade = if self.rng.bool() { " cascade" } else { "" };
        format!("truncate {}{cascade}", self.schema.tables[table].name)
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

    pub fn pick_column(&mut self, table: &FuzzTable) -> (String, Kind) {
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
}
