//! The twelve consistency conditions of clause 3.3.2, each as a query for the rows that break it.

use crate::Check;

pub fn all() -> Vec<Check> {
    let conditions = [
        (
            "1: a warehouse's year-to-date is that of its districts",
            "SELECT w_id, w_ytd, sum(d_ytd) FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd \
             HAVING w_ytd <> sum(d_ytd)",
        ),
        (
            "2: the next order number follows the last order and the last new order",
            "SELECT d_w_id, d_id, d_next_o_id FROM district WHERE d_next_o_id - 1 <> \
             (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
             OR d_next_o_id - 1 < (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)",
        ),
        (
            "3: new orders are numbered without a gap",
            "SELECT no_w_id, no_d_id, count(*) FROM new_order GROUP BY no_w_id, no_d_id \
             HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
        ),
        (
            "4: a district has as many order lines as its orders say",
            "SELECT d_w_id, d_id FROM district WHERE \
             (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) <> \
             (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
        ),
        (
            "5: an order has no carrier if and only if it is a new order",
            "SELECT o_w_id, o_d_id, o_id, o_carrier_id FROM orders LEFT JOIN new_order \
             ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
             WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
        ),
        (
            "6: an order has as many lines as it says",
            "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, count(ol_number) FROM orders LEFT JOIN order_line \
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
             GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt HAVING count(ol_number) <> o_ol_cnt",
        ),
        (
            "7: a line has a delivery date if and only if its order has a carrier",
            "SELECT ol_w_id, ol_d_id, ol_o_id, ol_number FROM order_line JOIN orders \
             ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
             WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
        ),
        (
            "8: a warehouse's year-to-date is its history",
            "SELECT w_id, w_ytd, sum(h_amount) FROM warehouse JOIN history ON h_w_id = w_id GROUP BY w_id, w_ytd \
             HAVING w_ytd <> sum(h_amount)",
        ),
        (
            "9: a district's year-to-date is its history",
            "SELECT d_w_id, d_id, d_ytd, sum(h_amount) FROM district JOIN history ON h_w_id = d_w_id \
             AND h_d_id = d_id GROUP BY d_w_id, d_id, d_ytd HAVING d_ytd <> sum(h_amount)",
        ),
        (
            "10: a customer's balance is what was delivered less what was paid",
            "SELECT c_w_id, c_d_id, c_id, c_balance FROM customer WHERE c_balance <> \
             (SELECT coalesce(sum(ol_amount), 0) FROM orders JOIN order_line \
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
             WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL) - \
             (SELECT coalesce(sum(h_amount), 0) FROM history \
             WHERE h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id)",
        ),
        (
            "11: orders that are not new have been delivered",
            "SELECT d_w_id, d_id FROM district WHERE \
             (SELECT count(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) - \
             (SELECT count(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) <> \
             (SELECT count(o_carrier_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)",
        ),
        (
            "12: balance and payments of a customer are what was delivered",
            "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment FROM customer WHERE c_balance + c_ytd_payment <> \
             (SELECT coalesce(sum(ol_amount), 0) FROM orders JOIN order_line \
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
             WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL)",
        ),
    ];
    conditions
        .into_iter()
        .map(|(name, sql)| Check::new(name, sql))
        .collect()
}
