//! Asks for the transaction's xid in the same write as the client's COMMIT, and swallows the answer.
//!
//! In: what the client sent, read by read, and what the server answered. Out: a question to be written before
//! a COMMIT, the answer without what answered the question, and the xid.
//!
//! Only with `commit_timestamps = "inject"`; without it nothing of this exists on a connection.
//!
//! Always true:
//!   - the question goes ahead of a read that is exactly one COMMIT (a Query, or the messages of one extended
//!     COMMIT up to its Sync), in a transaction block that has not failed, with nothing else on its way;
//!   - it is Parse, Bind, Execute, Close, Sync with a name of our own, so the client's unnamed statement, its
//!     portals and its settings stay what they were;
//!   - the client reads what it would have read without the question. If the question itself fails (a cancel
//!     request or `statement_timeout` hit it), the transaction has failed: then the client reads that error as
//!     the answer to its COMMIT, which by then can only roll back.
//!
//! Example: `I` is ours, `C` the client's.
//!
//!   to the server    P B E C S   Q(commit)         one write
//!   to the client    1 2 D C 3 Z   C(COMMIT) Z     the first six are swallowed, D holds the xid

use crate::wire::message::tagged;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `NULL` for a transaction that wrote nothing, and then there is no commit timestamp either.
const QUESTION: &str = "SELECT pg_catalog.pg_current_xact_id_if_assigned()";
/// Statements known to be a COMMIT; more than this is no sane client.
const NAMES_MAX: usize = 256;
/// No message of the answer is longer, nor any that can come in between.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Whether questions may be asked, told to all connections.
#[derive(Debug, Default)]
pub struct Permission {
    /// The side connection is up, and the server keeps commit timestamps.
    pub granted: AtomicBool,
    /// A question failed for another reason than bad luck: never again.
    revoked: AtomicBool,
}

impl Permission {
    pub fn is_given(&self) -> bool {
        self.granted.load(Relaxed) && !self.revoked.load(Relaxed)
    }
}

/// One connection's questions.
pub struct Inject {
    permission: Arc<Permission>,
    question: Bytes,
    /// Prepared statements that are a COMMIT.
    commits: HashSet<Bytes>,
    phase: Phase,
    /// The beginning of a message whose rest has not come yet.
    partial: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is to be swallowed.
    Quiet,
    /// Up to the ReadyForQuery of our question.
    Question,
    /// Our question failed: the client was told, and of the answer to its COMMIT only ReadyForQuery is left.
    Answer,
}

/// What of the server's bytes is the client's, and what was learned from the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    pub to_client: Bytes,
    pub xid: Option<u64>,
}

impl Inject {
    pub fn new(permission: Arc<Permission>) -> Inject {
        // A name that no client has: a clash would be an error, and the end of its transaction.
        let name = format!("pgassay-{:016x}", fastrand::u64(..));
        Inject {
            permission,
            question: question(&name),
            commits: HashSet::new(),
            phase: Phase::Quiet,
            partial: BytesMut::new(),
        }
    }

    /// What to write ahead of `read`, which begins with a message. `at_rest`: the server waits in a
    /// transaction block for what is in `read`.
    pub fn ahead_of(&mut self, read: &[u8], at_rest: bool) -> Option<Bytes> {
        let asks =
            at_rest && self.phase == Phase::Quiet && self.permission.is_given() && self.is_commit(read);
        self.learn(read);
        if !asks {
            return None;
        }
        self.phase = Phase::Question;
        Some(self.question.clone())
    }

    pub fn is_swallowing(&self) -> bool {
        self.phase != Phase::Quiet
    }

