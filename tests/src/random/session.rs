//! What belongs to a session: settings, roles, cursors, statements prepared by name.
//!
//! In: a random choice. Out: statements that change what others mean, and statements that depend on them.
//!
//! Always true: whatever is set, every name that a plain statement uses is found, in one schema or in the other.

use super::Traffic;

/// A second schema with tables of the same names, and a role whose own schema comes first.
pub(super) fn other_schemas() -> Vec<String> {
    [
        "create schema alt",
        "create table alt.acct (k int primary key, v int not null default 5, s text)",
        "create table alt.bag (a int, b text)",
        "insert into alt.acct select k, k, 'alt' from generate_series(1, 4) k",
        "create role somebody superuser",
        "create schema somebody",
        "create table somebody.bag (a int, b text)",
        "insert into somebody.bag values (1, 'mine')",
        "create table due (id int primary key, f int references acct (k) deferrable initially deferred)",
    ]
    .map(str::to_owned)
    .to_vec()
}

impl Traffic {
    pub(super) fn on_a_session(&mut self) -> String {
        let (k, v) = (self.key(), self.rng.i32(-5..60));
        let path = self.pick(&[
            "alt, public",
            "public",
            "\"$user\", public",
            "alt,somebody,public",
        ]);
        let local = self.pick(&["true", "false"]);
        match self.rng.u8(0..40) {
            0 => format!("set search_path = {path}"),
            1 => format!("set local search_path = {path}"),
            2 => format!("select set_config('search_path', '{path}', {local})"),
            3..6 => "reset search_path".to_owned(),
            6 => "set search_path to default".to_owned(),
            7 | 8 => "reset all".to_owned(),
            9 => "discard all".to_owned(),
            10 => "set role somebody".to_owned(),
            11 | 12 => "reset role".to_owned(),
            13 => "set session authorization somebody".to_owned(),
            14 | 15 => "reset session authorization".to_owned(),
            16 => {
                let level = self.level();
                format!("set session characteristics as transaction isolation level {level}")
            }
            17 => {
                let level = self.level();
                format!("select set_config('default_transaction_isolation', '{level}', {local})")
            }
            18 => "set session_replication_role = replica".to_owned(),
            19..22 => "reset session_replication_role".to_owned(),
            22 => "set local session_replication_role = replica".to_owned(),
            23 => "set constraints all immediate".to_owned(),
            24 => format!("insert into due values ({v}, {k})"),
            25 => format!("delete from due where f = {k}"),
            26 => "select id, f from due order by id".to_owned(),
            27 => "select k, v from alt.acct order by k".to_owned(),
            28 => format!("update alt.acct set v = v + 1 where k = {k}"),
            29 => format!("insert into somebody.bag values ({k}, 's')"),
            30 => "declare c cursor for select k, v from acct order by k".to_owned(),
            31 => "declare h cursor with hold for select a, b from bag order by 1, 2".to_owned(),
            32 => "fetch 2 from c".to_owned(),
            33 => "fetch all from c".to_owned(),
            34 => "fetch forward 3 from h".to_owned(),
            35 => "close all".to_owned(),
            36 => "prepare q (int) as select k, v from acct where k >= $1 order by k".to_owned(),
            37 => format!("execute q ({k})"),
            38 => "deallocate all".to_owned(),
            _ => format!("select count(*), sum(v) from public.acct where k <= {k}"),
        }
    }
}
