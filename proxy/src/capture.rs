//! Bounded lanes from the relay to the recorder: references to bytes, handed over without ever waiting.
//!
//! In: pieces of the two streams of a connection, stamped here. Out: the recorder drains all lanes in
//! batches.
//!
//! Always true:
//!   - nothing here blocks, takes a lock, makes a system call or copies bytes on the relay's side, except
//!     that the recorder is woken by the first piece after a long silence of *all* lanes, and by a lane
//!     that is a quarter full: so the recorder can sleep long without losing a burst;
//!   - a lane that holds more than `lane_bytes_max`, or all lanes together more than `bytes_max`, open a
//!     gap: everything is dropped until the recorder has taken what was there and closed the gap. A gap
//!     covers the instants of all it lost;
//!   - after [`Recorder::collect`] returned `Some(until)`, every piece stamped before `until` was handed
//!     out, or lies in a gap that was handed out.
//!
//! The last promise is what marks are made of, and it is the subtle one: between reading the clock and
//! putting a piece into its lane, the relay may be preempted. So it raises `stamping` before it reads the
//! clock, and lowers it when the piece is in the lane. The recorder reads the clock first, and then waits
//! for every lane that is stamping. A lane announces itself (`dirty`) before it stamps, so the recorder
//! never looks at lanes in which nothing happens.

use crate::clock;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use pgassay_audit::trace::{Nanos, SessionId};
use pgassay_audit::wire::{Captured, Direction};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// What a piece costs beside its bytes.
const PIECE_BYTES: usize = 64;

/// Makes lanes; shared by all connections.
#[derive(Clone)]
pub struct Tap {
    announce: Sender<Arc<Shared>>,
    sessions: Arc<AtomicU64>,
    total: Arc<Total>,
}

/// What all lanes hold together.
struct Total {
    waiting_bytes: AtomicUsize,
    bytes_max: usize,
    /// The recorder's thread, and whether it was woken since its last round.
    recorder: OnceLock<Thread>,
    woken: AtomicBool,
}

/// One connection's end of its lane.
pub struct Lane {
    pieces: Sender<Piece>,
    shared: Arc<Shared>,
    announce: Sender<Arc<Shared>>,
    bytes_max: usize,
    /// How long the previous piece took from its stamp until it was written, if it was timed.
    took: u32,
    last: Nanos,
    /// Pieces so far, to time some of them.
    pieces_put: u32,
}

/// Of so many pieces two in a row are timed on their way through, most often one of each direction: the clock is
/// not free.
const TIMED: u32 = 8;

struct Piece {
    direction: Direction,
    at: Nanos,
    bytes: Bytes,
    previous_took: u32,
    /// Instead of bytes: the xid of the transaction that is being committed.
    xid: Option<u64>,
}

struct Shared {
    session: SessionId,
    opened_at: Nanos,
    pieces: Receiver<Piece>,
    stamping: AtomicBool,
    dirty: AtomicBool,
    waiting_bytes: AtomicUsize,
    total: Arc<Total>,
    /// 0: no gap is open.
    gap_from: AtomicU64,
    lost_bytes: AtomicU64,
    /// 0: open.
    closed_at: AtomicU64,
    /// The server closed it, and did not say why.
    abruptly: AtomicBool,
    /// What the recorder was told; touched by it alone.
    told_opened: AtomicBool,
    told_closed: AtomicBool,
}

/// The other end of all lanes.
pub struct Recorder {
    announced: Receiver<Arc<Shared>>,
    /// Lanes that were still stamping when they were last looked at.
    again: Vec<Arc<Shared>>,
    quiet_rounds: u32,
    total: Arc<Total>,
}

/// Two ends: lanes are made at the first, drained at the second; `bytes_max` may wait between them.
pub fn channel(bytes_max: usize) -> (Tap, Recorder) {
    let (announce, announced) = crossbeam_channel::unbounded();
    let total = Arc::new(Total {
        waiting_bytes: AtomicUsize::new(0),
        bytes_max,
        recorder: OnceLock::new(),
        woken: AtomicBool::new(false),
    });
    (
        Tap {
            announce,
            sessions: Arc::new(AtomicU64::new(0)),
            total: total.clone(),
        },
        Recorder {
            announced,
            again: Vec::new(),
            quiet_rounds: 0,
            total,
        },
    )
}

