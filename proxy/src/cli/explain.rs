//! `pgassay explain ID`: the story of a violation, its SQL, and scripts that try to reproduce it.
//! `pgassay explain RULE`: what such a violation means, and what to do.
//!
//! The violation comes from journals that are audited again, or from a proxy that is running.

use super::{Usage, check, report};
use crate::admin::assets;
use crate::config::Config;
use crate::record;
use pgassay_audit::report::{html, json, script, spec, svg, text};
use pgassay_audit::trace::journal::Key;
use pgassay_audit::verdict::Violation;
use pgassay_rules::anomaly;
use pgassay_rules::nearest::nearest;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The violation, as reports and metrics name it (v-…), or a rule such as lost_update: its runbook
    #[arg(value_name = "ID")]
    id: String,
    /// Audit these journals again and look there (default: ask the running proxy)
    #[arg(long, value_name = "DIR")]
    journal: Vec<PathBuf>,
    /// As what; the default is text followed by both scripts
    #[arg(long, value_enum, default_value = "all")]
    format: Format,
    /// The running proxy's admin address (default: admin.listen of the configuration)
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// The profile to audit journals with
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// The level to claim when journals are audited
    #[arg(long, value_name = "LEVEL")]
    claim: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    All,
    Text,
    Script,
    Spec,
    Json,
    Html,
    Svg,
}

pub fn run(args: Args, mut config: Config) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout();
    let told = if let Some(runbook) = assets::runbook_of(&args.id) {
        runbook
    } else if !is_id(&args.id) {
        let known = anomaly::CATALOGUE.iter().map(|rule| rule.name);
        let guess = nearest(&args.id, known).map_or(String::new(), |rule| format!("; did you mean {rule}?"));
        return Err(Usage(format!(
            "«{}» is neither the id of a violation (v-…) nor a rule{guess}",
            args.id
        ))
        .into());
    } else if args.journal.is_empty() {
        from_proxy(&args, &config)?
    } else {
        config.audit.profile = args.profile.clone().unwrap_or(config.audit.profile);
        config.audit.claim = args.claim.clone().or(config.audit.claim);
        let violation = from_journals(&args, &config)?;
        tell(&violation, args.format, report::paint(&stdout))
    };
    stdout.write_all(told.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// `v-…`, or a fingerprint.
fn is_id(text: &str) -> bool {
    text.starts_with("v-") || text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn from_journals(args: &Args, config: &Config) -> anyhow::Result<Violation> {
    let settings = record::settings(config).map_err(|error| Usage(format!("{error:#}")))?;
    check::is_sensible(&settings)?;
    let key = match &config.journal.key_file {
        Some(file) => Some(Key::read(file).map_err(|error| Usage(error.to_string()))?),
        None => None,
    };
    let mut others = Vec::new();
    for path in &args.journal {
        for violation in check::audit(path, key.as_ref(), &settings)?.violations {
            if violation.id == args.id || violation.fingerprint == args.id {
                return Ok(violation);
            }
            others.push(violation.id);
        }
    }
    let known = if others.is_empty() {
        "none was found".to_owned()
    } else {
        format!("found: {}", others.join(", "))
    };
    Err(Usage(format!(
        "there is no violation {} in these journals; {known}",
        args.id
    ))
    .into())
}

/// The admin address tells it in the same words.
fn from_proxy(args: &Args, config: &Config) -> anyhow::Result<String> {
    let address = args.admin.clone().or(config.admin.listen.clone());
    let address =
        address.ok_or_else(|| Usage("name the proxy's --admin address, or a --journal".to_owned()))?;
    let base = if address.contains("://") {
        address
    } else {
        format!("http://{address}")
    };
    let kinds: &[&str] = match args.format {
        Format::All => &["text", "script", "spec"],
        Format::Text => &["text"],
        Format::Script => &["script"],
        Format::Spec => &["spec"],
        Format::Json => &["json"],
        Format::Html => &["html"],
        Format::Svg => &["svg"],
    };
    let token = match &config.admin.token_file {
        Some(file) => Some(std::fs::read_to_string(file)?.trim().to_owned()),
        None => None,
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let mut parts = Vec::new();
    for kind in kinds {
        let mut request = agent.get(format!("{base}/api/violations/{}/{kind}", args.id));
        if let Some(token) = &token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|error| {
            Usage(format!(
                "no proxy answers at {base} ({error}); name its --admin address, or a --journal"
            ))
        })?;
        let body = response.body_mut().read_to_string()?;
        match response.status().as_u16() {
            200 => parts.push(body),
            status => return Err(Usage(format!("{base} answers {status}: {}", body.trim())).into()),
        }
    }
    Ok(parts.join(BETWEEN))
}

const BETWEEN: &str = "\n────────────────────────────────────────────────────────────\n\n";

fn tell(violation: &Violation, format: Format, paint: text::Paint) -> String {
    match format {
        Format::All => [
            text::violation(violation, paint),
            script::write(violation),
            spec::write(violation),
        ]
        .join(BETWEEN),
        Format::Text => text::violation(violation, paint),
        Format::Script => script::write(violation),
        Format::Spec => spec::write(violation),
        Format::Json => serde_json::to_string_pretty(&json::violation(violation)).unwrap_or_default() + "\n",
        Format::Html => html::violation(violation),
        Format::Svg => svg::picture(violation, svg::Place::File),
    }
}
