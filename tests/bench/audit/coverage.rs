//! Coverage: every workload through the proxy with the audit running, and what it could not check, and why.
//!
//! Real PostgreSQL is the yardstick of false alarms too: every violation told here is written out for reading.

use crate::report::percent;
use crate::sheet::{Chapter, Row, Sheet};
use crate::{Bench, Forecast};
use anyhow::Context;
use pgassay::config::{Config, Writers};
use pgassay::serve::Running;
use pgassay::throwaway::{Throwaway, uri};
use pgassay_audit::report::text::{Paint, violation};
use pgassay_audit::verdict::Summary;
use pgassay_rules::Level;
use pgassay_workloads::{CATALOGUE, Knobs, Length, Mode, Options, Workload, by_name};
use serde_json::json;
use std::process::Command;
use std::sync::Arc;

/// How the audit comes to know the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bootstrap {
    /// It sees them being created and filled.
    Seen,
    /// It reads them when the proxy starts.
    Snapshot,
    /// It reads the catalog when the proxy starts, and no rows.
    Catalog,
    /// It sees them being created and filled, and has nothing else: no side connection.
    Learn,
    /// Somebody wrote down what they are; there is no side connection.
    Written,
    /// It has neither seen them being created nor read them: whatever it knows, an answer has told.
    Blind,
}

impl Bootstrap {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn sees_the_load(self) -> bool {
        matches!(self, Bootstrap::Seen | Bootstrap::Learn)
    }

    fn has_side(self) -> bool {
        matches!(self, Bootstrap::Seen | Bootstrap::Snapshot | Bootstrap::Catalog)
    }
}

pub const CHAPTER: Chapter = Chapter {
    name: "coverage",
    title: "Coverage",
    about: "Every workload through the proxy, audited live: 8 clients on small data, so that transactions meet. \
            «seen»: the tables were created through the proxy; «snapshot»: read when it started; «catalog»: all but \
            their rows were read; «learn»: created through the proxy, without a side connection; «written»: described \
            by a file of DDL; «blind»: created before, and learned from the answers alone. A violation here is a false \
            alarm.",
    header: &[
        "workload",
        "level",
        "mode",
        "tables",
        "statements",
        "checked",
        "partly",
        "unchecked",
        "violations",
        "why not",
    ],
    keys: 4,
    unit: "% checked",
    is_logarithmic: false,
    summary,
    forecast,
    run,
};

fn each(bench: &Bench) -> u64 {
    if bench.is_smoke() { 20 } else { bench.args.each }
}

fn forecast(bench: &Bench) -> Forecast {
    let makers = CATALOGUE.iter().filter(|(name, _, _)| bench.wants(name));
    let runs: usize = makers
        .map(|(_, _, make)| variants(make(&Knobs::default()).has_procedures(), bench).len())
        .sum();
    Forecast {
        what: format!("{runs} runs of 8 clients with {} transactions each", each(bench)),
        seconds: runs as f64 * (1.0 + each(bench) as f64 / 60.0),
    }
}

fn summary(rows: &[Row]) -> String {
    let sum = |column: usize| rows.iter().filter_map(|row| row.number(column)).sum::<f64>();
    let whole = rows.iter().filter(|row| row.number(5) == Some(100.0)).count();
    let mut least: Vec<(f64, String)> = rows
        .iter()
        .filter(|row| row.number(5) != Some(100.0))
        .filter_map(|row| Some((row.number(5)?, row.cells[..4].join(" "))))
        .collect();
    least.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least: Vec<String> = least
        .iter()
        .take(5)
        .map(|(share, whose)| format!("{whose} {share:.1} %"))
        .collect();
    let others = match least.is_empty() {
        true => String::new(),
        false => format!(" The least: {}.", least.join(", ")),
    };
    format!(
        "{} rows, {} statements, {} violations; {whole} rows were checked to 100.0 %.{others}",
        rows.len(),
        sum(4),
        sum(8)
    )
}

