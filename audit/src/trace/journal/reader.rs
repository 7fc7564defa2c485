//! Segments in, records out.
//!
//! Always true: a record comes out as it was pushed, or not at all; after an error nothing more comes.

use super::format::{BLOCK_HEADER, BlockHeader, HEADER, Header, decode_block};
use super::key::{Key, Nonce};
use super::{Index, JournalError, segments};
use crate::trace::{Gap, Nanos, Record, SessionId, Window};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Something a person should know about a journal that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub file: PathBuf,
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.text)
    }
}

pub struct Reader {
    files: std::vec::IntoIter<PathBuf>,
    key: Option<Key>,
    segment: Option<Segment>,
    ready: std::collections::VecDeque<Record>,
    shift: Shift,
    last: Option<(u64, u64)>,
    redacted: bool,
    clock_zero_unix: Option<u64>,
    notes: Vec<Note>,
    over: bool,
    index: Index,
    /// What is asked for; whole segments beside it may be skipped.
    wanted: Option<Window>,
    skipped: usize,
}

struct Segment {
    path: PathBuf,
    file: BufReader<File>,
    bytes: u64,
    header: Header,
    header_bytes: [u8; HEADER],
    offset: u64,
    blocks: u64,
    /// No segment of the same run follows.
    is_last: bool,
}

/// Moves a later run behind the earlier ones, in time and in session numbers.
#[derive(Default)]
struct Shift {
    time: Nanos,
    session: u64,
    latest: Nanos,
    sessions: u64,
}

impl Reader {
    /// Opens a journal's directory, or one segment.
    pub fn open(path: &Path, key: Option<Key>) -> Result<Reader, JournalError> {
        let files = segments(path)?;
        if files.is_empty() {
            return Err(JournalError::Nothing(path.to_owned()));
        }
        let mut reader = Reader {
            files: files.into_iter(),
            key,
            segment: None,
            ready: std::collections::VecDeque::new(),
            shift: Shift::default(),
            last: None,
            redacted: false,
            clock_zero_unix: None,
            notes: Vec::new(),
            over: false,
            index: Index::read(path),
            wanted: None,
            skipped: 0,
        };
        // A wrong directory, version or key is told at once.
        reader.next_segment()?;
        Ok(reader)
    }

    /// From here on, segments need not be read that lie wholly outside this window: those that begin after its end,
    /// and those that end before it and hold nothing that later records stand on.
    pub fn narrow(&mut self, wanted: Window) {
        self.wanted = Some(wanted);
    }

    /// Segments that were not read because the index says that nothing wanted is in them.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Whether nothing of the segment is asked for; then what it would have told of time and sessions is taken
    /// from the index.
    fn skip(&mut self, header: &Header, path: &Path, bytes: u64) -> bool {
        let Some(wanted) = self.wanted else { return false };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(entry) = self.index.of(&name, header.run, bytes) else {
            return false;
        };
        let first = entry.first_at.saturating_add(self.shift.time);
        let last = entry.last_at.saturating_add(self.shift.time);
        let skips = first > wanted.done || last < wanted.sent && entry.beginnings == Some(0);
        if skips {
            self.shift.latest = self.shift.latest.max(last);
            let session = entry.session_max + self.shift.session;
            self.shift.sessions = self.shift.sessions.max(session + 1);
            self.skipped += 1;
        }
        skips
    }

    /// Literals, parameters and cells were replaced by hashes: such a trace can only partly be audited.
    pub fn is_redacted(&self) -> bool {
        self.redacted
    }

    /// The wall clock at instant 0 of the records.
    pub fn clock_zero_unix(&self) -> u64 {
        self.clock_zero_unix.unwrap_or(0)
    }

