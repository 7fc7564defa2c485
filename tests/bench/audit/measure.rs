//! CPU time and memory of other processes, from /proc.

use std::fs;

/// Linux counts CPU time in hundredths of a second for user programs, on every architecture we meet.
const TICKS: f64 = 100.0;

/// The fields of /proc/PID/stat after the program's name, from `state` (field 3 of the manual page) on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn seconds(fields: &[String], from: usize, to: usize) -> f64 {
    fields[from - 3..=to - 3]
        .iter()
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS
}

/// CPU seconds of children that a process has waited for: of a postmaster, its backends that have ended.
pub fn cpu_of_ended_children(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |fields| seconds(&fields, 16, 17))
}

/// The most memory that a process ever held, in MiB.
pub fn peak_mib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .split(' ')
        .next()?
        .parse::<f64>()
        .ok()
        .map(|kib| kib / 1024.0)
}

/// CPU seconds of our own thread of this name; 0 if there is none.
pub fn cpu_of_thread(name: &str) -> f64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let of = |task: fs::DirEntry| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        if comm.trim_end() != name {
            return None;
        }
        // The first number: nanoseconds on a processor.
        let told = fs::read_to_string(task.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.flatten().filter_map(of).sum::<f64>() / 1e9
}

/// CPU seconds of the thread that asks.
pub fn cpu_of_this_thread() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}

/// The memory that we hold now, in MiB.
pub fn resident_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().split(' ').next()?.parse().ok()?;
    Some(kib / 1024.0)
}
