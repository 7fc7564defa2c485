//! Random queries.

use super::generate::Generator;
use super::schema::{KINDS, Kind};

impl Generator<'_> {
    pub fn select(&mut self) -> String {
        match self.rng.u8(0..28) {
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
            20..=21 => self.window_query(),
            22 => self.grouping_query(),
            23 => self.distinct_on_query(),
            24 => self.lateral_query(),
            25 => self.function_query(),
            26 => self.list_query(),
            27 => {
                let query = self.plain_query();
                if query.contains(" for update") {
                    return query;
                }
                self.construct = "copy_to";
                let options = ["", " (format csv)", " (format csv, header)"][self.rng.usize(0..3)];
                format!("copy ({query}) to stdout{options}")
            }
            _ => self.plain_query(),
        }
    }

    pub fn column_query(&mut self, kind: Kind) -> String {
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

    fn one_table(&mut self) -> (String, usize) {
        let table = self.table();
        self.aliases = vec![("a".to_owned(), table)];
        (format!("{} a", self.schema.tables[table].name), table)
    }

    fn window_query(&mut self) -> String {
        let (from, _) = self.one_table();
        let condition = match self.rng.bool() {
            true => "true".to_owned(),
            false => self.condition(),
        };
        let mut targets = vec!["a.id".to_owned()];
        for _ in 0..self.rng.usize(1..=3) {
            let kind = [Kind::Int4, Kind::Numeric, Kind::Text][self.rng.usize(0..3)];
            let value = self.value(kind);
            let function = match self.rng.u8(0..13) {
                0 => "row_number()".to_owned(),
                1 => "rank()".to_owned(),
                2 => "dense_rank()".to_owned(),
                3 => format!("lag({value})"),
                4 => format!("lead({value}, {})", self.rng.u8(0..3)),
                5 => format!("first_value({value})"),
                6 => format!("last_value({value})"),
                7 => format!("count({value})"),
                8 => "cume_dist()".to_owned(),
                9 => format!("ntile({})", self.rng.u8(1..4)),
                10 => "percent_rank()".to_owned(),
                11 => format!("nth_value({value}, {})", self.rng.u8(1..4)),
                _ if kind == Kind::Text => format!("max({value})"),
                _ => format!("sum({value})"),
            };
            let partition = match self.rng.u8(0..3) {
                0 => {
                    let kind = *self.rng.choice(KINDS).expect("some kinds");
                    format!("partition by {} ", self.column(kind))
                }
                _ => String::new(),
            };
            let order = match self.rng.u8(0..4) {
                0 => String::new(),
                1 => "order by a.id desc ".to_owned(),
                2 => {
                    let kind = *self.rng.choice(KINDS).expect("some kinds");
                    format!("order by {}, a.id ", self.column(kind))
                }
                _ => "order by a.id ".to_owned(),
            };
            let frame = match self.rng.u8(0..8) {
                0 => "rows between 1 preceding and 1 following",
                1 => "rows unbounded preceding",
                2 if !order.is_empty() => "groups between 1 preceding and current row",
                3 => "range between unbounded preceding and unbounded following",
                4 => "rows between 2 following and 3 following",
                5 => "range between current row and unbounded following",
                _ => "",
            };
            targets.push(format!("{function} over ({partition}{order}{frame})"));
        }
        self.construct = "window";
        format!("select {} from {from} where {condition}", targets.join(", "))
    }

    fn grouping_query(&mut self) -> String {
        let (from, table) = self.one_table();
        let schema = self.schema;
        let (one, _) = self.pick_column(&schema.tables[table]);
        let (other, _) = self.pick_column(&schema.tables[table]);
        let value = self.value(Kind::Int4);
        let filter = match self.rng.u8(0..3) {
            0 => format!(" filter (where {})", self.condition()),
            _ => String::new(),
        };
        let sets = match self.rng.u8(0..4) {
            0 => format!("rollup (a.{one}, a.{other})"),
            1 => format!("cube (a.{one}, a.{other})"),
            2 => format!("grouping sets ((a.{one}), (a.{other}), ())"),
            _ => format!("a.{one}, rollup (a.{other})"),
        };
        self.construct = "grouping_sets";
        format!(
            "select a.{one}, a.{other}, grouping(a.{one}, a.{other}), count(*), sum({value}){filter} from {from} group by {sets}"
        )
    }

    fn distinct_on_query(&mut self) -> String {
        let (from, table) = self.one_table();
        let schema = self.schema;
        let (column, _) = self.pick_column(&schema.tables[table]);
        let kind = *self.rng.choice(KINDS).expect("some kinds");
        let value = self.value(kind);
        self.construct = "distinct_on";
        format!(
            "select distinct on (a.{column}) a.{column}, a.id, {value} from {from} order by a.{column}, a.id"
        )
    }

    fn lateral_query(&mut self) -> String {
        let (from, _) = self.one_table();
        let value = self.value(Kind::Int4);
        let other = self.table();
        let join = ["cross join lateral", "left join lateral"][self.rng.usize(0..2)];
        let on = if join.starts_with("left") { " on true" } else { "" };
        self.construct = "lateral";
        format!(
            "select a.id, x.* from {from} {join} (select b.id as other, {value} as v from {} b where b.id <= a.id order by b.id desc limit 2) x{on}",
            self.schema.tables[other].name
        )
    }

    fn function_query(&mut self) -> String {
        let (from, _) = self.one_table();
        let end = self.value(Kind::Int4);
        self.construct = "function_in_from";
        match self.rng.u8(0..3) {
            0 => format!(
                "select i, count(*) from {from}, generate_series(1, least({end}, 9)) i group by i order by i"
            ),
            1 => format!(
                "select a.id, u.x, u.n from {from}, unnest(array[a.id, {end}]) with ordinality u(x, n)"
            ),
            _ => "select i * 2 from generate_series(5, 1, -2) i".to_owned(),
        }
    }

    fn list_query(&mut self) -> String {
        let (from, _) = self.one_table();
        let kind = *self.rng.choice(KINDS).expect("some kinds");
        let value = self.value(kind);
        self.construct = "list_aggregate";
        match self.rng.u8(0..5) {
            0 => format!("select string_agg({value}::text, ',' order by a.id) from {from}"),
            1 => format!(
                "select array_agg({} order by a.id desc) from {from}",
                self.value(Kind::Int4)
            ),
            2 => format!("select jsonb_agg({value} order by a.id) from {from}"),
            3 => format!(
                "select array(select b.id from {from} join {} b on b.id > a.id order by 1)",
                self.schema.tables[0].name
            ),
            _ => format!(
                "select a.id, {value} from {from} order by a.id fetch first {} rows with ties",
                self.rng.u8(0..4)
            ),
        }
    }
}
