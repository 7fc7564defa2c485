//! The process itself: what is running, since when, and what it uses.

use super::{gauge, seconds};
use crate::live::Live;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    revision: &'static str,
}

pub(super) fn process(registry: &mut Registry, live: &Live) {
    let build = Family::<BuildLabels, Gauge>::default();
    let revision = option_env!("PGASSAY_REVISION").unwrap_or("unknown");
    build
        .get_or_create(&BuildLabels {
            version: env!("CARGO_PKG_VERSION"),
            revision,
        })
        .set(1);
    registry.register("pgassay_build_info", "What is running", build);
    gauge(
        registry,
        "pgassay_ready",
        "1 when clients are served, 0 when not",
        i64::from(live.is_ready()),
    );
    if let Some(usage) = Usage::now() {
        gauge(
            registry,
            "process_resident_memory_bytes",
            "Resident memory",
            usage.resident_bytes,
        );
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(usage.cpu_seconds);
        registry.register("process_cpu_seconds", "Processor time used", cpu);
    }
    seconds(
        registry,
        "process_start_time_seconds",
        "When it started, since 1970",
        live.started_at as f64 / 1e9,
    );
}

/// What the kernel says about this process.
struct Usage {
    resident_bytes: i64,
    cpu_seconds: f64,
}

impl Usage {
    fn now() -> Option<Usage> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: i64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program may hold spaces: fields are counted after its closing parenthesis.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        // USER_HZ is 100 on every Linux that userland can see.
        Some(Usage {
            resident_bytes: kilobytes * 1024,
            cpu_seconds: ticks as f64 / 100.0,
        })
    }
}
