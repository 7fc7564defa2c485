//! High ambiguity: overlapping increments of few rows whose order nobody observed, over a slow network.

use crate::judge::judge;
use crate::record::{Plan, record, server};
use crate::report::{percent, raw, short};
use crate::sheet::{Chapter, Sheet};
use crate::{Bench, Forecast};
use pgassay_rules::Level;
use pgassay_workloads::Knobs;
use std::time::Duration;

pub const CHAPTER: Chapter = Chapter {
    name: "ambiguity",
    title: "High ambiguity",
    about: "Autocommit `UPDATE counters SET n = n + 1 WHERE id = $1` on three rows without RETURNING, one transaction \
            in ten reads. A relay between proxy and server delays every byte in both directions, so that the windows \
            of all clients overlap.",
    header: &[
        "delay ms",
        "clients",
        "transactions",
        "audit s",
        "audit µs per transaction",
        "checked",
        "settled",
        "candidates",
        "solver",
        "violations",
        "open questions",
    ],
    keys: 2,
    unit: "µs per transaction",
    is_logarithmic: true,
    summary: |_| String::new(),
    forecast,
    run,
};

fn sizes(bench: &Bench) -> (&'static [u64], &'static [usize]) {
    match bench.is_smoke() {
        true => (&[0, 1], &[4]),
        false => (&[0, 1, 10, 100], &[8, 32]),
    }
}

fn forecast(bench: &Bench) -> Forecast {
    let (delays, clients) = sizes(bench);
    let runs = delays.len() * clients.len();
    Forecast {
        what: format!("{runs} runs with delays of {delays:?} ms"),
        seconds: 14.0 * runs as f64,
    }
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    let (delays, clients) = sizes(bench);
    for delay in delays {
        for clients in clients {
            let each: u64 = if bench.is_smoke() {
                20
            } else {
                (4_000 / (delay + 1)).clamp(40, 2_000)
            };
            let server = server()?;
            let mut plan = Plan::new(
                "counters",
                Knobs::default(),
                Level::ReadCommitted,
                *clients,
                each * *clients as u64,
            );
            plan.delay = Duration::from_millis(*delay);
            let recorded = record(bench, &server, &plan)?;
            drop(server);
            let judged = judge(&recorded.journal, None)?;
            let per = judged.cpu * 1e6 / recorded.transactions.max(1) as f64;
            let tiers = judged.tiers();
            eprintln!("{delay} ms, {clients} clients: {} µs per transaction", short(per));
            let cells = vec![
                delay.to_string(),
                clients.to_string(),
                recorded.transactions.to_string(),
                short(judged.elapsed.as_secs_f64()),
                short(per),
                percent(judged.checked()),
                percent(tiers[0]),
                percent(tiers[1]),
                percent(tiers[2]),
                judged.violations().to_string(),
                judged.reasons(2).join("; "),
            ];
            let mut line = raw(&plan, &recorded, &judged);
            line["delay_ms"] = (*delay).into();
            let bars = vec![(format!("{delay} ms, {clients} clients"), per)];
            sheet.put(cells, bars, line)?;
        }
    }
    Ok(())
}
