//! A throw-away PostgreSQL: initialised in a temporary directory, gone when dropped.
//!
//! In: where the server's programs are (found by themselves). Out: a running server on a free port of 127.0.0.1.
//!
//! Always true:
//!   - it never runs as root: a root caller lends it the user `postgres`, or `nobody`;
//!   - it has its own process group, so that Ctrl-C in a terminal reaches us first and we end it in order;
//!   - data and processes are gone after `stop` or drop, and when we end in any other way.

pub mod port;

use crate::leash::Leash;
use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A running server that nobody will miss.
pub struct Throwaway {
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
    owner: Option<Owner>,
    server: Option<Child>,
    leash: Option<Leash>,
}

#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Throwaway {
    /// Starts a server; `settings` are lines of `postgresql.conf` such as `("max_connections", "200")`.
    pub fn start(settings: &[(&str, &str)]) -> anyhow::Result<Throwaway> {
        Throwaway::start_from(&find_bin()?, settings)
    }

    /// The same with the programs of a given directory.
    pub fn start_from(bin: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Throwaway> {
        let dir = make_dir()?;
        let owner = find_owner(&dir)?;
        if let Some(owner) = owner {
            chown(&dir, Some(owner.uid), Some(owner.gid))
                .context("cannot give the directory to the server's user")?;
        }
        let mut cluster = Throwaway {
            bin: bin.to_owned(),
            dir,
            port: 0,
            owner,
            server: None,
            leash: None,
        };
        cluster.initialise(settings)?;
        cluster.launch()?;
        Ok(cluster)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as a proxy's upstream is written.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A URI for the superuser and the database `postgres`.
    pub fn uri(&self) -> String {
        uri(self.port)
    }

    /// The directory with the cluster and its log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The postmaster's process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// The last lines that the server logged.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Ends the server and removes everything; dropping does the same.
    pub fn stop(mut self) {
        self.end();
    }

    /// Kills the server as a crash would (`pg_ctl stop -m immediate`); the data stay for `restart`.
    pub fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            self.halt(&mut server, "immediate");
            self.leash = None;
        }
    }

    /// Starts the server again on the same port, after `crash`.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let port = self.port;
        self.try_launch(port).with_context(|| {
            format!(
                "the server did not come back; its log ends:\n{}",
                self.log_tail(20)
            )
        })
    }

    fn initialise(&self, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let data = self.dir.join("data");
        let output = self
            .command("initdb")
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .args(["--no-instructions".as_ref(), "-D".as_ref(), data.as_os_str()])
            .output()
            .context("cannot run initdb")?;
        if !output.status.success() {
            bail!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut lines = String::from(
            "\n# A throw-away server: nothing survives, so nothing needs to be flushed.\n\
             fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n\
             listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n\
             shared_buffers = '64MB'\nmax_connections = 120\n\
             max_prepared_transactions = 20\nautovacuum_naptime = '10min'\n",
        );
        for (name, value) in settings {
            lines.push_str(&format!("{name} = '{value}'\n"));
        }
        let conf = data.join("postgresql.conf");
        let before = fs::read_to_string(&conf).context("cannot read postgresql.conf")?;
        fs::write(&conf, before + &lines).context("cannot write postgresql.conf")
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        let mut last = None;
        // Another program may take the free port between our look and the server's bind.
        for _ in 0..5 {
            let port = port::free()?;
            match self.try_launch(port) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let tail = self.log_tail(20);
        Err(last.expect("at least one attempt was made"))
            .with_context(|| format!("the throw-away server did not start; its log ends:\n{tail}"))
    }

    fn try_launch(&mut self, port: u16) -> anyhow::Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))?;
        let server = self
            .command("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &port.to_string()])
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot run postgres")?;
        self.port = port;
        self.leash = Leash::new(server.id(), &self.dir).ok();
        let server = self.server.insert(server);
        let patience = Instant::now() + Duration::from_secs(180);
        while Instant::now() < patience {
            if let Some(status) = server.try_wait()? {
                self.server = None;
                self.leash = None;
                bail!("postgres ended with {status}");
            }
            if is_ready(port) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("postgres did not accept connections for three minutes")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(&self.dir).stdin(Stdio::null());
        // Settings of the caller's environment must not reach our server.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C");
        if let Some(owner) = self.owner {
            command.uid(owner.uid).gid(owner.gid);
        }
        command
    }

    fn halt(&self, server: &mut Child, how: &str) {
        let stopped = self
            .command("pg_ctl")
            .args(["stop", "--silent", "--no-wait", "-m", how, "-D"])
            .arg(self.dir.join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let patience = Instant::now() + Duration::from_secs(60);
        while matches!(&stopped, Ok(status) if status.success()) && Instant::now() < patience {
            if let Ok(Some(_)) = server.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = server.kill();
        let _ = server.wait();
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            self.halt(&mut server, "immediate");
        }
        self.leash = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        self.end();
    }
}

/// The URI of the superuser of a throw-away server, or of a proxy before it.
pub fn uri(port: u16) -> String {
    format!("postgresql://postgres@127.0.0.1:{port}/postgres")
}

/// The directory with `initdb` and `postgres`: PGASSAY_PG_BIN, then PATH, then Debian's and the usual places, newest first.
pub fn find_bin() -> anyhow::Result<PathBuf> {
    let has_server = |dir: &Path| dir.join("initdb").is_file() && dir.join("postgres").is_file();
    if let Some(dir) = std::env::var_os("PGASSAY_PG_BIN") {
        let dir = PathBuf::from(dir);
        if has_server(&dir) {
            return Ok(dir);
        }
        bail!(
            "PGASSAY_PG_BIN is «{}», but there are no programs initdb and postgres",
            dir.display()
        );
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(versioned("/usr/lib/postgresql", "bin"));
    places.extend(versioned("/opt/homebrew/opt", "bin"));
    places.push("/usr/local/pgsql/bin".into());
    places.into_iter().find(|dir| has_server(dir)).context(
        "no PostgreSQL server found: install one (Debian: apt-get install postgresql), or set PGASSAY_PG_BIN to the \
         directory that holds initdb and postgres",
    )
}

fn versioned(root: &str, tail: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else {
        return Vec::new();
    };
    let number = |path: &Path| -> u32 {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .unwrap_or(0)
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort_by_key(|path| std::cmp::Reverse(number(path)));
    found.into_iter().map(|path| path.join(tail)).collect()
}

fn make_dir() -> anyhow::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = std::env::temp_dir();
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("pgassay-{}-{nth}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => {
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
                return Ok(dir);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot create a directory in {}", base.display()));
            }
        }
    }
}

