//! A relay in front of a real server that lies by a dial.
//!
//! In: the address of the server, one fault and how often it is committed. Out: an address to connect to.
//!
//! Whole answers are held until their ReadyForQuery and changed before they are passed on; some faults change
//! the question instead: a write that is never made, a COMMIT that is a ROLLBACK, a weaker isolation level.
//!
//! Always true: with no fault set, every byte passes as it came.

use crate::raw::{Message, message, read_packet, text};
use fastrand::Rng;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An earlier answer to the same question.
    Stale,
    DroppedRow,
    DuplicatedRow,
    ChangedValue,
    /// A row that was deleted is in the answer.
    ResurrectedRow,
    SwappedOrder,
    WrongAggregate,
    /// UPDATE says another number of rows.
    WrongCount,
    /// UPDATE 1, but nothing was written.
    LostWrite,
    /// COMMIT, but it was rolled back.
    FalseCommit,
    /// ROLLBACK, but it was committed: everybody sees what should never have been there.
    FalseRollback,
    /// REPEATABLE READ is only READ COMMITTED.
    NoSnapshot,
    /// SERIALIZABLE is only REPEATABLE READ.
    NotSerializable,
    /// COMMIT, but it comes only with the next question: whoever asks meanwhile sees what was before.
    LateCommit,
    /// What is written in a block is committed at once: others see what may still be undone.
    EarlyCommit,
}

impl Fault {
    pub const ALL: [Fault; 15] = [
        Fault::Stale,
        Fault::DroppedRow,
        Fault::DuplicatedRow,
        Fault::ChangedValue,
        Fault::ResurrectedRow,
        Fault::SwappedOrder,
        Fault::WrongAggregate,
        Fault::WrongCount,
        Fault::LostWrite,
        Fault::FalseCommit,
        Fault::FalseRollback,
        Fault::NoSnapshot,
        Fault::NotSerializable,
        Fault::LateCommit,
        Fault::EarlyCommit,
    ];
}

/// What all connections of a liar share.
pub struct Dial {
    fault: Mutex<Option<(Fault, f64)>>,
    told: AtomicU64,
    /// Earlier answers by question, and the latest one.
    earlier: Mutex<HashMap<String, (Vec<Message>, Option<Vec<Message>>)>>,
    rng: Mutex<Rng>,
}

pub struct Liar {
    pub dial: Arc<Dial>,
    port: u16,
}

