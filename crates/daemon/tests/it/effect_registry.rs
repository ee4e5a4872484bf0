//! The effect registry: every source file that starts a program, opens a connection or writes a file, and who is
//! responsible for it. The test fails when a source file gains an effect that is not listed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who is responsible for an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// It happens for an agent and requires an `Admission`.
    Gate,
    /// The operator configured or called it; no agent can cause it.
    Operator,
    /// The daemon's own state, whose file names no agent chooses.
    Daemon,
    /// The sandbox. Those that launch it or land its changes are responsible for them.
    Sandbox,
}

/// The effects of each file. `docs/adr` and the guide of the law explain the gate; `gate::Admission` proves it by
/// types.
const REGISTRY: [(&str, &[(Effect, By)]); 77] = [
    ("cli/src/agents.rs", &[(Effect::Writes, By::Operator)]),
    ("cli/src/approvals/draft.rs", &[(Effect::Starts, By::Operator), (Effect::Writes, By::Operator)]),
    ("cli/src/demo/demo_home.rs", &[(Effect::Writes, By::Operator)]),
    (
        "cli/src/detach.rs",
        &[(Effect::Starts, By::Operator), (Effect::Reaches, By::Operator), (Effect::Writes, By::Operator)],
    ),
    ("cli/src/init.rs", &[(Effect::Writes, By::Operator)]),
    ("cli/src/ledger/mod.rs", &[(Effect::Writes, By::Operator)]),
    ("cli/src/run/mod.rs", &[(Effect::Starts, By::Operator)]),
    ("client/src/lib.rs", &[(Effect::Reaches, By::Operator)]),
    ("daemon/src/daemon_info.rs", &[(Effect::Writes, By::Daemon)]),
    ("daemon/src/state_folder.rs", &[(Effect::Writes, By::Daemon)]),
    ("daemon/src/token_files.rs", &[(Effect::Writes, By::Daemon)]),
    // Asks the kernel for a route; no packet is sent.
    ("egress/src/net/mod.rs", &[(Effect::Reaches, By::Daemon)]),
    ("egress/src/proxy/network.rs", &[(Effect::Reaches, By::Gate)]),
    ("egress/src/socket_dir.rs", &[(Effect::Writes, By::Daemon)]),
    ("governance/src/gate/hooks/sandboxed.rs", &[(Effect::Starts, By::Operator)]),
    (
        "governance/src/gate/hooks/transport.rs",
        &[(Effect::Starts, By::Operator), (Effect::Reaches, By::Operator)],
    ),
    ("governance/src/policy_archive.rs", &[(Effect::Writes, By::Daemon)]),
    ("governance/src/transcript.rs", &[(Effect::Writes, By::Daemon)]),
    ("providers/src/client.rs", &[(Effect::Reaches, By::Operator)]),
    ("registry/src/board.rs", &[(Effect::Writes, By::Daemon)]),
    ("registry/src/locked_jsonl.rs", &[(Effect::Writes, By::Daemon)]),
    ("registry/src/profiles/install.rs", &[(Effect::Starts, By::Operator), (Effect::Writes, By::Operator)]),
    ("registry/src/roster/mod.rs", &[(Effect::Writes, By::Operator)]),
    ("sandbox/src/enter/baseline.rs", &[(Effect::Starts, By::Sandbox), (Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/exec_program.rs", &[(Effect::Starts, By::Sandbox)]),
    ("sandbox/src/enter/init_setup.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/limits.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/mask_scan.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/masks.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/mount.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/mount_sources.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/relay.rs", &[(Effect::Reaches, By::Sandbox)]),
    ("sandbox/src/enter/rootfs.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/seccomp.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/socket_probe.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/enter/symlink_trace.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/host/cgroup.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/host/fork_server.rs", &[(Effect::Starts, By::Sandbox)]),
    ("sandbox/src/host/streams.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/self_test.rs", &[(Effect::Starts, By::Operator)]),
    ("sandbox/src/unsandboxed.rs", &[(Effect::Starts, By::Operator)]),
    ("sandbox/src/workspace/apply.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/autorun_scan.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/autorun_snapshot.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/discard.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/inaccessible_dirs.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/land_journal.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/node.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/overlay.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/quarantine.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/remove_tree.rs", &[(Effect::Writes, By::Sandbox)]),
    ("sandbox/src/workspace/resolve_beneath.rs", &[(Effect::Writes, By::Sandbox)]),
    // Removes the files of a canary's agent.
    ("sessions/src/canary/probe_run.rs", &[(Effect::Writes, By::Daemon)]),
    // CLI agents of the operator's roster, each in a sandbox; the law decides about their calls.
    ("sessions/src/cli_agents/clear_dir.rs", &[(Effect::Writes, By::Daemon)]),
    ("sessions/src/cli_agents/mod.rs", &[(Effect::Starts, By::Operator)]),
    ("sessions/src/cli_agents/session_dir.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/export.rs", &[(Effect::Writes, By::Operator)]),
    ("storage/src/files.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/home.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/keys.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/rotating_file.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/store/connection.rs", &[(Effect::Writes, By::Daemon)]),
    ("storage/src/wal/file.rs", &[(Effect::Writes, By::Daemon)]),
    ("tools/src/exec/command_view.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/exec/sandboxed.rs", &[(Effect::Starts, By::Gate)]),
    ("tools/src/exec/tree_stamp.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/exec/unsandboxed.rs", &[(Effect::Starts, By::Gate)]),
    ("tools/src/mcp/server.rs", &[(Effect::Starts, By::Gate)]),
    ("tools/src/mcp/server_code.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/memory.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/schedules.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/web/client.rs", &[(Effect::Reaches, By::Gate)]),
    ("tools/src/workspace_dir.rs", &[(Effect::Writes, By::Gate)]),
    ("tools/src/workspaces/cleanup.rs", &[(Effect::Writes, By::Daemon)]),
    // The store of sandbox changes. The sandbox's own half, below, writes what lands in a project.
    ("tools/src/workspaces/land.rs", &[(Effect::Writes, By::Daemon)]),
    ("tools/src/workspaces/mod.rs", &[(Effect::Writes, By::Daemon)]),
    ("tools/src/write_target.rs", &[(Effect::Writes, By::Gate)]),
];

/// The number of call sites in each file that start a program or open a connection, and of those that write in the
/// tools: one more in a listed file fails the test as well.
const PLACES: [(&str, Effect, usize); 30] = [
    ("cli/src/approvals/draft.rs", Effect::Starts, 1),
    ("cli/src/detach.rs", Effect::Starts, 2),
    ("cli/src/detach.rs", Effect::Reaches, 1),
    ("cli/src/run/mod.rs", Effect::Starts, 1),
    ("client/src/lib.rs", Effect::Reaches, 1),
    ("egress/src/net/mod.rs", Effect::Reaches, 1),
    ("egress/src/proxy/network.rs", Effect::Reaches, 1),
    ("governance/src/gate/hooks/sandboxed.rs", Effect::Starts, 1),
    ("governance/src/gate/hooks/transport.rs", Effect::Starts, 1),
    ("governance/src/gate/hooks/transport.rs", Effect::Reaches, 1),
    ("providers/src/client.rs", Effect::Reaches, 1),
    ("registry/src/profiles/install.rs", Effect::Starts, 2),
    ("sandbox/src/enter/baseline.rs", Effect::Starts, 1),
    ("sandbox/src/enter/exec_program.rs", Effect::Starts, 1),
    ("sandbox/src/enter/relay.rs", Effect::Reaches, 1),
    ("sandbox/src/host/fork_server.rs", Effect::Starts, 1),
    ("sandbox/src/self_test.rs", Effect::Starts, 1),
    ("sandbox/src/unsandboxed.rs", Effect::Starts, 3),
    ("sessions/src/cli_agents/mod.rs", Effect::Starts, 1),
    // These two open files to read them.
    ("tools/src/exec/command_view.rs", Effect::Writes, 2),
    ("tools/src/exec/sandboxed.rs", Effect::Starts, 1),
    ("tools/src/exec/tree_stamp.rs", Effect::Writes, 1),
    ("tools/src/exec/unsandboxed.rs", Effect::Starts, 1),
    ("tools/src/mcp/server.rs", Effect::Starts, 1),
    ("tools/src/mcp/server_code.rs", Effect::Writes, 1),
    ("tools/src/memory.rs", Effect::Writes, 7),
    ("tools/src/schedules.rs", Effect::Writes, 1),
    ("tools/src/web/client.rs", Effect::Reaches, 1),
    ("tools/src/workspace_dir.rs", Effect::Writes, 7),
    ("tools/src/write_target.rs", Effect::Writes, 6),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Starts,
    Reaches,
    Writes,
}

impl Effect {
    const ALL: [Self; 3] = [Self::Starts, Self::Reaches, Self::Writes];

    /// The text of a source file that shows the effect.
    const fn signs(self) -> &'static [&'static str] {
        match self {
            Self::Starts => &[
                "Command::new(",
                "unsandboxed::in_own_group(",
                "in_terminal_group(",
                "launcher.launch(&",
                "posix_spawn",
                "execve",
                "libc::exec",
            ],
            Self::Reaches => &[
                "TcpStream::connect",
                "TcpSocket::",
                "UdpSocket::",
                "UnixStream::connect",
                "Client::builder()",
                "Client::new()",
                "reqwest::get",
                "connect_async",
                "HttpConnector",
            ],
            Self::Writes => &[
                "fs::write(",
                "File::create",
                "OpenOptions::new(",
                "fs::rename(",
                "fs::remove_file(",
                "fs::remove_dir",
                "fs::create_dir",
                "fs::hard_link(",
                "fs::copy(",
                "renameat",
                "openat",
                "unlinkat",
                "mkdirat",
                "linkat",
                "symlinkat",
                "ftruncate",
                "create_new(",
                "DirBuilder::new(",
                ".write(true)",
                ".append(true)",
                "fs::symlink(",
                "fs::set_permissions(",
                "fs::set_len(",
                ".set_len(",
                "lchown(",
                "fchown",
                "chownat(",
                "chmodat(",
                ".write_at(",
                ".write_all_at(",
            ],
        }
    }
}

/// The folder of all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Collects every source file of the program, without tests and test tools.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !["tests", "testkit", "target"].contains(&name.as_str()) {
            sources(&path, into);
        } else if name.ends_with(".rs")
            && !name.ends_with("tests.rs")
            && path.to_str().unwrap().contains("/src/")
        {
            into.push(path);
        }
    }
}

