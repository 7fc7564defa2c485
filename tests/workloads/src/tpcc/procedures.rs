//! The five transactions as procedures in PL/pgSQL: one call each, as a shop that keeps its logic in the database.
//!
//! What the standard has the terminal show (clauses 2.4.3 to 2.8.3) comes back in the INOUT arguments: the number of the
//! order and the stock of each line, the customer with the new balance, the orders that were delivered.

use super::Customer;
use super::transactions::{Order, Payment};
use crate::Ended;
use crate::session::Session;
use crate::value::Param;

type Outcome = Result<Ended, tokio_postgres::Error>;

pub async fn create(session: &mut Session) -> Result<(), tokio_postgres::Error> {
    for routine in ROUTINES {
        session.batch(routine).await?;
    }
    Ok(())
}

pub async fn new_order(session: &mut Session, order: &Order) -> Outcome {
    let column =
        |pick: fn(&super::transactions::Line) -> i64| Param::Ints(order.lines.iter().map(pick).collect());
    session.begin().await?;
    let shown = session
        .run(
            "CALL tpcc_new_order($1, $2, $3, $4, $5, $6, $7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
            &[
                order.warehouse.into(),
                order.district.into(),
                order.customer.into(),
                column(|line| line.item),
                column(|line| line.supply),
                column(|line| line.quantity),
                Param::Time(order.time),
            ],
        )
        .await?;
    // An item that does not exist is told by a negative total.
    if shown.units(0, 7, 2).unwrap_or(0) < 0 {
        session.rollback().await?;
        return Ok(Ended::RolledBack);
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

pub async fn payment(session: &mut Session, payment: &Payment) -> Outcome {
    let (number, name) = who(&payment.who);
    session
        .run(
            "CALL tpcc_payment($1, $2, $3, $4, $5, $6, $7, $8, NULL, NULL, NULL, NULL, NULL)",
            &[
                payment.warehouse.into(),
                payment.district.into(),
                payment.customer_warehouse.into(),
                payment.customer_district.into(),
                number,
                name,
                Param::cents(payment.cents),
                Param::Time(payment.time),
            ],
        )
        .await?;
    Ok(Ended::Committed)
}

pub async fn delivery(
    session: &mut Session,
    warehouse: i64,
    districts: i64,
    carrier: i64,
    time: i64,
) -> Outcome {
    let params = [
        warehouse.into(),
        districts.into(),
        carrier.into(),
        Param::Time(time),
    ];
    session
        .run("CALL tpcc_delivery($1, $2, $3, $4, NULL)", &params)
        .await?;
    Ok(Ended::Committed)
}

pub async fn order_status(
    session: &mut Session,
    warehouse: i64,
    district: i64,
    customer: &Customer,
) -> Outcome {
    let (number, name) = who(customer);
    let params = [warehouse.into(), district.into(), number, name];
    session
        .run(
            "CALL tpcc_order_status($1, $2, $3, $4, NULL, NULL, NULL, NULL, NULL, NULL)",
            &params,
        )
        .await?;
    Ok(Ended::Committed)
}

pub async fn stock_level(session: &mut Session, warehouse: i64, district: i64, threshold: i64) -> Outcome {
    let params = [warehouse.into(), district.into(), threshold.into()];
    session
        .run("CALL tpcc_stock_level($1, $2, $3, NULL)", &params)
        .await?;
    Ok(Ended::Committed)
}

fn who(customer: &Customer) -> (Param, Param) {
    match customer {
        Customer::Number(number) => (Param::Int(*number), Param::Null),
        Customer::Name(name) => (Param::Null, name.clone().into()),
    }
}

const ROUTINES: &[&str] = &[
    "CREATE OR REPLACE FUNCTION tpcc_customer(w int, d int, c int, name varchar) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  named int;
  found_id int;
BEGIN
  IF c IS NOT NULL THEN
    RETURN c;
  END IF;
  SELECT count(*) INTO named FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name;
  SELECT c_id INTO found_id FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name
    ORDER BY c_first, c_id LIMIT 1 OFFSET greatest((named - 1) / 2, 0);
  RETURN found_id;
END $$",
    "CREATE OR REPLACE PROCEDURE tpcc_new_order(w int, d int, c int, items int[], supplies int[], quantities int[],
  entry timestamp, INOUT o int, INOUT discount numeric, INOUT named varchar, INOUT credit varchar,
  INOUT w_rate numeric, INOUT d_rate numeric, INOUT stocks int[], INOUT total numeric) LANGUAGE plpgsql AS $$
DECLARE
  n int;
  i int;
  is_local int;
  price numeric;
  held int;
  dist char(24);
  amount numeric;
BEGIN
  n := array_length(items, 1);
  is_local := 1;
  FOR i IN 1..n LOOP
    IF supplies[i] <> w THEN
      is_local := 0;
    END IF;
  END LOOP;
  SELECT c_discount, c_last, c_credit, w_tax INTO discount, named, credit, w_rate
    FROM customer JOIN warehouse ON w_id = c_w_id WHERE w_id = w AND c_d_id = d AND c_id = c;
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
    RETURNING d_next_o_id - 1, d_tax INTO o, d_rate;
  INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES (o, d, w, c, entry, n, is_local);
  INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (o, d, w);
  total := 0;
  stocks := '{}';
  FOR i IN 1..n LOOP
    SELECT i_price INTO price FROM item WHERE i_id = items[i];
    IF NOT FOUND THEN
      total := -1;
      RETURN;
    END IF;
    SELECT s_quantity, CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
        WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07
        WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
      INTO held, dist FROM stock WHERE s_i_id = items[i] AND s_w_id = supplies[i] FOR UPDATE;
    stocks := array_append(stocks, held);
    IF held >= quantities[i] + 10 THEN
      held := held - quantities[i];
    ELSE
      held := held - quantities[i] + 91;
    END IF;
    UPDATE stock SET s_quantity = held, s_ytd = s_ytd + quantities[i], s_order_cnt = s_order_cnt + 1,
        s_remote_cnt = s_remote_cnt + CASE WHEN supplies[i] <> w THEN 1 ELSE 0 END
      WHERE s_i_id = items[i] AND s_w_id = supplies[i];
    amount := price * quantities[i];
    total := total + amount;
    INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
        ol_dist_info) VALUES (o, d, w, i, items[i], supplies[i], quantities[i], amount, dist);
  END LOOP;
  total := total * (1 - discount) * (1 + w_rate + d_rate);
END $$",
    "CREATE OR REPLACE PROCEDURE tpcc_payment(w int, d int, cw int, cd int, c int, name varchar, amount numeric,
  at timestamp, INOUT who int, INOUT credit varchar, INOUT balance numeric, INOUT data varchar, INOUT h_label varchar)