fn run(bench: &Bench, sheet: &mut Sheet) -> anyhow::Result<()> {
    let each = each(bench);
    for (name, _, make) in CATALOGUE {
        if !bench.wants(name) {
            continue;
        }
        let server = Throwaway::start(&[("deadlock_timeout", "20ms")])?;
        for (level, mode, bootstrap) in variants(make(&Knobs::default()).has_procedures(), bench) {
            let started = std::time::Instant::now();
            let summary = audited(bench, &server, name, level, mode, bootstrap, each)
                .with_context(|| format!("{name} {level} {mode} {bootstrap:?}"))?;
            let all = summary.statements.max(1) as f64;
            let coverage = &summary.coverage;
            let reasons = reasons(&summary);
            eprintln!(
                "{name:12} {:16} {:10} {:9} {:6} statements, checked {}, {} violations, {:.1} s; {reasons}",
                level.name(),
                mode.name(),
                format!("{bootstrap:?}"),
                summary.statements,
                percent(coverage.checked as f64 / all),
                summary.violations.len(),
                started.elapsed().as_secs_f64(),
            );
            for shape in coverage
                .shapes
                .iter()
                .filter(|shape| shape.partial + shape.unchecked > 0)
            {
                let reason = shape.reason.as_deref().unwrap_or("?");
                eprintln!(
                    "    {:6} of {:6}  {reason}: {}",
                    shape.partial + shape.unchecked,
                    shape.checked + shape.partial + shape.unchecked,
                    shape.shape
                );
            }
            for told in &summary.violations {
                eprintln!("{}", violation(told, Paint::Plain));
            }
            let cells = vec![
                (*name).to_owned(),
                level.name().to_owned(),
                mode.name().to_owned(),
                bootstrap.name(),
                summary.statements.to_string(),
                percent(coverage.checked as f64 / all),
                percent(coverage.partial as f64 / all),
                percent(coverage.unchecked as f64 / all),
                summary.violations.len().to_string(),
                reasons,
            ];
            let raw = json!({
                "workload": name, "level": level.name(), "mode": mode.name(), "tables": bootstrap.name(),
                "seconds": started.elapsed().as_secs_f64(), "transactions": summary.transactions,
                "reasons": coverage.reasons, "violations": summary.violations.len(),
            });
            let label = format!("{name} {} {} {bootstrap:?}", level.name(), mode.name());
            let bars = vec![(label, coverage.checked as f64 / all * 100.0)];
            sheet.put(cells, bars, raw)?;
        }
    }
    Ok(())
}

fn variants(has_procedures: bool, bench: &Bench) -> Vec<(Level, Mode, Bootstrap)> {
    let mut variants = vec![
        (Level::ReadCommitted, Mode::Prepared, Bootstrap::Seen),
        (Level::RepeatableRead, Mode::Prepared, Bootstrap::Seen),
        (Level::Serializable, Mode::Prepared, Bootstrap::Seen),
        (Level::ReadCommitted, Mode::Simple, Bootstrap::Snapshot),
        (Level::RepeatableRead, Mode::Extended, Bootstrap::Snapshot),
        (Level::Serializable, Mode::Prepared, Bootstrap::Snapshot),
        (Level::Serializable, Mode::Simple, Bootstrap::Learn),
        (Level::ReadCommitted, Mode::Extended, Bootstrap::Learn),
        (Level::Serializable, Mode::Simple, Bootstrap::Catalog),
        (Level::ReadCommitted, Mode::Extended, Bootstrap::Catalog),
        (Level::RepeatableRead, Mode::Prepared, Bootstrap::Catalog),
        (Level::Serializable, Mode::Simple, Bootstrap::Written),
        (Level::ReadCommitted, Mode::Extended, Bootstrap::Written),
        (Level::RepeatableRead, Mode::Prepared, Bootstrap::Written),
        (Level::Serializable, Mode::Simple, Bootstrap::Blind),
        (Level::ReadCommitted, Mode::Extended, Bootstrap::Blind),
        (Level::RepeatableRead, Mode::Prepared, Bootstrap::Blind),
    ];
    if has_procedures {
        variants.push((Level::ReadCommitted, Mode::Procedures, Bootstrap::Seen));
        variants.push((Level::RepeatableRead, Mode::Procedures, Bootstrap::Snapshot));
        variants.push((Level::Serializable, Mode::Procedures, Bootstrap::Seen));
    }
    let (wanted, modes) = (&bench.args.tables, &bench.args.modes);
    if !bench.args.variants && wanted.is_empty() && modes.is_empty() {
        variants.truncate(3);
    }
    variants.retain(|(_, _, bootstrap)| wanted.is_empty() || wanted.contains(&bootstrap.name()));
    variants.retain(|(_, mode, _)| modes.is_empty() || modes.contains(mode));
    variants
}

