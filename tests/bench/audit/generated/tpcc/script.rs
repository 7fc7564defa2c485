//! What TPC-C's clients say: the statements of the workload with the types that PostgreSQL finds for their parameters
//! and columns.

use super::super::tape::Prepared;
use pgassay_workloads::tpcc::statements as sql;
use std::sync::Arc;

const INT: u32 = 23;
const COUNT: u32 = 20;
const TEXT: u32 = 25;
const CHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
const TIMESTAMP: u32 = 1114;
const NUMERIC: u32 = 1700;

pub struct Script {
    pub begin: Arc<str>,
    pub begin_read_only: Arc<str>,
    pub commit: Arc<str>,
    pub rollback: Arc<str>,
    pub customer_and_tax: Prepared,
    pub next_order_for_update: Prepared,
    pub take_order_number: Prepared,
    pub insert_order: Prepared,
    pub insert_new_order: Prepared,
    pub item: Prepared,
    /// By district.
    pub stock: Vec<Prepared>,
    pub take_stock: Prepared,
    pub insert_line: Prepared,
    pub pay_warehouse: Prepared,
    pub warehouse: Prepared,
    pub pay_district: Prepared,
    pub district: Prepared,
    pub customers_of_name: Prepared,
    pub customer: Prepared,
    pub customer_data: Prepared,
    pub pay_customer: Prepared,
    pub pay_customer_with_data: Prepared,
    pub insert_history: Prepared,
    pub oldest_new_order: Prepared,
    pub delete_new_order: Prepared,
    pub customer_of_order: Prepared,
    pub set_carrier: Prepared,
    pub set_delivered: Prepared,
    pub sum_of_lines: Prepared,
    pub charge_customer: Prepared,
    pub balance: Prepared,
    pub last_order: Prepared,
    pub lines_of_order: Prepared,
    pub next_order: Prepared,
    pub low_stock: Prepared,
}

