//! The nine tables of TPC-C and their initial population (clauses 1.3 and 4.3).

use super::{Tpcc, last_name, non_uniform};
use crate::session::Session;
use crate::text::{digits, letters};
use crate::value::Param;
use fastrand::Rng;

type Done = Result<(), tokio_postgres::Error>;

pub const TABLES: &[&str] = &[
    "CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), \
     w_street_2 varchar(20), w_city varchar(20), w_state char(2), w_zip char(9), w_tax numeric(4,4) NOT NULL, \
     w_ytd numeric(12,2) NOT NULL)",
    "CREATE TABLE district (d_id int, d_w_id int, d_name varchar(10), d_street_1 varchar(20), \
     d_street_2 varchar(20), d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4,4) NOT NULL, \
     d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id))",
    "CREATE TABLE customer (c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_middle char(2), \
     c_last varchar(16), c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), \
     c_zip char(9), c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), \
     c_discount numeric(4,4), c_balance numeric(12,2) NOT NULL, c_ytd_payment numeric(12,2) NOT NULL, \
     c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data varchar(500), \
     PRIMARY KEY (c_w_id, c_d_id, c_id))",
    "CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, \
     h_amount numeric(6,2), h_data varchar(24))",
    "CREATE TABLE orders (o_id int, o_d_id int, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, \
     o_ol_cnt int NOT NULL, o_all_local int, PRIMARY KEY (o_w_id, o_d_id, o_id))",
    "CREATE TABLE new_order (no_o_id int, no_d_id int, no_w_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int, i_name varchar(24), i_price numeric(5,2), \
     i_data varchar(50))",
    "CREATE TABLE stock (s_i_id int, s_w_id int, s_quantity int NOT NULL, s_dist_01 char(24), s_dist_02 char(24), \
     s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), \
     s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int NOT NULL, s_order_cnt int NOT NULL, \
     s_remote_cnt int NOT NULL, s_data varchar(50), PRIMARY KEY (s_w_id, s_i_id))",
    "CREATE TABLE order_line (ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, \
     ol_supply_w_id int, ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6,2) NOT NULL, \
     ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];

pub const FOREIGN_KEYS: &[&str] = &[
    "ALTER TABLE district ADD FOREIGN KEY (d_w_id) REFERENCES warehouse (w_id)",
    "ALTER TABLE customer ADD FOREIGN KEY (c_w_id, c_d_id) REFERENCES district (d_w_id, d_id)",
    "ALTER TABLE history ADD FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id)",
    "ALTER TABLE history ADD FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id)",
    "ALTER TABLE orders ADD FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer (c_w_id, c_d_id, c_id)",
    "ALTER TABLE new_order ADD FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders (o_w_id, o_d_id, o_id)",
    "ALTER TABLE stock ADD FOREIGN KEY (s_w_id) REFERENCES warehouse (w_id)",
    "ALTER TABLE stock ADD FOREIGN KEY (s_i_id) REFERENCES item (i_id)",
    "ALTER TABLE order_line ADD FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders (o_w_id, o_d_id, o_id)",
    "ALTER TABLE order_line ADD FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES stock (s_w_id, s_i_id)",
];

pub async fn create(tpcc: &Tpcc, session: &mut Session) -> Done {
    session
        .batch(
            "DROP TABLE IF EXISTS order_line, stock, item, new_order, orders, history, customer, district, \
             warehouse CASCADE",
        )
        .await?;
    for table in TABLES {
        session.batch(table).await?;
    }
    if tpcc.foreign_keys {
        for key in FOREIGN_KEYS {
            session.batch(key).await?;
        }
    }
    Ok(())
}

pub async fn load(tpcc: &Tpcc, session: &mut Session) -> Done {
    let mut rng = Rng::with_seed(20_000_101);
    let rng = &mut rng;
    for chunk in chunks(tpcc.items) {
        let rows = chunk.map(|item| {
            let price = Param::cents(rng.i64(100..=10_000));
            vec![
                item.into(),
                rng.i64(1..=10_000).into(),
                letters(rng, 14, 24).into(),
                price,
                data(rng).into(),
            ]
        });
        session
            .load("item (i_id, i_im_id, i_name, i_price, i_data)", rows.collect())
            .await?;
    }
    for warehouse in 1..=tpcc.warehouses {
        load_warehouse(tpcc, session, rng, warehouse).await?;
    }
    Ok(())
}

async fn load_warehouse(tpcc: &Tpcc, session: &mut Session, rng: &mut Rng, warehouse: i64) -> Done {
    let mut row: Vec<Param> = vec![warehouse.into(), letters(rng, 6, 10).into()];
    row.extend(address(rng));
    row.push(rate(rng, 2_000));
    row.push(Param::cents(tpcc.districts * tpcc.customers * 1_000));
    let into = "warehouse (w_id, w_name, w_street_1, w_street_2, w_city, w_state, w_zip, w_tax, w_ytd)";
    session.load(into, vec![row]).await?;
    for chunk in chunks(tpcc.items) {
        let mut rows = Vec::new();
        for item in chunk {
            let mut row: Vec<Param> = vec![item.into(), warehouse.into(), rng.i64(10..=100).into()];
            row.extend((0..10).map(|_| Param::from(letters(rng, 24, 24))));
            row.extend([0.into(), 0.into(), 0.into(), data(rng).into()]);
            rows.push(row);
        }
        let into = "stock (s_i_id, s_w_id, s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, \
                    s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10, s_ytd, s_order_cnt, s_remote_cnt, s_data)";
        session.load(into, rows).await?;
    }
    for district in 1..=tpcc.districts {
        let mut row: Vec<Param> = vec![district.into(), warehouse.into(), letters(rng, 6, 10).into()];
        row.extend(address(rng));
        row.push(rate(rng, 2_000));
        row.extend([Param::cents(tpcc.customers * 1_000), (tpcc.customers + 1).into()]);
        let into = "district (d_id, d_w_id, d_name, d_street_1, d_street_2, d_city, d_state, d_zip, d_tax, d_ytd, \
                    d_next_o_id)";
        session.load(into, vec![row]).await?;
        load_customers(tpcc, session, rng, warehouse, district).await?;
        load_orders(tpcc, session, rng, warehouse, district).await?;
    }
    Ok(())
}

async fn load_customers(
    tpcc: &Tpcc,
    session: &mut Session,
    rng: &mut Rng,
    warehouse: i64,
    district: i64,
) -> Done {
    let mut customers = Vec::new();
    let mut histories = Vec::new();
    for customer in 1..=tpcc.customers {
        let number = if customer <= 1_000 {
            customer - 1
        } else {
            non_uniform(rng, 255, 0, 999)
        };
        let mut row: Vec<Param> = vec![
            customer.into(),
            district.into(),
            warehouse.into(),
            letters(rng, 8, 16).into(),
            "OE".into(),
            last_name(number).into(),
        ];
        row.extend(address(rng));
        let credit = if rng.u32(0..10) == 0 { "BC" } else { "GC" };
        row.extend([
            digits(rng, 16, 16).into(),
            Param::Time(0),
            credit.into(),
            Param::cents(5_000_000),
            rate(rng, 5_000),
            Param::cents(-1_000),
            Param::cents(1_000),
            1.into(),
            0.into(),
            letters(rng, 300, 400).into(),
        ]);
        customers.push(row);
        histories.push(vec![
            customer.into(),
            district.into(),
            warehouse.into(),
            district.into(),
            warehouse.into(),
            Param::Time(0),
            Param::cents(1_000),
            letters(rng, 12, 24).into(),
        ]);
    }
    let into = "customer (c_id, c_d_id, c_w_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
                c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, \
                c_payment_cnt, c_delivery_cnt, c_data)";
    session.load(into, customers).await?;
    let into = "history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)";
    session.load(into, histories).await
}