/// The program text of a file: without comments, and without its tests.
fn program(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The effects of each file, with the number of call sites.
fn found() -> BTreeMap<String, BTreeMap<Effect, usize>> {
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    assert!(files.len() > 300, "the sources were not found");
    let mut found = BTreeMap::new();
    for path in files {
        let text = program(&std::fs::read_to_string(&path).unwrap());
        let places = |effect: Effect| effect.signs().iter().map(|sign| text.matches(sign).count()).sum();
        let mut effects: BTreeMap<Effect, usize> =
            Effect::ALL.into_iter().map(|effect| (effect, places(effect))).collect();
        effects.retain(|_, places| *places > 0);
        if !effects.is_empty() {
            let name = path.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned();
            found.insert(name, effects);
        }
    }
    found
}

/// Whether the file is part of the tools that run calls of agents. `workspaces` is not: it keeps the changes of sandboxes.
fn is_tool(file: &str) -> bool {
    file.starts_with("tools/src/") && !file.starts_with("tools/src/workspaces/")
}

#[test]
fn l1_every_effect_is_in_the_registry() {
    let listed: BTreeMap<String, Vec<Effect>> = REGISTRY
        .iter()
        .map(|(file, effects)| ((*file).to_owned(), effects.iter().map(|(effect, _)| *effect).collect()))
        .collect();
    let found: BTreeMap<String, Vec<Effect>> =
        found().into_iter().map(|(file, effects)| (file, effects.into_keys().collect())).collect();
    assert_eq!(found, listed, "a file gained or lost an effect: list it with the one responsible");
}

#[test]
fn l1_every_call_site_of_an_effect_is_counted() {
    let is_counted = |file: &str, effect: Effect| effect != Effect::Writes || is_tool(file);
    let mut found: Vec<(String, Effect, usize)> = Vec::new();
    for (file, effects) in self::found() {
        let counted = effects.into_iter().filter(|(effect, _)| is_counted(&file, *effect));
        found.extend(counted.map(|(effect, places)| (file.clone(), effect, places)));
    }
    let listed: Vec<(String, Effect, usize)> =
        PLACES.iter().map(|(file, effect, places)| ((*file).to_owned(), *effect, *places)).collect();
    assert_eq!(found, listed, "a file has one call site more, or less: list it with the one responsible");
}

#[test]
fn l1_every_effect_for_agents_requires_an_admission() {
    for (file, effects) in REGISTRY {
        let behind_gate = is_tool(file) || file.starts_with("egress/src/proxy/");
        for (effect, by) in effects {
            assert_eq!(*by == By::Gate, behind_gate, "{file} {effect:?}");
        }
    }
    // Connections out of sandboxes are made in one place, which takes an admission by value.
    let network = std::fs::read_to_string(crates().join("egress/src/proxy/network.rs")).unwrap();
    assert!(
        program(&network)
            .contains("pub(super) async fn connect(\n    network: &dyn Network,\n    admission: Admission,")
    );
    let dials: Vec<&str> = program(&network)
        .lines()
        .filter(|line| line.contains(".dial("))
        .map(str::trim)
        .map(|_| "once")
        .collect();
    assert_eq!(dials, ["once"]);
    // MCP servers are started in one place, which takes an admission by value.
    let server = std::fs::read_to_string(crates().join("tools/src/mcp/server.rs")).unwrap();
    assert!(program(&server).contains("pub(super) async fn start(\n        admission: Admission,"));
    // Changes of sandboxes land in one place, which takes an admission by value.
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    let landing: Vec<String> = files
        .iter()
        .map(|path| program(&std::fs::read_to_string(path).unwrap()))
        .filter(|text| text.contains("workspace::land("))
        .collect();
    assert_eq!(landing.len(), 1);
    assert!(landing[0].contains("pub fn land(&self, admission: Admission)"));
    assert_eq!(landing[0].matches("workspace::land(").count(), 1);
    // The tools have one entry point, which takes an admission by value; the rest is private.
    let tools = std::fs::read_to_string(crates().join("tools/src/lib.rs")).unwrap();
    let tools = program(&tools);
    let entrances: Vec<&str> =
        tools.lines().filter(|line| line.contains("pub async fn ")).map(str::trim).collect();
    assert_eq!(entrances, ["pub async fn run(&self, admission: Admission) -> ToolRun {"]);
}
