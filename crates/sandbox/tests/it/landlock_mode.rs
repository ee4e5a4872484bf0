//! Landlock mode, and the self-test.

use tribune_contract::{LaunchProfile, Mount, SandboxMode, WorkspaceMount, WorkspaceSource};
use tribune_sandbox::self_test;

use crate::support::{Test, as_user, launcher, run, shell};

pub(crate) const TESTS: &[Test] = &[
    ("self_test_passes", self_test_passes),
    ("only_the_workspace_is_writable", only_the_workspace_is_writable),
    ("no_socket_but_a_pair_can_be_made", no_socket_but_a_pair_can_be_made),
    ("other_processes_of_the_user_are_protected", other_processes_of_the_user_are_protected),
    ("orphans_are_killed", orphans_are_killed),
];

fn self_test_passes() {
    let state_dir = tempfile::tempdir().unwrap();
    let found = self_test(&launcher(state_dir.path()));
    assert!(found.full.is_ok() && found.landlock.is_ok() && found.landlock_abi >= 6, "{found:?}");
    assert!(found.advice().is_empty());
}

/// A shell on the host's own root, with a workspace that every user may write.
fn landlock_shell(line: &str, workspace: &std::path::Path) -> LaunchProfile {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(workspace, PermissionsExt::from_mode(0o777)).unwrap();
    let mut profile = shell(line);
    profile.mode = SandboxMode::Landlock;
    profile.cwd = workspace.to_owned();
    profile.workspace = Some(WorkspaceMount {
        target: workspace.to_owned(),
        source: WorkspaceSource::Direct { folder: workspace.to_owned() },
        hide: Vec::new(),
        read_only: Vec::new(),
    });
    profile
}

fn only_the_workspace_is_writable() {
    use std::os::unix::fs::PermissionsExt;
    let (workspace, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(other.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let secret = other.path().join("secret");
    std::fs::write(&secret, "hush").unwrap();
    let line = format!(
        "echo new > made; cat made; cat {0}; echo x > {1}/planted; cat /proc/1/environ; kill -0 1; id -u; echo done",
        secret.display(),
        other.path().display()
    );
    let said = run(&landlock_shell(&line, workspace.path())).unwrap().ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines[2]), ("new", "done"), "{said}");
    assert_ne!(lines[1], "0");
    assert!(!other.path().join("planted").exists());
}

fn no_socket_but_a_pair_can_be_made() {
    let workspace = tempfile::tempdir().unwrap();
    let tries = "import socket\n\
        for f,t in [(socket.AF_UNIX,1),(socket.AF_INET,2),(socket.AF_INET6,2),(socket.AF_NETLINK,3),(socket.AF_VSOCK,1),(socket.AF_INET,1)]:\n\
        \x20 try: socket.socket(f,t); print('made')\n\
        \x20 except PermissionError: print('refused')\n\
        socket.socketpair(); print('pair')\n";
    let mut profile = landlock_shell("", workspace.path());
    profile.program = "/usr/bin/python3".into();
    profile.args = vec!["-c".into(), tries.into()];
    assert_eq!(run(&profile).unwrap().ok(), format!("{}pair\n", "refused\n".repeat(6)));
}

/// What a program tries against other processes of its user: their limits, priorities and memory.
const REACH: &str = "import ctypes, os, resource, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    pid, shared = int(sys.argv[1]), int(sys.argv[2])\n\
    def said(what, done):\n\
    \x20 try: print(what, 'done' if done() != -1 else os.strerror(ctypes.get_errno()))\n\
    \x20 except OSError as e: print(what, e.strerror)\n\
    said('own limit', lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))\n\
    said('own nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, 5))\n\
    said('limit', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))\n\
    said('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n\
    said('nice all', lambda: os.setpriority(os.PRIO_USER, 0, 19))\n\
    said('processor', lambda: os.sched_setaffinity(pid, {0}))\n\
    said('disk', lambda: libc.syscall(251, 1, pid, 3 << 13))\n\
    said('memory', lambda: libc.shmget(shared, 64, 0))\n";

/// Runs these attempts as an ordinary user, in a sandbox and outside.
pub(crate) fn reach_others(folder: &std::path::Path) {
    let mut victim = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
    // Shared memory with a key that only this process uses.
    let number = 0x7b1c_0000_u32 | (victim.id() & 0xffff);
    let made = format!("import ctypes; exit(ctypes.CDLL(None).shmget({number}, 64, 0o1600) == -1)");
    assert!(std::process::Command::new("/usr/bin/python3").args(["-c", &made]).status().unwrap().success());
    let words = ["-c".to_owned(), REACH.to_owned(), victim.id().to_string(), number.to_string()];
    let workspace = folder.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let mut profile = landlock_shell("", &workspace);
    profile.program = "/usr/bin/python3".into();
    profile.args = words.to_vec();
    print!("{}", run(&profile).unwrap().ok());
    let outside = std::process::Command::new("/usr/bin/python3").args(&words).output().unwrap();
    print!("{}", String::from_utf8_lossy(&outside.stdout));
    let gone = format!(
        "import ctypes; c = ctypes.CDLL(None); exit(c.shmctl(c.shmget({number}, 64, 0), 0, None) == -1)"
    );
    assert!(std::process::Command::new("/usr/bin/python3").args(["-c", &gone]).status().unwrap().success());
    victim.kill().unwrap();
    victim.wait().unwrap();
}

fn other_processes_of_the_user_are_protected() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(
        folder.path(),
        Some(crate::probes::bait::AGENT),
        Some(crate::probes::bait::AGENT),
    )
    .unwrap();
    let output = as_user(folder.path(), &["reach-others", folder.path().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let (inside, outside) = lines.split_at(lines.len() / 2);
    let no = "Operation not permitted";
    let others = ["limit", "nice", "nice all", "processor", "disk", "memory"];
    let expected = |what: &str| {
        let own = ["own limit done", "own nice done"].map(str::to_owned).into_iter();
        own.chain(others.map(|other| format!("{other} {what}")))
    };
    assert!(inside.iter().copied().eq(expected(no)), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // What is denied inside works outside.
    assert!(outside.iter().copied().eq(expected("done")), "{said}");
}

fn orphans_are_killed() {
    let (workspace, seconds) = (tempfile::tempdir().unwrap(), crate::support::unique_sleep());
    let line = format!(
        "setsid sleep {seconds} > /dev/null 2>&1 & setsid sleep {seconds} > /dev/null 2>&1 & echo left"
    );
    assert_eq!(run(&landlock_shell(&line, workspace.path())).unwrap().ok(), "left\n");
    assert_eq!(crate::support::marked(&seconds), []);
    let mut mounted = landlock_shell("true", workspace.path());
    mounted.mounts = vec![Mount::ReadOnly { source: "/usr".into(), target: "/usr".into(), hide: Vec::new() }];
    assert_eq!(run(&mounted).unwrap().ok(), "");
}
