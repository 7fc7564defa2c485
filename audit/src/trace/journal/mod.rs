//! The journal: a directory of append-only segments that survives being cut off at any byte.
//!
//! ```text
//! journal/
//!   index                          what is in which segment (a convenience; the segments are the truth)
//!   segment-00000000000000000000   header, block, block, …
//!   segment-00000000000000000001
//!
//! header  magic, version, flags, run, ordinal, clock, salt, key check, CRC-32C
//! block   length, raw length, record count, CRC-32C, then records: postcard, zstd, perhaps encrypted
//! ```
//!
//! Always true:
//!   - a block is read whole and right, or not at all: its checksum covers its lengths too;
//!   - a writer only appends; what a crash leaves behind is a prefix of what was written, and its torn
//!     tail is cut, and said, when the directory is opened again;
//!   - the files can be read by their owner only;
//!   - reading the same journal twice gives the same records. Several runs of the recorder in one directory
//!     read as one: the later run is shifted in time and in session numbers, with a gap before it.

mod format;
mod key;
mod redact;
mod writer;
mod reader;
mod ahead;
mod index;
#[cfg(test)]
mod tests;

pub use ahead::Ahead;
pub use format::VERSION;
pub use index::{Index, IndexEntry};
pub use key::Key;
pub use reader::{Note, Reader};
pub use redact::Redactor;
pub use writer::{Options, Writer};

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{}: {doing}: {source}", file.display())]
    Io {
        file: PathBuf,
        doing: &'static str,
        source: std::io::Error,
    },
    #[error("{}: there is no journal here (no file called segment-…); is this the right directory?", .0.display())]
    Nothing(PathBuf),
    #[error("{}: this is not a segment of a pgassay journal; remove the file or name the right directory", .0.display())]
    NotASegment(PathBuf),
    #[error(
        "{}: written in version {found} of the journal format, this program reads versions up to {}; use the pgassay \
         that wrote it", file.display(), VERSION
    )]
    Version { file: PathBuf, found: u32 },
    #[error("{}: the header is damaged; without it the segment cannot be read: restore the file, or move it away", .0.display())]
    Header(PathBuf),
    #[error(
        "{}: the block at byte {offset} is damaged ({what}); restore the file, or cut it there \
         (truncate -s {offset}) to read what comes before", file.display()
    )]
    Corrupt {
        file: PathBuf,
        offset: u64,
        what: String,
    },
    #[error("{}: this journal is encrypted; name the file that holds its key (--key-file, journal.key_file)", .0.display())]
    KeyMissing(PathBuf),
    #[error("{}: this journal was encrypted with another key than the one given", .0.display())]
    KeyWrong(PathBuf),
    #[error("{}: a key is 32 bytes, or 64 hexadecimal digits; this file holds neither", .0.display())]
    KeyMalformed(PathBuf),
    #[error("a record cannot be encoded: {0}")]
    Encode(#[from] postcard::Error),
}

impl JournalError {
    fn io(file: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> JournalError {
        let file = file.to_owned();
        move |source| JournalError::Io { file, doing, source }
    }
}

const PREFIX: &str = "segment-";

fn segment_name(ordinal: u64) -> String {
    format!("{PREFIX}{ordinal:020}")
}

/// The segments of a directory in order; for a path that is itself a segment, just that.
fn segments(path: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let about = std::fs::metadata(path).map_err(JournalError::io(path, "looking for a journal"))?;
    if about.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(JournalError::io(path, "listing the journal"))? {
        let entry = entry.map_err(JournalError::io(path, "listing the journal"))?;
        let is_segment = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()));
        if is_segment {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