impl Tap {
    /// A number that no session has had.
    pub fn session(&self) -> SessionId {
        SessionId(1 + self.sessions.fetch_add(1, Relaxed))
    }

    pub fn open(&self, bytes_max: usize) -> Lane {
        let session = self.session();
        let (pieces, receiver) = crossbeam_channel::unbounded();
        let opened_at = clock::now();
        let shared = Arc::new(Shared {
            session,
            opened_at,
            pieces: receiver,
            stamping: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            waiting_bytes: AtomicUsize::new(0),
            total: self.total.clone(),
            gap_from: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            closed_at: AtomicU64::new(0),
            abruptly: AtomicBool::new(false),
            told_opened: AtomicBool::new(false),
            told_closed: AtomicBool::new(false),
        });
        Lane {
            pieces,
            shared,
            announce: self.announce.clone(),
            bytes_max,
            took: 0,
            last: opened_at,
            pieces_put: 0,
        }
    }
}

impl Lane {
    pub fn session(&self) -> SessionId {
        self.shared.session
    }

    /// Stamps the bytes with the present instant and hands them over. For bytes to the server this is to be
    /// called before they are written, for bytes to the client after they were read.
    pub fn put(&mut self, direction: Direction, bytes: &Bytes) {
        self.put_piece(direction, bytes, None);
    }

    /// Hands over the xid of the transaction whose COMMIT was put last.
    pub fn put_xid(&mut self, xid: u64) {
        self.put_piece(Direction::ToClient, &Bytes::new(), Some(xid));
    }

    fn put_piece(&mut self, direction: Direction, bytes: &Bytes, xid: Option<u64>) {
        let shared = &*self.shared;
        // Sequentially consistent: the clock must not be read before the flag can be seen.
        shared.stamping.store(true, SeqCst);
        if !shared.dirty.swap(true, SeqCst) {
            let _ = self.announce.send(self.shared.clone());
        }
        let at = clock::now();
        self.last = at;
        let cost = bytes.len() + PIECE_BYTES;
        // A lane that is empty takes a piece of any size: one read is bounded anyway.
        let waiting = shared.waiting_bytes.load(Relaxed);
        if shared.gap_from.load(Acquire) != 0 {
            shared.lost_bytes.fetch_add(bytes.len() as u64, Relaxed);
        } else if waiting > 0 && (waiting + cost > self.bytes_max || shared.total.is_full()) {
            shared.lost_bytes.fetch_add(bytes.len() as u64, Relaxed);
            shared.gap_from.store(at, Release);
        } else {
            shared.waiting_bytes.fetch_add(cost, Relaxed);
            shared.total.waiting_bytes.fetch_add(cost, Relaxed);
            let piece = Piece {
                direction,
                at,
                bytes: bytes.clone(),
                previous_took: self.took,
                xid,
            };
            let _ = self.pieces.send(piece);
            if waiting + cost > self.bytes_max / 4 || shared.total.is_filling() {
                shared.total.wake();
            }
        }
        self.took = 0;
        self.pieces_put = self.pieces_put.wrapping_add(1);
        shared.stamping.store(false, Release);
    }

    /// The bytes of the last [`put`](Lane::put) were written just now.
    pub fn written(&mut self) {
        if self.pieces_put % TIMED > 1 {
            return;
        }
        self.took = (clock::now() - self.last).min(u64::from(u32::MAX)) as u32;
    }

    /// The server has gone without a word.
    pub fn server_gone(&self) {
        self.shared.abruptly.store(true, Relaxed);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.stamping.store(true, SeqCst);
        self.shared.closed_at.store(clock::now(), Release);
        if !self.shared.dirty.swap(true, SeqCst) {
            let _ = self.announce.send(self.shared.clone());
        }
        self.shared.stamping.store(false, Release);
    }
}

/// What one round of [`Recorder::collect`] found besides the pieces.
#[derive(Debug, Default)]
pub struct Round {
    /// Everything before this instant was handed out. `None`: a relay was interrupted; ask again.
    pub until: Option<Nanos>,
    pub pieces: usize,
    /// Nothing came, and nobody will ever come: all taps and lanes are gone.
    pub finished: bool,
}

