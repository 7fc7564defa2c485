//! A port of the loopback address for a server that is yet to be started.
//!
//! In: nothing. Out: a port that nobody listens on.
//!
//! Always true, as far as the system lets us:
//!   - no two of our processes are given the same port: each keeps the name of its ports until it ends;
//!   - the port lies outside the range that the system hands out by itself, so that no outgoing connection takes it
//!     before the server does, or while the server is restarted.

use anyhow::{Context, Result};
use std::net::TcpListener;
use std::ops::RangeInclusive;

/// Away from the ports that programs are known by.
const PLACES: [RangeInclusive<u16>; 2] = [20_000..=32_767, 61_000..=65_500];
const TRIES: usize = 200;

/// A port of 127.0.0.1 that is free, and ours among ourselves.
pub fn free() -> Result<u16> {
    let handed_out = handed_out();
    for place in PLACES {
        for _ in 0..TRIES {
            let port = fastrand::u16(place.clone());
            if !handed_out.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() && reserve(port)
            {
                return Ok(port);
            }
        }
    }
    // Everything is handed out by the system: then it chooses, and whoever starts a server may have to try again.
    let chosen = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(chosen.context("cannot find a free port on 127.0.0.1")?.port())
}

/// The ports that the system gives to outgoing connections and to those who ask for any.
fn handed_out() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) => low..=high,
        _ => 32_768..=60_999,
    }
}

/// Takes the port's name, which the system gives back when we end, however we end.
#[cfg(target_os = "linux")]
fn reserve(port: u16) -> bool {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::{Mutex, PoisonError};
    static KEPT: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = SocketAddr::from_abstract_name(format!("pgassay-port-{port}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(listener) => {
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
            true
        }
        Err(_) => false,
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_port: u16) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_the_same_port_twice() {
        let mut ports: Vec<u16> = (0..50).map(|_| free().unwrap()).collect();
        ports.sort_unstable();
        let count = ports.len();
        ports.dedup();
        assert_eq!(ports.len(), count);
        for port in ports {
            assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "{port} is free");
        }
    }
}
