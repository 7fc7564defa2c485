//! Where the repository is, and where to keep what a test made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
}

/// A program that speaks English and knows nothing of our own environment about PostgreSQL; `home` is its home.
pub fn bare(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C.UTF-8").env("HOME", home);
    command
}

/// A folder for screenshots and reports, ignored by git.
pub fn artifacts(name: &str) -> PathBuf {
    let dir = root().join("artifacts").join(name);
    std::fs::create_dir_all(&dir).expect("a folder for artifacts");
    dir
}

/// The program itself, built when it is not there or older than its sources.
pub fn binary() -> PathBuf {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    BUILT
        .get_or_init(|| {
            // Tests live in target/PROFILE/deps, programs in target/PROFILE.
            let own = std::env::current_exe().expect("a test is a file");
            let dir = own
                .parent()
                .and_then(Path::parent)
                .expect("target/PROFILE")
                .to_owned();
            // A test of the whole workspace has built it: building it alone would build its dependencies again.
            let program = dir.join("pgassay");
            let built = changed(&program);
            let sources = ["proxy", "audit", "rules", "Cargo.lock"].map(|part| newest(&root().join(part)));
            if built.is_some() && sources.iter().all(|at| *at < built) {
                return program;
            }
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build
                .args(["build", "--quiet", "--package", "pgassay", "--bin", "pgassay"])
                .current_dir(root());
            if dir.ends_with("release") {
                build.arg("--release");
            }
            assert!(
                build.status().expect("cargo runs").success(),
                "pgassay does not build"
            );
            program
        })
        .clone()
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

/// When anything below this was last changed; tests and stories are not part of the program.
fn newest(path: &Path) -> Option<SystemTime> {
    if !path.is_dir() {
        return changed(path);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_part = |path: &PathBuf| !path.ends_with("tests") && !path.ends_with("testscripts");
    let parts = entries.map(|e| e.path()).filter(is_part);
    parts.filter_map(|p| newest(&p)).max()
}
