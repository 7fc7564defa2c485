//! RUBiS: an auction site in the manner of eBay, in the mix and size of the paper.
//!
//! Out: transactions over `regions`, `categories`, `users`, `items`, `bids`, `buy_now` and `comments`.
//!
//! Always true: a user's rating is the sum of its comments; what is left of an item and what was bought are its stock.
//!
//! Source: «Checking Observational Correctness of Database Systems», §8: RegisterUser 10 %, RegisterItem 15 %,
//! StoreBuyNow 15 %, StoreComment 20 %, RandomBrowse 40 %; 1,000 users and 4,000 items. Schema after RUBiS 1.4.

use crate::session::Session;
use crate::text::{letters, weighted};
use crate::{Check, Doing, Ended, Knobs, Param, Turn, Workload};
use fastrand::Rng;

pub struct Rubis {
    users: i64,
    items: i64,
}

const REGIONS: i64 = 10;
const CATEGORIES: i64 = 20;
/// What every item starts with.
const STOCK: i64 = 50;

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Rubis {
        users: knobs.size("users", 1_000, "users at the start").max(2),
        items: knobs.size("items", 4_000, "items at the start").max(2),
    })
}

const TABLES: &[&str] = &[
    "CREATE TABLE regions (id int PRIMARY KEY, name varchar(20) NOT NULL)",
    "CREATE TABLE categories (id int PRIMARY KEY, name varchar(50) NOT NULL)",
    "CREATE TABLE users (id serial PRIMARY KEY, firstname varchar(20), lastname varchar(20), \
     nickname varchar(40) NOT NULL UNIQUE, password varchar(20) NOT NULL, email varchar(50) NOT NULL, \
     rating int NOT NULL DEFAULT 0, balance numeric(10,2) NOT NULL DEFAULT 0, creation_date timestamp, \
     region int NOT NULL REFERENCES regions (id))",
    "CREATE TABLE items (id serial PRIMARY KEY, name varchar(100) NOT NULL, description text, \
     initial_price numeric(10,2) NOT NULL, quantity int NOT NULL CHECK (quantity >= 0), reserve_price numeric(10,2), \
     buy_now numeric(10,2), nb_of_bids int NOT NULL DEFAULT 0, max_bid numeric(10,2), start_date timestamp, \
     end_date timestamp, seller int NOT NULL REFERENCES users (id), category int NOT NULL REFERENCES categories (id))",
    "CREATE TABLE bids (id serial PRIMARY KEY, user_id int NOT NULL REFERENCES users (id), \
     item_id int NOT NULL REFERENCES items (id), qty int NOT NULL, bid numeric(10,2) NOT NULL, bid_date timestamp)",
    "CREATE TABLE buy_now (id serial PRIMARY KEY, buyer_id int NOT NULL REFERENCES users (id), \
     item_id int NOT NULL REFERENCES items (id), qty int NOT NULL, bought timestamp)",
    "CREATE TABLE comments (id serial PRIMARY KEY, from_user_id int NOT NULL REFERENCES users (id), \
     to_user_id int NOT NULL REFERENCES users (id), item_id int NOT NULL REFERENCES items (id), rating int NOT NULL, \
     written timestamp, comment text)",
    "CREATE INDEX items_by_category ON items (category, end_date)",
    "CREATE INDEX items_by_seller ON items (seller)",
    "CREATE INDEX comments_by_user ON comments (to_user_id)",
    "CREATE INDEX buy_now_by_buyer ON buy_now (buyer_id)",
    "CREATE INDEX bids_by_item ON bids (item_id)",
];

