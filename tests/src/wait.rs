//! Waiting for what must come, however slow the machine.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);

/// Returns when it is so; fails when it never is.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