/// One order per customer; the last three in ten are not delivered yet.
async fn load_orders(
    tpcc: &Tpcc,
    session: &mut Session,
    rng: &mut Rng,
    warehouse: i64,
    district: i64,
) -> Done {
    let mut customers: Vec<i64> = (1..=tpcc.customers).collect();
    rng.shuffle(&mut customers);
    let delivered = tpcc.customers * 7 / 10;
    let (mut orders, mut new_orders, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (order, customer) in (1..).zip(customers) {
        let is_delivered = order <= delivered;
        let count = rng.i64(5..=15);
        let carrier = if is_delivered {
            rng.i64(1..=10).into()
        } else {
            Param::Null
        };
        orders.push(vec![
            order.into(),
            district.into(),
            warehouse.into(),
            customer.into(),
            Param::Time(order),
            carrier,
            count.into(),
            1.into(),
        ]);
        if !is_delivered {
            new_orders.push(vec![order.into(), district.into(), warehouse.into()]);
        }
        for number in 1..=count {
            lines.push(vec![
                order.into(),
                district.into(),
                warehouse.into(),
                number.into(),
                rng.i64(1..=tpcc.items).into(),
                warehouse.into(),
                if is_delivered {
                    Param::Time(order)
                } else {
                    Param::Null
                },
                5.into(),
                Param::cents(if is_delivered { 0 } else { rng.i64(1..=999_999) }),
                letters(rng, 24, 24).into(),
            ]);
        }
    }
    let into = "orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)";
    session.load(into, orders).await?;
    session
        .load("new_order (no_o_id, no_d_id, no_w_id)", new_orders)
        .await?;
    let into = "order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, \
                ol_quantity, ol_amount, ol_dist_info)";
    session.load(into, lines).await
}

fn chunks(count: i64) -> impl Iterator<Item = std::ops::RangeInclusive<i64>> {
    (0..count)
        .step_by(5_000)
        .map(move |first| first + 1..=(first + 5_000).min(count))
}

fn address(rng: &mut Rng) -> Vec<Param> {
    vec![
        letters(rng, 10, 20).into(),
        letters(rng, 10, 20).into(),
        letters(rng, 10, 20).into(),
        letters(rng, 2, 2).to_uppercase().into(),
        format!("{}11111", digits(rng, 4, 4)).into(),
    ]
}

fn rate(rng: &mut Rng, max: i64) -> Param {
    Param::Decimal {
        units: rng.i64(0..=max),
        scale: 4,
    }
}

/// Free text; one in ten contains «ORIGINAL».
fn data(rng: &mut Rng) -> String {
    let text = letters(rng, 26, 42);
    if rng.u32(0..10) == 0 {
        format!("{}ORIGINAL", &text[..26])
    } else {
        text
    }
}
