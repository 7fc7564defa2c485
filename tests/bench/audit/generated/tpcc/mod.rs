//! TPC-C: the five transactions of the workload, in its mix, answered from rows in memory.
//!
//! Every session has two warehouses of its own: it is at home in one of them by turns, and the other one is where
//! remote customers pay and remote stock comes from. Schema, statements and draws are those of the workload.
//!
//! Always true: a balance, a quantity or a number that is answered follows from what this history said before; nothing
//! is answered of which the rows do not remember the last write.

mod rows;
mod script;

use super::tape::{Said, Talk};
use super::{Database, SESSIONS};
use bytes::Bytes;
use fastrand::Rng;
use pgassay_audit::trace::Cells;
use pgassay_workloads::text::weighted;
use pgassay_workloads::tpcc::schema::{FOREIGN_KEYS, TABLES};
use pgassay_workloads::tpcc::{last_name, non_uniform};
use pgassay_workloads::value::decimal;
use rows::{Customer, Item, Line, Order, RECENT, Warehouse, int, money, time};
use script::Script;
use std::collections::HashSet;

const WAREHOUSES: i64 = 2 * SESSIONS as i64;
const DISTRICTS: i64 = 10;
/// Of each district.
const CUSTOMERS: i64 = 30;
const ITEMS: i64 = 1_000;
/// The workload's clock starts here: microseconds since 2000.
const START: i64 = 820_454_400_000_000;

pub struct Tpcc {
    script: Script,
    rng: Rng,
    items: Vec<Item>,
    warehouses: Vec<Warehouse>,
}

/// Who runs a transaction, where and when.
struct Turn {
    home: i64,
    other: i64,
    time: i64,
}

impl Tpcc {
    pub fn new() -> Tpcc {
        Tpcc {
            script: Script::new(DISTRICTS),
            rng: Rng::with_seed(20_000_101),
            items: Vec::new(),
            warehouses: Vec::new(),
        }
    }

    fn customer_by_number(&mut self) -> i64 {
        1 + (non_uniform(&mut self.rng, 1_023, 1, 3_000) - 1) % CUSTOMERS
    }

    /// By last name six times in ten; names are unique in a district.
    fn customer(&mut self) -> (i64, bool) {
        if self.rng.u32(0..100) < 60 {
            (1 + non_uniform(&mut self.rng, 255, 0, 999) % CUSTOMERS, true)
        } else {
            (self.customer_by_number(), false)
        }
    }

    fn district(&mut self) -> i64 {
        self.rng.i64(1..=DISTRICTS)
    }

