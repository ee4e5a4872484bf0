//! `tribune run` with the real binary: what it may change, what it reaches, how it ends, and what the ledger records.

mod egress;
mod exit_codes;
mod interactive;
mod interruption;
mod ordinary_user;
mod stdio;

pub(crate) use exit_codes::groups_of;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tribune_config::Config;
use tribune_testkit::{TempHome, assert_sound, config};

use crate::fixture::{CliOutput, cli_output};
use crate::in_process_daemon::{InProcessDaemon, PATIENCE, RunningCall};

/// A daemon with a project folder.
pub(crate) struct Site {
    pub(crate) daemon: InProcessDaemon,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(&config())
    }

    pub(crate) fn with(config: &Config) -> Self {
        Self::in_home(TempHome::new(), config)
    }

    pub(crate) fn in_home(home: TempHome, config: &Config) -> Self {
        let site = Self { daemon: InProcessDaemon::with(home, config) };
        std::fs::create_dir(site.project()).unwrap();
        site.write("a.txt", "one\n");
        site
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.daemon.home().folder.path().join("project")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.project().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.project().join(name)).ok()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.daemon.command(args);
        command.current_dir(self.project());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CliOutput {
        cli_output(self.command(&[&["run"], args].concat()).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a line of shell in a run with this name.
    pub(crate) fn shell(&self, name: &str, line: &str) -> CliOutput {
        self.run(&["--name", name, "--", "sh", "-c", line])
    }

    /// Starts a run. Signals that the test runner ignores, as `nohup` does, are reset.
    pub(crate) fn start(&self, args: &[&str]) -> RunningCall {
        let plain = self.command(&[&["run"], args].concat());
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.project());
        RunningCall::new(command)
    }

    /// The payloads of an entity's entries of a kind.
    pub(crate) fn log(&self, entity: &str, quality: &str) -> Vec<Value> {
        let page = self.daemon.ask("ledger.tail", &json!({ "entity_id": entity, "quality": quality }));
        let entries = page["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["entry"]["payload"].clone()).collect()
    }

    pub(crate) fn events(&self, entity: &str, quality: &str) -> Vec<String> {
        let log = self.log(entity, quality);
        log.iter().filter_map(|payload| payload["event"].as_str()).map(str::to_owned).collect()
    }

    /// The only pending approval.
    pub(crate) fn question(&self) -> Value {
        let began = Instant::now();
        loop {
            let page = self.daemon.ask("approval.list", &json!({}));
            if let Some(one) = page["approvals"].as_array().unwrap().first() {
                return one.clone();
            }
            assert!(began.elapsed() < PATIENCE, "nobody asks");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn end(self) {
        let home = self.daemon.stop();
        assert_sound(&home.home);
    }
}

pub(crate) fn session(name: &str) -> String {
    format!("agent:run:run:local:dm:{name}")
}

/// Waits until a condition holds.
pub(crate) fn within(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn l7_run_sees_only_its_project() {
    let site = Site::new();
    site.write("sub/b.txt", "two\n");
    let secret = site.daemon.home().home.root().join("run/token");
    let line = format!("pwd; cat a.txt; cat {} 2>&1; id -u; echo $HOME; hostname", secret.display());
    let ran = site.shell("look", &line);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("/workspace", "one", "1000"), "{ran:?}");
    assert!(lines[2].contains("No such file"), "{ran:?}");
    assert_eq!((lines[4], lines[5]), ("/home/agent", "sandbox"));
    assert_eq!(ran.err, "", "nothing was changed, so there is nothing to say");

    // In a subfolder of the project, with a read-only folder and a variable.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("c.txt"), "three\n").unwrap();
    let ro = other.path().canonicalize().unwrap();
    let line = format!("pwd; cat b.txt {0}/c.txt; echo x > {0}/d.txt; echo $TOKEN", ro.display());
    let args = [
        "run",
        "--rw",
        "..",
        "--ro",
        ro.to_str().unwrap(),
        "--env",
        "TOKEN=t",
        "-q",
        "--",
        "sh",
        "-c",
        &line,
    ];
    let mut command = site.command(&args);
    let ran =
        cli_output(command.current_dir(site.project().join("sub")).stdin(Stdio::null()).output().unwrap());
    assert_eq!(ran.out, "/workspace/sub\ntwo\nthree\nt\n", "{ran:?}");
    assert!(ran.err.contains("Read-only file system") && !other.path().join("d.txt").exists(), "{ran:?}");
    site.end();
}

#[test]
fn l3_folder_with_the_operators_token_is_never_mounted() {
    let site = Site::new();
    let around = site.daemon.home().folder.path().to_str().unwrap().to_owned();
    let home = site.daemon.home().home.root().to_str().unwrap().to_owned();
    let link = site.project().join("link");
    std::os::unix::fs::symlink(&home, &link).unwrap();
    for args in [
        ["--rw", around.as_str()],
        ["--rw", home.as_str()],
        ["--ro", home.as_str()],
        ["--ro", around.as_str()],
        ["--ro", link.to_str().unwrap()],
        ["--rw", "/"],
    ] {
        let ran = site.run(&[&args[..], &["--", "true"]].concat());
        assert_eq!(ran.code, 64, "{args:?}: {ran:?}");
        assert!(ran.err.contains("holds Tribune's own home or is in it"), "{ran:?}");
    }
    let ran = site.run(&["--rw", "/nowhere", "--", "true"]);
    assert!(ran.code == 64 && ran.err.contains("name an existing folder"), "{ran:?}");
    site.end();
}

#[test]
fn l3_system_interfaces_are_never_mounted() {
    let site = Site::new();
    let link = site.project().join("link");
    std::os::unix::fs::symlink("/proc/self/root/proc", &link).unwrap();
    let link = link.to_str().unwrap();
    for path in ["/proc", "/proc/1", "/sys/kernel", "/dev", "/dev/shm", "/run", link] {
        for way in ["--ro", "--rw"] {
            let ran = site.run(&[way, path, "--", "true"]);
            assert_eq!(ran.code, 64, "{way} {path}: {ran:?}");
            assert!(ran.err.contains("belongs to the running system"), "{ran:?}");
        }
    }
    // A folder with a similar name is an ordinary folder.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(folder.path().join("f"), "shown\n").unwrap();
    let shown = folder.path().to_str().unwrap();
    let ran =
        site.run(&["-q", "--ro", shown, "--", "sh", "-c", &format!("cat {shown}/f; echo x > /var/tmp/y")]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "shown\n"), "{ran:?}");
    site.end();
}

#[test]
fn changes_go_where_the_mode_says() {
    let site = Site::new();
    site.write(".git/hooks/pre-commit", "#!/bin/sh\n");
    let direct =
        ["--workspace", "direct", "--", "sh", "-c", "echo two > b.txt; echo evil >> .git/hooks/pre-commit"];
    let ran = site.run(&direct);
    assert_eq!((ran.code, ran.err.contains("Read-only file system")), (2, true), "{ran:?}");
    assert_eq!(site.read("b.txt").as_deref(), Some("two\n"), "at once");
    assert_eq!(site.read(".git/hooks/pre-commit").as_deref(), Some("#!/bin/sh\n"));

    let ran = site.run(&["--workspace", "read-only", "--", "sh", "-c", "cat b.txt; echo x > c.txt"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, "two\n"), "{ran:?}");
    assert!(ran.err.contains("Read-only file system") && site.read("c.txt").is_none(), "{ran:?}");

    let list = site.daemon.ok(&["workspace", "list"]);
    assert!(list.starts_with("no changes wait"), "neither leaves anything to land: {list}");
    site.end();
}

#[test]
fn l7_run_does_not_see_hidden_files() {
    let mut config = config();
    config.workspaces.hide = vec![".env".to_owned(), "keys".to_owned()];
    let site = Site::with(&config);
    for file in [".env", "deep/.ENV", "keys/key"] {
        site.write(file, "hush");
    }
    let line = "cat .env deep/.ENV; ls keys; echo x > .env; rm -f .env; cat a.txt";
    for mode in ["overlay", "direct", "read-only"] {
        let ran = site.run(&["--workspace", mode, "--", "sh", "-c", line]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "one\n"), "{mode}: {ran:?}");
        assert_eq!(site.read(".env").as_deref(), Some("hush"), "{mode}");
    }
    // Not in read-only folders either.
    let other = tempfile::tempdir().unwrap();
    for (file, text) in [(".env", "hush"), ("plain", "shown\n")] {
        std::fs::write(other.path().join(file), text).unwrap();
    }
    let shown = other.path().canonicalize().unwrap();
    let line = format!("cat {0}/.env {0}/plain", shown.display());
    let ran = site.run(&["--ro", shown.to_str().unwrap(), "--", "sh", "-c", &line]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "shown\n"), "{ran:?}");
    site.end();
}

