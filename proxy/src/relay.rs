//! Copies bytes both ways; stamps; tees; never waits on the tee.
//!
//! In: two legs, whatever of the streams was already read during the startup, and a lane. Out: why the
//! connection ended.
//!
//! Always true:
//!   - what is read is written, byte for byte, in order, and nothing else is; only a connection whose
//!     server has gone, or that is ended by a drain, gets one last ErrorResponse between two messages, and
//!     under `commit_timestamps = "inject"` a COMMIT has company on its way to the server (see `inject`);
//!   - a side is read again only when what was read before has been written: a slow reader pushes back on
//!     the writer, and a connection holds at most one buffer per direction;
//!   - per round trip there is one read and one write on each socket; time comes from the vDSO.

use crate::capture::Lane;
use crate::inject::Inject;
use crate::leg::Leg;
use crate::wire::frame::Framer;
use crate::wire::message;
use bytes::{Buf, Bytes, BytesMut};
use pgassay_audit::wire::Direction;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// A buffer to begin with, and the largest one that a busy stream gets.
const BUFFER_BYTES: usize = 16 << 10;
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// With less room than this left, a new buffer is taken rather than a short read made.
const ROOM_BYTES_MIN: usize = 2 << 10;
/// How long a client may take to read the last words of a server that has gone.
const LINGER: Duration = Duration::from_secs(2);

/// How long, and for how many bytes, a server is heard that goes on with what a client has asked who is not there any
/// more. Nobody wants a long answer: then the server is told, as it would be without a proxy.
const HEARD: Duration = Duration::from_secs(60);
const HEARD_BYTES_MAX: usize = 256 << 10;