    fn new_order(&mut self, turn: &Turn) -> Vec<Said> {
        let (district, customer) = (self.district(), self.customer_by_number());
        let mut lines = self.draw_lines(turn);
        let (w, d, c) = (int(turn.home), int(district), int(customer));
        let home = &self.warehouses[turn.home as usize - 1];
        let at = &home.districts[district as usize - 1];
        let who = &at.customers[customer as usize - 1];
        let number = at.next_order;
        let o = int(number);
        let mut talk = Talk::begin(&self.script.begin);
        let row = [
            who.discount.clone(),
            who.last.clone(),
            who.credit().into(),
            home.tax.clone(),
        ];
        talk.ask(
            &self.script.customer_and_tax,
            [w.clone(), d.clone(), c.clone()],
            one(row),
        );
        let row = one([o.clone(), at.tax.clone()]);
        talk.ask(&self.script.next_order_for_update, [w.clone(), d.clone()], row);
        talk.change(&self.script.take_order_number, [w.clone(), d.clone()], "UPDATE 1");
        let is_local = lines.iter().all(|line| i64::from(line.supply) == turn.home);
        let count = int(lines.len() as i64);
        let values = [
            o.clone(),
            d.clone(),
            w.clone(),
            c,
            time(turn.time),
            count,
            int(is_local.into()),
        ];
        talk.change(&self.script.insert_order, values, "INSERT 0 1");
        talk.change(
            &self.script.insert_new_order,
            [o.clone(), d.clone(), w.clone()],
            "INSERT 0 1",
        );
        // What was in stock before, should the order be taken back.
        let mut before = Vec::new();
        for (at, line) in (1..).zip(&mut lines) {
            let item = int(line.item.into());
            let Some(sold) = self.items.get(line.item as usize - 1) else {
                talk.ask(&self.script.item, [item], Vec::new());
                for (supply, item, quantity) in before.into_iter().rev() {
                    self.stock(supply, item).quantity = quantity;
                }
                return talk.end(&self.script.rollback);
            };
            let row = one([money(sold.cents), sold.name.clone(), sold.data.clone()]);
            talk.ask(&self.script.item, [item.clone()], row);
            line.cents = sold.cents as i32 * line.quantity;
            let supply = int(line.supply.into());
            let stock = &mut self.warehouses[line.supply as usize - 1].stock[line.item as usize - 1];
            let dist = stock.dist[district as usize - 1].clone();
            let select = &self.script.stock[district as usize - 1];
            let row = one([int(stock.quantity), stock.data.clone(), dist.clone()]);
            talk.ask(select, [item.clone(), supply.clone()], row);
            before.push((line.supply, line.item, stock.quantity));
            let quantity = i64::from(line.quantity);
            stock.quantity -= if stock.quantity >= quantity + 10 {
                quantity
            } else {
                quantity - 91
            };
            let quantity = int(quantity);
            let is_remote = i64::from(line.supply) != turn.home;
            let values = [
                int(stock.quantity),
                quantity.clone(),
                int(is_remote.into()),
                item.clone(),
                supply.clone(),
            ];
            talk.change(&self.script.take_stock, values, "UPDATE 1");
            let amount = money(line.cents.into());
            let values = [
                o.clone(),
                d.clone(),
                w.clone(),
                int(at),
                item,
                supply,
                quantity,
                amount,
                dist,
            ];
            talk.change(&self.script.insert_line, values, "INSERT 0 1");
        }
        let at = &mut self.warehouses[turn.home as usize - 1].districts[district as usize - 1];
        at.next_order += 1;
        at.new_orders.push_back(number);
        let order = Order {
            customer,
            entry: turn.time,
            carrier: None,
            delivered: None,
            lines: lines.into(),
        };
        at.orders.insert(number, order);
        let last = std::mem::replace(&mut at.customers[customer as usize - 1].last_order, number);
        at.forget(last);
        at.forget(at.next_order - RECENT - 1);
        talk.end(&self.script.commit)
    }

