//! Worked examples of a violation, for documentation, pages and tests.
//!
//! These are told, not found: no audit ran to make them. They have the shape that the audit gives.

use crate::trace::{SessionId, Window};
use crate::verdict::{
    CoverageSummary, Edge, Ground, ShapeCoverage, StoryStatement, StoryTransaction, Summary, TxnId, Violation,
};
use pgassay_rules::Level;
use std::collections::BTreeMap;

const US: u64 = 1_000;

/// Two clients read one balance and each writes it back: a deposit is lost.
pub fn lost_update() -> Violation {
    let t1 = StoryTransaction {
        name: "t1".into(),
        id: TxnId {
            session: SessionId(3),
            number: 17,
        },
        level: Level::ReadCommitted,
        committed: Some(true),
        commit: Some(Window::new(2_400 * US, 2_750 * US)),
        statements: vec![
            statement(
                "SELECT balance FROM account WHERE id = $1",
                &["1"],
                1_000,
                1_180,
                "100",
            ),
            statement(
                "UPDATE account SET balance = $1 WHERE id = $2",
                &["110", "1"],
                2_000,
                2_190,
                "UPDATE 1",
            ),
        ],
    };
    let t2 = StoryTransaction {
        name: "t2".into(),
        id: TxnId {
            session: SessionId(4),
            number: 9,
        },
        level: Level::ReadCommitted,
        committed: Some(true),
        commit: Some(Window::new(3_100 * US, 3_390 * US)),
        statements: vec![
            statement(
                "SELECT balance FROM account WHERE id = $1",
                &["1"],
                1_400,
                1_560,
                "100",
            ),
            statement(
                "UPDATE account SET balance = $1 WHERE id = $2",
                &["120", "1"],
                2_100,
                2_900,
                "UPDATE 1",
            ),
        ],
    };
    Violation {
        id: "v-5d1e0c94b7aa-1".into(),
        fingerprint: "5d1e0c94b7aa0f6c3b1d".into(),
        rule: "lost_update".into(),
        level: Level::Serializable,
        at: 3_390 * US,
        transactions: vec![t1, t2],
        culprits: vec![(1, 0)],
        observed: "t2 read balance = 100 of account(1) and wrote 120".into(),
        expected: vec![
            "if t1 came first, t2 reads 110".into(),
            "if t2 came first, t1 reads 120".into(),
        ],
        edges: vec![
            edge(
                0,
                1,
                "ww",
                "t1 wrote account(1) = 110, then t2 replaced it by 120",
            ),
            edge(
                1,
                0,
                "rw",
                "t2 read account(1) = 100, the version that t1 then replaced",
            ),
        ],
        initial: vec!["account: id = 1, balance = 100".into()],
        ground: Ground {
            create: vec![
                "CREATE TABLE account (id integer NOT NULL, balance integer, CONSTRAINT account_pkey PRIMARY KEY (id))"
                    .into(),
                "INSERT INTO account VALUES\n(1, 100)".into(),
            ],
            drop: vec!["DROP TABLE account".into()],
            ..Ground::default()
        },
        story: "t1 and t2 both read account(1) = 100.\n\
                t1 wrote 110 and committed; t2, waiting for the row, then wrote 120 over it.\n\
                t2's 120 was computed from 100: the deposit of t1 is lost.\n\
                No serial order explains both reads."
            .into(),
        repeats: 2,
    }
}

/// Two doctors on call each check that the other stays, and both leave.
pub fn write_skew() -> Violation {
    let leave = "UPDATE doctors SET on_call = false WHERE name = $1";
    let count = "SELECT count(*) FROM doctors WHERE on_call";
    let t1 = StoryTransaction {
        name: "t1".into(),
        id: TxnId {
            session: SessionId(11),
            number: 2,
        },
        level: Level::Serializable,
        committed: Some(true),
        commit: Some(Window::new(1_500 * US, 1_720 * US)),
        statements: vec![
            statement(count, &[], 100, 310, "2"),
            statement(leave, &["alice"], 900, 1_100, "UPDATE 1"),
        ],
    };
    let t2 = StoryTransaction {
        name: "t2".into(),
        id: TxnId {
            session: SessionId(12),
            number: 2,
        },
        level: Level::Serializable,
        committed: Some(true),
        commit: Some(Window::new(1_810 * US, 2_020 * US)),
        statements: vec![
            statement(count, &[], 200, 390, "2"),
            statement(leave, &["bob"], 1_000, 1_210, "UPDATE 1"),
        ],
    };
    Violation {
        id: "v-a2417f0c55e1-1".into(),
        fingerprint: "a2417f0c55e19b0d7c42".into(),
        rule: "write_skew".into(),
        level: Level::Serializable,
        at: 2_020 * US,
        transactions: vec![t1, t2],
        culprits: vec![(0, 0), (1, 0)],
        observed: "both counted 2 doctors on call, and both left".into(),
        expected: vec![
            "if t1 came first, t2 counts 1".into(),
            "if t2 came first, t1 counts 1".into(),
        ],
        edges: vec![
            edge(0, 1, "rw", "t1 counted bob as on call; t2 then changed that row"),
            edge(
                1,
                0,
                "rw",
                "t2 counted alice as on call; t1 then changed that row",
            ),
        ],
        initial: vec![
            "doctors: name = alice, on_call = t".into(),
            "doctors: name = bob, on_call = t".into(),
        ],
        ground: Ground {
            create: vec![
                "CREATE TABLE doctors (name text NOT NULL, on_call boolean, CONSTRAINT doctors_pkey PRIMARY KEY (name))"
                    .into(),
                "INSERT INTO doctors VALUES\n('alice', true),\n('bob', true)".into(),
            ],
            drop: vec!["DROP TABLE doctors".into()],
            ..Ground::default()
        },
        story: "t1 and t2 each counted two doctors on call.\n\
                t1 took alice off, t2 took bob off, and both committed.\n\
                Whoever came second must have counted one."
            .into(),
        repeats: 0,
    }
}

