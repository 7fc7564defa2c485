//! The statements of the five transactions, in the order of clauses 2.4 to 2.8.
//!
//! They stand apart from the transactions so that whoever makes up a history of TPC-C says the very same.

// New-Order.

pub const CUSTOMER_AND_TAX: &str = "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id WHERE w_id = $1 \
     AND c_d_id = $2 AND c_id = $3";
pub const NEXT_ORDER_FOR_UPDATE: &str =
    "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE";
pub const TAKE_ORDER_NUMBER: &str =
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2";
pub const INSERT_ORDER: &str = "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, \
     $4, $5, $6, $7)";
pub const INSERT_NEW_ORDER: &str = "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)";
pub const ITEM: &str = "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1";
pub const TAKE_STOCK: &str = "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, s_remote_cnt = \
     s_remote_cnt + $3 WHERE s_i_id = $4 AND s_w_id = $5";
pub const INSERT_LINE: &str = "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, \
     ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

// Payment.

pub const PAY_WAREHOUSE: &str = "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2";
pub const WAREHOUSE: &str =
    "SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse WHERE w_id = $1";
pub const PAY_DISTRICT: &str = "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3";
pub const DISTRICT: &str = "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district WHERE d_w_id = $1 AND d_id = \
     $2";
pub const CUSTOMER: &str = "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
     c_credit, c_credit_lim, c_discount, c_balance FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = \
     $3 FOR UPDATE";
pub const CUSTOMER_DATA: &str = "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
pub const PAY_CUSTOMER_WITH_DATA: &str = "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = \
     c_payment_cnt + 1, c_data = $5 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4";
pub const PAY_CUSTOMER: &str = "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, c_payment_cnt = \
     c_payment_cnt + 1 WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4";
pub const INSERT_HISTORY: &str = "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES ($1, \
     $2, $3, $4, $5, $6, $7, $8)";
pub const CUSTOMERS_OF_NAME: &str =
    "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";

// Delivery.

pub const OLDEST_NEW_ORDER: &str =
    "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE";
pub const DELETE_NEW_ORDER: &str =
    "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3";
pub const CUSTOMER_OF_ORDER: &str =
    "SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3";
pub const SET_CARRIER: &str =
    "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3";
pub const SET_DELIVERED: &str =
    "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
pub const SUM_OF_LINES: &str =
    "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
pub const CHARGE_CUSTOMER: &str = "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $2 \
     AND c_d_id = $3 AND c_id = $4";

// Order-Status.

pub const BALANCE: &str = "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = \
     $3";
pub const LAST_ORDER: &str = "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER \
     BY o_id DESC LIMIT 1";
pub const LINES_OF_ORDER: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 \
     AND ol_d_id = $2 AND ol_o_id = $3";

// Stock-Level.

pub const NEXT_ORDER: &str = "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
pub const LOW_STOCK: &str = "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id AND s_w_id = ol_w_id WHERE \
     ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 AND s_quantity < $5";

/// New-Order: what is in stock, with the text for the order's district.
pub fn stock(district: i64) -> String {
    format!(
        "SELECT s_quantity, s_data, s_dist_{district:02} FROM stock WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE"
    )
}
