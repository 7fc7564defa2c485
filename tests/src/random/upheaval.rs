//! DDL in the midst of the traffic.
//!
//! Always true: whatever was made, the plain statements are understood again after a while.

use super::Traffic;

impl Traffic {
    pub(super) fn upheaval(&mut self) -> String {
        let (k, v) = (self.key(), self.rng.i32(-5..60));
        let some = match self.rng.u8(0..35) {
            0 => format!("alter table acct add column if not exists extra int default {v}"),
            1 => "alter table acct drop column if exists extra".to_owned(),
            2 => "select * from acct order by 1".to_owned(),
            3 => "create index if not exists by_a on bag (a)".to_owned(),
            4 => "drop index if exists by_a".to_owned(),
            5 => "alter table bag add column if not exists c text".to_owned(),
            6 => "alter table bag drop column if exists c".to_owned(),
            7 => "create table if not exists fleeting (k int primary key, v text)".to_owned(),
            8 => "drop table if exists fleeting".to_owned(),
            9 | 10 => format!("insert into fleeting values ({k}, 'f{v}')"),
            11 => "select k, v from fleeting order by k".to_owned(),
            12 => "truncate bag".to_owned(),
            13 => "truncate hist restart identity".to_owned(),
            14 => format!("alter table item alter column n set default {v}"),
            15 => "alter table pair add constraint small check (w < 40)".to_owned(),
            16 => "alter table pair drop constraint if exists small".to_owned(),
            17 => "alter table item alter column n type bigint".to_owned(),
            18 => "alter table item alter column n type numeric(12,2)".to_owned(),
            19 => "create unique index if not exists one_of_b on bag (b)".to_owned(),
            20 => "drop index if exists one_of_b".to_owned(),
            21 => "select setval('hist_id_seq', 1000)".to_owned(),
            22 => "lock table acct in share row exclusive mode".to_owned(),
            23 => "analyze acct".to_owned(),
            24 => "alter table acct add constraint one_of_v unique (v)".to_owned(),
            25 => "alter table acct drop constraint if exists one_of_v".to_owned(),
            26 => "create temp table if not exists mine (k int primary key, v int) on commit delete rows"
                .to_owned(),
            27 => format!("insert into mine values ({k}, {v})"),
            28 => "select k, v from mine order by k".to_owned(),
            29 => "alter table acct alter column s set default 'made'".to_owned(),
            30 => "create table copied as select k, v from acct".to_owned(),
            31 => "drop table if exists copied".to_owned(),
            32 => "alter table item disable trigger all".to_owned(),
            _ => "alter table item enable trigger all".to_owned(),
        };
        let about_partitions = match self.rng.u8(0..6) {
            0 => "alter table part detach partition part2",
            1 => "alter table part attach partition part2 for values in (3, 4)",
            2 => "alter table part attach partition part2 for values from (3) to (5)",
            3 => "truncate part",
            4 => "alter table part add column if not exists more int",
            _ => "alter table part drop column if exists more",
        };
        let about_views = match self.rng.u8(0..3) {
            0 => "create or replace view rich as select k, v, s from acct where v >= 20",
            1 => "drop view if exists totals",
            _ => {
                "create or replace view totals as select f, count(*) as n, sum(u) as u from item where flag group by f"
            }
        };
        let about_triggers = match self.rng.u8(0..4) {
            0 => "alter table pair disable trigger noted",
            1 => "alter table pair enable trigger noted",
            2 => "drop trigger if exists noted on pair",
            _ => {
                "create trigger noted after insert or update or delete on pair for each row execute function note()"
            }
        };
        let about_routines = "create or replace function balance(a int) returns int language sql stable as \
                              'select v + 1 from acct where k = a'";
        match self.rng.u8(0..8) {
            0 if self.features.partitions => about_partitions.to_owned(),
            1 if self.features.views => about_views.to_owned(),
            2 if self.features.triggers => about_triggers.to_owned(),
            3 if self.features.routines => about_routines.to_owned(),
            _ => some,
        }
    }
}