    /// One order in a hundred names an item that does not exist, in its last line.
    fn draw_lines(&mut self, turn: &Turn) -> Vec<Line> {
        let rng = &mut self.rng;
        let mut lines: Vec<Line> = (0..rng.i64(5..=15))
            .map(|_| Line {
                supply: if rng.u32(0..100) == 0 {
                    turn.other
                } else {
                    turn.home
                } as i32,
                item: (1 + (non_uniform(rng, 8_191, 1, 100_000) - 1) % ITEMS) as i32,
                quantity: rng.i32(1..=10),
                cents: 0,
            })
            .collect();
        lines.sort_by_key(|line| (line.supply, line.item));
        if rng.u32(0..100) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = ITEMS as i32 + 1;
        }
        lines
    }

    fn stock(&mut self, warehouse: i32, item: i32) -> &mut rows::Stock {
        &mut self.warehouses[warehouse as usize - 1].stock[item as usize - 1]
    }

    fn payment(&mut self, turn: &Turn) -> Vec<Said> {
        let district = self.district();
        let (home, away) = if self.rng.u32(0..100) < 85 {
            (turn.home, district)
        } else {
            (turn.other, self.district())
        };
        let (customer, by_name) = self.customer();
        let cents = self.rng.i64(100..=500_000);
        let (w, d, cw, cd, c) = (int(turn.home), int(district), int(home), int(away), int(customer));
        let amount = money(cents);
        let script = &self.script;
        let mut talk = Talk::begin(&script.begin);
        talk.change(&script.pay_warehouse, [amount.clone(), w.clone()], "UPDATE 1");
        let warehouse = &self.warehouses[turn.home as usize - 1];
        talk.ask(&script.warehouse, [w.clone()], one(warehouse.address.clone()));
        let values = [amount.clone(), w.clone(), d.clone()];
        talk.change(&script.pay_district, values, "UPDATE 1");
        let at = &warehouse.districts[district as usize - 1];
        talk.ask(&script.district, [w.clone(), d.clone()], one(at.address.clone()));
        let data = [&warehouse.address[5][..], b"    ", &at.address[5][..]].concat();
        if by_name {
            self.find_by_name(&mut talk, &cw, &cd, customer);
        }
        let who = &mut self.warehouses[home as usize - 1].districts[away as usize - 1].customers
            [customer as usize - 1];
        let key = [cw.clone(), cd.clone(), c.clone()];
        talk.ask(&script.customer, key.clone(), one(described(who)));
        who.balance -= cents;
        if who.is_bad {
            talk.ask(&script.customer_data, key, one([who.data.clone()]));
            let mut noted = format!(
                "{customer} {away} {home} {district} {} {}|{}",
                turn.home,
                decimal(cents, 2),
                String::from_utf8_lossy(&who.data)
            );
            noted.truncate(500);
            who.data = noted.into();
            let values = [
                amount.clone(),
                cw.clone(),
                cd.clone(),
                c.clone(),
                who.data.clone(),
            ];
            talk.change(&script.pay_customer_with_data, values, "UPDATE 1");
        } else {
            let values = [amount.clone(), cw.clone(), cd.clone(), c.clone()];
            talk.change(&script.pay_customer, values, "UPDATE 1");
        }
        let values = [cd, cw, c, d, w, time(turn.time), amount, data.into()];
        talk.change(&script.insert_history, values, "INSERT 0 1");
        talk.end(&script.commit)
    }

    fn find_by_name(&self, talk: &mut Talk, warehouse: &Bytes, district: &Bytes, customer: i64) {
        let name = Bytes::from(last_name(customer - 1));
        let values = [warehouse.clone(), district.clone(), name];
        talk.ask(&self.script.customers_of_name, values, one([int(customer)]));
    }

    fn delivery(&mut self, turn: &Turn) -> Vec<Said> {
        let script = &self.script;
        let carrier = self.rng.i64(1..=10);
        let w = int(turn.home);
        let mut talk = Talk::begin(&script.begin);
        for (district, at) in (1..).zip(&mut self.warehouses[turn.home as usize - 1].districts) {
            let d = int(district);
            let oldest = at.new_orders.pop_front();
            let row = oldest.map(|number| vec![Some(int(number))]);
            talk.ask(
                &script.oldest_new_order,
                [w.clone(), d.clone()],
                row.into_iter().collect(),
            );
            let Some((number, order)) = oldest.and_then(|number| Some((number, at.orders.get_mut(&number)?)))
            else {
                continue;
            };
            let key = [w.clone(), d.clone(), int(number)];
            let [_, _, o] = key.clone();
            talk.change(&script.delete_new_order, key.clone(), "DELETE 1");
            let c = int(order.customer);
            talk.ask(&script.customer_of_order, key.clone(), one([c.clone()]));
            let values = [w.clone(), d.clone(), o.clone(), int(carrier)];
            talk.change(&script.set_carrier, values, "UPDATE 1");
            let values = [w.clone(), d.clone(), o, time(turn.time)];
            let tag = format!("UPDATE {}", order.lines.len());
            talk.change(&script.set_delivered, values, &tag);
            order.carrier = Some(carrier);
            order.delivered = Some(turn.time);
            let cents: i64 = order.lines.iter().map(|line| i64::from(line.cents)).sum();
            talk.ask(&script.sum_of_lines, key, one([money(cents)]));
            talk.change(
                &script.charge_customer,
                [money(cents), w.clone(), d, c],
                "UPDATE 1",
            );
            at.customers[order.customer as usize - 1].balance += cents;
            at.forget(number);
        }
        talk.end(&script.commit)
    }

    fn order_status(&mut self, turn: &Turn) -> Vec<Said> {
        let district = self.district();
        let (customer, by_name) = self.customer();
        let (w, d) = (int(turn.home), int(district));
        let script = &self.script;
        let mut talk = Talk::begin(&script.begin_read_only);
        if by_name {
            self.find_by_name(&mut talk, &w, &d, customer);
        }
        let at = &self.warehouses[turn.home as usize - 1].districts[district as usize - 1];
        let who = &at.customers[customer as usize - 1];
        let key = [w.clone(), d.clone(), int(customer)];
        let row = [
            money(who.balance),
            who.first.clone(),
            "OE".into(),
            who.last.clone(),
        ];
        talk.ask(&script.balance, key.clone(), one(row));
        let order = &at.orders[&who.last_order];
        let o = int(who.last_order);
        let row = vec![Some(o.clone()), Some(time(order.entry)), order.carrier.map(int)];
        talk.ask(&script.last_order, key, vec![row]);
        let lines = order.lines.iter().map(|line| {
            let [item, supply, quantity] =
                [line.item, line.supply, line.quantity].map(|n| Some(int(n.into())));
            let amount = Some(money(line.cents.into()));
            vec![item, supply, quantity, amount, order.delivered.map(time)]
        });
        talk.ask(&script.lines_of_order, [w, d, o], lines.collect());
        talk.end(&script.commit)
    }

    fn stock_level(&mut self, turn: &Turn) -> Vec<Said> {
        let (district, threshold) = (self.district(), self.rng.i64(10..=20));
        let (w, d) = (int(turn.home), int(district));
        let home = &self.warehouses[turn.home as usize - 1];
        let at = &home.districts[district as usize - 1];
        let mut talk = Talk::begin(&self.script.begin_read_only);
        let next = at.next_order;
        talk.ask(&self.script.next_order, [w.clone(), d.clone()], one([int(next)]));
        let recent = (next - RECENT..next).filter_map(|number| at.orders.get(&number));
        let low: HashSet<i32> = recent
            .flat_map(|order| order.lines.iter().map(|line| line.item))
            .filter(|item| home.stock[*item as usize - 1].quantity < threshold)
            .collect();
        let values = [w, d, int(next), int(next - RECENT), int(threshold)];
        talk.ask(&self.script.low_stock, values, one([int(low.len() as i64)]));
        talk.end(&self.script.commit)
    }
}

