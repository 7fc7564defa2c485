//! Throw-away certificates, made with openssl.

use crate::cluster::other_user;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority and a certificate of it for `localhost` and 127.0.0.1.
pub struct Certificates {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    dir: tempfile::TempDir,
}

impl Certificates {
    /// `name` tells certificates apart.
    pub fn make(name: &str) -> Certificates {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("our directory");
        let at = |file: &str| dir.path().join(file);
        std::fs::write(at("extensions"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("a file");
        let ca = format!("/CN=authority of {name}");
        openssl(
            dir.path(),
            &[
                "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", &ca, "-keyout",
                "ca.key", "-out", "ca.crt",
            ],
        );
        let subject = format!("/CN={name}");
        openssl(
            dir.path(),
            &[
                "req", "-nodes", "-newkey", "rsa:2048", "-subj", &subject, "-keyout", "own.key", "-out",
                "own.csr",
            ],
        );
        openssl(
            dir.path(),
            &[
                "x509",
                "-req",
                "-days",
                "2",
                "-in",
                "own.csr",
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-sha256",
                "-extfile",
                "extensions",
                "-out",
                "own.crt",
            ],
        );
        for (file, mode) in [("ca.crt", 0o644), ("own.crt", 0o644), ("own.key", 0o600)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(at(file), permissions).expect("our file");
        }
        let made = Certificates {
            authority: at("ca.crt"),
            certificate: at("own.crt"),
            key: at("own.key"),
            dir,
        };
        // The server that will read them is not root.
        if let Some((uid, gid)) = other_user() {
            chown(&made.key, Some(uid), Some(gid)).expect("we are root");
        }
        made
    }

    pub fn directory(&self) -> &Path {
        self.dir.path()
    }
}

fn openssl(dir: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").current_dir(dir).args(arguments).output();
    let output = output.expect("openssl is installed (deploy/setup.sh test)");
    assert!(
        output.status.success(),
        "openssl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