    /// Takes the answer to the question out of what the server sent.
    pub fn sift(&mut self, mut bytes: Bytes) -> Sifted {
        let mut kept = BytesMut::new();
        let mut xid = None;
        while self.phase != Phase::Quiet {
            let Some(message) = self.next_message(&mut bytes) else {
                break;
            };
            match (self.phase, message[0]) {
                // Said to the client, whatever it was just doing.
                (_, b'A' | b'S') => kept.extend_from_slice(&message),
                (Phase::Question, b'D') => xid = xid_of(&message),
                (Phase::Question, b'E') => {
                    self.failed(&message);
                    kept.extend_from_slice(&message);
                    self.phase = Phase::Answer;
                }
                (Phase::Question, b'Z') => self.phase = Phase::Quiet,
                // Our own ReadyForQuery, in a failed transaction; then the client's.
                (Phase::Answer, b'Z') if message.last() != Some(&b'E') => {
                    kept.extend_from_slice(&message);
                    self.phase = Phase::Quiet;
                }
                _ => (),
            }
        }
        if kept.is_empty() {
            return Sifted {
                to_client: bytes,
                xid,
            };
        }
        kept.extend_from_slice(&bytes);
        Sifted {
            to_client: kept.freeze(),
            xid,
        }
    }

    /// The next whole message; what is left of `bytes` when there is none waits for its rest.
    fn next_message(&mut self, bytes: &mut Bytes) -> Option<Bytes> {
        loop {
            let wanted = match self.partial.get(1..5) {
                None => 5,
                Some(length) => {
                    let wanted = 1 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
                    if !(5..=MESSAGE_BYTES_MAX).contains(&wanted) {
                        // Not the protocol any more: whatever it is, it is the client's.
                        self.phase = Phase::Quiet;
                        let mut all = self.partial.split();
                        all.extend_from_slice(bytes);
                        *bytes = all.freeze();
                        return None;
                    }
                    if self.partial.len() == wanted {
                        return Some(self.partial.split().freeze());
                    }
                    wanted
                }
            };
            if bytes.is_empty() {
                return None;
            }
            let take = (wanted - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..take]);
            bytes.advance(take);
        }
    }

    fn failed(&self, error: &[u8]) {
        let field = |name: u8| {
            error[5..]
                .split(|byte| *byte == 0)
                .find(|field| field.first() == Some(&name))
                .map_or(String::new(), |field| {
                    String::from_utf8_lossy(&field[1..]).into_owned()
                })
        };
        let (sqlstate, message) = (field(b'C'), field(b'M'));
        // Cancelled, timed out, shut down: such things hit a COMMIT as well.
        if !sqlstate.starts_with("57") && !sqlstate.starts_with("25P") {
            self.permission.revoked.store(true, Relaxed);
            tracing::error!(
                "asking for a transaction's xid failed ({sqlstate}: {message}); a COMMIT was answered with that \
                 error, and commit timestamps are not asked for any more until the next start"
            );
        }
    }

    fn is_commit(&self, read: &[u8]) -> bool {
        let (mut parsed, mut bound, mut executed, mut synced) = (None, false, 0, false);
        for message in messages(read) {
            let Some((tag, body)) = message else { return false };
            if synced {
                return false;
            }
            match tag {
                b'Q' => return body.len() + 5 == read.len() && text_of(body).is_some_and(is_commit),
                b'P' => match parse_of(body) {
                    Some((name, text)) if is_commit(text) => parsed = Some(name),
                    _ => return false,
                },
                b'B' => match strings(body) {
                    Some([_, statement])
                        if parsed == Some(statement)
                            || parsed.is_none() && self.commits.contains(statement) =>
                    {
                        bound = true;
                    }
                    _ => return false,
                },
                b'E' => executed += 1,
                b'D' | b'C' => (),
                b'S' => synced = true,
                _ => return false,
            }
        }
        bound && executed == 1 && synced
    }

    /// Remembers which statements are a COMMIT. One that is missed, or kept too long, does no harm.
    fn learn(&mut self, read: &[u8]) {
        for (tag, body) in messages(read).flatten() {
            match tag {
                b'P' => match parse_of(body) {
                    Some((name, text)) if is_commit(text) => {
                        if self.commits.len() >= NAMES_MAX {
                            self.commits.clear();
                        }
                        self.commits.insert(Bytes::copy_from_slice(name));
                    }
                    Some((name, _)) => drop(self.commits.remove(name)),
                    None => (),
                },
                b'C' if body.first() == Some(&b'S') => {
                    if let Some(name) = body[1..].strip_suffix(b"\0") {
                        self.commits.remove(name);
                    }
                }
                _ => (),
            }
        }
    }
}