/// A story of `statements` statements over five sessions, to see how a page bears it.
pub fn wide(statements: usize) -> Violation {
    let mut story = lost_update();
    story.id = "v-0123456789ab-1".into();
    story.fingerprint = "0123456789abcdef0123".into();
    story.rule = "read_skew".into();
    story.level = Level::RepeatableRead;
    let lanes = 5;
    story.transactions = (0..lanes)
        .map(|lane| {
            let statements: Vec<StoryStatement> = (0..statements / lanes)
                .map(|n| {
                    let sent = (n * 400 + lane * 70) as u64;
                    statement(
                        "SELECT balance FROM account WHERE id = $1",
                        &[&format!("{}", n % 97)],
                        sent,
                        sent + 180 + (n % 5) as u64 * 30,
                        "100",
                    )
                })
                .collect();
            let end = statements.last().map_or(0, |s| s.window.done);
            StoryTransaction {
                name: format!("t{}", lane + 1),
                id: TxnId {
                    session: SessionId(lane as u64 + 1),
                    number: 1,
                },
                level: Level::RepeatableRead,
                committed: Some(true),
                commit: Some(Window::new(end + 90 * US, end + 260 * US)),
                statements,
            }
        })
        .collect();
    story.culprits = vec![(1, 3)];
    story
}

/// A run with two violations and honest coverage.
pub fn summary() -> Summary {
    Summary {
        transactions: 4_096,
        statements: 16_384,
        violations: vec![lost_update(), write_skew()],
        coverage: CoverageSummary {
            checked: 15_900,
            partial: 400,
            unchecked: 84,
            reasons: BTreeMap::from([
                ("function to_tsvector()".to_owned(), 84),
                ("table log is partial".to_owned(), 400),
            ]),
            levels: BTreeMap::from([(Level::ReadCommitted, 12_300), (Level::Serializable, 4_000)]),
            shapes: vec![
                shape("SELECT balance FROM account WHERE id = $1", 8_000, 0, 0, None),
                shape("UPDATE account SET balance = $1 WHERE id = $2", 7_900, 0, 0, None),
                shape(
                    "SELECT * FROM log ORDER BY at DESC LIMIT $1",
                    0,
                    400,
                    0,
                    Some("table log is partial"),
                ),
                shape(
                    "SELECT id FROM page WHERE to_tsvector(body) @@ $1",
                    0,
                    0,
                    84,
                    Some("function to_tsvector()"),
                ),
            ],
        },
        tiers: BTreeMap::from([
            ("candidates".to_owned(), 700),
            ("settled".to_owned(), 15_590),
            ("solver".to_owned(), 10),
        ]),
        gaps: 0,
    }
}

fn statement(sql: &str, parameters: &[&str], sent_us: u64, done_us: u64, answer: &str) -> StoryStatement {
    StoryStatement {
        sql: sql.to_owned(),
        parameters: parameters.iter().map(|p| (*p).to_owned()).collect(),
        window: Window::new(sent_us * US, done_us * US),
        answer: answer.to_owned(),
    }
}

fn edge(from: usize, to: usize, kind: &str, why: &str) -> Edge {
    Edge {
        from,
        to,
        kind: kind.to_owned(),
        why: why.to_owned(),
        read: None,
    }
}

fn shape(text: &str, checked: u64, partial: u64, unchecked: u64, reason: Option<&str>) -> ShapeCoverage {
    ShapeCoverage {
        shape: text.to_owned(),
        checked,
        partial,
        unchecked,
        reason: reason.map(str::to_owned),
    }
}
