//! How the numbers are written: OpenMetrics, or the older Prometheus text.

use std::collections::BTreeSet;

pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    Plain,
}

impl Format {
    /// What the `Accept` header asks for.
    pub fn negotiate(accept: Option<&str>) -> Format {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            _ => Format::Plain,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => OPENMETRICS,
            Format::Plain => PLAIN,
        }
    }
}

/// OpenMetrics text as the older Prometheus text: no exemplars, no units, no end mark, and counters are
/// declared under the name that their samples have.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let counters: BTreeSet<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let declared = line.strip_prefix("# TYPE ").map(|rest| ("# TYPE ", rest));
        let declared = declared.or_else(|| line.strip_prefix("# HELP ").map(|rest| ("# HELP ", rest)));
        match declared.and_then(|(kind, rest)| Some((kind, rest.split_once(' ')?))) {
            Some((kind, (name, rest))) if counters.contains(name) => {
                out.push_str(&format!("{kind}{name}_total {rest}"));
            }
            Some(_) => out.push_str(line),
            None => out.push_str(line.split(" # {").next().unwrap_or(line)),
        }
        out.push('\n');
    }
    out
}
