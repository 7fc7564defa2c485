//! The five transactions as plain statements (clauses 2.4 to 2.8).

use super::{Customer, Tpcc, statements};
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
        .run(statements::CUSTOMER_AND_TAX, &[w.clone(), d.clone(), c.clone()])
        .await?;
    let next = session
        .run(statements::NEXT_ORDER_FOR_UPDATE, &[w.clone(), d.clone()])
        .await?;
    let o = Param::Int(next.int(0, 0).unwrap_or(0));
    session
        .run(statements::TAKE_ORDER_NUMBER, &[w.clone(), d.clone()])
        .await?;
    session
        .run(
            statements::INSERT_ORDER,
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
        .run(statements::INSERT_NEW_ORDER, &[o.clone(), d.clone(), w.clone()])
        .await?;
    for (number, line) in (1..).zip(&order.lines) {
        let item = session.run(statements::ITEM, &[line.item.into()]).await?;
        let Some(price) = item.units(0, 0, 2) else {
            session.rollback().await?;
            return Ok(Ended::RolledBack);
        };
        let select = statements::stock(order.district);
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
                statements::TAKE_STOCK,
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
                statements::INSERT_LINE,
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
        .run(statements::PAY_WAREHOUSE, &[amount.clone(), w.clone()])
        .await?;
    let warehouse = session
        .run(statements::WAREHOUSE, std::slice::from_ref(&w))
        .await?;
    session
        .run(statements::PAY_DISTRICT, &[amount.clone(), w.clone(), d.clone()])
        .await?;
    let district = session.run(statements::DISTRICT, &[w.clone(), d.clone()]).await?;
    let Some(c) = find_customer(session, &cw, &cd, &payment.who).await? else {
        session.rollback().await?;
        return Ok(Ended::RolledBack);
    };
    let c = Param::Int(c);
    let customer = session
        .run(statements::CUSTOMER, &[cw.clone(), cd.clone(), c.clone()])
        .await?;
    let key = [amount.clone(), cw.clone(), cd.clone(), c.clone()];
    if customer.text(0, 10) == Some("BC") {
        let old = session
            .run(statements::CUSTOMER_DATA, &[cw.clone(), cd.clone(), c.clone()])
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
        session.run(statements::PAY_CUSTOMER_WITH_DATA, &params).await?;
    } else {
        session.run(statements::PAY_CUSTOMER, &key).await?;
    }
    let data = format!(
        "{}    {}",
        warehouse.text(0, 5).unwrap_or_default(),
        district.text(0, 5).unwrap_or_default()
    );
    session
        .run(
            statements::INSERT_HISTORY,
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
                    statements::CUSTOMERS_OF_NAME,
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
            .run(statements::OLDEST_NEW_ORDER, &[w.clone(), d.clone()])
            .await?;
        // Nothing to deliver here, or another delivery took it while we waited.
        let Some(order) = oldest.int(0, 0) else { continue };
        let key = [w.clone(), d.clone(), Param::Int(order)];
        session.run(statements::DELETE_NEW_ORDER, &key).await?;
        let customer = session.run(statements::CUSTOMER_OF_ORDER, &key).await?;
        let mut params = key.to_vec();
        params.push(carrier.into());
        session.run(statements::SET_CARRIER, &params).await?;
        params[3] = Param::Time(time);
        session.run(statements::SET_DELIVERED, &params).await?;
        let amount = session.run(statements::SUM_OF_LINES, &key).await?;
        session
            .run(
                statements::CHARGE_CUSTOMER,
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
            .run(statements::BALANCE, &[w.clone(), d.clone(), c.into()])
            .await?;
        let last = session
            .run(statements::LAST_ORDER, &[w.clone(), d.clone(), c.into()])
            .await?;
        if let Some(order) = last.int(0, 0) {
            session
                .run(statements::LINES_OF_ORDER, &[w, d, order.into()])
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
        .run(statements::NEXT_ORDER, &[w.clone(), d.clone()])
        .await?
        .int(0, 0)
        .unwrap_or(0);
    session
        .run(
            statements::LOW_STOCK,
            &[w, d, next.into(), (next - 20).into(), threshold.into()],
        )
        .await?;
    session.commit().await?;
    Ok(Ended::Committed)
}