impl Workload for Rubis {
    fn name(&self) -> &'static str {
        "rubis"
    }

    fn tables(&self) -> &'static [&'static str] {
        &[
            "regions",
            "categories",
            "users",
            "items",
            "bids",
            "buy_now",
            "comments",
        ]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session
                .batch(
                    "DROP TABLE IF EXISTS comments, buy_now, bids, items, users, categories, regions CASCADE",
                )
                .await?;
            for table in TABLES {
                session.batch(table).await?;
            }
            let mut rng = Rng::with_seed(3);
            let named = |what: &str, count: i64| -> Vec<Vec<Param>> {
                (1..=count)
                    .map(|id| vec![id.into(), format!("{what} {id}").into()])
                    .collect()
            };
            session
                .load("regions (id, name)", named("region", REGIONS))
                .await?;
            session
                .load("categories (id, name)", named("category", CATEGORIES))
                .await?;
            let users = (1..=self.users)
                .map(|id| user(&mut rng, &format!("user{id}"), id))
                .collect();
            session.load(USER, users).await?;
            let items = (1..=self.items)
                .map(|id| item(&mut rng, id, self.users))
                .collect();
            session.load(ITEM, items).await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            match weighted(&mut turn.rng, &[10, 15, 15, 20, 40]) {
                0 => register_user(session, &mut turn).await,
                1 => register_item(session, &mut turn, self.users).await,
                2 => self.store_buy_now(session, &mut turn).await,
                3 => self.store_comment(session, &mut turn).await,
                _ => self.random_browse(session, &mut turn).await,
            }
        })
    }

    fn checks(&self) -> Vec<Check> {
        vec![
            Check::new(
                "a user's rating is the sum of the comments",
                "SELECT id, rating FROM users WHERE rating <> \
                 (SELECT coalesce(sum(c.rating), 0) FROM comments c WHERE c.to_user_id = users.id)",
            ),
            Check::new(
                "what is left and what was bought are the stock",
                format!(
                    "SELECT id, quantity FROM items WHERE quantity + \
                     (SELECT coalesce(sum(qty), 0) FROM buy_now WHERE item_id = items.id) <> {STOCK}"
                ),
            ),
        ]
    }
}

type Outcome = Result<Ended, tokio_postgres::Error>;

const USER: &str = "users (firstname, lastname, nickname, password, email, creation_date, region)";
const ITEM: &str = "items (name, description, initial_price, quantity, reserve_price, buy_now, start_date, end_date, \
                    seller, category)";

fn user(rng: &mut Rng, nickname: &str, time: i64) -> Vec<Param> {
    vec![
        letters(rng, 4, 12).into(),
        letters(rng, 4, 12).into(),
        nickname.into(),
        letters(rng, 8, 8).into(),
        format!("{nickname}@example.org").into(),
        Param::Time(time * 1_000_000),
        rng.i64(1..=REGIONS).into(),
    ]
}

fn item(rng: &mut Rng, time: i64, users: i64) -> Vec<Param> {
    let price = rng.i64(100..=100_000);
    vec![
        letters(rng, 5, 30).into(),
        letters(rng, 20, 200).into(),
        Param::cents(price),
        STOCK.into(),
        Param::cents(price + 100),
        Param::cents(price + 500),
        Param::Time(time * 1_000_000),
        Param::Time((time + rng.i64(1..=1_000_000)) * 1_000_000),
        rng.i64(1..=users).into(),
        rng.i64(1..=CATEGORIES).into(),
    ]
}

fn places(count: usize) -> String {
    (1..=count)
        .map(|place| format!("${place}"))
        .collect::<Vec<_>>()
        .join(", ")
}