/// Parse, Bind, Execute, Close, Sync.
fn question(name: &str) -> Bytes {
    let mut question = BytesMut::new();
    let mut put = |tag: u8, strings: &[&str], rest: &[u8]| {
        let mut body = BytesMut::new();
        for string in strings {
            body.put_slice(string.as_bytes());
            body.put_u8(0);
        }
        body.put_slice(rest);
        question.extend_from_slice(&tagged(tag, &body));
    };
    put(b'P', &[name, QUESTION], &[0, 0]);
    // No parameters, all results as text.
    put(b'B', &[name, name], &[0, 0, 0, 0, 0, 0]);
    put(b'E', &[name], &[0, 0, 0, 0]);
    put(b'C', &[&format!("P{name}")], &[]);
    put(b'C', &[&format!("S{name}")], &[]);
    put(b'S', &[], &[]);
    question.freeze()
}

/// The xid in a DataRow of one text column.
fn xid_of(row: &[u8]) -> Option<u64> {
    std::str::from_utf8(row.get(11..)?).ok()?.parse().ok()
}

/// The messages of a read, as tag and body; `None` where it ends in mid-message.
fn messages(mut read: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    std::iter::from_fn(move || {
        let tag = *read.first()?;
        let whole = read.get(1..5).and_then(|length| {
            let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            read.get(5..length.checked_add(1)?)
        });
        read = whole.map_or(&[], |body| &read[5 + body.len()..]);
        Some(whole.map(|body| (tag, body)))
    })
}

/// Two strings that a body begins with.
fn strings(body: &[u8]) -> Option<[&[u8]; 2]> {
    let mut strings = body.split(|byte| *byte == 0);
    let both = [strings.next()?, strings.next()?];
    // The last string must have ended.
    strings.next().map(|_| both)
}

fn parse_of(body: &[u8]) -> Option<(&[u8], &str)> {
    let [name, text] = strings(body)?;
    Some((name, std::str::from_utf8(text).ok()?))
}

fn text_of(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body.strip_suffix(b"\0")?).ok()
}

