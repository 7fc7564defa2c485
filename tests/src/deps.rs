//! What `deploy/setup.sh test` installs: drivers, and a server of another version.

use std::path::{Path, PathBuf};

/// The path of `name` in the private folder of the set-up script.
///
/// Without it a test has nothing to test: under CI that is a failure; elsewhere it is said, and the test is
/// left out.
pub fn find(name: &str) -> Option<PathBuf> {
    let dir = match std::env::var_os("PGASSAY_DEPS") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps"),
    };
    or_missing(Some(dir.join(name)).filter(|path| path.exists()), name)
}

/// A file that a package of the system installs.
pub fn system(path: &str) -> Option<PathBuf> {
    or_missing(Some(PathBuf::from(path)).filter(|path| path.exists()), path)
}

fn or_missing(found: Option<PathBuf>, what: &str) -> Option<PathBuf> {
    if found.is_none() {
        let words = format!("{what} is missing: run `deploy/setup.sh test`");
        let ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
        assert!(!ci, "{words}");
        eprintln!("left out: {words}");
    }
    found
}
