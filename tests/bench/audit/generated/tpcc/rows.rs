//! TPC-C's rows, as far as its five transactions ask for them, and the first population (clause 4.3).
//!
//! Always true: an order is kept while it is one of its district's last twenty, not yet delivered, or the last of its
//! customer. Nobody asks for any other.

use super::{CUSTOMERS, DISTRICTS, ITEMS, WAREHOUSES};
use bytes::Bytes;
use fastrand::Rng;
use pgassay_workloads::Param;
use pgassay_workloads::text::{digits, letters};
use pgassay_workloads::tpcc::last_name;
use pgassay_workloads::value::{decimal, timestamp};
use std::collections::{HashMap, VecDeque};

/// Stock-Level looks at so many orders.
pub const RECENT: i64 = 20;

pub struct Item {
    pub cents: i64,
    pub name: Bytes,
    pub data: Bytes,
}

pub struct Warehouse {
    pub tax: Bytes,
    /// Street twice, city, state, zip and name.
    pub address: [Bytes; 6],
    pub stock: Vec<Stock>,
    pub districts: Vec<District>,
}

pub struct Stock {
    pub quantity: i64,
    pub data: Bytes,
    /// By district.
    pub dist: Vec<Bytes>,
}

pub struct District {
    pub tax: Bytes,
    pub address: [Bytes; 6],
    pub next_order: i64,
    pub customers: Vec<Customer>,
    pub new_orders: VecDeque<i64>,
    pub orders: HashMap<i64, Order>,
}

pub struct Customer {
    pub first: Bytes,
    pub last: Bytes,
    /// Street twice, city, state and zip.
    pub address: [Bytes; 5],
    pub phone: Bytes,
    pub is_bad: bool,
    pub discount: Bytes,
    pub balance: i64,
    pub data: Bytes,
    pub last_order: i64,
}

pub struct Order {
    pub customer: i64,
    pub entry: i64,
    pub carrier: Option<i64>,
    pub delivered: Option<i64>,
    pub lines: Box<[Line]>,
}

pub struct Line {
    pub item: i32,
    pub supply: i32,
    pub quantity: i32,
    pub cents: i32,
}

impl Customer {
    pub fn credit(&self) -> &'static str {
        if self.is_bad { "BC" } else { "GC" }
    }
}

impl District {
    /// Drops an order that nobody will ask for any more.
    pub fn forget(&mut self, number: i64) {
        let Some(order) = self.orders.get(&number) else {
            return;
        };
        let is_last = self.customers[order.customer as usize - 1].last_order == number;
        if order.delivered.is_some() && number < self.next_order - RECENT && !is_last {
            self.orders.remove(&number);
        }
    }
}

pub fn int(value: i64) -> Bytes {
    Bytes::from(value.to_string())
}

pub fn money(cents: i64) -> Bytes {
    Bytes::from(decimal(cents, 2))
}

pub fn time(micros: i64) -> Bytes {
    Bytes::from(timestamp(micros))
}

