//! Twitter: new tweets, follows, timelines, in the mix and size of the paper.
//!
//! Out: transactions over `users`, `tweets` (numbered by a sequence) and `follows`.
//!
//! Always true: a user's counters are the numbers of its tweets, of those it follows and of its followers.
//!
//! Source: «Checking Observational Correctness of Database Systems», §8: NewTweet 20 %, Follow 40 %, Timeline 10 %,
//! ShowFollow 10 %, ShowTweets 20 %; 1,000 users.

use crate::session::Session;
use crate::text::{letters, weighted};
use crate::{Check, Doing, Ended, Knobs, Param, Turn, Workload};
use fastrand::Rng;

pub struct Twitter {
    users: i64,
}

pub fn make(knobs: &Knobs) -> Box<dyn Workload> {
    Box::new(Twitter {
        users: knobs.size("users", 1_000, "users").max(8),
    })
}

const TABLES: &[&str] = &[
    "CREATE TABLE users (id int PRIMARY KEY, name varchar(50) NOT NULL UNIQUE, tweets int NOT NULL DEFAULT 0, \
     following int NOT NULL DEFAULT 0, followers int NOT NULL DEFAULT 0)",
    "CREATE TABLE tweets (id bigserial PRIMARY KEY, user_id int NOT NULL REFERENCES users (id), \
     body varchar(140) NOT NULL, posted timestamp NOT NULL)",
    "CREATE TABLE follows (follower int NOT NULL REFERENCES users (id), followee int NOT NULL REFERENCES users (id), \
     PRIMARY KEY (follower, followee))",
    "CREATE INDEX tweets_by_user ON tweets (user_id, id)",
];

impl Workload for Twitter {
    fn name(&self) -> &'static str {
        "twitter"
    }

    fn tables(&self) -> &'static [&'static str] {
        &["users", "tweets", "follows"]
    }

    fn setup<'a>(&'a self, session: &'a mut Session) -> Doing<'a, ()> {
        Box::pin(async move {
            session
                .batch("DROP TABLE IF EXISTS follows, tweets, users CASCADE")
                .await?;
            for table in TABLES {
                session.batch(table).await?;
            }
            // Everybody follows the next three and has tweeted once.
            let users = (1..=self.users)
                .map(|id| {
                    vec![
                        id.into(),
                        format!("user{id}").into(),
                        1.into(),
                        3.into(),
                        3.into(),
                    ]
                })
                .collect();
            session
                .load("users (id, name, tweets, following, followers)", users)
                .await?;
            let mut rng = Rng::with_seed(2);
            let tweets = (1..=self.users)
                .map(|id| {
                    vec![
                        id.into(),
                        letters(&mut rng, 20, 140).into(),
                        Param::Time(id * 1_000_000),
                    ]
                })
                .collect();
            session.load("tweets (user_id, body, posted)", tweets).await?;
            let follows = (1..=self.users)
                .flat_map(|id| (0..3).map(move |step| vec![id.into(), (1 + (id + step) % self.users).into()]))
                .collect();
            session.load("follows (follower, followee)", follows).await
        })
    }

    fn transact<'a>(&'a self, session: &'a mut Session, mut turn: Turn) -> Doing<'a, Ended> {
        Box::pin(async move {
            let user = turn.rng.i64(1..=self.users);
            match weighted(&mut turn.rng, &[20, 40, 10, 10, 20]) {
                0 => new_tweet(session, user, &mut turn).await,
                1 => {
                    let other = 1 + (user + turn.rng.i64(0..self.users - 1)) % self.users;
                    if turn.chance(0.75) {
                        follow(session, user, other).await
                    } else {
                        unfollow(session, user, other).await
                    }
                }
                2 => {
                    session.begin_read_only().await?;
                    session
                        .run("SELECT name, following FROM users WHERE id = $1", &[user.into()])
                        .await?;
                    let timeline = "SELECT t.id, t.user_id, t.body, t.posted FROM tweets t JOIN follows f \
                                    ON f.followee = t.user_id WHERE f.follower = $1 ORDER BY t.id DESC LIMIT 20";
                    session.run(timeline, &[user.into()]).await?;
                    session.commit().await?;
                    Ok(Ended::Committed)
                }
                3 => {
                    let followed = "SELECT u.id, u.name FROM follows f JOIN users u ON u.id = f.followee \
                                    WHERE f.follower = $1 ORDER BY u.id";
                    session.run(followed, &[user.into()]).await?;
                    Ok(Ended::Committed)
                }
                _ => {
                    let tweets =
                        "SELECT id, body, posted FROM tweets WHERE user_id = $1 ORDER BY id DESC LIMIT 10";
                    session.run(tweets, &[user.into()]).await?;
                    Ok(Ended::Committed)
                }
            }
        })
    }

    fn checks(&self) -> Vec<Check> {
        vec![
            Check::new(
                "the number of tweets is counted right",
                "SELECT id, tweets FROM users WHERE tweets <> (SELECT count(*) FROM tweets t WHERE t.user_id = users.id)",
            ),
            Check::new(
                "the number of followed users is counted right",
                "SELECT id, following FROM users WHERE following <> \
                 (SELECT count(*) FROM follows WHERE follower = users.id)",
            ),
            Check::new(
                "the number of followers is counted right",
                "SELECT id, followers FROM users WHERE followers <> \
                 (SELECT count(*) FROM follows WHERE followee = users.id)",
            ),
        ]
    }
}

type Outcome = Result<Ended, tokio_postgres::Error>;

async fn new_tweet(session: &mut Session, user: i64, turn: &mut Turn) -> Outcome {
    let body = letters(&mut turn.rng, 20, 140);
    let posted = Param::Time(820_454_400_000_000 + turn.serial as i64 * 1_000_000);
    session.begin().await?;
    let insert = "INSERT INTO tweets (user_id, body, posted) VALUES ($1, $2, $3) RETURNING id";
    session.run(insert, &[user.into(), body.into(), posted]).await?;
    session
        .run(
            "UPDATE users SET tweets = tweets + 1 WHERE id = $1",
            &[user.into()],
        )
        .await?;
    session.commit().await?;
    Ok(Ended::Committed)
}

async fn follow(session: &mut Session, user: i64, other: i64) -> Outcome {
    session.begin().await?;
    let insert = "INSERT INTO follows (follower, followee) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    if session.run(insert, &[user.into(), other.into()]).await?.affected == 1 {
        session
            .run(
                "UPDATE users SET following = following + 1 WHERE id = $1",
                &[user.into()],
            )
            .await?;
        session
            .run(
                "UPDATE users SET followers = followers + 1 WHERE id = $1",
                &[other.into()],
            )
            .await?;
    }
    session.commit().await?;
    Ok(Ended::Committed)
}

async fn unfollow(session: &mut Session, user: i64, other: i64) -> Outcome {
    session.begin().await?;
    let delete = "DELETE FROM follows WHERE follower = $1 AND followee = $2";
    if session.run(delete, &[user.into(), other.into()]).await?.affected == 1 {
        session
            .run(
                "UPDATE users SET following = following - 1 WHERE id = $1",
                &[user.into()],
            )
            .await?;
        session
            .run(
                "UPDATE users SET followers = followers - 1 WHERE id = $1",
                &[other.into()],
            )
            .await?;
    }
    session.commit().await?;
    Ok(Ended::Committed)
}