LANGUAGE plpgsql AS $$
DECLARE
  w_label varchar;
  d_label varchar;
BEGIN
  UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING w_name INTO w_label;
  UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d RETURNING d_name INTO d_label;
  who := tpcc_customer(cw, cd, c, name);
  SELECT c_credit, c_data INTO credit, data FROM customer WHERE c_w_id = cw AND c_d_id = cd AND c_id = who FOR UPDATE;
  IF credit = 'BC' THEN
    data := substr(who || ' ' || cd || ' ' || cw || ' ' || d || ' ' || w || ' ' || amount || '|' || data, 1, 500);
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1, c_data = data
      WHERE c_w_id = cw AND c_d_id = cd AND c_id = who RETURNING c_balance INTO balance;
    data := substr(data, 1, 200);
  ELSE
    UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1
      WHERE c_w_id = cw AND c_d_id = cd AND c_id = who RETURNING c_balance INTO balance;
    data := '';
  END IF;
  h_label := w_label || '    ' || d_label;
  INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (cd, cw, who, d, w, at, amount, h_label);
END $$",
    "CREATE OR REPLACE PROCEDURE tpcc_delivery(w int, districts int, carrier int, at timestamp, INOUT delivered int[])
LANGUAGE plpgsql AS $$
DECLARE
  d int;
  o int;
  c int;
  amount numeric;
BEGIN
  delivered := '{}';
  FOR d IN 1..districts LOOP
    SELECT no_o_id INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE;
    delivered := array_append(delivered, o);
    IF FOUND THEN
      DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
      UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
      UPDATE order_line SET ol_delivery_d = at WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
      SELECT sum(ol_amount) INTO amount FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
      UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    END IF;
  END LOOP;
END $$",
    "CREATE OR REPLACE PROCEDURE tpcc_order_status(w int, d int, c int, name varchar, INOUT who int,
  INOUT balance numeric, INOUT o int, INOUT carrier int, INOUT lines bigint, INOUT amount numeric)
LANGUAGE plpgsql AS $$
BEGIN
  who := tpcc_customer(w, d, c, name);
  SELECT c_balance INTO balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = who;
  SELECT o_id, o_carrier_id INTO o, carrier FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = who
    ORDER BY o_id DESC LIMIT 1;
  SELECT count(*), sum(ol_amount) INTO lines, amount FROM order_line
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
END $$",
    "CREATE OR REPLACE PROCEDURE tpcc_stock_level(w int, d int, threshold int, INOUT low bigint)
LANGUAGE plpgsql AS $$
DECLARE
  next int;
BEGIN
  SELECT d_next_o_id INTO next FROM district WHERE d_w_id = w AND d_id = d;
  SELECT count(DISTINCT s_i_id) INTO low FROM order_line JOIN stock ON s_i_id = ol_i_id AND s_w_id = ol_w_id
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id < next AND ol_o_id >= next - 20 AND s_quantity < threshold;
END $$",
];
