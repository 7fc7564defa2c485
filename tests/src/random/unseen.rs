//! Changes of the tables that nobody sees: past the proxy, or inside of a gap.
//!
//! Always true: whatever was changed, most of the plain statements go on to be understood by the server.

use fastrand::Rng;
use std::time::Duration;

pub struct Unseen {
    rng: Rng,
}

impl Unseen {
    pub fn new(seed: u64) -> Unseen {
        Unseen {
            rng: Rng::with_seed(seed.wrapping_add(77)),
        }
    }

    /// How many changes come one after the other.
    pub fn some(&mut self) -> usize {
        self.rng.usize(1..4)
    }

    /// How long nobody changes anything: sometimes long enough for the catalog to be read.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(if self.rng.u8(0..3) == 0 {
            4_000
        } else {
            self.rng.u64(20..400)
        })
    }

    pub fn upheaval(&mut self) -> String {
        let v = self.rng.i32(-5..60);
        match self.rng.u8(0..16) {
            0 => format!("alter table acct alter column v set default {v}"),
            1 => "alter table acct alter column v drop default".to_owned(),
            2 => format!("alter table acct add column if not exists extra int default {v}"),
            3 => "alter table acct drop column if exists extra".to_owned(),
            4 => "alter table pair add constraint small check (w < 40) not valid".to_owned(),
            5 => "alter table pair drop constraint if exists small".to_owned(),
            6 => "alter table item alter column n type numeric(12,2)".to_owned(),
            7 => "alter table item alter column n type bigint".to_owned(),
            8 => "create or replace function more() returns trigger language plpgsql as \
                  'begin new.v := new.v + 1; return new; end'; \
                  drop trigger if exists more on acct; \
                  create trigger more before insert or update on acct for each row execute function more()"
                .to_owned(),
            9 => "drop trigger if exists more on acct".to_owned(),
            10 => "create rule none as on insert to bag do instead nothing".to_owned(),
            11 => "drop rule if exists none on bag".to_owned(),
            12 => "drop table if exists fleeting; create table fleeting (v text, k int)".to_owned(),
            13 => "drop table if exists fleeting".to_owned(),
            14 => "alter table bag rename to sack; create table bag (a int, b int)".to_owned(),
            _ => "drop table if exists sack cascade".to_owned(),
        }
    }
}