/// Whom the server runs as, when we are root.
fn find_owner(dir: &Path) -> anyhow::Result<Option<Owner>> {
    if fs::metadata(dir)?.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    for wanted in ["postgres", "nobody"] {
        for line in passwd.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, uid, gid, ..] = fields[..]
                && name == wanted
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                return Ok(Some(Owner { uid, gid }));
            }
        }
    }
    bail!("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody")
}

/// Whether the server answers a startup packet with a request or an «Ok» (and not with «the database is starting up»).
/// The session that asked has ended when this returns: nobody shall take it for a stranger.
fn is_ready(port: u16) -> bool {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let mut packet = Vec::from(196_608_u32.to_be_bytes());
    packet.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    let mut message = Vec::from((packet.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(&packet);
    let mut tag = [0];
    let answered = stream.write_all(&message).is_ok() && stream.read_exact(&mut tag).is_ok();
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    answered && tag[0] == b'R'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_and_goes() {
        let cluster = Throwaway::start(&[("max_connections", "20")]).unwrap();
        let (port, dir, pid) = (cluster.port(), cluster.dir().to_owned(), cluster.pid().unwrap());
        assert!(is_ready(port) && dir.exists());
        cluster.stop();
        assert!(!is_ready(port));
        assert!(!dir.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
