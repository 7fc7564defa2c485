//! The one clock that every window is measured on.
//!
//! Nanoseconds of the monotonic clock, offset once at the first use so that they read as nanoseconds since
//! 1970: they never go back, and a person can still tell when something was.

use pgassay_audit::trace::Nanos;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static BASE: OnceLock<(Instant, Nanos)> = OnceLock::new();

/// The present instant. Costs no system call (vDSO).
pub fn now() -> Nanos {
    let (instant, unix) = BASE.get_or_init(|| {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), unix.as_nanos() as Nanos)
    });
    unix + instant.elapsed().as_nanos() as Nanos
}