async fn register_user(session: &mut Session, turn: &mut Turn) -> Outcome {
    let nickname = format!("user{}", turn.unique(0));
    let row = user(&mut turn.rng, &nickname, turn.serial as i64);
    session.begin().await?;
    let taken = session
        .run("SELECT id FROM users WHERE nickname = $1", &[nickname.into()])
        .await?;
    if taken.is_empty() {
        let insert = format!("INSERT INTO {USER} VALUES ({}) RETURNING id", places(row.len()));
        let id = session.run(&insert, &row).await?.int(0, 0).unwrap_or(0);
        session
            .run(
                "SELECT nickname, rating, balance, region FROM users WHERE id = $1",
                &[id.into()],
            )
            .await?;
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

async fn register_item(session: &mut Session, turn: &mut Turn, users: i64) -> Outcome {
    let row = item(&mut turn.rng, turn.serial as i64, users);
    session.begin().await?;
    let insert = format!("INSERT INTO {ITEM} VALUES ({}) RETURNING id", places(row.len()));
    let id = session.run(&insert, &row).await?.int(0, 0).unwrap_or(0);
    let back = "SELECT i.name, i.quantity, u.nickname, c.name FROM items i JOIN users u ON u.id = i.seller \
                JOIN categories c ON c.id = i.category WHERE i.id = $1";
    session.run(back, &[id.into()]).await?;
    session.commit().await?;
    Ok(Ended::Committed)
}

impl Rubis {
    async fn store_buy_now(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let (buyer, item) = (turn.rng.i64(1..=self.users), turn.rng.i64(1..=self.items));
        let wanted = turn.rng.i64(1..=3);
        let time = Param::Time(820_454_400_000_000 + turn.serial as i64 * 1_000_000);
        session.begin().await?;
        let read = "SELECT quantity, buy_now, seller FROM items WHERE id = $1 FOR UPDATE";
        let left = session.run(read, &[item.into()]).await?.int(0, 0).unwrap_or(0);
        if left < wanted {
            session.rollback().await?;
            return Ok(Ended::RolledBack);
        }
        if left == wanted {
            let close = "UPDATE items SET quantity = 0, end_date = $1 WHERE id = $2";
            session.run(close, &[time.clone(), item.into()]).await?;
        } else {
            let take = "UPDATE items SET quantity = quantity - $1 WHERE id = $2";
            session.run(take, &[wanted.into(), item.into()]).await?;
        }
        let insert = "INSERT INTO buy_now (buyer_id, item_id, qty, bought) VALUES ($1, $2, $3, $4)";
        session
            .run(insert, &[buyer.into(), item.into(), wanted.into(), time])
            .await?;
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn store_comment(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let (from, to) = (turn.rng.i64(1..=self.users), turn.rng.i64(1..=self.users));
        let item = turn.rng.i64(1..=self.items);
        let rating = turn.rng.i64(-5..=5);
        let text = letters(&mut turn.rng, 10, 100);
        let time = Param::Time(820_454_400_000_000 + turn.serial as i64 * 1_000_000);
        session.begin().await?;
        session
            .run("SELECT rating FROM users WHERE id = $1", &[to.into()])
            .await?;
        session
            .run(
                "UPDATE users SET rating = rating + $1 WHERE id = $2",
                &[rating.into(), to.into()],
            )
            .await?;
        let insert = "INSERT INTO comments (from_user_id, to_user_id, item_id, rating, written, comment) \
                      VALUES ($1, $2, $3, $4, $5, $6)";
        session
            .run(
                insert,
                &[
                    from.into(),
                    to.into(),
                    item.into(),
                    rating.into(),
                    time,
                    text.into(),
                ],
            )
            .await?;
        session.commit().await?;
        Ok(Ended::Committed)
    }

    async fn random_browse(&self, session: &mut Session, turn: &mut Turn) -> Outcome {
        let user = turn.rng.i64(1..=self.users);
        let item = turn.rng.i64(1..=self.items);
        let category = turn.rng.i64(1..=CATEGORIES);
        match turn.rng.u32(0..6) {
            0 => {
                session
                    .run("SELECT id, name FROM categories ORDER BY id", &[])
                    .await?
            }
            1 => {
                let search = "SELECT id, name, initial_price, max_bid, nb_of_bids, end_date FROM items \
                              WHERE category = $1 AND quantity > 0 ORDER BY end_date, id LIMIT 20";
                session.run(search, &[category.into()]).await?
            }
            2 => {
                let view = "SELECT i.name, i.description, i.quantity, i.buy_now, u.nickname, \
                            (SELECT max(b.bid) FROM bids b WHERE b.item_id = i.id) \
                            FROM items i JOIN users u ON u.id = i.seller WHERE i.id = $1";
                session.run(view, &[item.into()]).await?
            }
            3 => {
                let comments = "SELECT c.id, c.rating, c.comment, f.nickname FROM comments c \
                                JOIN users f ON f.id = c.from_user_id WHERE c.to_user_id = $1 ORDER BY c.id DESC LIMIT 10";
                session.run(comments, &[user.into()]).await?
            }
            4 => {
                let bought = "SELECT b.id, b.qty, i.name FROM buy_now b JOIN items i ON i.id = b.item_id \
                              WHERE b.buyer_id = $1 ORDER BY b.id";
                session.run(bought, &[user.into()]).await?
            }
            _ => {
                let by_region = "SELECT r.name, count(u.id) FROM regions r LEFT JOIN users u ON u.region = r.id \
                                 WHERE r.id = $1 GROUP BY r.name";
                session.run(by_region, &[(1 + user % REGIONS).into()]).await?
            }
        };
        Ok(Ended::Committed)
    }
}
