//! The five transactions as plain statements (clauses 2.4 to 2.8).

use super::{Customer, Tpcc};
use crate::session::Session;
use crate::value::Param;
use crate::{Ended, Turn};

type Outcome = Result<Ended, tokio_postgres::Error>;

/// An order as the terminal sends it.
pub struct Order {
    pub warehouse: i64,
    pub district: i64,
    pub customer: i64,
    pub lines: Vec<Line>,
    pub time: i64,
}

pub struct Line {
    /// One order in a hundred names an item that does not exist, in its last line.
    pub item: i64,
    pub supply: i64,
    pub quantity: i64,
}

impl Order {
    pub fn draw(tpcc: &Tpcc, warehouse: i64, turn: &mut Turn) -> Order {
        let time = tpcc.time(turn);
        let rng = &mut turn.rng;
        let district = rng.i64(1..=tpcc.districts);
        let customer = tpcc.draw_customer_number(rng);
        let mut lines: Vec<Line> = (0..rng.i64(5..=15))
            .map(|_| {
                let is_remote = tpcc.warehouses > 1 && rng.u32(0..100) == 0;
                let supply = if is_remote {
                    1 + (warehouse + rng.i64(0..tpcc.warehouses - 1)) % tpcc.warehouses
                } else {
                    warehouse
                };
                Line {
                    item: tpcc.draw_item(rng),
                    supply,
                    quantity: rng.i64(1..=10),
                }
            })
            .collect();
        // Stock is locked in one order, so that two orders do not wait for each other.
        lines.sort_by_key(|line| (line.supply, line.item));
        if rng.u32(0..100) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = tpcc.items + 1;
        }
        Order {
            warehouse,
            district,
            customer,
            lines,
            time,
        }
    }

    pub fn is_local(&self) -> bool {
        self.lines.iter().all(|line| line.supply == self.warehouse)
    }
}

pub async fn new_order(session: &mut Session, order: &Order) -> Outcome {
    let (w, d, c) = (
        Param::Int(order.warehouse),
        Param::Int(order.district),
        Param::Int(order.customer),
    );
    session.begin().await?;
    session
        .run(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id \
             WHERE w_id = $1 AND c_d_id = $2 AND c_id = $3",
            &[w.clone(), d.clone(), c.clone()],
        )
        .await?;
    let next = session
        .run(
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE",
            &[w.clone(), d.clone()],
        )
        .await?;
    let o = Param::Int(next.int(0, 0).unwrap_or(0));
    session
        .run(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2",
            &[w.clone(), d.clone()],
        )
        .await?;
    session
        .run(
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                o.clone(),
                d.clone(),
                w.clone(),
                c,
                Param::Time(order.time),
                (order.lines.len() as i64).into(),
                i64::from(order.is_local()).into(),
            ],
        )
        .await?;
    session
        .run(
            "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)",
            &[o.clone(), d.clone(), w.clone()],
        )
        .await?;
    for (number, line) in (1..).zip(&order.lines) {
        let item = session
            .run(
                "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
                &[line.item.into()],
            )
            .await?;
        let Some(price) = item.units(0, 0, 2) else {
            session.rollback().await?;
            return Ok(Ended::RolledBack);
        };
        let select = format!(
            "SELECT s_quantity, s_data, s_dist_{:02} FROM stock WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE",
            order.district
        );
        let stock = session
            .run(&select, &[line.item.into(), line.supply.into()])
            .await?;
        let held = stock.int(0, 0).unwrap_or(0);
        let left = if held >= line.quantity + 10 {
            held - line.quantity
        } else {
            held - line.quantity + 91
        };
        session
            .run(
                "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, \
                 s_remote_cnt = s_remote_cnt + $3 WHERE s_i_id = $4 AND s_w_id = $5",
                &[
                    left.into(),
                    line.quantity.into(),
                    i64::from(line.supply != order.warehouse).into(),
                    line.item.into(),
                    line.supply.into(),
                ],
            )
            .await?;
        session
            .run(
                "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, \
                 ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &[
                    o.clone(),
                    d.clone(),
                    w.clone(),
                    number.into(),
                    line.item.into(),
                    line.supply.into(),
                    line.quantity.into(),
                    Param::cents(price * line.quantity),
                    stock.text(0, 2).unwrap_or_default().into(),
                ],
            )
            .await?;
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

/// A payment as the terminal sends it.
pub struct Payment {
    pub warehouse: i64,
    pub district: i64,
    pub customer_warehouse: i64,
    pub customer_district: i64,
    pub who: super::Customer,
    pub cents: i64,
    pub time: i64,
}

impl Payment {
    pub fn draw(tpcc: &Tpcc, warehouse: i64, turn: &mut Turn) -> Payment {
        let time = tpcc.time(turn);
        let rng = &mut turn.rng;
        let district = rng.i64(1..=tpcc.districts);
        let is_remote = tpcc.warehouses > 1 && rng.u32(0..100) >= 85;
        let (customer_warehouse, customer_district) = if is_remote {
            let other = 1 + (warehouse + rng.i64(0..tpcc.warehouses - 1)) % tpcc.warehouses;
            (other, rng.i64(1..=tpcc.districts))
        } else {
            (warehouse, district)
        };
        let who = tpcc.draw_customer(rng);
        let cents = rng.i64(100..=500_000);
        Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            who,
            cents,
            time,
        }
    }
}