    /// What should be said about what was read so far.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    fn next_segment(&mut self) -> Result<bool, JournalError> {
        let Some(path) = self.files.next() else {
            return Ok(false);
        };
        let mut file = File::open(&path).map_err(JournalError::io(&path, "opening a segment"))?;
        let bytes = file
            .metadata()
            .map_err(JournalError::io(&path, "opening a segment"))?
            .len();
        let header_bytes = match read_header(&mut file, &path)? {
            Some(bytes) => bytes,
            None => {
                self.note(
                    &path,
                    "holds less than a header: the recorder was stopped while it began it".into(),
                );
                return self.next_segment();
            }
        };
        let header = Header::decode(&header_bytes, &path)?;
        header.unlock(self.key.as_ref(), &path)?;
        self.redacted |= header.redacted;
        let is_last = self
            .files
            .as_slice()
            .first()
            .is_none_or(|next| !is_of_run(next, header.run));
        self.arrive(&header, &path);
        if self.skip(&header, &path, bytes) {
            return self.next_segment();
        }
        self.segment = Some(Segment {
            file: BufReader::with_capacity(256 << 10, file),
            path,
            bytes,
            header,
            header_bytes,
            offset: HEADER as u64,
            blocks: 0,
            is_last,
        });
        Ok(true)
    }

    /// Tells of what is missing before this segment, and finds its place on the common clock.
    fn arrive(&mut self, header: &Header, path: &Path) {
        let first = *self.clock_zero_unix.get_or_insert(header.clock_zero_unix);
        let same_run = self.last.is_some_and(|(run, _)| run == header.run);
        let from = self.shift.latest;
        if !same_run && self.last.is_some() {
            let later = header.clock_zero_unix.saturating_sub(first);
            // A clock that went back must not mix the runs.
            let behind = from
                .saturating_add(1_000_000_000)
                .saturating_sub(header.opened_at);
            self.shift.time = if later.saturating_add(header.opened_at) > from {
                later
            } else {
                behind
            };
            self.shift.session = self.shift.sessions;
            let to = self.shift.time.saturating_add(header.opened_at);
            self.gap(from, to, "the recorder was not running");
        } else if same_run && self.last != Some((header.run, header.ordinal.wrapping_sub(1))) {
            self.note(path, "the segment before this one is missing".into());
            self.gap(
                from,
                self.shift.time.saturating_add(header.opened_at),
                "a segment of the journal is missing",
            );
        } else if self.last.is_none() && header.ordinal > 0 {
            self.gap(0, header.opened_at, "older segments of the journal were dropped");
        }
        self.last = Some((header.run, header.ordinal));
    }

    fn gap(&mut self, from: Nanos, to: Nanos, reason: &str) {
        let window = Window::new(from.min(to), to);
        self.ready.push_back(Record::Gap(Gap {
            session: None,
            window,
            reason: reason.to_owned(),
        }));
    }

    fn note(&mut self, file: &Path, text: String) {
        self.notes.push(Note {
            file: file.to_owned(),
            text,
        });
    }

    /// Reads the next block of the segment; `false` at its end.
    fn next_block(&mut self) -> Result<bool, JournalError> {
        let Some(segment) = &mut self.segment else {
            return Ok(false);
        };
        match segment.read_block()? {
            Piece::Block(block, payload) => {
                let key = segment.header.unlock(self.key.as_ref(), &segment.path)?;
                let nonce = Nonce {
                    salt: segment.header.salt,
                    block: segment.blocks,
                };
                let records = decode_block(&block, &payload, key.map(|k| (k, nonce)), &segment.header_bytes)
                    .map_err(|what| segment.corrupt(what))?;
                segment.offset += (BLOCK_HEADER + payload.len()) as u64;
                segment.blocks += 1;
                self.ready
                    .extend(records.into_iter().map(|record| self.shift.shift(record)));
                Ok(true)
            }
            Piece::End => Ok(false),
            Piece::Torn => {
                let lost = segment.bytes - segment.offset;
                let text = format!(
                    "the last {lost} bytes (from byte {}) are an unfinished block: the recorder was stopped \
                     while it wrote them",
                    segment.offset
                );
                let path = segment.path.clone();
                self.note(&path, text);
                Ok(false)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Record>, JournalError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            if !self.next_block()? {
                self.segment = None;
                if !self.next_segment()? {
                    return Ok(None);
                }
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Result<Record, JournalError>> {
        if self.over {
            return None;
        }
        let next = self.advance().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

enum Piece {
    Block(BlockHeader, Vec<u8>),
    End,
    Torn,
}

impl Segment {
    fn read_block(&mut self) -> Result<Piece, JournalError> {
        let left = self.bytes - self.offset;
        if left == 0 {
            return Ok(Piece::End);
        }
        let torn = |segment: &Segment, what: &str| {
            // Only a crash tears, and only the end of what a run wrote.
            if segment.is_last {
                Ok(Piece::Torn)
            } else {
                Err(segment.corrupt(what.to_owned()))
            }
        };
        if left < BLOCK_HEADER as u64 {
            return torn(self, "the file ends within it");
        }
        let mut head = [0; BLOCK_HEADER];
        let read = self.file.read_exact(&mut head);
        read.map_err(JournalError::io(&self.path, "reading a segment"))?;
        let block = BlockHeader::decode(&head);
        let end = BLOCK_HEADER as u64 + u64::from(block.length);
        if end > left || head == [0; BLOCK_HEADER] {
            return torn(self, "the file ends within it");
        }
        if !block.is_sane() {
            return Err(self.corrupt("its length is impossible".to_owned()));
        }
        let mut payload = vec![0; block.length as usize];
        let read = self.file.read_exact(&mut payload);
        read.map_err(JournalError::io(&self.path, "reading a segment"))?;
        if !block.matches(&payload) {
            if end == left {
                return torn(self, "its checksum is wrong");
            }
            return Err(self.corrupt("its checksum is wrong".to_owned()));
        }
        Ok(Piece::Block(block, payload))
    }

    fn corrupt(&self, what: String) -> JournalError {
        JournalError::Corrupt {
            file: self.path.clone(),
            offset: self.offset,
            what,
        }
    }
}

/// How many bytes of a segment are whole blocks; damage within it is left for the reader to tell.
pub(super) fn sound_length(path: &Path) -> Result<u64, JournalError> {
    let mut file = File::open(path).map_err(JournalError::io(path, "opening a segment"))?;
    let bytes = file
        .metadata()
        .map_err(JournalError::io(path, "opening a segment"))?
        .len();
    let Some(header_bytes) = read_header(&mut file, path)? else {
        return Ok(bytes);
    };
    let Ok(header) = Header::decode(&header_bytes, path) else {
        return Ok(bytes);
    };
    let mut segment = Segment {
        path: path.to_owned(),
        file: BufReader::new(file),
        bytes,
        header,
        header_bytes,
        offset: HEADER as u64,
        blocks: 0,
        is_last: true,
    };
    loop {
        match segment.read_block() {
            Ok(Piece::Block(_, payload)) => segment.offset += (BLOCK_HEADER + payload.len()) as u64,
            Ok(Piece::Torn) => return Ok(segment.offset),
            Ok(Piece::End) | Err(JournalError::Corrupt { .. }) => return Ok(bytes),
            Err(error) => return Err(error),
        }
    }
}

/// `None` if the file is too short to hold one.
fn read_header(file: &mut File, path: &Path) -> Result<Option<[u8; HEADER]>, JournalError> {
    let mut bytes = [0; HEADER];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(JournalError::io(path, "reading a segment")(error)),
    }
}

fn is_of_run(path: &Path, run: u64) -> bool {
    let read = || {
        let bytes = read_header(&mut File::open(path).ok()?, path).ok()??;
        Header::decode(&bytes, path).ok()
    };
    read().is_some_and(|header| header.run == run)
}

impl Shift {
    fn shift(&mut self, mut record: Record) -> Record {
        match &mut record {
            Record::SessionStart(facts) => {
                self.session(&mut facts.session);
                self.time(&mut facts.at);
            }
            Record::Statement(o) => {
                self.session(&mut o.session);
                self.window(&mut o.window);
                self.window(&mut o.ready);
            }
            Record::SessionEnd { session, at }
            | Record::ServerGone { session, at }
            | Record::CommitTimestamp { session, at, .. } => {
                self.session(session);
                self.time(at);
            }
            Record::Gap(gap) => {
                if let Some(session) = &mut gap.session {
                    self.session(session);
                }
                self.window(&mut gap.window);
            }
            Record::Mark { at } | Record::Writers { at, .. } => self.time(at),
            Record::Bootstrap(bootstrap) => self.window(&mut bootstrap.window),
            Record::Reread(reread) => {
                self.time(&mut reread.at);
                self.window(&mut reread.window);
            }
            Record::Catalog(read) => {
                self.time(&mut read.at);
                self.window(&mut read.window);
            }
        }
        record
    }

    fn window(&mut self, window: &mut Window) {
        self.time(&mut window.sent);
        self.time(&mut window.done);
    }

    fn time(&mut self, at: &mut Nanos) {
        if *at != Nanos::MAX {
            *at = at.saturating_add(self.time);
            self.latest = self.latest.max(*at);
        }
    }

    fn session(&mut self, session: &mut SessionId) {
        session.0 += self.session;
        self.sessions = self.sessions.max(session.0 + 1);
    }
}