/// Rows for a table as they are loaded: into what, and the values of each as SQL writes them.
pub type Load = (&'static str, Vec<String>);

fn row(values: &[Param]) -> String {
    let values: Vec<String> = values.iter().map(Param::literal).collect();
    format!("({})", values.join(", "))
}

fn text(bytes: &Bytes) -> Param {
    Param::Text(String::from_utf8_lossy(bytes).into_owned())
}

fn address(rng: &mut Rng) -> [Bytes; 5] {
    [
        letters(rng, 10, 20).into(),
        letters(rng, 10, 20).into(),
        letters(rng, 10, 20).into(),
        letters(rng, 2, 2).to_uppercase().into(),
        format!("{}11111", digits(rng, 4, 4)).into(),
    ]
}

fn named_address(rng: &mut Rng) -> [Bytes; 6] {
    let [first, second, city, state, zip] = address(rng);
    [first, second, city, state, zip, letters(rng, 6, 10).into()]
}

fn rate(rng: &mut Rng, most: i64) -> Bytes {
    Bytes::from(decimal(rng.i64(0..=most), 4))
}

fn number(bytes: &Bytes) -> Param {
    let units = pgassay_workloads::value::units(&String::from_utf8_lossy(bytes), 4).unwrap_or(0);
    Param::Decimal { units, scale: 4 }
}

pub fn items(rng: &mut Rng, loads: &mut Vec<Load>) -> Vec<Item> {
    let mut rows = Vec::new();
    let items = (1..=ITEMS).map(|id| {
        let item = Item {
            cents: rng.i64(100..=10_000),
            name: letters(rng, 14, 24).into(),
            data: letters(rng, 26, 50).into(),
        };
        let image = rng.i64(1..=10_000);
        let price = Param::cents(item.cents);
        rows.push(row(&[
            id.into(),
            image.into(),
            text(&item.name),
            price,
            text(&item.data),
        ]));
        item
    });
    let items = items.collect();
    loads.push(("item (i_id, i_im_id, i_name, i_price, i_data)", rows));
    items
}

pub fn warehouse(rng: &mut Rng, id: i64, loads: &mut Vec<Load>) -> Warehouse {
    debug_assert!(id <= WAREHOUSES);
    let (tax, address) = (rate(rng, 2_000), named_address(rng));
    let mut values = vec![id.into()];
    values.extend(address.iter().map(text));
    values.extend([number(&tax), Param::cents(DISTRICTS * CUSTOMERS * 1_000)]);
    let into = "warehouse (w_id, w_street_1, w_street_2, w_city, w_state, w_zip, w_name, w_tax, w_ytd)";
    loads.push((into, vec![row(&values)]));
    let stock = stock(rng, id, loads);
    let districts = (1..=DISTRICTS).map(|district| self::district(rng, id, district, loads));
    Warehouse {
        tax,
        address,
        stock,
        districts: districts.collect(),
    }
}

fn stock(rng: &mut Rng, warehouse: i64, loads: &mut Vec<Load>) -> Vec<Stock> {
    let mut rows = Vec::new();
    let stock = (1..=ITEMS).map(|item| {
        let stock = Stock {
            quantity: rng.i64(10..=100),
            data: letters(rng, 26, 50).into(),
            dist: (0..DISTRICTS).map(|_| letters(rng, 24, 24).into()).collect(),
        };
        let mut values = vec![item.into(), warehouse.into(), stock.quantity.into()];
        values.extend(stock.dist.iter().map(text));
        values.extend([0.into(), 0.into(), 0.into(), text(&stock.data)]);
        rows.push(row(&values));
        stock
    });
    let stock = stock.collect();
    let into = "stock (s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, \
                s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data)";
    loads.push((into, rows));
    stock
}

fn district(rng: &mut Rng, warehouse: i64, id: i64, loads: &mut Vec<Load>) -> District {
    let (tax, address) = (rate(rng, 2_000), named_address(rng));
    let mut values = vec![id.into(), warehouse.into()];
    values.extend(address.iter().map(text));
    values.extend([
        number(&tax),
        Param::cents(CUSTOMERS * 1_000),
        (CUSTOMERS + 1).into(),
    ]);
    let into = "district (d_id, d_w_id, d_street_1, d_street_2, d_city, d_state, d_zip, d_name, d_tax, d_ytd, \
                d_next_o_id)";
    loads.push((into, vec![row(&values)]));
    let mut district = District {
        tax,
        address,
        next_order: CUSTOMERS + 1,
        customers: customers(rng, warehouse, id, loads),
        new_orders: VecDeque::new(),
        orders: HashMap::new(),
    };
    orders(rng, warehouse, id, &mut district, loads);
    district
}

fn customers(rng: &mut Rng, warehouse: i64, district: i64, loads: &mut Vec<Load>) -> Vec<Customer> {
    let (mut rows, mut histories) = (Vec::new(), Vec::new());
    let place = [district.into(), warehouse.into()];
    let customers = (1..=CUSTOMERS).map(|id| {
        let customer = Customer {
            first: letters(rng, 8, 16).into(),
            last: last_name(id - 1).into(),
            address: address(rng),
            phone: digits(rng, 16, 16).into(),
            is_bad: rng.u32(0..10) == 0,
            discount: rate(rng, 5_000),
            balance: -1_000,
            data: letters(rng, 300, 400).into(),
            last_order: 0,
        };
        let mut values = vec![id.into()];
        values.extend(place.clone());
        values.extend([text(&customer.first), "OE".into(), text(&customer.last)]);
        values.extend(customer.address.iter().map(text));
        values.extend([
            text(&customer.phone),
            Param::Time(0),
            customer.credit().into(),
            Param::cents(5_000_000),
            number(&customer.discount),
            Param::cents(customer.balance),
            Param::cents(1_000),
            1.into(),
            0.into(),
            text(&customer.data),
        ]);
        rows.push(row(&values));
        let mut values = vec![id.into()];
        values.extend(place.clone());
        values.extend(place.clone());
        values.extend([Param::Time(0), Param::cents(1_000), letters(rng, 12, 24).into()]);
        histories.push(row(&values));
        customer
    });
    let customers = customers.collect();
    let into = "customer (c_id, c_d_id, c_w_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
                c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, \
                c_payment_cnt, c_delivery_cnt, c_data)";
    loads.push((into, rows));
    let into = "history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)";
    loads.push((into, histories));
    customers
}

/// One order per customer; the last three in ten are not delivered yet.
fn orders(rng: &mut Rng, warehouse: i64, district: i64, rows: &mut District, loads: &mut Vec<Load>) {
    let mut customers: Vec<i64> = (1..=CUSTOMERS).collect();
    rng.shuffle(&mut customers);
    let (mut orders, mut new_orders, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (number, customer) in (1..).zip(customers) {
        let is_delivered = number <= CUSTOMERS * 7 / 10;
        let order = Order {
            customer,
            entry: number,
            carrier: is_delivered.then(|| rng.i64(1..=10)),
            delivered: is_delivered.then_some(number),
            lines: (0..rng.i64(5..=15))
                .map(|_| Line {
                    item: rng.i32(1..=ITEMS as i32),
                    supply: warehouse as i32,
                    quantity: 5,
                    cents: if is_delivered { 0 } else { rng.i32(1..=999_999) },
                })
                .collect(),
        };
        let key = [number.into(), district.into(), warehouse.into()];
        let mut values = key.to_vec();
        values.extend([
            customer.into(),
            Param::Time(order.entry),
            order.carrier.map_or(Param::Null, Param::Int),
            (order.lines.len() as i64).into(),
            1.into(),
        ]);
        orders.push(row(&values));
        for (at, line) in (1..).zip(&order.lines) {
            let mut values = key.to_vec();
            values.extend([
                Param::Int(at),
                i64::from(line.item).into(),
                i64::from(line.supply).into(),
                order.delivered.map_or(Param::Null, Param::Time),
                i64::from(line.quantity).into(),
                Param::cents(line.cents.into()),
                letters(rng, 24, 24).into(),
            ]);
            lines.push(row(&values));
        }
        if !is_delivered {
            new_orders.push(row(&key));
            rows.new_orders.push_back(number);
        }
        rows.customers[customer as usize - 1].last_order = number;
        rows.orders.insert(number, order);
    }
    let into = "orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)";
    loads.push((into, orders));
    loads.push(("new_order (no_o_id, no_d_id, no_w_id)", new_orders));
    let into = "order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, \
                ol_quantity, ol_amount, ol_dist_info)";
    loads.push((into, lines));
}