impl Liar {
    pub fn start(upstream: String, seed: u64) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let dial = Arc::new(Dial {
            fault: Mutex::new(None),
            told: AtomicU64::new(0),
            earlier: Mutex::default(),
            rng: Mutex::new(Rng::with_seed(seed)),
        });
        let shared = dial.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (dial, upstream) = (shared.clone(), upstream.clone());
                std::thread::spawn(move || drop(serve(client, &upstream, &dial)));
            }
        });
        Liar { dial, port }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on this fault is committed with this probability wherever it can be.
    pub fn set(&self, fault: Fault, probability: f64) {
        *lock(&self.dial.fault) = Some((fault, probability));
    }

    /// How many lies were told.
    pub fn told(&self) -> u64 {
        self.dial.told.load(Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dial {
    /// The fault, if the dice say so.
    fn fault(&self) -> Option<Fault> {
        let (fault, probability) = (*lock(&self.fault))?;
        (lock(&self.rng).f64() < probability).then_some(fault)
    }
}

/// One connection: question and answer in turn, as clients of the simple protocol do.
fn serve(mut client: TcpStream, upstream: &str, dial: &Dial) -> std::io::Result<()> {
    let mut server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    loop {
        let packet = read_packet(&mut client)?;
        let code = u32::from_be_bytes(packet[4..8].try_into().expect("four bytes"));
        if code >> 16 != 1234 {
            server.write_all(&packet)?;
            break;
        }
        // SSLRequest or GSSENCRequest.
        client.write_all(b"N")?;
    }
    let start = answer_of(&mut server)?;
    client.write_all(&bytes_of(&start))?;
    let mut is_late = false;
    loop {
        let asked = next(&mut client)?;
        if std::mem::take(&mut is_late) {
            server.write_all(&message(b'Q', &text("commit")))?;
            answer_of(&mut server)?;
        }
        if asked.tag == b'X' {
            return server.write_all(&message(b'X', b""));
        }
        let question =
            String::from_utf8_lossy(asked.body.strip_suffix(b"\0").unwrap_or(&asked.body)).into_owned();
        let fault = dial.fault();
        if fault == Some(Fault::LateCommit) && question == "commit" {
            dial.told.fetch_add(1, Relaxed);
            is_late = true;
            client.write_all(&message(b'C', &text("COMMIT")))?;
            client.write_all(&message(b'Z', b"I"))?;
            continue;
        }
        let instead = fault.and_then(|fault| other_question(fault, &question));
        let sent = instead
            .as_ref()
            .map_or(question.as_str(), |(sql, _)| sql.as_str());
        server.write_all(&message(b'Q', &text(sent)))?;
        let mut answer = answer_of(&mut server)?;
        match instead {
            Some((_, tag)) => {
                dial.told.fetch_add(1, Relaxed);
                if let Some(tag) = tag {
                    let mut first = true;
                    answer.retain(|m| match m.tag {
                        b'T' | b'D' => false,
                        b'C' => std::mem::take(&mut first),
                        _ => true,
                    });
                    answer
                        .iter_mut()
                        .filter(|m| m.tag == b'C')
                        .for_each(|m| m.body = text(tag));
                }
            }
            None => {
                let right = answer.clone();
                if let Some(changed) = fault.and_then(|fault| other_answer(fault, &question, &answer, dial)) {
                    dial.told.fetch_add(1, Relaxed);
                    answer = changed;
                }
                remember(dial, question, right);
            }
        }
        client.write_all(&bytes_of(&answer))?;
    }
}

/// What is asked instead, and the tag that is answered.
fn other_question(fault: Fault, question: &str) -> Option<(String, Option<&'static str>)> {
    match fault {
        Fault::LostWrite if question.starts_with("update") && !question.contains("returning") => {
            Some(("select 1 where false".to_owned(), Some("UPDATE 1")))
        }
        Fault::EarlyCommit if question.starts_with("update") => {
            Some((format!("{question}; commit; begin"), Some("UPDATE 1")))
        }
        Fault::FalseCommit if question == "commit" => Some(("rollback".to_owned(), Some("COMMIT"))),
        Fault::FalseRollback if question == "rollback" => Some(("commit".to_owned(), Some("ROLLBACK"))),
        Fault::NoSnapshot if question.starts_with("begin") && question.contains("repeatable read") => {
            Some((question.replace("repeatable read", "read committed"), None))
        }
        Fault::NotSerializable if question.starts_with("begin") && question.contains("serializable") => {
            Some((question.replace("serializable", "repeatable read"), None))
        }
        _ => None,
    }
}

/// The answer with one lie in it; `None` if it offers no occasion.
fn other_answer(fault: Fault, question: &str, answer: &[Message], dial: &Dial) -> Option<Vec<Message>> {
    let mut changed = answer.to_vec();
    let rows: Vec<usize> = (0..answer.len()).filter(|m| answer[*m].tag == b'D').collect();
    let select = question.starts_with("select");
    let aggregate = question.contains("sum(") || question.contains("count(");
    match fault {
        Fault::Stale | Fault::ResurrectedRow if select => {
            let earlier = lock(&dial.earlier)
                .get(question)
                .and_then(|(_, older)| older.clone())?;
            let count = |messages: &[Message]| messages.iter().filter(|m| m.tag == b'D').count();
            let fits = match fault {
                Fault::ResurrectedRow => count(&earlier) > count(answer),
                _ => data(&earlier) != data(answer),
            };
            // The state of the transaction is still that of the new answer.
            let ready = answer.last()?.clone();
            changed = earlier;
            *changed.last_mut()? = ready;
            if !fits {
                return None;
            }
        }
        Fault::DroppedRow if select && !aggregate && !rows.is_empty() => {
            changed.remove(rows[lock(&dial.rng).usize(0..rows.len())]);
            retag(&mut changed);
        }
        Fault::DuplicatedRow if select && !aggregate && !rows.is_empty() => {
            let row = rows[lock(&dial.rng).usize(0..rows.len())];
            changed.insert(row, answer[row].clone());
            retag(&mut changed);
        }
        Fault::SwappedOrder if question.contains("order by") && rows.len() > 1 => {
            changed.swap(rows[0], rows[1]);
        }
        Fault::ChangedValue if select && !aggregate && !rows.is_empty() => {
            change_digit(&mut changed[rows[0]])?
        }
        Fault::WrongAggregate if aggregate && !rows.is_empty() => change_digit(&mut changed[rows[0]])?,
        Fault::WrongCount if question.starts_with("update") => {
            let tag = changed.iter_mut().find(|m| m.tag == b'C')?;
            let told = if tag.body == text("UPDATE 0") {
                "UPDATE 1"
            } else {
                "UPDATE 0"
            };
            tag.body = text(told);
        }
        _ => return None,
    }
    Some(changed)
}

/// Another last digit in the last cell of a row.
fn change_digit(row: &mut Message) -> Option<()> {
    let last = row.body.last_mut().filter(|b| b.is_ascii_digit())?;
    *last = if *last == b'9' { b'1' } else { *last + 1 };
    Some(())
}

fn retag(messages: &mut [Message]) {
    let count = messages.iter().filter(|m| m.tag == b'D').count();
    messages
        .iter_mut()
        .filter(|m| m.tag == b'C')
        .for_each(|m| m.body = text(&format!("SELECT {count}")));
}

fn data(messages: &[Message]) -> Vec<&Message> {
    messages.iter().filter(|m| m.tag == b'D').collect()
}

fn remember(dial: &Dial, question: String, answer: Vec<Message>) {
    if !question.starts_with("select") || answer.iter().any(|m| m.tag == b'E') {
        return;
    }
    let mut earlier = lock(&dial.earlier);
    match earlier.get_mut(&question) {
        None => drop(earlier.insert(question, (answer, None))),
        Some((latest, older)) => {
            if data(latest) != data(&answer) {
                *older = Some(std::mem::replace(latest, answer));
            }
        }
    }
}

fn next(stream: &mut TcpStream) -> std::io::Result<Message> {
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    let length = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body)?;
    Ok(Message { tag: header[0], body })
}

/// Everything up to ReadyForQuery, or up to the server's last word.
fn answer_of(server: &mut TcpStream) -> std::io::Result<Vec<Message>> {
    let mut answer = Vec::new();
    loop {
        let message = next(server)?;
        let ready = message.tag == b'Z';
        answer.push(message);
        if ready {
            return Ok(answer);
        }
    }
}

fn bytes_of(messages: &[Message]) -> Vec<u8> {
    messages.iter().flat_map(|m| message(m.tag, &m.body)).collect()
}
