//! Commands of agents in the daemon's default sandbox.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_storage::home::Home;
use tribune_testkit::{assert_sound, run_turn, turn_params};

use crate::fixture::Place;
use crate::run::groups_of;
use crate::turn_crash::start_with;

const KEY: &str = "agent:main:rpc:local:dm:op";
const LAW: &str = "{ overrides: { exec: \"off\" } }";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\"}\n";

/// A daemon whose agent may run commands.
pub(crate) struct SandboxedAgent {
    place: Place,
    child: Child,
    address: String,
    client: RpcClient,
}

impl SandboxedAgent {
    async fn new(config: &str) -> Self {
        Self::with_tools(config, "exec").await
    }

    pub(crate) async fn with_tools(config: &str, tools: &str) -> Self {
        let place = Place::new();
        let mandate = format!("---\ntools: {tools}\n---\n# For work\n");
        for (file, text) in [
            ("config.json5", config),
            ("mandates/work.md", &mandate),
            ("policy/law.json5", LAW),
            ("data/agent-roster.jsonl", ROSTER),
            ("agents/main/workspace/.git/hooks/pre-commit", "#!/bin/sh\n"),
            ("secret.txt", "hush"),
        ] {
            let path = place.home().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir(place.path("tmp")).unwrap();
        let (child, address, client) = Self::start(&place).await;
        Self { place, child, address, client }
    }

    /// Starts the daemon with its own folder for temporary files.
    async fn start(place: &Place) -> (Child, String, RpcClient) {
        let (child, address, token) = start_with(place, &[("TMPDIR", place.path("tmp").to_str().unwrap())]);
        let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        (child, address, client)
    }

    /// Runs a command and returns its result.
    pub(crate) async fn exec(&mut self, call: Value) -> String {
        let (events, _) = run_turn(&mut self.client, KEY, &format!("!call exec {call}")).await.unwrap();
        let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
        result["content"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn run(&mut self, command: &str) -> String {
        self.exec(json!({ "command": command })).await
    }

    fn workspace(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.place.home().join("agents/main/workspace").join(name)).ok()
    }

    /// The verdicts about connections, in order.
    pub(crate) async fn egress_verdicts(&mut self) -> Vec<Value> {
        let wanted = json!({ "entity_id": format!("egress:{KEY}"), "quality": "policy_verdict" });
        let page = self.client.call("ledger.tail", &wanted).await.unwrap();
        page["entries"].as_array().unwrap().iter().map(|entry| entry["entry"]["payload"].clone()).collect()
    }

    pub(crate) fn end(mut self) {
        drop(self.client);
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert_sound(&Home::at(self.place.home()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_command_sees_only_its_workspace() {
    let mut works = SandboxedAgent::new("{}").await;
    let ran = works.run("mkdir -p sub && echo made > sub/file && cat sub/file && pwd").await;
    assert_eq!(ran, "exit code 0\n[stdout]\nmade\n/workspace\n");
    assert_eq!(works.workspace("sub/file").as_deref(), Some("made\n"));
    for cwd in ["sub", "/workspace/sub", "/workspace//sub/"] {
        let inside = works.exec(json!({ "command": "pwd; ls", "cwd": cwd })).await;
        assert_eq!(inside, "exit code 0\n[stdout]\n/workspace/sub\nfile\n", "{cwd}");
    }
    let outside = works.exec(json!({ "command": "pwd", "cwd": "/workspaces" })).await;
    assert!(!outside.starts_with("exit code"), "{outside}");
    let nowhere = works.exec(json!({ "command": "pwd", "cwd": "" })).await;
    assert!(nowhere.starts_with("`cwd` is empty"), "{nowhere}");

    let secret = works.place.home().join("secret.txt");
    let looked =
        works.run(&format!("cat {0} || ls {1}", secret.display(), works.place.home().display())).await;
    assert!(!looked.contains("hush") && looked.contains("No such file or directory"), "{looked}");
    let user = works
        .run("id -u; cat /proc/sys/kernel/core_pattern > /dev/null; echo x > /proc/sys/kernel/core_pattern")
        .await;
    assert!(!user.contains("[stdout]\n0\n") && user.contains("Read-only file system"), "{user}");
    let env = works.run("env | cut -d= -f1 | grep -vx -e PWD -e OLDPWD -e SHLVL -e _ | sort").await;
    assert_eq!(env, "exit code 0\n[stdout]\nHOME\nLANG\nPATH\nTERM\n");
    let planted = works.run("echo curl >> .git/hooks/pre-commit; mv .git/hooks elsewhere; echo left").await;
    assert!(planted.contains("left"), "{planted}");
    assert_eq!(works.workspace(".git/hooks/pre-commit").as_deref(), Some("#!/bin/sh\n"));
    works.end();
}

/// A file that an agent creates in its workspace neither blocks its next command nor lifts a protection.
#[tokio::test(flavor = "multi_thread")]
async fn l3_non_utf8_names_keep_protection() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut works = SandboxedAgent::new("{}").await;
    let folder =
        works.place.home().join("agents/main/workspace").join(std::ffi::OsStr::from_bytes(b"\xffproj"));
    std::fs::create_dir_all(folder.join("plain")).unwrap();
    assert!(works.run("ls").await.starts_with("exit code 0"), "the name itself is no harm");
    let config = folder.join(".git/config");
    std::fs::create_dir(folder.join(".git")).unwrap();
    std::fs::write(&config, "[core]\n").unwrap();
    let ran = works.run("echo evil >> ./?proj/.git/config; echo ran").await;
    assert!(ran.contains("[stdout]\nran\n"), "{ran}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "[core]\n");
    let planted = works.run("echo a > rc; ln -s rc .bashrc; mkdir d; ln -s d .vscode; echo ran").await;
    assert!(planted.contains("[stdout]\nran\n"), "{planted}");
    assert!(planted.contains("`.bashrc` is `quarantined-.bashrc-1` now"), "{planted}");
    let ran = works.run("echo evil > rc; echo made > plain; cat plain; ls -a").await;
    assert!(ran.contains("[stdout]\nmade\n") && ran.contains("quarantined-.vscode-1"), "{ran}");
    assert_eq!(works.workspace(".bashrc"), None);
    works.end();
}

/// Names that the kernel cannot forbid while a command runs are gone when it has ended, also if it was ended.
#[tokio::test(flavor = "multi_thread")]
async fn l3_autorun_files_made_by_a_command_are_quarantined() {
    let mut works = SandboxedAgent::new("{}").await;
    let made = [
        (".gitmodules", ".gitmodules"),
        (".idea/a", ".idea"),
        (".git/modules/x/config", ".git/modules/x/config"),
        ("sub/.envrc", "sub/.envrc"),
        (".husky/pre-commit", ".husky"),
        (".GIT/config", ".GIT/config"),
        (".git/rebase-merge/git-rebase-todo", ".git/rebase-merge"),
    ];
    let names = made.map(|(name, _)| name).join(" ");
    let ran =
        works.run(&format!("for f in {names}; do mkdir -p $(dirname $f); echo x > $f; done; echo ran")).await;
    assert!(ran.starts_with("exit code 0\n[stdout]\nran\n[quarantined, because"), "{ran}");
    for (name, moved) in made {
        assert_eq!(works.workspace(name), None, "{name}");
        assert!(ran.contains(&format!("`{moved}` is `quarantined-")), "{moved}: {ran}");
    }
    let late = works.exec(json!({ "command": "echo x > .envrc; sleep 60", "timeoutSeconds": 1 })).await;
    assert!(late.contains("`.envrc` is `quarantined-.envrc-1` now"), "{late}");
    assert_eq!(works.workspace(".envrc"), None);
    let plain = works.run("echo x > plain; ls -a").await;
    assert!(plain.contains("quarantined-.husky-1") && !plain.contains("[quarantined"), "{plain}");
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_command_reaches_no_address_not_even_the_daemon() {
    let mut works = SandboxedAgent::new("{}").await;
    let (host, port) = works.address.split_once(':').unwrap();
    let knock = format!("bash -c 'echo > /dev/tcp/{host}/{port}' && echo open || echo closed");
    assert!(works.run(&knock).await.contains("[stdout]\nclosed\n"));
    let devices = works.run("cut -d: -f1 -s /proc/net/dev").await;
    assert_eq!(
        devices.trim_end().lines().map(str::trim).collect::<Vec<_>>(),
        ["exit code 0", "[stdout]", "lo"]
    );
    works.end();
    // Without a sandbox the same connection arrives.
    let mut works = SandboxedAgent::new("{ sandbox: \"off\" }").await;
    let (host, port) = works.address.split_once(':').unwrap();
    let knock = format!("bash -c 'echo > /dev/tcp/{host}/{port}' && echo open || echo closed");
    assert!(works.run(&knock).await.contains("[stdout]\nopen\n"));
    works.end();
}

/// The ledger records the sandbox of a command with its result.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_records_the_sandbox_of_a_command() {
    for (config, mode) in [("{}", "full"), ("{ sandbox: \"off\" }", "off")] {
        let mut works = SandboxedAgent::new(config).await;
        let call = json!({ "command": "true", "timeoutSeconds": 7 });
        let (events, _) = run_turn(&mut works.client, KEY, &format!("!call exec {call}")).await.unwrap();
        let entries = events.iter().filter(|event| event["type"] == "ledger_append");
        let sandbox = entries.map(|event| &event["entry"]["payload"]["sandbox"]).find(|held| !held.is_null());
        let held = sandbox.unwrap_or_else(|| panic!("{events:#?}"));
        assert_eq!((&held["mode"], &held["limits"]["wallMs"]), (&json!(mode), &json!(7000)), "{held}");
        if mode == "full" {
            let by = held["limited_by"].as_str().unwrap();
            assert!(["cgroup v2", "cgroup v1", "rlimits only"].contains(&by), "{held}");
            assert!(held["limits"]["memoryBytes"].as_u64().unwrap() > 0, "{held}");
            assert_eq!(held["masked"], 1, "{held}");
        }
        works.end();
    }
}

/// A command that was ended does not count as one that ran: the ledger, the events and `sessions show` say what
/// happened.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_records_that_a_command_was_ended() {
    for config in ["{}", "{ sandbox: \"off\" }"] {
        let mut works = SandboxedAgent::new(config).await;
        let call = json!({ "command": "echo begun; sleep 300", "timeoutSeconds": 1 });
        let (events, _) = run_turn(&mut works.client, KEY, &format!("!call exec {call}")).await.unwrap();
        let payloads = events.iter().map(|event| &event["entry"]["payload"]);
        let results: Vec<_> = payloads
            .filter(|payload| payload["tool"] == "exec" && payload["outcome"] != json!(null))
            .collect();
        assert_eq!(results.len(), 1, "{events:#?}");
        assert_eq!((&results[0]["outcome"], &results[0]["is_error"]), (&json!("timed_out"), &json!(true)));
        let told = events.iter().find(|event| event["type"] == "tool_result").unwrap();
        assert_eq!(told["is_error"], true, "{told}");
        assert!(told["content"].as_str().unwrap().contains("were ended after 1 s"), "{told}");
        let shown = works.place.ok(&["sessions", "show", KEY]);
        let line = shown.lines().find(|line| line.starts_with("exec ")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains("  timed out  "), "{shown}");
        works.end();
    }
}

/// A hook program reads agents' messages, and has no more access to this machine than the agents.
#[tokio::test(flavor = "multi_thread")]
async fn l7_hook_runs_sandboxed_by_default() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (script, listed, secret) =
        (folder.path().join("hook.sh"), folder.path().join("listed"), folder.path().join("secret"));
    std::fs::write(&listed, "a list").unwrap();
    std::fs::write(&secret, "hush").unwrap();
    let text = format!(
        "#!/bin/sh\nread -r event\ncase \"$event\" in *tool_name*|*toolName*) told=told;; *) told=\"untold\";; esac\n\
         printf '{{\"block\":true,\"blockReason\":\"%s, %s, %s, %s\"}}' $told \"$(cat {}  2>/dev/null || echo unlisted)\" \
         \"$(cat {} 2>/dev/null || echo shut)\" \"$(cut -d: -f1 -s /proc/net/dev | tr -d ' \\n')\"\n",
        listed.display(),
        secret.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let hook = |rest: &str| {
        format!("{{ hooks: [{{ on: 'before_tool_call', command: ['{}']{rest} }}] }}", script.display())
    };
    let reads = format!(", reads: ['{}']", listed.display());
    for (rest, said) in [(reads.as_str(), "told, a list, shut, lo"), ("", "told, unlisted, shut, lo")] {
        let mut works = SandboxedAgent::new(&hook(rest)).await;
        let denied = works.run("true").await;
        assert!(denied.starts_with("denied (hook.hook.sh)") && denied.contains(said), "{denied}");
        works.end();
    }
    let mut works = SandboxedAgent::new(&hook(", sandbox: 'off'")).await;
    let denied = works.run("true").await;
    assert!(denied.contains("told, a list, hush, "), "{denied}");
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn command_timeout_ends_all_its_processes() {
    let mut works = SandboxedAgent::new("{}").await;
    let mark = mark();
    let late = json!({ "command": format!("setsid sleep {mark} & sleep {mark}"), "timeoutSeconds": 1 });
    let ended = works.exec(late).await;
    assert!(ended.starts_with("the command and everything it started were ended after 1 s"), "{ended}");
    assert!(sleeping(&mark).is_empty());
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn command_does_not_see_hidden_files() {
    let mut works = SandboxedAgent::new("{ workspaces: { hide: ['.env', 'keys/private'] } }").await;
    let folder = works.place.home().join("agents/main/workspace");
    std::fs::create_dir_all(folder.join("keys/private")).unwrap();
    for file in [".env", "keys/private/key", "keys/public"] {
        std::fs::write(folder.join(file), "hush").unwrap();
    }
    let seen =
        works.run("cat .env keys/private/key keys/public; cp .env copy; wc -c < copy; echo x > .env").await;
    assert!(seen.contains("[stdout]\nhush0\n"), "{seen}");
    assert_eq!(works.workspace(".env").as_deref(), Some("hush"));
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_if_files_cannot_be_hidden() {
    let mut works = SandboxedAgent::new("{ sandbox: 'landlock', workspaces: { hide: ['.env'] } }").await;
    let refused = works.run("echo ran").await;
    assert!(refused.contains("it does not support hidden or read-only names"), "{refused}");
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn command_over_quota_is_ended() {
    let mut works = SandboxedAgent::new("{ workspaces: { maxBytes: 4194304 } }").await;
    let line = "for n in 1 2 3 4; do head -c 2000000 /dev/urandom > f$n; done; echo written; sleep 30";
    let ended = works.run(line).await;
    assert!(ended.starts_with("ended, because its changes take "), "{ended}");
    assert!(ended.contains("workspaces.maxBytes is 4096 KiB") && ended.contains("written"), "{ended}");
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_killed_daemon_leaves_no_process_and_restart_removes_traces() {
    let mut works = SandboxedAgent::with_tools("{}", "exec, egress").await;
    // The files that the first command of a daemon creates are kept for later ones.
    assert!(works.run("true").await.starts_with("exit code 0"));
    // The transcript of a turn may be written after its end was shown.
    let told = works.place.home().join("agents/main/sessions");
    within("the first turn is told", || std::fs::read_dir(&told).is_ok_and(|mut told| told.next().is_some()))
        .await;
    let ways_out = works.place.home().join("run/s");
    let sockets = || std::fs::read_dir(&ways_out).map_or(0, Iterator::count);
    let (names, mounts) = (names(works.place.folder.path()), mounts());
    let mark = mark();
    let call = json!({ "command": format!("setsid sleep {mark} & sleep {mark}") });
    works.client.send("turn.run", &turn_params(KEY, &format!("!call exec {call}"))).await.unwrap();
    within("the command runs", || sleeping(&mark).len() == 2).await;
    let daemon = works.child.id();
    let family = family(daemon);
    // The fork server, the launcher, process 1, the shell and both sleeping processes.
    assert!(family.len() >= 6 && sockets() == 1, "{family:?}");
    let had_groups = !groups_of(daemon).is_empty();
    works.child.kill().unwrap();
    works.child.wait().unwrap();
    within("all of it is gone", || family.iter().all(|who| born(who.0) != Some(who.1))).await;
    assert!(sleeping(&mark).is_empty());

    let (child, address, client) = SandboxedAgent::start(&works.place).await;
    works = SandboxedAgent { child, address, client, ..works };
    assert_eq!((groups_of(daemon), sockets()), (Vec::new(), 0));
    assert_eq!(self::mounts(), mounts);
    assert_eq!(self::names(works.place.folder.path()), names);
    assert_eq!(std::fs::read_dir(works.place.path("tmp")).unwrap().count(), 0);
    // Commands still run, in the same sandbox.
    let call = json!({ "command": "true" });
    let (events, _) = run_turn(&mut works.client, KEY, &format!("!call exec {call}")).await.unwrap();
    let entries = events.iter().filter(|event| event["type"] == "ledger_append");
    let held = entries.filter_map(|event| event["entry"]["payload"]["sandbox"]["limited_by"].as_str()).next();
    assert_eq!(held.unwrap().starts_with("cgroup"), had_groups);
    works.end();
}

/// All paths below a folder, without the ledger's own files, which depend on who has it open.
fn names(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    // An empty folder for egress sockets is ignored too.
    let comes_and_goes = |path: &str| ["-wal", "-shm", "run/s"].iter().any(|end| path.ends_with(end));
    found.retain(|path| !comes_and_goes(path.to_str().unwrap()));
    found
}

/// The mounts that this process sees.
fn mounts() -> BTreeSet<String> {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

/// The parent and the start time of a process; number and start time together identify it.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields[1].parse().ok()?, fields[19].parse().ok()?))
}

fn born(pid: u32) -> Option<u64> {
    Some(stat(pid)?.1)
}

/// A process and all its descendants, each with its start time.
fn family(root: u32) -> Vec<(u32, u64)> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, u32, u64)> =
        pids.filter_map(|pid| stat(pid).map(|(parent, born)| (pid, parent, born))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, its, _)| *its == parent).map(|(pid, ..)| *pid));
        next += 1;
    }
    found.into_iter().filter_map(|pid| Some((pid, born(pid)?))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn landlock_mode_confines_commands() {
    let mut works = SandboxedAgent::new("{ sandbox: \"landlock\" }").await;
    let secret = works.place.home().join("secret.txt");
    let ran = works.run(&format!("echo made > file; cat file; cat {}", secret.display())).await;
    assert!(!ran.contains("hush"), "{ran}");
    works.end();
}

/// A number of seconds that no other process sleeps.
pub(crate) fn mark() -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
    format!("9999.{random}")
}

/// Processes that sleep for exactly this time.
pub(crate) fn sleeping(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.starts_with("sleep ") && line.contains(mark)).collect()
}

async fn within(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("this did not happen: {what}");
}
