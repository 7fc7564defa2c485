//! Where the repository is, and where to keep what a test made.

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// A folder for screenshots and reports, ignored by git.
pub fn artifacts(name: &str) -> PathBuf {
    let dir = root().join("artifacts").join(name);
    std::fs::create_dir_all(&dir).expect("a folder for artifacts");
    dir
}