impl Recorder {
    /// Hands out everything that is waiting. `took` gets the nanoseconds that pieces spent in the relay.
    pub fn collect(&mut self, mut out: impl FnMut(Captured), mut took: impl FnMut(u32)) -> Round {
        self.total.recorder.get_or_init(std::thread::current);
        self.total.woken.store(false, Release);
        let now = clock::now();
        let mut round = Round {
            until: Some(now),
            ..Round::default()
        };
        let mut lanes = std::mem::take(&mut self.again);
        loop {
            match self.announced.try_recv() {
                Ok(lane) => lanes.push(lane),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    round.finished = lanes.is_empty();
                    break;
                }
            }
        }
        for lane in lanes {
            lane.dirty.store(false, SeqCst);
            if !settles(&lane.stamping) {
                round.until = None;
                self.again.push(lane.clone());
            }
            round.pieces += lane.drain(&mut out, &mut took);
        }
        self.quiet_rounds = if round.pieces == 0 {
            self.quiet_rounds.saturating_add(1)
        } else {
            0
        };
        round
    }

    /// Sleeps between two rounds: shortly, as long as something happens now and then; until the next piece
    /// (or `at_most`), when nothing does. Relays that are busy with small messages never wake anybody.
    pub fn rest(&mut self, between: Duration, at_most: Duration) {
        if self.quiet_rounds < 50 || !self.again.is_empty() {
            std::thread::park_timeout(between);
        } else if let Ok(lane) = self.announced.recv_timeout(at_most) {
            self.again.push(lane);
            self.quiet_rounds = 0;
        }
    }
}

/// Waits the few nanoseconds that stamping takes; not longer than it takes to see that its thread is not
/// running.
fn settles(stamping: &AtomicBool) -> bool {
    for round in 0..100 {
        if !stamping.load(SeqCst) {
            return true;
        }
        if round < 50 {
            std::hint::spin_loop()
        } else {
            std::thread::yield_now()
        }
    }
    false
}

impl Total {
    fn is_full(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > self.bytes_max
    }

    fn is_filling(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > self.bytes_max / 4
    }

    /// At most once per round of the recorder.
    fn wake(&self) {
        if !self.woken.swap(true, AcqRel)
            && let Some(recorder) = self.recorder.get()
        {
            recorder.unpark();
        }
    }
}