const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Tells all relays that the proxy wants to end.
#[derive(Debug, Default)]
pub struct Drain {
    /// End sessions as soon as they are idle.
    gently: AtomicBool,
    /// End them now.
    now: AtomicBool,
    changed: Notify,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Ended {
    /// Either side closed it.
    Closed,
    /// The server went away without a word.
    ServerLost(Option<io::Error>),
    ClientLost(io::Error),
    Drained,
}

impl Drain {
    pub fn gently(&self) {
        self.gently.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub fn now(&self) {
        self.now.store(true, Ordering::SeqCst);
        self.gently();
    }

    /// Returns when the proxy wants to end.
    pub async fn begun(&self) {
        let mut changed = pin!(self.changed.notified());
        changed.as_mut().enable();
        if !self.gently.load(Ordering::SeqCst) {
            changed.await;
        }
    }
}

/// One direction of a connection.
struct Stream {
    direction: Direction,
    buffer: BytesMut,
    buffer_bytes: usize,
    /// Read, stamped, and not yet written.
    pending: Bytes,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source said end of file; the sink is still to be told.
    Ending,
    Ended,
}

/// What is known about a connection beside its bytes.
struct Session {
    lane: Option<Lane>,
    from_client: Framer,
    from_server: Framer,
    /// Bytes of the startup packet still to come: it has no tag.
    startup_bytes: usize,
    /// The client's last bytes were a Terminate, or it closed its side.
    client_finished: bool,
    /// Requests that end in a ReadyForQuery (the startup, Query, Sync, FunctionCall) and had none yet.
    outstanding: i64,
    inject: Option<Inject>,
    /// Statements completed since the last idle ReadyForQuery, BEGIN among them.
    completed: u32,
}

/// What was read of both streams before the relay began.
pub struct Begun {
    /// Begins with the startup packet, which has this length.
    pub to_server: Bytes,
    pub startup_bytes: usize,
    pub to_client: Bytes,
    /// So many bytes of `to_server` were written already (their capture comes here all the same).
    pub sent_bytes: usize,
}

/// Relays until one side ends.
pub async fn relay(
    mut client: Leg,
    mut server: Leg,
    begun: Begun,
    lane: Option<Lane>,
    inject: Option<Inject>,
    drain: &Drain,
) -> Ended {
    let mut session = Session {
        lane,
        from_client: Framer::default(),
        from_server: Framer::default(),
        startup_bytes: begun.startup_bytes,
        client_finished: false,
        outstanding: 1,
        inject,
        completed: 0,
    };
    let mut up = Stream::new(Direction::ToServer);
    let mut down = Stream::new(Direction::ToClient);
    up.preload(begun.to_server, &mut session);
    up.pending.advance(begun.sent_bytes);
    down.preload(begun.to_client, &mut session);

    let mut notified = pin!(drain.changed.notified());
    // Registers this task once; from then on only a flag is looked at.
    notified.as_mut().enable();
    let mut registered = false;
    let ended = poll_fn(|cx| {
        if !registered || drain.gently.load(Ordering::Relaxed) {
            registered = true;
            if notified.as_mut().poll(cx).is_ready() {
                notified.set(drain.changed.notified());
                let _ = notified.as_mut().poll(cx);
            }
        }
        if let Poll::Ready(Err(error)) = up.poll(cx, &mut client, &mut server, &mut session) {
            return Poll::Ready(match error {
                Trouble::Source(error) => Ended::ClientLost(error),
                Trouble::Sink(error) => Ended::ServerLost(Some(error)),
            });
        }
        match down.poll(cx, &mut server, &mut client, &mut session) {
            Poll::Ready(Ok(())) if session.is_over() => return Poll::Ready(Ended::Closed),
            Poll::Ready(Ok(())) => return Poll::Ready(Ended::ServerLost(None)),
            Poll::Ready(Err(Trouble::Source(error))) => return Poll::Ready(Ended::ServerLost(Some(error))),
            Poll::Ready(Err(Trouble::Sink(error))) => return Poll::Ready(Ended::ClientLost(error)),
            Poll::Pending => (),
        }
        if drain.gently.load(Ordering::Relaxed) {
            let idle = session.is_idle() && down.pending.is_empty();
            if idle || drain.now.load(Ordering::Relaxed) {
                return Poll::Ready(Ended::Drained);
            }
        }
        Poll::Pending
    })
    .await;

    // What the server said before it went (its own FATAL, for instance) is still the client's.
    if let Ended::ServerLost(Some(_)) = ended {
        last_words(&mut server, &mut client, &mut down, &mut session).await;
    }
    if matches!(ended, Ended::ClientLost(_)) && session.lane.is_some() {
        let heard = hear_out(&mut server, &up.pending, &mut session);
        tokio::select! {
            _ = tokio::time::timeout(HEARD, heard) => (),
            () = drain.begun() => (),
        }
    }
    if let (Some(lane), true) = (&session.lane, is_abrupt(&ended, &session)) {
        lane.server_gone();
    }
    drop(session.lane.take());
    farewell(&mut client, &ended, &session, &down).await;
    match &ended {
        Ended::Drained => {
            let _ = tokio::time::timeout(LINGER, server.write_all(TERMINATE)).await;
            let _ = tokio::time::timeout(LINGER, server.shutdown()).await;
        }
        _ => {
            let _ = tokio::time::timeout(LINGER, server.shutdown()).await;
        }
    }
    ended
}

/// Reads what is left of a server whose socket no longer takes anything.
async fn last_words(server: &mut Leg, client: &mut Leg, down: &mut Stream, session: &mut Session) {
    let rest = poll_fn(|cx| down.poll(cx, server, client, session).map(|_| ()));
    let _ = tokio::time::timeout(LINGER, rest).await;
}

/// The server goes on with what it was asked and commits it or not, whether or not somebody waits for the answer: it is
/// recorded all the same.
async fn hear_out(server: &mut Leg, unsent: &[u8], session: &mut Session) -> io::Result<()> {
    server.write_all(unsent).await?;
    server.shutdown().await?;
    let mut heard_bytes = 0;
    while heard_bytes < HEARD_BYTES_MAX {
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        let read = server.read_buf(&mut buffer).await?;
        if read == 0 {
            break;
        }
        heard_bytes += read;
        session.pass(Direction::ToClient, buffer.freeze());
    }
    Ok(())
}

/// Whether the server went away and did not say why.
fn is_abrupt(ended: &Ended, session: &Session) -> bool {
    matches!(ended, Ended::ServerLost(_)) && session.from_server.last() != b'E'
}

/// Tells the client why, if the stream stands between two messages, and lets it read that.
async fn farewell(client: &mut Leg, ended: &Ended, session: &Session, down: &Stream) {
    let words = match ended {
        Ended::ServerLost(_) if is_abrupt(ended, session) => Some(message::fatal(
            "08006",
            "pgassay: the server closed the connection unexpectedly",
        )),
        Ended::Drained => Some(message::fatal(
            "57P01",
            "terminating connection because pgassay is shutting down",
        )),
        _ => None,
    };
    let speaks = session.from_server.at_boundary() && down.pending.is_empty();
    if let (Some(words), true) = (words, speaks) {
        let _ = tokio::time::timeout(LINGER, client.write_all(&words)).await;
    }
    if matches!(ended, Ended::ClientLost(_)) {
        return;
    }
    // A socket that is closed with unread bytes in it is reset, and the reset may overtake the last words.
    let _ = tokio::time::timeout(LINGER, async {
        client.shutdown().await?;
        let mut rest = [0; 1024];
        while client.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

enum Trouble {
    Source(io::Error),
    Sink(io::Error),
}

impl Stream {
    fn new(direction: Direction) -> Stream {
        Stream {
            direction,
            buffer: BytesMut::new(),
            buffer_bytes: BUFFER_BYTES,
            pending: Bytes::new(),
            state: State::Open,
        }
    }

    fn preload(&mut self, bytes: Bytes, session: &mut Session) {
        if !bytes.is_empty() {
            session.saw(self.direction, &bytes);
            self.pending = bytes;
        }
    }

    /// Moves what can be moved now. Ready when the source has ended and the sink was told.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        sink: &mut Leg,
        session: &mut Session,
    ) -> Poll<Result<(), Trouble>> {
        loop {
            if !self.pending.is_empty() {
                while !self.pending.is_empty() {
                    let written =
                        ready!(Pin::new(&mut *sink).poll_write(cx, &self.pending)).map_err(Trouble::Sink)?;
                    if written == 0 {
                        return Poll::Ready(Err(Trouble::Sink(io::ErrorKind::WriteZero.into())));
                    }
                    self.pending.advance(written);
                }
                if let Some(lane) = &mut session.lane {
                    lane.written();
                }
            }
            // Sockets have nothing to flush; TLS may.
            if sink.is_tls() {
                ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(Trouble::Sink)?;
            }
            match self.state {
                State::Open => (),
                State::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(Trouble::Sink)?;
                    self.state = State::Ended;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
            if self.state == State::Ended {
                return Poll::Ready(Ok(()));
            }
            let read = ready!(self.poll_read(cx, source)).map_err(Trouble::Source)?;
            if read == 0 {
                if self.direction == Direction::ToServer {
                    session.client_finished = true;
                    self.state = State::Ending;
                    continue;
                }
                // The client's side is shut only after the last words.
                self.state = State::Ended;
                return Poll::Ready(Ok(()));
            }
            let bytes = self.buffer.split().freeze();
            self.pending = session.pass(self.direction, bytes);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, source: &mut Leg) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() < ROOM_BYTES_MIN {
            self.buffer.reserve(self.buffer_bytes);
        }
        let room = self.buffer.capacity();
        let read = ready!(pin!(source.read_buf(&mut self.buffer)).poll(cx))?;
        // A stream that fills its buffer gets a larger one.
        if read == room && room >= self.buffer_bytes / 2 {
            self.buffer_bytes = (self.buffer_bytes * 2).min(BUFFER_BYTES_MAX);
        }
        Poll::Ready(Ok(read))
    }
}

impl Session {
    /// Bytes were read; returns what is to be written.
    fn pass(&mut self, direction: Direction, bytes: Bytes) -> Bytes {
        let Some(inject) = &mut self.inject else {
            self.saw(direction, &bytes);
            return bytes;
        };
        match direction {
            Direction::ToServer => {
                let whole = self.startup_bytes == 0 && self.from_client.at_boundary();
                // BEGIN and one more: the question must not be what makes the transaction take its snapshot.
                let at_rest = self.from_server.is_in_block()
                    && self.outstanding == 0
                    && self.completed >= 2
                    && matches!(self.from_client.last(), b'Q' | b'S' | b'F' | b'c' | b'f');
                let ahead = whole.then(|| inject.ahead_of(&bytes, at_rest)).flatten();
                self.saw(direction, &bytes);
                match ahead {
                    Some(question) => [question, bytes].concat().into(),
                    None => bytes,
                }
            }
            Direction::ToClient if inject.is_swallowing() => {
                let sifted = inject.sift(bytes);
                if let (Some(lane), Some(xid)) = (&mut self.lane, sifted.xid) {
                    lane.put_xid(xid);
                }
                if !sifted.to_client.is_empty() {
                    self.saw(direction, &sifted.to_client);
                }
                sifted.to_client
            }
            Direction::ToClient => {
                self.saw(direction, &bytes);
                bytes
            }
        }
    }

    /// Bytes were read and are about to be written.
    fn saw(&mut self, direction: Direction, bytes: &Bytes) {
        if let Some(lane) = &mut self.lane {
            lane.put(direction, bytes);
        }
        match direction {
            Direction::ToServer => {
                let startup = self.startup_bytes.min(bytes.len());
                self.startup_bytes -= startup;
                let outstanding = &mut self.outstanding;
                self.from_client.take_each(&bytes[startup..], |tag| {
                    *outstanding += i64::from(matches!(tag, b'Q' | b'S' | b'F'));
                });
                self.client_finished = bytes.ends_with(TERMINATE);
            }
            Direction::ToClient => {
                let (outstanding, completed) = (&mut self.outstanding, &mut self.completed);
                self.from_server.take_each(bytes, |tag| {
                    *outstanding -= i64::from(tag == b'Z');
                    *completed = completed.saturating_add(u32::from(tag == b'C'));
                });
                if self.from_server.is_idle() {
                    self.completed = 0;
                }
            }
        }
    }

    /// Nothing was asked that was not answered, and no transaction is open.
    fn is_idle(&self) -> bool {
        self.from_server.is_idle() && self.from_client.at_boundary() && self.outstanding <= 0
    }

    /// Nobody is surprised when the server closes now.
    fn is_over(&self) -> bool {
        self.client_finished || self.from_server.last() == b'E'
    }
}
