//! Calls `tribune` with a temporary home.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

pub(crate) fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("tribune")
}

/// The root of the source tree.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A temporary folder with a home in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct CliOutput {
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

    /// A call with this home, in this folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .env("TRIBUNE_HOME", self.home())
            .env_remove("NO_COLOR")
            .current_dir(self.folder.path());
        // API keys from this machine's environment must not affect tests.
        for name in
            tribune_providers::catalog::BUILT_IN_PROVIDERS.iter().filter_map(|provider| provider.key_env)
        {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> CliOutput {
        cli_output(self.command(args).output().unwrap())
    }

    /// Runs a call that must succeed. Returns its output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.call(args);
        assert_eq!((said.code, said.err.contains("error")), (0, false), "{args:?}: {said:?}");
        said.out
    }

    /// Runs a call that must fail with one line of error. Returns that line.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let said = self.call(args);
        assert_eq!(said.code, 1, "{args:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{args:?}: {said:?}");
        said.err.trim_end().to_owned()
    }

    /// Writes notes through standard input, one per line.
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

pub(crate) fn cli_output(output: Output) -> CliOutput {
    CliOutput {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a shell script in its own user and mount namespace, where it may mount anything. Works for root and for
/// ordinary users.
pub(crate) fn in_own_mounts(script: &str, place: &Place) -> CliOutput {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "bash", "-euo", "pipefail", "-c", script])
        .env("TRIBUNE", binary())
        .env("PLACE", place.folder.path())
        .output()
        .expect("unshare (util-linux) starts");
    let said = cli_output(output);
    assert!(
        !said.err.contains("unshare:"),
        "these tests need unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor): {}",
        said.err
    );
    said
}