/// Small data, so that transactions meet each other.
fn knobs(name: &str) -> Knobs {
    match name {
        "bank" => Knobs::default()
            .set("accounts", 20.0)
            .set("blind", 0.3)
            .set("totals", 0.05),
        "smallbank" => Knobs::default().set("customers", 20.0).set("hot", 5.0),
        "tpcc" => Knobs::default().set("tiny", 1.0),
        _ => Knobs::default().scaled(0.05),
    }
}

fn audited(
    bench: &Bench,
    server: &Throwaway,
    name: &str,
    level: Level,
    mode: Mode,
    bootstrap: Bootstrap,
    each: u64,
) -> anyhow::Result<Summary> {
    let workload: Arc<dyn Workload> = by_name(name, &knobs(name))?.into();
    let mut options = Options::new(server.uri());
    options.level = level;
    options.mode = mode;
    options.seed = bench.args.seed;
    options.clients = 8;
    options.length = Length::Transactions(each);
    if !bootstrap.sees_the_load() {
        bench
            .runtime
            .block_on(pgassay_workloads::setup(&*workload, &options))?;
    }
    let mut config = Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        ..Config::default()
    };
    config.upstream = server.uri();
    config.side.uri = Some(server.uri());
    if bootstrap == Bootstrap::Catalog {
        config.side.table_rows_max = 0;
        config.side.reread = false;
    }
    if !bootstrap.has_side() {
        config.side.enabled = false;
        // Nobody looks whether others write past the proxy, so somebody must say that they do not.
        config.audit.writers = Writers::Exclusive;
    }
    let written = tempfile::NamedTempFile::new()?;
    if bootstrap == Bootstrap::Written {
        std::fs::write(written.path(), dumped(server)?)?;
        config.audit.schema = Some(written.path().to_owned());
    }
    config.admin.listen = None;
    config.capture.lane_bytes_max = config.capture.lane_bytes_max.max(64 << 20);
    config.audit.queue_len_max = config.audit.queue_len_max.max(10_000_000);
    config.audit.queue_bytes_max = config.audit.queue_bytes_max.max(2 << 30);
    config.journal.dir = bench.args.keep.as_ref().map(|dir| {
        let dir = dir.join(format!("{name}-{}-{}-{bootstrap:?}", level.name(), mode.name()).to_lowercase());
        let _ = std::fs::remove_dir_all(&dir);
        dir
    });
    let proxy = Running::start(config)?;
    if bootstrap.has_side() {
        crate::record::settle(&proxy);
    }
    options.target = uri(proxy.port().context("the proxy has no TCP port")?);
    bench.runtime.block_on(async {
        if bootstrap.sees_the_load() {
            pgassay_workloads::setup(&*workload, &options).await?;
        }
        pgassay_workloads::run(workload.clone(), &options, |_| {}).await?;
        let failed = pgassay_workloads::check(&*workload, &options).await?;
        anyhow::ensure!(failed.is_empty(), "{}", failed[0]);
        anyhow::Ok(())
    })?;
    Ok(proxy.stop().summary())
}

/// The schema as its owner would write it down.
fn dumped(server: &Throwaway) -> anyhow::Result<Vec<u8>> {
    let dumped = Command::new(crate::record::find_program("pg_dump"))
        .args(["--schema-only", "--dbname", &server.uri()])
        .output()
        .context("cannot run pg_dump; it comes with PostgreSQL's client programs")?;
    let told = String::from_utf8_lossy(&dumped.stderr);
    anyhow::ensure!(dumped.status.success(), "pg_dump failed: {told}");
    Ok(dumped.stdout)
}

fn reasons(summary: &Summary) -> String {
    let mut reasons: Vec<(&String, &u64)> = summary.coverage.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let told: Vec<String> = reasons
        .iter()
        .take(6)
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    told.join(", ")
}
