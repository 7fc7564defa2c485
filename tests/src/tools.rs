//! Where the repository is, and where to keep what a test made.

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
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
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = std::process::Command::new(cargo);
            build
                .args(["build", "--quiet", "--package", "pgassay", "--bin", "pgassay"])
                .current_dir(root());
            // Tests live in target/PROFILE/deps, programs in target/PROFILE.
            let own = std::env::current_exe().expect("a test is a file");
            let dir = own
                .parent()
                .and_then(Path::parent)
                .expect("target/PROFILE")
                .to_owned();
            if dir.ends_with("release") {
                build.arg("--release");
            }
            assert!(
                build.status().expect("cargo runs").success(),
                "pgassay does not build"
            );
            dir.join("pgassay")
        })
        .clone()
}
