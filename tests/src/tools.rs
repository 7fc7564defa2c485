//! Programs that `deploy/setup.sh test` installs, and where to keep what a test made.

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// A program in PATH; the test fails with advice when there is none of these names.
pub fn program(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/bin".into(), "/usr/sbin".into()]);
    let found = names.iter().flat_map(|name| places.iter().map(move |dir| dir.join(name))).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("none of {names:?} is installed: run deploy/setup.sh test"))
}

/// A part of the folder that the set-up script fills.
pub fn dependency(part: &str) -> PathBuf {
    let given = std::env::var_os("PGASSAY_DEPS").map(PathBuf::from);
    let places = [given, Some(root().join(".deps")), Some("/opt/pgassay-deps".into())];
    let found = places.into_iter().flatten().map(|dir| dir.join(part)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{part} is not there: run deploy/setup.sh test"))
}

/// A folder for screenshots and reports, ignored by git.
pub fn artifacts(name: &str) -> PathBuf {
    let dir = root().join("artifacts").join(name);
    std::fs::create_dir_all(&dir).expect("a folder for artifacts");
    dir
}
