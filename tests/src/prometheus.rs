//! A real Prometheus and a real Alertmanager, with the alert rules of this repository.
//!
//! Always true: they listen on loopback, keep everything in a temporary directory, and have ended when they are
//! dropped.

use crate::cluster::free_port;
use crate::http;
use crate::tools::root;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Prometheus {
    server: Server,
}

pub struct Alertmanager {
    server: Server,
}

struct Server {
    address: SocketAddr,
    process: Child,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes `target` and evaluates the rules every second; alerts go to `alertmanager`, if there is one.
    pub fn start(target: SocketAddr, alertmanager: Option<&Alertmanager>) -> Prometheus {
        let alerting = alertmanager.map(|manager| {
            format!(
                "alerting: {{ alertmanagers: [{{ static_configs: [{{ targets: ['{}'] }}] }}] }}\n",
                manager.server.address
            )
        });
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\n{}scrape_configs:\n  \
             - job_name: pgassay\n    static_configs: [{{ targets: ['{target}'] }}]\n",
            root().join("rules/alerts/pgassay.yml").display(),
            alerting.unwrap_or_default(),
        );
        Prometheus::start_with(&config)
    }

    /// With a configuration of one's own.
    pub fn start_with(config: &str) -> Prometheus {
        let server = Server::start(&["prometheus"], config, |command, dir| {
            command
                .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
                .arg("--enable-feature=exemplar-storage");
        });
        Prometheus { server }
    }

    /// The values of an instant query; an error of Prometheus is a panic that tells it.
    pub fn ask(&self, expression: &str) -> Vec<f64> {
        let path = format!("/api/v1/query?query={}", percent_encode(expression));
        let answer = http::get(self.server.address, &path, &[]).json();
        assert_eq!(answer["status"], "success", "{expression}\n{answer}");
        let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        series
            .iter()
            .filter_map(|one| one["value"][1].as_str()?.parse().ok())
            .collect()
    }
}

impl Alertmanager {
    /// Sends every alert to `webhook`, at once.
    pub fn start(webhook: SocketAddr) -> Alertmanager {
        let config = format!(
            "route: {{ receiver: test, group_by: ['...'], group_wait: 0s, group_interval: 1s, repeat_interval: 1h }}\n\
             receivers: [{{ name: test, webhook_configs: [{{ url: 'http://{webhook}/' }}] }}]\n"
        );
        Alertmanager::start_with(&config)
    }

    /// With a configuration of one's own.
    pub fn start_with(config: &str) -> Alertmanager {
        let server = Server::start(
            &["prometheus-alertmanager", "alertmanager"],
            config,
            |command, dir| {
                command
                    .arg(format!("--storage.path={}", dir.join("data").display()))
                    // No cluster: nothing else is to be listened on.
                    .arg("--cluster.listen-address=");
            },
        );
        Alertmanager { server }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }
}

impl Server {
    fn start(programs: &[&str], config: &str, arguments: impl Fn(&mut Command, &Path)) -> Server {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("config.yml");
        fs::write(&file, config).expect("a configuration file");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().expect("a free port")));
        let log = dir.path().join("log");
        let start = |program: &&str| {
            let mut command = Command::new(program);
            command
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(File::create(&log).expect("a log file"));
            arguments(&mut command, dir.path());
            command.spawn().ok()
        };
        let process = programs.iter().find_map(start);
        let process =
            process.unwrap_or_else(|| panic!("{} is missing: run `deploy/setup.sh test`", programs[0]));
        let server = Server {
            address,
            process,
            _dir: dir,
        };
        let deadline = Instant::now() + Duration::from_secs(180);
        while !http::try_get(address, "/-/ready", &[]).is_ok_and(|answer| answer.status == 200) {
            let said = fs::read_to_string(&log).unwrap_or_default();
            assert!(
                Instant::now() < deadline,
                "{} does not become ready:\n{said}",
                programs[0]
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}