#[test]
fn ledger_records_the_sandbox_of_a_run() {
    let site = Site::new();
    assert_eq!(site.shell("noted", "echo secret-argument; exit 3").code, 3);
    let log = site.log(&session("noted"), "session_lifecycle");
    let events: Vec<&str> = log.iter().map(|payload| payload["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["opened", "run_began", "run_started", "run_ended", "closed"]);
    assert_eq!((&log[0]["mandate"], &log[1]["program"]), (&json!("run"), &json!("sh")));
    assert_eq!((&log[1]["workspace"], &log[1]["places"]), (&json!("overlay"), &json!(0)));
    assert!(log[1]["command"].as_str().unwrap().starts_with("b3c:"), "{}", log[1]);
    assert!(!serde_json::to_string(&log).unwrap().contains("secret-argument"), "texts are in the vault");
    assert_eq!((&log[2]["sandbox"], log[2]["memory_bytes"].is_u64()), (&json!("full"), true));
    assert!(["cgroup v2", "cgroup v1", "rlimits only"].contains(&log[2]["limited_by"].as_str().unwrap()));
    assert_eq!((&log[3]["outcome"], &log[3]["code"]), (&json!("exited"), &json!(3)));
    let shown = site.daemon.ok(&["sessions", "show", &session("noted")]);
    assert!(shown.contains("LIMITED BY") && shown.lines().any(|line| line.starts_with("run ")), "{shown}");
    // The session takes no turns, and leaves nothing behind.
    assert_eq!(std::fs::read_dir(site.daemon.home().home.root().join("workspaces")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(site.daemon.home().home.root().join("run/s")).unwrap().count(), 0);
    site.end();
}

#[test]
fn l1_nothing_runs_while_everything_is_stopped_or_the_sandbox_is_not_whole() {
    let site = Site::new();
    site.daemon.ok(&["stop-all"]);
    let ran = site.run(&["--", "true"]);
    assert!(ran.code == 125 && ran.err.contains("everything is stopped"), "{ran:?}");
    site.daemon.ok(&["resume"]);
    assert_eq!(site.run(&["--", "true"]).code, 0);
    site.end();
    let mut config = config();
    config.sandbox = tribune_config::Sandbox::Landlock;
    let site = Site::with(&config);
    let ran = site.run(&["--", "true"]);
    assert!(ran.code == 125 && ran.err.contains("needs all of the sandbox"), "{ran:?}");
    site.end();
}

#[test]
fn usage_errors_are_reported_before_anything_runs() {
    let site = Site::new();
    for (args, part) in [
        (&["--net", "*.example.org", "--", "true"][..], "is not a host to connect to"),
        (&["--name", "../x", "--", "true"], "is not a valid name of a run"),
        (&["--env", "NOBODY_HAS_THIS", "--", "true"], "the environment has no variable"),
        (&["--workspace", "both", "--", "true"], "invalid value 'both'"),
        (&["--net", "example.org"], "required arguments"),
    ] {
        let ran = site.run(args);
        assert!(ran.code == 64 && ran.err.contains(part), "{args:?}: {ran:?}");
    }
    site.end();
}
