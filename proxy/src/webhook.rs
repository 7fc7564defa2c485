//! Tells every new violation to the web hooks of the configuration.
//!
//! In: [`Live`], looked at four times a second. Out: one POST per violation and hook.
//!
//! Always true:
//!   - it has a thread of its own; a hook that hangs keeps nobody else waiting but other hooks;
//!   - a violation goes to a hook once per fingerprint, also after a restart;
//!   - what could not be sent waits on disk (beside the journal) and is tried again, ever more slowly;
//!   - a hook that says «never» (4xx) is not asked again about the same violation.

mod queue;
mod shape;

use crate::config::{Config, Webhook};
use crate::live::Live;
use anyhow::{Context, Result, bail};
use queue::{Item, Queue};
use shape::Shape;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(250);
const POST_MAX: Duration = Duration::from_secs(10);
/// How long the last ones get when the proxy ends; what is left waits on disk.
const FAREWELL: Duration = Duration::from_secs(5);

/// The running sink.
#[derive(Debug)]
pub struct Webhooks {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Where violations go.
struct Hook {
    url: String,
    shape: Shape,
    key: Option<String>,
}

impl Webhooks {
    /// `None` without hooks. A hook that makes no sense is an error now, not at 3 a.m.
    pub fn start(live: Arc<Live>) -> Result<Option<Webhooks>> {
        let config = live.config.load_full();
        if config.webhooks.is_empty() {
            return Ok(None);
        }
        let hooks = config
            .webhooks
            .iter()
            .map(Hook::new)
            .collect::<Result<Vec<_>>>()?;
        let dir = queue_dir(&config);
        if dir.is_none() {
            tracing::warn!(
                "without journal.dir (or $STATE_DIRECTORY) the queue of the web hooks does not survive a restart"
            );
        }
        let queue = Queue::open(dir)?;
        let ending = Arc::new(AtomicBool::new(false));
        let mut work = Work {
            live,
            hooks,
            queue,
            seen: 0,
            ending: ending.clone(),
        };
        let thread = std::thread::Builder::new().name("webhooks".to_owned());
        let thread = thread.spawn(move || work.run()).context("a thread")?;
        Ok(Some(Webhooks { ending, thread }))
    }

    /// Sends what is still to be sent, for a few seconds at most.
    pub fn finish(self) {
        self.ending.store(true, Relaxed);
        let _ = self.thread.join();
    }
}

impl Hook {
    pub fn new(config: &Webhook) -> Result<Hook> {
        let shape = Shape::named(&config.kind)?;
        if !config.url.starts_with("http://") && !config.url.starts_with("https://") {
            bail!(
                "the web hook «{}» is not an http:// or https:// address",
                config.url
            );
        }
        let key = match &config.key_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text =
                    text.with_context(|| format!("cannot read the key of a web hook, {}", path.display()))?;
                Some(text.trim().to_owned())
            }
            None if shape == Shape::PagerDuty => {
                bail!("a PagerDuty web hook needs key_file, with its routing key")
            }
            None => None,
        };
        Ok(Hook {
            url: config.url.clone(),
            shape,
            key,
        })
    }
}

/// Checks one hook without using it.
pub fn check(config: &Webhook) -> Result<()> {
    Hook::new(config).map(|_| ())
}

fn queue_dir(config: &Config) -> Option<PathBuf> {
    let state = || std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    config
        .journal
        .dir
        .clone()
        .or_else(state)
        .map(|dir| dir.join("webhooks"))
}

struct Work {
    live: Arc<Live>,
    hooks: Vec<Hook>,
    queue: Queue,
    /// How many violations of the summary were looked at.
    seen: usize,
    ending: Arc<AtomicBool>,
}

impl Work {
    fn run(&mut self) {
        let agent = agent();
        let mut deadline = None;
        loop {
            // Read before looking, so that nothing found before the end is missed.
            let ending = self.ending.load(Relaxed);
            self.collect();
            self.send(&agent, ending);
            if ending {
                let deadline = deadline.get_or_insert_with(|| Instant::now() + FAREWELL);
                if self.queue.is_empty() || Instant::now() >= *deadline {
                    return;
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn collect(&mut self) {
        let fresh = {
            let audit = self.live.audit();
            let all = &audit.summary.violations;
            let fresh = all.get(self.seen..).unwrap_or_default().to_vec();
            self.seen = self.seen.max(all.len());
            fresh
        };
        for violation in fresh {
            for hook in &self.hooks {
                self.queue.add(&hook.url, &violation);
            }
        }
    }

    fn send(&mut self, agent: &ureq::Agent, hurry: bool) {
        for item in self.queue.due(hurry) {
            let Some(hook) = self.hooks.iter().find(|hook| hook.url == item.url) else {
                // The hook was taken out of the configuration.
                self.queue.done(&item);
                continue;
            };
            match post(agent, hook, &item) {
                Ok(()) => {
                    self.live.webhooks_sent.fetch_add(1, Relaxed);
                    tracing::info!(id = %item.violation.id, "a web hook was told of a violation");
                    self.queue.done(&item);
                }
                Err(Refusal::Never(why)) => {
                    self.live.webhooks_failed.fetch_add(1, Relaxed);
                    tracing::error!(id = %item.violation.id, "a web hook refused a violation for good: {why}");
                    self.queue.done(&item);
                }
                Err(Refusal::Later(why)) => {
                    self.live.webhooks_failed.fetch_add(1, Relaxed);
                    tracing::warn!(id = %item.violation.id, tries = item.tries + 1, "a web hook could not be told yet: {why}");
                    self.queue.later(item);
                }
            }
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(POST_MAX))
        .http_status_as_error(false)
        .build()
        .into()
}

enum Refusal {
    Later(String),
    Never(String),
}

fn post(agent: &ureq::Agent, hook: &Hook, item: &Item) -> Result<(), Refusal> {
    let body = hook.shape.body(&item.violation, hook.key.as_deref()).to_string();
    let mut request = agent.post(&hook.url).header("content-type", "application/json");
    if let (Shape::Json, Some(key)) = (hook.shape, &hook.key) {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    // The address of a hook may be a secret: errors are told without it.
    let response = request
        .send(body)
        .map_err(|error| Refusal::Later(error.to_string().replace(&hook.url, "…")))?;
    match response.status().as_u16() {
        200..300 => Ok(()),
        status @ (408 | 425 | 429) => Err(Refusal::Later(format!("status {status}"))),
        status @ 400..500 => Err(Refusal::Never(format!("status {status}"))),
        status => Err(Refusal::Later(format!("status {status}"))),
    }
}
