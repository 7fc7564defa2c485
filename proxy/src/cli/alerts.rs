//! `pgassay alerts`: the Prometheus rules, for your job's name and with runbooks where you keep them.

use super::Usage;
use crate::config::Config;
use std::process::ExitCode;

const RULES: &str = include_str!("../../../rules/alerts/pgassay.yml");
/// Where the rules lead as they are: the proxy's own page, or a file of the repository where no proxy answers.
const ON_THE_PAGE: &str = "http://{{ $labels.instance }}/#/runbooks/";
const IN_THE_REPOSITORY: &str = "runbook_url: rules/runbooks/";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name of the scrape job
    #[arg(long, default_value = "pgassay", value_name = "NAME")]
    job: String,
    /// Where the runbooks are: a URL to which the name of the runbook is added, e.g. https://wiki/pgassay/
    #[arg(long, value_name = "URL")]
    runbooks: Option<String>,
}

pub fn run(args: Args, _config: Config) -> anyhow::Result<ExitCode> {
    print!("{}", rules(&args.job, args.runbooks.as_deref())?);
    Ok(ExitCode::SUCCESS)
}

fn rules(job: &str, runbooks: Option<&str>) -> Result<String, Usage> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    if job.is_empty() || !job.chars().all(allowed) {
        return Err(Usage(format!(
            "«{job}» is not the name of a scrape job (letters, digits and _ - . / :)"
        )));
    }
    let mut text = RULES.replace("job=\"pgassay\"", &format!("job=\"{job}\""));
    if let Some(url) = runbooks {
        let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '{' | '}');
        if !url.contains("://") || url.contains(bad) {
            return Err(Usage(format!(
                "«{url}» is not a URL such as https://wiki.example.org/pgassay/"
            )));
        }
        let base = format!("{}/", url.trim_end_matches('/'));
        text = text.replace(ON_THE_PAGE, &base);
        let lines = text.lines().map(|line| match line.contains(IN_THE_REPOSITORY) {
            true => line
                .replace(IN_THE_REPOSITORY, &format!("runbook_url: {base}"))
                .replace(".md", ""),
            false => line.to_owned(),
        });
        text = lines.collect::<Vec<_>>().join("\n") + "\n";
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_they_are_without_flags() {
        assert_eq!(rules("pgassay", None).unwrap(), RULES);
    }

    #[test]
    fn every_runbook_moves() {
        let text = rules("db/pgassay", Some("https://wiki.example.org/ops/")).unwrap();
        let urls: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("runbook_url: "))
            .collect();
        assert!(urls.len() > 10, "{urls:?}");
        for url in &urls {
            assert!(
                url.starts_with("https://wiki.example.org/ops/") && !url.ends_with(".md"),
                "{url}"
            );
        }
        assert!(text.contains("up{job=\"db/pgassay\"} == 0"), "{text}");
        assert!(!text.contains("job=\"pgassay\""));
    }

    #[test]
    fn nothing_is_smuggled_into_the_rules() {
        assert!(rules("a\" or up", None).is_err());
        assert!(rules("a", Some("wiki")).is_err());
        assert!(rules("a", Some("https://wiki/{{ evil }}")).is_err());
    }
}