/// COMMIT and nothing else; `COMMIT AND CHAIN` and comments are left alone.
fn is_commit(text: &str) -> bool {
    if text.len() > 64 {
        return false;
    }
    let text = text.trim_ascii_end();
    let mut words = text.strip_suffix(';').unwrap_or(text).split_ascii_whitespace();
    let is = |word: Option<&str>, one: &str, other: &str| {
        word.is_some_and(|word| word.eq_ignore_ascii_case(one) || word.eq_ignore_ascii_case(other))
    };
    let first = is(words.next(), "commit", "end");
    let second = words.next();
    first && (second.is_none() || is(second, "work", "transaction")) && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inject() -> Inject {
        let permission = Arc::new(Permission::default());
        permission.granted.store(true, Relaxed);
        Inject::new(permission)
    }

    fn query(sql: &str) -> Vec<u8> {
        tagged(b'Q', &[sql.as_bytes(), b"\0"].concat()).to_vec()
    }

    fn parse(name: &str, sql: &str) -> Bytes {
        tagged(
            b'P',
            &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat(),
        )
    }

    fn run(name: &str) -> Vec<u8> {
        let bind = tagged(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
        let execute = tagged(b'E', b"\0\0\0\0\0");
        [&bind[..], &tagged(b'D', b"P\0"), &execute, &tagged(b'S', b"")].concat()
    }

    const ANSWER: &[u8] = b"1\0\0\0\x042\0\0\0\x04D\0\0\0\x0d\0\x01\0\0\0\x03742C\0\0\0\x0dSELECT 1\x003\0\0\0\x043\0\0\0\x04Z\0\0\0\x05T";
    const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I";

    #[test]
    fn commit_and_nothing_else() {
        for text in [
            "commit",
            "COMMIT;",
            " End ; ",
            "commit work",
            "END TRANSACTION;",
            "commit\n;",
        ] {
            assert!(is_commit(text), "{text}");
        }
        for text in [
            "",
            ";",
            "commit and chain",
            "commit; select 1",
            "commit;;",
            "commit prepared 'x'",
            "/* x */ commit",
            "work",
            "rollback",
            "commit work work",
        ] {
            assert!(!is_commit(text), "{text}");
        }
    }

    #[test]
    fn asks_only_ahead_of_exactly_one_commit() {
        let asks = |read: &[u8]| inject().ahead_of(read, true).is_some();
        assert!(asks(&query("COMMIT")));
        assert!(asks(&[&parse("", "end;")[..], &run("")].concat()));
        let two = [query("commit"), query("select 1")].concat();
        assert!(!asks(&two) && !asks(&query("select 1")) && !asks(&query("commit")[..9]));
        assert!(!asks(&[&parse("", "select 1")[..], &run("")].concat()));
        // A statement of the same read counts, not one of the same name before.
        assert!(!asks(&[&parse("x", "commit")[..], &run("y")].concat()));
        assert!(inject().ahead_of(&query("commit"), false).is_none());
        let mut refused = inject();
        refused.permission = Arc::default();
        assert!(refused.ahead_of(&query("commit"), true).is_none());
    }

    #[test]
    fn prepared_commits_are_known_by_name() {
        let mut inject = inject();
        assert!(inject.ahead_of(&run("c"), true).is_none());
        assert!(inject.ahead_of(&parse("c", "COMMIT"), true).is_none());
        assert!(inject.ahead_of(&run("c"), true).is_some());
        inject.sift(Bytes::from_static(ANSWER));
        inject.ahead_of(&tagged(b'C', b"Sc\0"), false);
        assert!(inject.ahead_of(&run("c"), true).is_none());
        inject.ahead_of(&parse("", "commit"), false);
        inject.ahead_of(&parse("", "select 1"), false);
        assert!(inject.ahead_of(&run(""), true).is_none());
    }

    /// However the answer is cut, the client gets its own.
    #[test]
    fn swallows_the_answer_wherever_it_is_cut() {
        let notify: &[u8] = b"A\0\0\0\x0c\0\0\0\x01n\0\0\0";
        let setting: &[u8] = b"S\0\0\0\x08a\0b\0";
        let whole = [&ANSWER[..5], setting, &ANSWER[5..], COMMITTED, notify].concat();
        let expected = [setting, COMMITTED, notify].concat();
        for cut in 0..=whole.len() {
            let mut inject = inject();
            inject.ahead_of(&query("commit"), true).unwrap();
            let head = inject.sift(Bytes::copy_from_slice(&whole[..cut]));
            let tail = inject.sift(Bytes::copy_from_slice(&whole[cut..]));
            assert_eq!(
                [head.to_client, tail.to_client].concat(),
                expected,
                "cut at {cut}"
            );
            assert_eq!(head.xid.or(tail.xid), Some(742), "cut at {cut}");
            assert!(!inject.is_swallowing());
        }
    }

    /// The transaction has failed by then, so the server's answer to COMMIT is ROLLBACK.
    #[test]
    fn a_question_that_fails_is_the_answer_to_the_commit() {
        let error: &[u8] = b"E\0\0\0\x17SERROR\0C57014\0Mno\0\0";
        let rolled_back: &[u8] = b"C\0\0\0\x0dROLLBACK\0";
        let ready: &[u8] = b"Z\0\0\0\x05I";
        let whole = [
            &ANSWER[..5],
            error,
            b"Z\0\0\0\x05E",
            rolled_back,
            ready,
            COMMITTED,
        ]
        .concat();
        let expected = [error, ready, COMMITTED].concat();
        for cut in 0..=whole.len() {
            let mut inject = inject();
            inject.ahead_of(&query("commit"), true).unwrap();
            let head = inject.sift(Bytes::copy_from_slice(&whole[..cut])).to_client;
            let tail = inject.sift(Bytes::copy_from_slice(&whole[cut..])).to_client;
            assert_eq!([head, tail].concat(), expected, "cut at {cut}");
            assert!(inject.permission.is_given(), "a cancel request is bad luck");
        }
        let mut inject = inject();
        inject.ahead_of(&query("commit"), true).unwrap();
        inject.sift(Bytes::from_static(b"E\0\0\0\x17SERROR\0C42501\0Mno\0\0"));
        assert!(!inject.permission.is_given());
    }

    #[test]
    fn what_is_not_the_protocol_is_passed_on() {
        let mut inject = inject();
        inject.ahead_of(&query("commit"), true).unwrap();
        let garbage = Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(inject.sift(garbage.clone()).to_client, garbage);
        assert!(!inject.is_swallowing());
    }
}
