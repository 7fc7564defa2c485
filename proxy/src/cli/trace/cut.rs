//! A part of a journal as a journal of its own.

use super::{Chosen, Usage, usage};
use pgassay_audit::trace::journal::{Options, Writer};
use std::io::Write;
use std::path::Path;

pub fn cut(chosen: &mut Chosen, to: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let occupied = std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(Usage(format!("{} is not empty; name a new directory", to.display())).into());
    }
    if chosen.reader.is_redacted() {
        eprintln!("pgassay: the journal holds hashes instead of data, and so will its part");
    }
    let options = Options {
        clock_zero_unix: chosen.reader.clock_zero_unix(),
        ..Options::default()
    };
    let mut writer = Writer::open(to, options).map_err(usage)?;
    let mut records = 0u64;
    while let Some(record) = chosen.next()? {
        writer.push(&record)?;
        records += 1;
    }
    writer.close()?;
    writeln!(out, "{records} records written to {}", to.display())?;
    Ok(())
}