pub async fn payment(session: &mut Session, payment: &Payment) -> Outcome {
    let (w, d) = (Param::Int(payment.warehouse), Param::Int(payment.district));
    let (cw, cd) = (
        Param::Int(payment.customer_warehouse),
        Param::Int(payment.customer_district),
    );
    let amount = Param::cents(payment.cents);
    session.begin().await?;
    session
        .run(
            "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2",
            &[amount.clone(), w.clone()],
        )
        .await?;
    let warehouse = session
        .run(
            "SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse WHERE w_id = $1",
            std::slice::from_ref(&w),
        )
        .await?;
    session
        .run(
            "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3",
            &[amount.clone(), w.clone(), d.clone()],
        )
        .await?;
    let district = session
        .run(
            "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district \
             WHERE d_w_id = $1 AND d_id = $2",
            &[w.clone(), d.clone()],
        )
        .await?;
    let Some(c) = find_customer(session, &cw, &cd, &payment.who).await? else {
        session.rollback().await?;
        return Ok(Ended::RolledBack);
    };
    let c = Param::Int(c);
    let customer = session
        .run(
            "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
             c_credit, c_credit_lim, c_discount, c_balance FROM customer \
             WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE",
            &[cw.clone(), cd.clone(), c.clone()],
        )
        .await?;
    let key = [amount.clone(), cw.clone(), cd.clone(), c.clone()];
    if customer.text(0, 10) == Some("BC") {
        let old = session
            .run(
                "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
                &[cw.clone(), cd.clone(), c.clone()],
            )
            .await?;
        let mut data = format!(
            "{} {} {} {} {} {}|{}",
            c.literal(),
            cd.literal(),
            cw.literal(),
            d.literal(),
            w.literal(),
            amount.literal(),
            old.text(0, 0).unwrap_or_default()
        );
        data.truncate(500);
        let mut params = key.to_vec();
        params.push(data.into());
        session
            .run(
                "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, \
                 c_payment_cnt = c_payment_cnt + 1, c_data = $5 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
                &params,
            )
            .await?;
    } else {
        session
            .run(
                "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, \
                 c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
                &key,
            )
            .await?;
    }
    let data = format!(
        "{}    {}",
        warehouse.text(0, 5).unwrap_or_default(),
        district.text(0, 5).unwrap_or_default()
    );
    session
        .run(
            "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[cd, cw, c, d, w, Param::Time(payment.time), amount, data.into()],
        )
        .await?;
    session.commit().await?;
    Ok(Ended::Committed)
}

/// The customer's number; by name it is the one in the middle, ordered by first name.
async fn find_customer(
    session: &mut Session,
    warehouse: &Param,
    district: &Param,
    who: &Customer,
) -> Result<Option<i64>, tokio_postgres::Error> {
    match who {
        Customer::Number(number) => Ok(Some(*number)),
        Customer::Name(name) => {
            let named = session
                .run(
                    "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
                    &[warehouse.clone(), district.clone(), name.clone().into()],
                )
                .await?;
            Ok(named.int(named.rows.len().saturating_sub(1) / 2, 0))
        }
    }
}

pub async fn delivery(
    session: &mut Session,
    warehouse: i64,
    districts: i64,
    carrier: i64,
    time: i64,
) -> Outcome {
    let w = Param::Int(warehouse);
    session.begin().await?;
    for district in 1..=districts {
        let d = Param::Int(district);
        let oldest = session
            .run(
                "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE",
                &[w.clone(), d.clone()],
            )
            .await?;
        // Nothing to deliver here, or another delivery took it while we waited.
        let Some(order) = oldest.int(0, 0) else { continue };
        let key = [w.clone(), d.clone(), Param::Int(order)];
        session
            .run(
                "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
                &key,
            )
            .await?;
        let customer = session
            .run(
                "SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3",
                &key,
            )
            .await?;
        let mut params = key.to_vec();
        params.push(carrier.into());
        session
            .run(
                "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3",
                &params,
            )
            .await?;
        params[3] = Param::Time(time);
        session
            .run(
                "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                &params,
            )
            .await?;
        let amount = session
            .run(
                "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                &key,
            )
            .await?;
        session
            .run(
                "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
                &[
                    Param::cents(amount.units(0, 0, 2).unwrap_or(0)),
                    w.clone(),
                    d,
                    customer.int(0, 0).unwrap_or(0).into(),
                ],
            )
            .await?;
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

pub async fn order_status(session: &mut Session, warehouse: i64, district: i64, who: &Customer) -> Outcome {
    let (w, d) = (Param::Int(warehouse), Param::Int(district));
    session.begin_read_only().await?;
    if let Some(c) = find_customer(session, &w, &d, who).await? {
        session
            .run(
                "SELECT c_balance, c_first, c_middle, c_last FROM customer \
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
                &[w.clone(), d.clone(), c.into()],
            )
            .await?;
        let last = session
            .run(
                "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 \
                 ORDER BY o_id DESC LIMIT 1",
                &[w.clone(), d.clone(), c.into()],
            )
            .await?;
        if let Some(order) = last.int(0, 0) {
            session
                .run(
                    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
                     WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
                    &[w, d, order.into()],
                )
                .await?;
        }
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

pub async fn stock_level(session: &mut Session, warehouse: i64, district: i64, threshold: i64) -> Outcome {
    let (w, d) = (Param::Int(warehouse), Param::Int(district));
    session.begin_read_only().await?;
    let next = session
        .run(
            "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
            &[w.clone(), d.clone()],
        )
        .await?
        .int(0, 0)
        .unwrap_or(0);
    session
        .run(
            "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id AND s_w_id = ol_w_id \
             WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 AND s_quantity < $5",
            &[w, d, next.into(), (next - 20).into(), threshold.into()],
        )
        .await?;
    session.commit().await?;
    Ok(Ended::Committed)
}
