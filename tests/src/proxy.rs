//! A proxy in front of a server, inside the test's own process.

use pgassay::config::{Config, Writers};
use pgassay::live::Live;
use pgassay::serve::Running;
use pgassay_audit::verdict::Summary;
use std::sync::Arc;

pub struct Proxy {
    running: Option<Running>,
    port: u16,
}

impl Proxy {
    /// Listens on a free port; everything else by default, without admin and side connection.
    pub fn start(upstream: &str) -> Proxy {
        Self::start_with(upstream, |_| ())
    }

    pub fn start_with(upstream: &str, change: impl FnOnce(&mut Config)) -> Proxy {
        let mut config = config(upstream);
        change(&mut config);
        let running = Running::start(config).expect("the proxy starts");
        let port = running.port().unwrap_or(0);
        Proxy {
            running: Some(running),
            port,
        }
    }

    /// The only way to the server, so that every table can be known, with a side connection to read them.
    pub fn start_exclusive(upstream: &str) -> Proxy {
        Self::start_with(upstream, |config| {
            config.audit.writers = Writers::Exclusive;
            config.side.enabled = true;
            config.side.uri = Some(format!("postgresql://postgres@{upstream}/postgres"));
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn uri(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("not stopped yet")
    }

    pub fn live(&self) -> &Arc<Live> {
        &self.running().live
    }

    /// Drains, and returns when everything is recorded and judged.
    pub fn stop(mut self) -> Arc<Live> {
        self.running.take().expect("not stopped yet").stop()
    }

    /// The same; nobody was accused.
    pub fn stop_silent(self) -> Summary {
        let summary = self.stop().summary();
        let told: Vec<&str> = summary.violations.iter().map(|v| v.rule.as_str()).collect();
        assert!(told.is_empty(), "{told:?}");
        summary
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

/// A configuration that binds to nothing but a free port.
pub fn config(upstream: &str) -> Config {
    let mut config = Config {
        listen: vec!["127.0.0.1:0".to_owned()],
        upstream: upstream.to_owned(),
        ..Config::default()
    };
    config.admin.listen = None;
    config.side.enabled = false;
    config.proxy.drain_seconds = 2;
    config
}