/// A column: its name, type and type modifier.
type Named = (&'static str, u32, i32);

fn int(name: &'static str) -> Named {
    (name, INT, -1)
}

fn time(name: &'static str) -> Named {
    (name, TIMESTAMP, -1)
}

fn varchar(name: &'static str, length: i32) -> Named {
    (name, VARCHAR, length + 4)
}

fn char(name: &'static str, length: i32) -> Named {
    (name, CHAR, length + 4)
}

fn numeric(name: &'static str, precision: i32, scale: i32) -> Named {
    (name, NUMERIC, (precision << 16 | scale) + 4)
}

fn write(text: &str, types: &[u32]) -> Prepared {
    Prepared::new(text, types, &[])
}

impl Script {
    pub fn new(districts: i64) -> Script {
        let key = [INT; 3];
        let stock = (1..=districts).map(|district| {
            let name = format!("s_dist_{district:02}");
            let columns = [int("s_quantity"), varchar("s_data", 50), (&name, CHAR, 28)];
            Prepared::new(&sql::stock(district), &[INT; 2], &columns)
        });
        Script {
            begin: "BEGIN ISOLATION LEVEL REPEATABLE READ".into(),
            begin_read_only: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".into(),
            commit: "COMMIT".into(),
            rollback: "ROLLBACK".into(),
            customer_and_tax: Prepared::new(
                sql::CUSTOMER_AND_TAX,
                &key,
                &[
                    numeric("c_discount", 4, 4),
                    varchar("c_last", 16),
                    char("c_credit", 2),
                    numeric("w_tax", 4, 4),
                ],
            ),
            next_order_for_update: Prepared::new(
                sql::NEXT_ORDER_FOR_UPDATE,
                &[INT; 2],
                &[int("d_next_o_id"), numeric("d_tax", 4, 4)],
            ),
            take_order_number: write(sql::TAKE_ORDER_NUMBER, &[INT; 2]),
            insert_order: write(sql::INSERT_ORDER, &[INT, INT, INT, INT, TIMESTAMP, INT, INT]),
            insert_new_order: write(sql::INSERT_NEW_ORDER, &key),
            item: Prepared::new(
                sql::ITEM,
                &[INT],
                &[
                    numeric("i_price", 5, 2),
                    varchar("i_name", 24),
                    varchar("i_data", 50),
                ],
            ),
            stock: stock.collect(),
            take_stock: write(sql::TAKE_STOCK, &[INT; 5]),
            insert_line: write(
                sql::INSERT_LINE,
                &[INT, INT, INT, INT, INT, INT, INT, NUMERIC, CHAR],
            ),
            pay_warehouse: write(sql::PAY_WAREHOUSE, &[NUMERIC, INT]),
            warehouse: Prepared::new(
                sql::WAREHOUSE,
                &[INT],
                &[
                    varchar("w_street_1", 20),
                    varchar("w_street_2", 20),
                    varchar("w_city", 20),
                    char("w_state", 2),
                    char("w_zip", 9),
                    varchar("w_name", 10),
                ],
            ),
            pay_district: write(sql::PAY_DISTRICT, &[NUMERIC, INT, INT]),
            district: Prepared::new(
                sql::DISTRICT,
                &[INT; 2],
                &[
                    varchar("d_street_1", 20),
                    varchar("d_street_2", 20),
                    varchar("d_city", 20),
                    char("d_state", 2),
                    char("d_zip", 9),
                    varchar("d_name", 10),
                ],
            ),
            customers_of_name: Prepared::new(sql::CUSTOMERS_OF_NAME, &[INT, INT, TEXT], &[int("c_id")]),
            customer: Prepared::new(
                sql::CUSTOMER,
                &key,
                &[
                    varchar("c_first", 16),
                    char("c_middle", 2),
                    varchar("c_last", 16),
                    varchar("c_street_1", 20),
                    varchar("c_street_2", 20),
                    varchar("c_city", 20),
                    char("c_state", 2),
                    char("c_zip", 9),
                    char("c_phone", 16),
                    time("c_since"),
                    char("c_credit", 2),
                    numeric("c_credit_lim", 12, 2),
                    numeric("c_discount", 4, 4),
                    numeric("c_balance", 12, 2),
                ],
            ),
            customer_data: Prepared::new(sql::CUSTOMER_DATA, &key, &[varchar("c_data", 500)]),
            pay_customer: write(sql::PAY_CUSTOMER, &[NUMERIC, INT, INT, INT]),
            pay_customer_with_data: write(sql::PAY_CUSTOMER_WITH_DATA, &[NUMERIC, INT, INT, INT, VARCHAR]),
            insert_history: write(
                sql::INSERT_HISTORY,
                &[INT, INT, INT, INT, INT, TIMESTAMP, NUMERIC, VARCHAR],
            ),
            oldest_new_order: Prepared::new(sql::OLDEST_NEW_ORDER, &[INT; 2], &[int("no_o_id")]),
            delete_new_order: write(sql::DELETE_NEW_ORDER, &key),
            customer_of_order: Prepared::new(sql::CUSTOMER_OF_ORDER, &key, &[int("o_c_id")]),
            set_carrier: write(sql::SET_CARRIER, &[INT; 4]),
            set_delivered: write(sql::SET_DELIVERED, &[INT, INT, INT, TIMESTAMP]),
            sum_of_lines: Prepared::new(sql::SUM_OF_LINES, &key, &[("sum", NUMERIC, -1)]),
            charge_customer: write(sql::CHARGE_CUSTOMER, &[NUMERIC, INT, INT, INT]),
            balance: Prepared::new(
                sql::BALANCE,
                &key,
                &[
                    numeric("c_balance", 12, 2),
                    varchar("c_first", 16),
                    char("c_middle", 2),
                    varchar("c_last", 16),
                ],
            ),
            last_order: Prepared::new(
                sql::LAST_ORDER,
                &key,
                &[int("o_id"), time("o_entry_d"), int("o_carrier_id")],
            ),
            lines_of_order: Prepared::new(
                sql::LINES_OF_ORDER,
                &key,
                &[
                    int("ol_i_id"),
                    int("ol_supply_w_id"),
                    int("ol_quantity"),
                    numeric("ol_amount", 6, 2),
                    time("ol_delivery_d"),
                ],
            ),
            next_order: Prepared::new(sql::NEXT_ORDER, &[INT; 2], &[int("d_next_o_id")]),
            low_stock: Prepared::new(sql::LOW_STOCK, &[INT; 5], &[("count", COUNT, -1)]),
        }
    }
}
