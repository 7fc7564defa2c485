//! A violation in the words of its receiver: generic JSON, Slack, PagerDuty Events v2.

use anyhow::{Result, bail};
use pgassay_audit::report::{brief, json};
use pgassay_audit::verdict::Violation;
use pgassay_rules::anomaly;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Json,
    Slack,
    PagerDuty,
}

impl Shape {
    pub fn named(name: &str) -> Result<Shape> {
        match name {
            "json" => Ok(Shape::Json),
            "slack" => Ok(Shape::Slack),
            "pagerduty" => Ok(Shape::PagerDuty),
            other => bail!("a web hook is of kind json, slack or pagerduty, not «{other}»"),
        }
    }

    pub fn body(self, violation: &Violation, key: Option<&str>) -> Value {
        match self {
            Shape::Json => json!({ "event": "violation", "violation": json::violation(violation) }),
            Shape::Slack => slack(violation),
            Shape::PagerDuty => pagerduty(violation, key.unwrap_or_default()),
        }
    }
}

fn title(violation: &Violation) -> String {
    format!("pgassay: {} at {}", violation.rule, violation.level)
}

fn slack(violation: &Violation) -> Value {
    let summary = anomaly::by_name(&violation.rule).map_or("", |rule| rule.summary);
    let right: Vec<String> = violation
        .expected
        .iter()
        .map(|text| format!("• {}", mrkdwn(text)))
        .collect();
    let story = cut(&mrkdwn(&brief::of(violation)), 2_800);
    json!({
        "text": format!("{}: {}", title(violation), mrkdwn(&violation.observed)),
        "blocks": [
            { "type": "header", "text": { "type": "plain_text", "text": cut(&title(violation), 150) } },
            { "type": "section", "text": { "type": "mrkdwn", "text": format!("{summary}\n\n{story}") } },
            { "type": "section", "fields": [
                { "type": "mrkdwn", "text": cut(&format!("*Answered*\n{}", mrkdwn(&violation.observed)), 1_900) },
                { "type": "mrkdwn", "text": cut(&format!("*Right*\n{}", right.join("\n")), 1_900) },
            ] },
            { "type": "context", "elements": [
                { "type": "mrkdwn", "text": format!("`{}` · {}", violation.id, timestamp(violation.at)) },
                { "type": "mrkdwn", "text": next_steps(violation) },
            ] },
        ],
    })
}

fn pagerduty(violation: &Violation, routing_key: &str) -> Value {
    json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": violation.fingerprint,
        "payload": {
            "summary": cut(&format!("{}: {}", title(violation), violation.observed), 1_000),
            "source": "pgassay",
            "severity": "critical",
            "timestamp": timestamp(violation.at),
            "component": "postgresql",
            "class": violation.rule,
            "custom_details": {
                "id": violation.id,
                "level": violation.level,
                "story": brief::of(violation),
                "answered": violation.observed,
                "right": violation.expected,
                "next": next_steps(violation),
            },
        },
    })
}

/// Whoever was woken has a terminal at least.
fn next_steps(violation: &Violation) -> String {
    format!(
        "`pgassay explain {}` tells the whole story, `pgassay explain {}` what to do",
        violation.id, violation.rule
    )
}

/// Slack reads these three as its own.
fn mrkdwn(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let short: String = text.chars().take(most - 1).collect();
    short + "…"
}

/// Nanoseconds since 1970 as `2026-01-02T03:04:05.678Z`.
pub fn timestamp(nanos: u64) -> String {
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000 % 1_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days, for days after 1970.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgassay_audit::report::sample;

    #[test]
    fn instants_are_written_as_iso_8601() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_400_123_000_000), "2000-02-29T00:00:00.123Z");
        assert_eq!(timestamp(1_798_761_599_000_000_000), "2026-12-31T23:59:59.000Z");
    }

    #[test]
    fn each_receiver_finds_what_it_expects() {
        let told = sample::lost_update();
        assert_eq!(Shape::Json.body(&told, None)["violation"]["rule"], "lost_update");
        let slack = Shape::Slack.body(&told, None);
        assert!(
            slack["text"]
                .as_str()
                .unwrap()
                .starts_with("pgassay: lost_update at serializable")
        );
        assert_eq!(slack["blocks"][0]["type"], "header");
        let page = Shape::PagerDuty.body(&told, Some("R0UT1NG"));
        assert_eq!(page["routing_key"], "R0UT1NG");
        assert_eq!(page["event_action"], "trigger");
        assert_eq!(page["dedup_key"], told.fingerprint);
        assert_eq!(page["payload"]["severity"], "critical");
        for told in [&slack, &page] {
            let text = told.to_string();
            for next in ["pgassay explain v-5d1e0c94b7aa-1", "pgassay explain lost_update"] {
                assert!(text.contains(next), "{next} in {text}");
            }
        }
        assert!(Shape::named("teams").is_err());
    }

    #[test]
    fn traffic_cannot_write_slack_markup() {
        let mut told = sample::lost_update();
        told.observed = "<!channel> & <http://x|y>".into();
        let text = Shape::Slack.body(&told, None).to_string();
        assert!(
            !text.contains("<!channel>") && text.contains("&lt;!channel&gt; &amp;"),
            "{text}"
        );
    }
}
