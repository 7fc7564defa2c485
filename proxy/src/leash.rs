//! A leash: what we started does not outlive us, however we end.
//!
//! In: a process that we started and the directory that belongs to it. Out: nothing, while we live and the leash is
//! held; when we are gone (SIGTERM, Ctrl-C, `kill -9`), the process is ended and the directory removed.
//!
//! Always true: a leash that is dropped touches nothing: whoever drops it has ended the process himself.
//!
//! How: a shell reads from a pipe whose other end only we hold. The system closes it with us, whatever ended us.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the process, `$2` its directory. SIGQUIT is PostgreSQL's immediate shutdown.
const WATCH: &str = r#"
cat >/dev/null
kill -QUIT "$1" 2>/dev/null
left=100
while kill -0 "$1" 2>/dev/null && [ "$left" -gt 0 ]; do left=$((left - 1)); sleep 0.1; done
kill -KILL "$1" 2>/dev/null
rm -rf "$2"
"#;

pub struct Leash {
    watcher: Child,
}

impl Leash {
    pub fn new(process: u32, dir: &Path) -> io::Result<Leash> {
        let watcher = Command::new("sh")
            .args(["-c", WATCH, "leash", &process.to_string()])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal must not end the watcher before it has seen us go.
            .process_group(0)
            .spawn()?;
        Ok(Leash { watcher })
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn within_a_minute(is_so: impl Fn() -> bool) -> bool {
        let patience = Instant::now() + Duration::from_secs(60);
        while Instant::now() < patience && !is_so() {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_so()
    }

    #[test]
    fn what_is_on_a_leash_goes_with_us_and_not_before() {
        let dir = std::env::temp_dir().join(format!("pgassay-leash-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut held = Command::new("sleep").arg("600").spawn().unwrap();
        drop(Leash::new(held.id(), &dir).unwrap());
        assert!(dir.exists() && held.try_wait().unwrap().is_none());

        // As the system does when we are killed: the pipe is closed and nobody drops the leash.
        let mut leash = Leash::new(held.id(), &dir).unwrap();
        drop(leash.watcher.stdin.take());
        held.wait().unwrap();
        assert!(within_a_minute(|| !dir.exists()));
        leash.watcher.wait().unwrap();
    }
}