impl Shared {
    fn drain(&self, out: &mut impl FnMut(Captured), took: &mut impl FnMut(u32)) -> usize {
        let session = self.session;
        // Read before the pieces: whatever was put before the end is found below.
        let closed_at = self.closed_at.load(Acquire);
        if !self.told_opened.swap(true, Relaxed) {
            out(Captured::Opened {
                session,
                at: self.opened_at,
            });
        }
        let mut pieces = 0;
        for piece in self.pieces.try_iter() {
            let cost = piece.bytes.len() + PIECE_BYTES;
            self.waiting_bytes.fetch_sub(cost, Relaxed);
            self.total.waiting_bytes.fetch_sub(cost, Relaxed);
            if piece.previous_took > 0 {
                took(piece.previous_took);
            }
            pieces += 1;
            out(match piece.xid {
                None => Captured::Bytes {
                    session,
                    direction: piece.direction,
                    at: piece.at,
                    bytes: piece.bytes,
                },
                Some(xid) => Captured::Xid { session, xid },
            });
        }
        // The lane refuses everything while a gap is open, so the gap comes after all pieces; and it is closed
        // before the clock is read, so it covers whatever was refused.
        if self.gap_from.load(Acquire) != 0 {
            let lost_bytes = self.lost_bytes.swap(0, Relaxed);
            let from = self.gap_from.swap(0, SeqCst);
            out(Captured::Gap {
                session,
                from,
                to: clock::now(),
                lost_bytes,
            });
        }
        if closed_at != 0 && !self.told_closed.swap(true, Relaxed) {
            out(Captured::Closed {
                session,
                at: closed_at,
                abruptly: self.abruptly.load(Relaxed),
            });
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(recorder: &mut Recorder) -> (Vec<Captured>, Round) {
        let mut seen = Vec::new();
        let round = recorder.collect(|captured| seen.push(captured), |_| ());
        (seen, round)
    }

    #[test]
    fn a_session_is_handed_over_in_order() {
        let (tap, mut recorder) = channel(1 << 30);
        let mut lane = tap.open(1 << 20);
        lane.put(Direction::ToServer, &Bytes::from_static(b"ask"));
        lane.put(Direction::ToClient, &Bytes::from_static(b"answer"));
        drop(lane);
        let (seen, round) = collect(&mut recorder);
        let kinds: Vec<&str> = seen
            .iter()
            .map(|captured| match captured {
                Captured::Opened { .. } => "opened",
                Captured::Bytes {
                    direction: Direction::ToServer,
                    ..
                } => "to server",
                Captured::Bytes {
                    direction: Direction::ToClient,
                    ..
                } => "to client",
                Captured::Gap { .. } => "gap",
                Captured::Xid { .. } => "xid",
                Captured::Closed { .. } => "closed",
            })
            .collect();
        assert_eq!(kinds, ["opened", "to server", "to client", "closed"]);
        assert!(round.until.is_some() && !round.finished);
        drop(tap);
        assert!(collect(&mut recorder).1.finished);
    }

    #[test]
    fn a_full_lane_makes_a_gap_that_covers_the_loss_and_recovers() {
        let (tap, mut recorder) = channel(1 << 30);
        let mut lane = tap.open(1_000);
        let piece = Bytes::from(vec![0; 400]);
        for _ in 0..10 {
            lane.put(Direction::ToClient, &piece);
        }
        let before_gap_ends = clock::now();
        let (seen, _) = collect(&mut recorder);
        let pieces = seen
            .iter()
            .filter(|captured| matches!(captured, Captured::Bytes { .. }))
            .count();
        assert_eq!(pieces, 2);
        let Some(Captured::Gap {
            from, to, lost_bytes, ..
        }) = seen.last()
        else {
            panic!("{seen:?}")
        };
        assert_eq!(*lost_bytes, 8 * 400);
        assert!(*from <= before_gap_ends && before_gap_ends <= *to);
        lane.put(Direction::ToClient, &piece);
        assert_eq!(collect(&mut recorder).0.len(), 1);
    }

    #[test]
    fn all_lanes_together_are_bounded_too() {
        let (tap, mut recorder) = channel(1_000);
        let mut lanes = [tap.open(1 << 20), tap.open(1 << 20)];
        let piece = Bytes::from(vec![0; 400]);
        for _ in 0..10 {
            lanes
                .iter_mut()
                .for_each(|lane| lane.put(Direction::ToClient, &piece));
        }
        let (seen, _) = collect(&mut recorder);
        assert_eq!(
            seen.iter()
                .filter(|captured| matches!(captured, Captured::Gap { .. }))
                .count(),
            2
        );
        assert_eq!(
            seen.iter()
                .filter(|captured| matches!(captured, Captured::Bytes { .. }))
                .count(),
            3
        );
        lanes
            .iter_mut()
            .for_each(|lane| lane.put(Direction::ToClient, &piece));
        assert_eq!(collect(&mut recorder).0.len(), 2);
    }

    #[test]
    fn whatever_was_stamped_before_a_round_is_in_it() {
        let (tap, mut recorder) = channel(1 << 30);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let mut lane = tap.open(1 << 30);
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        lane.put(Direction::ToServer, &Bytes::from_static(b"x"));
                    }
                })
            })
            .collect();
        drop(tap);
        let (mut until, mut pieces, mut closed) = (0, 0, 0);
        loop {
            let (seen, round) = collect(&mut recorder);
            for captured in seen {
                match captured {
                    Captured::Bytes { at, .. } => {
                        assert!(at >= until, "stamped before the last mark, handed out after it");
                        pieces += 1;
                    }
                    Captured::Closed { .. } => closed += 1,
                    _ => (),
                }
            }
            until = round.until.unwrap_or(until);
            if round.finished {
                break;
            }
        }
        assert_eq!((pieces, closed), (60_000, 3));
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
