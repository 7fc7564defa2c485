//! Something that may take a while: who watches a terminal sees that it goes on.
//!
//! Always true: quiet for the first two seconds, and quiet where nobody watches.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(100);

/// Does the work; `words` are asked for what to show while it lasts.
pub fn watch<T>(words: impl Fn() -> String + Send, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || show(&words, &is_done));
        let made = work();
        drop(done);
        made
    })
}

fn show(words: &impl Fn() -> String, is_done: &mpsc::Receiver<()>) {
    let still = |time| matches!(is_done.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout));
    if !still(PATIENCE) {
        return;
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    while still(TICK) {
        bar.set_message(words());
        bar.tick();
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_and_its_result_kept() {
        assert_eq!(watch(|| "working".to_owned(), || 6 * 7), 42);
    }
}