impl Database for Tpcc {
    fn load(&mut self) -> Vec<Said> {
        let mut loads = Vec::new();
        self.items = rows::items(&mut self.rng, &mut loads);
        self.warehouses = (1..=WAREHOUSES)
            .map(|id| rows::warehouse(&mut self.rng, id, &mut loads))
            .collect();
        let mut said: Vec<Said> = Vec::new();
        for text in TABLES {
            let words: Vec<&str> = text.split(' ').take(2).collect();
            said.push(Said::alone(text, &words.join(" ")));
        }
        said.extend(FOREIGN_KEYS.iter().map(|text| Said::alone(text, "ALTER TABLE")));
        for (into, rows) in loads {
            for rows in rows.chunks(500) {
                let insert = format!("INSERT INTO {into} VALUES {}", rows.join(", "));
                said.push(Said::alone(&insert, &format!("INSERT 0 {}", rows.len())));
            }
        }
        said
    }

    fn transact(&mut self, session: u64, round: u64) -> Vec<Said> {
        let first = 1 + 2 * session as i64;
        let turn = Turn {
            home: first + (round % 2) as i64,
            other: first + 1 - (round % 2) as i64,
            time: START + round as i64 * 1_000_000 + session as i64,
        };
        match weighted(&mut self.rng, &[45, 43, 4, 4, 4]) {
            0 => self.new_order(&turn),
            1 => self.payment(&turn),
            2 => self.delivery(&turn),
            3 => self.order_status(&turn),
            _ => self.stock_level(&turn),
        }
    }
}

/// An answer of one row.
fn one<const N: usize>(cells: [Bytes; N]) -> Vec<Cells> {
    vec![cells.map(Some).to_vec()]
}

/// A customer as Payment asks for it.
fn described(who: &Customer) -> [Bytes; 14] {
    let [first, second, city, state, zip] = who.address.clone();
    [
        who.first.clone(),
        "OE".into(),
        who.last.clone(),
        first,
        second,
        city,
        state,
        zip,
        who.phone.clone(),
        time(0),
        who.credit().into(),
        money(5_000_000),
        who.discount.clone(),
        money(who.balance),
    ]
}
