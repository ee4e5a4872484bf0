//! `tribune` in a home of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

pub(crate) fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("tribune")
}

/// The top of the source tree.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A folder with a home in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A call with this place's home, in this place's folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .env("TRIBUNE_HOME", self.home())
            .env_remove("NO_COLOR")
            .current_dir(self.folder.path());
        // Keys of the machine are nobody's here.
        for name in tribune_agents::provider::catalog::BUILT_IN.iter().filter_map(|provider| provider.key_env)
        {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Said {
        said(self.command(args).output().unwrap())
    }

    /// A call that must succeed; its output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.call(args);
        assert_eq!((said.code, said.err.contains("error")), (0, false), "{args:?}: {said:?}");
        said.out
    }

    /// A call that must fail with one line of error; that line.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let said = self.call(args);
        assert_eq!(said.code, 1, "{args:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{args:?}: {said:?}");
        said.err.trim_end().to_owned()
    }

    /// Notes, one per line, through standard input.
    pub(crate) fn notes(&self, count: usize) {
        use std::io::Write as _;
        let mut command = self.command(&["ledger", "note", "--lines"]);
        let mut child =
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for n in 0..count {
            writeln!(stdin, "note {n}").unwrap();
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

pub(crate) fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a shell script in a user and mount namespace of its own, where it may mount what it likes. Works for root and for
/// ordinary users alike.
pub(crate) fn in_own_mounts(script: &str, place: &Place) -> Said {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "bash", "-euo", "pipefail", "-c", script])
        .env("TRIBUNE", binary())
        .env("PLACE", place.folder.path())
        .output()
        .expect("unshare (util-linux) starts");
    let said = said(output);
    assert!(
        !said.err.contains("unshare:"),
        "these tests need unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor): {}",
        said.err
    );
    said
}
