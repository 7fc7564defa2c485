//! A throw-away PostgreSQL server with whatever settings, authentication and certificates a test needs.
//!
//! In: where the binaries are, and settings. Out: a running server on a free port of the loopback address,
//! in a temporary directory, as another user than root.
//!
//! Always true: when the [`Cluster`] is dropped, or the test is killed, the server has ended and its directory is gone.

use anyhow::{Context, Result, bail};
use pgassay::leash::Leash;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The superuser of every cluster.
pub const USER: &str = "postgres";

/// Nobody waits longer than this for a server to come or to go, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory of `postgres` and `initdb`; found by [`find_binaries`] when absent.
    pub binaries: Option<PathBuf>,
    /// Lines of postgresql.conf.
    pub settings: Vec<(String, String)>,
    /// Lines of pg_hba.conf; everybody is trusted when empty.
    pub hba: Vec<String>,
    /// The superuser's password.
    pub password: Option<String>,
}

pub struct Cluster {
    dir: tempfile::TempDir,
    binaries: PathBuf,
    port: u16,
    server: Option<Child>,
    leash: Option<Leash>,
}

impl Options {
    pub fn set(mut self, name: &str, value: &str) -> Options {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The other major version that the set-up script installs.
    pub fn other_version(mut self) -> Option<Options> {
        self.binaries = Some(crate::deps::find("postgres-18")?.join("bin"));
        Some(self)
    }

    /// TLS with this certificate.
    pub fn tls(self, certificates: &crate::certificates::Certificates) -> Options {
        self.set("ssl", "on")
            .set("ssl_cert_file", &certificates.certificate.display().to_string())
            .set("ssl_key_file", &certificates.key.display().to_string())
    }

    /// Everybody must give a password by `method`; the superuser's is `password`.
    pub fn password(mut self, method: &str, password: &str) -> Options {
        self.hba = vec![
            format!("local all all trust"),
            format!("host all all all {method}"),
        ];
        self.password = Some(password.to_owned());
        if method == "md5" {
            self = self.set("password_encryption", "md5");
        }
        self
    }
}

/// `PGASSAY_PG_BIN`, then PATH, then the newest of /usr/lib/postgresql/*/bin.
pub fn find_binaries() -> Result<PathBuf> {
    let complete = |dir: &Path| dir.join("postgres").exists() && dir.join("initdb").exists();
    if let Some(dir) = std::env::var_os("PGASSAY_PG_BIN").map(PathBuf::from) {
        if !complete(&dir) {
            bail!(
                "PGASSAY_PG_BIN={} holds no `postgres` and `initdb`",
                dir.display()
            );
        }
        return Ok(dir);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(dir) = std::env::split_paths(&path).find(|dir| complete(dir)) {
        return Ok(dir);
    }
    let version = |dir: &PathBuf| -> Option<u32> {
        dir.parent()?
            .file_name()?
            .to_str()?
            .split('.')
            .next()?
            .parse()
            .ok()
    };
    std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|dir| complete(dir))
        .max_by_key(|dir| version(dir))
        .context("no PostgreSQL server was found; install one, or set PGASSAY_PG_BIN to its bin directory")
}

/// A port of the loopback address that is free, and stays so until the server that it is for is there.
pub fn free_port() -> Result<u16> {
    pgassay::throwaway::port::free()
}

impl Cluster {
    pub fn start() -> Result<Cluster> {
        Self::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> Result<Cluster> {
        let binaries = match &options.binaries {
            Some(dir) => dir.clone(),
            None => find_binaries()?,
        };
        // PATH may hold links to some of the programs only.
        let binaries = match binaries.join("postgres").canonicalize()?.parent() {
            Some(real) if real.join("psql").exists() => real.to_owned(),
            _ => binaries,
        };
        let dir = tempfile::Builder::new()
            .prefix("pgassay-pg-")
            .tempdir()
            .context("no temporary directory")?;
        let mut cluster = Cluster {
            dir,
            binaries,
            port: free_port()?,
            server: None,
            leash: None,
        };
        if let Some((uid, gid)) = other_user() {
            std::os::unix::fs::chown(cluster.dir.path(), Some(uid), Some(gid))?;
        }
        cluster.initialise(&options)?;
        cluster.launch()?;
        Ok(cluster)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the unix socket and everything else is.
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(format!(".s.PGSQL.{}", self.port))
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn uri(&self) -> String {
        format!("postgresql://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// A client program: of the server's own version if it has one, else of any.
    pub fn program(&self, name: &str) -> PathBuf {
        let own = self.binaries.join(name);
        if own.exists() {
            return own;
        }
        let installed = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten();
        let mut places: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        places.extend(std::env::split_paths(&path));
        let found = places
            .into_iter()
            .map(|dir| dir.join(name))
            .find(|program| program.exists());
        found.unwrap_or_else(|| panic!("{name} is not installed; deploy/setup.sh test installs it"))
    }

    /// The same, ready to be run; of our own environment it knows nothing.
    pub fn client(&self, name: &str) -> Command {
        crate::tools::bare(self.program(name), self.directory())
    }

    /// Stops the server, as `pg_ctl stop -m MODE` does: `fast`, `immediate`, `smart`.
    pub fn stop(&mut self, mode: &str) -> Result<()> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        let signal = match mode {
            "immediate" => "QUIT",
            "smart" => "TERM",
            _ => "INT",
        };
        send(signal, server.id());
        let deadline = Instant::now() + PATIENCE;
        while server.try_wait()?.is_none() {
            if Instant::now() > deadline {
                server.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.leash = None;
        Ok(())
    }

    /// Starts a server that was stopped, on the same port.
    pub fn launch(&mut self) -> Result<()> {
        let log = self.dir.path().join("log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let mut server = command.spawn().context("cannot start postgres")?;
        let deadline = Instant::now() + PATIENCE;
        while !answers(self.port) {
            if let Some(status) = server.try_wait()? {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("postgres ended at once ({status}):\n{log}");
            }
            if Instant::now() > deadline {
                let _ = server.kill();
                bail!(
                    "postgres did not answer within {PATIENCE:?}; its log: {}",
                    log.display()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.leash = Leash::new(server.id(), self.dir.path()).ok();
        self.server = Some(server);
        Ok(())
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    fn initialise(&self, options: &Options) -> Result<()> {
        let mut command = self.command("initdb");
        command
            .arg("-D")
            .arg(self.data())
            .args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]);
        command.args(["--locale", "C"]);
        let secret = self.dir.path().join("password");
        if let Some(password) = &options.password {
            std::fs::write(&secret, password)?;
            if let Some((uid, gid)) = other_user() {
                std::os::unix::fs::chown(&secret, Some(uid), Some(gid))?;
            }
            command.arg("--pwfile").arg(&secret);
            if options
                .settings
                .iter()
                .any(|(name, value)| name == "password_encryption" && value == "md5")
            {
                command.args(["--auth-host", "md5"]);
            }
        }
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot run initdb")?;
        if !output.status.success() {
            bail!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let _ = std::fs::remove_file(&secret);

        let mut lines = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             fsync = off\nsynchronous_commit = off\nmax_connections = 200\n",
            self.port,
            self.dir.path().display()
        );
        for (name, value) in &options.settings {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        std::fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))?
            .write_all(lines.as_bytes())?;
        if !options.hba.is_empty() {
            std::fs::write(self.data().join("pg_hba.conf"), options.hba.join("\n") + "\n")?;
        }
        Ok(())
    }

    /// A command of the server, run as another user when we are root.
    fn command(&self, name: &str) -> Command {
        let mut command = crate::tools::bare(self.binaries.join(name), self.dir.path());
        if let Some((uid, gid)) = other_user() {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path()).env("LC_ALL", "C");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.stop("immediate");
    }
}

/// Sends a signal to one process.
pub fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(pid.to_string())
        .status();
}

/// PostgreSQL refuses to run as root: the user to be instead, or `None` if we are not root.
pub fn other_user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    if own != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// A server that is starting says so (57P03); one that is up asks for something, lets us in or refuses us.
/// The session that asked has ended when this returns: nobody shall take it for a stranger.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let mut packet = (4 + body.len() as u32).to_be_bytes().to_vec();
    packet.extend_from_slice(body);
    let mut answer = [0; 1024];
    let read = stream.write_all(&packet).and_then(|()| stream.read(&mut answer));
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    match read {
        Ok(0) | Err(_) => false,
        Ok(read) => !answer[..read].windows(5).any(|word| word == b"57P03"),
    }
}
