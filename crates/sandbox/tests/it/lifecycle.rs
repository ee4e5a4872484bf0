//! Starting and ending sandboxes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal};
use tribune_contract::{LaunchStage, LimitedBy, Mount, ProgramExit, RunsAs};
use tribune_sandbox::{LaunchError, ProgramStream, ProgramStreams, clean_up};

use crate::support::{
    Test, as_user, cgroups, children, finish, launcher, marked, prewarmed, run, shell, unique_sleep,
    wait_for_end, wait_for_prewarmed,
};

pub(crate) const TESTS: &[Test] = &[
    ("output_and_exit_status_are_returned", output_and_exit_status_are_returned),
    ("program_reads_its_stdin", program_reads_its_stdin),
    ("signals_reach_the_program", signals_reach_the_program),
    ("wall_clock_limit_kills", wall_clock_limit_kills),
    ("kill_ends_every_process", kill_ends_every_process),
    ("drop_ends_every_process", drop_ends_every_process),
    ("killing_the_launcher_ends_every_process", killing_the_launcher_ends_every_process),
    ("cleanup_removes_cgroups_of_a_killed_daemon", cleanup_removes_cgroups_of_a_killed_daemon),
    ("200_starts_leave_nothing", starts_leave_nothing),
    ("200_starts_by_a_user_leave_nothing", starts_by_a_user_leave_nothing),
    ("killed_fork_server_is_replaced", killed_fork_server_is_replaced),
    ("launchers_of_a_process_share_a_fork_server", launchers_of_a_process_share_a_fork_server),
    ("prewarmed_launcher_exits_with_its_fork_server", prewarmed_launcher_exits_with_its_fork_server),
    (
        "single_launch_prewarms_nothing_and_reserved_uids_fit",
        single_launch_prewarms_nothing_and_reserved_uids_fit,
    ),
    ("stopped_prewarmed_launcher_is_replaced", stopped_prewarmed_launcher_is_replaced),
    ("killed_prewarmed_launcher_is_replaced", killed_prewarmed_launcher_is_replaced),
    (
        "prewarmed_launcher_is_discarded_when_mounts_or_etc_change",
        prewarmed_launcher_is_discarded_when_mounts_or_etc_change,
    ),
    ("sandbox_runs_as_the_requested_user", sandbox_runs_as_the_requested_user),
    ("orphans_are_reaped", orphans_are_reaped),
    ("start_report_has_user_and_limits", start_report_has_user_and_limits),
    ("failures_name_their_cause", failures_name_their_cause),
    ("ordinary_user_cannot_choose_the_sandbox_user", ordinary_user_cannot_choose_the_sandbox_user),
    ("streams_must_be_pipes_or_terminals", streams_must_be_pipes_or_terminals),
];

/// Programs that these tests start.
pub(crate) fn program(words: &[&str]) -> Option<ExitCode> {
    match words {
        ["hold", state_dir, seconds] => {
            let mut child = launcher(state_dir.as_ref())
                .launch(&shell(&format!("echo ready; exec sleep {seconds}")), ProgramStreams::captured())
                .unwrap();
            let mut stdout = BufReader::new(child.stdout().unwrap());
            let mut said = String::new();
            stdout.read_line(&mut said).unwrap();
            // The shell prints before it executes `sleep`.
            while marked(seconds).len() < 2 {
                std::thread::yield_now();
            }
            println!("held");
            let _ = stdout.read(&mut [0]);
        }
        ["many", state_dir] => many(state_dir.as_ref()),
        ["fork-server", state_dir] => replaced_fork_server(state_dir.as_ref()),
        ["shared", state_dir] => shared(state_dir.as_ref()),
        ["once", state_dir] => single_launch(state_dir.as_ref()),
        ["stopped", state_dir] => stopped(state_dir.as_ref()),
        ["prewarmed", state_dir] => prewarmed_exit(state_dir.as_ref()),
        ["killed-prewarmed", state_dir] => killed_prewarmed(state_dir.as_ref()),
        ["changed-machine", state_dir] => changed_machine(state_dir.as_ref()),
        ["look-twice", folder] => look_twice(folder.as_ref()),
        ["made-for", state_dir] => made_for(state_dir.as_ref()),
        ["reach-others", folder] => crate::landlock_mode::reach_others(folder.as_ref()),
        ["choose"] => {
            let mut profile = shell("true");
            profile.runs_as = RunsAs::User { uid: 4242, gid: 4242 };
            println!("{}", run(&profile).unwrap_err());
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn output_and_exit_status_are_returned() {
    let ran = run(&shell("echo out; echo err >&2; exit 7")).unwrap();
    assert_eq!(
        (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
        (ProgramExit::Code { code: 7 }, "out\n", "err\n")
    );
    assert_eq!(run(&shell("kill -9 $$")).unwrap().exit, ProgramExit::Signal { signal: 9 });
}

fn program_reads_its_stdin() {
    let state_dir = tempfile::tempdir().unwrap();
    let mut child = launcher(state_dir.path()).launch(&shell("cat"), ProgramStreams::piped()).unwrap();
    let mut stdin = child.stdin().unwrap();
    stdin.write_all(b"to and fro").unwrap();
    drop(stdin);
    assert_eq!(finish(child).ok(), "to and fro");
}

fn signals_reach_the_program() {
    let state_dir = tempfile::tempdir().unwrap();
    let line = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = launcher(state_dir.path()).launch(&shell(line), ProgramStreams::captured()).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    child.signal(Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap(), ProgramExit::Code { code: 42 });
}

fn wall_clock_limit_kills() {
    let mut profile = shell("sleep 1000 & sleep 1000");
    profile.limits.wall_ms = Some(100);
    assert_eq!(run(&profile).unwrap().exit, ProgramExit::OutOfTime);
}

fn kill_ends_every_process() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let line = format!("sleep {seconds} & setsid sleep {seconds} & sleep {seconds}");
    let mut child = launcher(state_dir.path()).launch(&shell(&line), ProgramStreams::captured()).unwrap();
    child.kill();
    assert_eq!(child.wait().unwrap(), ProgramExit::Killed);
    assert_eq!(marked(&seconds), []);
}

fn drop_ends_every_process() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let child = launcher(state_dir.path())
        .launch(&shell(&format!("sleep {seconds}")), ProgramStreams::captured())
        .unwrap();
    drop(child);
    assert_eq!(marked(&seconds), []);
}

fn killing_the_launcher_ends_every_process() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let line = format!("setsid sleep {seconds} & echo ready; exec sleep {seconds}");
    let mut child = launcher(state_dir.path()).launch(&shell(&line), ProgramStreams::captured()).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let inside = marked(&seconds);
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    inside.into_iter().for_each(wait_for_end);
    assert_eq!(child.wait().unwrap(), ProgramExit::Killed);
    assert_eq!(marked(&seconds), []);
}

fn cleanup_removes_cgroups_of_a_killed_daemon() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["hold".as_ref(), state_dir.path().as_os_str(), seconds.as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    let sessions = state_dir.path().join("sessions");
    let mark = daemon.id().to_string();
    // While the daemon lives, none of its cgroups are removed.
    let own = |swept: Vec<std::path::PathBuf>| -> Vec<std::path::PathBuf> {
        swept.into_iter().filter(|path| path.display().to_string().contains(&format!(".{mark}."))).collect()
    };
    assert_eq!(own(clean_up(&sessions).cgroups), [] as [std::path::PathBuf; 0]);
    assert!(!cgroups(&format!(".{mark}.")).is_empty());
    // The daemon, which has the mark as an argument, and the program inside.
    let inside = marked(&seconds);
    assert_eq!(inside.len(), 2, "{inside:?}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    inside.into_iter().for_each(wait_for_end);
    assert_eq!(marked(&seconds), []);

    // A concurrent test may clean up first, for its own state folder.
    let swept = clean_up(&sessions);
    assert!(swept.not_removed.is_empty(), "{swept:?}");
    assert_eq!(cgroups(&format!(".{mark}.")), [] as [std::path::PathBuf; 0]);
}

/// Starts 200 sandboxes and ends them in different ways. Runs in its own process, because it counts descriptors and is
/// the subreaper.
fn many(state_dir: &std::path::Path) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let seconds = unique_sleep();
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let before = (count("/proc/self/fd"), mounts(), count(state_dir.to_str().unwrap()));
    let mut kept = None;
    for index in 0..200 {
        // The first half starts a fork server each; the second half shares one that prewarms.
        if index == 100 {
            kept = Some(launcher(state_dir));
        }
        if index > 150 {
            wait_for_prewarmed();
        }
        let mut child = launcher(state_dir)
            .launch(&shell(&format!("sleep {seconds} & sleep {seconds}")), ProgramStreams::captured())
            .unwrap();
        match index % 3 {
            0 => {
                child.kill();
                assert_eq!(child.wait().unwrap(), ProgramExit::Killed);
            }
            1 => drop(child),
            _ => {
                child.signal(Signal::TERM).unwrap();
                assert_eq!(child.wait().unwrap(), ProgramExit::Signal { signal: Signal::TERM.as_raw() });
            }
        }
    }
    drop(kept);
    let after = (count("/proc/self/fd"), mounts(), count(state_dir.to_str().unwrap()));
    assert_eq!(before, after);
    assert_eq!(children(std::process::id()), [] as [u32; 0], "neither a prewarmed launcher nor a zombie");
    assert_eq!(marked(&seconds), []);
    assert_eq!(cgroups(&format!(".{}.", std::process::id())), [] as [std::path::PathBuf; 0]);
    println!("nothing is left");
}

fn starts_leave_nothing() {
    let state_dir = tempfile::tempdir().unwrap();
    let output =
        Command::new(std::env::current_exe().unwrap()).arg("many").arg(state_dir.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "nothing is left\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn starts_by_a_user_leave_nothing() {
    let state_dir = tempfile::tempdir().unwrap();
    let output = as_user(state_dir.path(), &["many", state_dir.path().to_str().unwrap()]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "nothing is left\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Kills the fork server. Runs in its own process, because it looks at its children.
fn replaced_fork_server(state_dir: &std::path::Path) {
    let children = || children(std::process::id());
    let launcher = launcher(state_dir);
    let says = |word: &str| {
        finish(launcher.launch(&shell(&format!("echo {word}")), ProgramStreams::captured()).unwrap())
    };
    assert_eq!(says("one").ok(), "one\n");
    let [first] = children()[..] else { panic!("one fork server") };
    // So that the fork server is idle while it is examined.
    wait_for_prewarmed();
    // It holds nothing of any caller: `/dev/null` and one socket.
    assert_eq!(std::fs::read(format!("/proc/{first}/environ")).unwrap(), b"");
    let held = std::fs::read_dir(format!("/proc/{first}/fd")).unwrap();
    let held = held.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string());
    // Two of these belong to the prewarmed launcher. `/dev/full` is leaked by this program on purpose, for the probes.
    let is_known = |name: &String| {
        let known = ["/dev/null", "socket:", "anon_inode:[pidfd]", "pidfd:", "/dev/full"];
        known.iter().any(|known| name.starts_with(known))
    };
    assert!(held.into_iter().all(|name| is_known(&name)));

    // Running sandboxes survive the fork server, and the next launch starts another.
    let child = launcher.launch(&shell("sleep 0.2; echo two"), ProgramStreams::captured()).unwrap();
    rustix::process::kill_process(pid(first), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("three").ok(), "three\n");
    assert_eq!(finish(child).ok(), "two\n");
    let [second] = children()[..] else { panic!("one fork server, and no zombie is left") };
    assert_ne!(first, second);
    drop(launcher);
    assert_eq!(children(), [] as [u32; 0]);
    println!("replaced");
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

/// Runs a part of this program in its own process. It prints one line on success.
fn part(words: &[&str], state_dir: &std::path::Path, says: &str) {
    let output = Command::new(std::env::current_exe().unwrap()).args(words).arg(state_dir).output().unwrap();
    let erred = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), says, "{erred}");
}

/// Examines a prewarmed launcher that never gets a request.
fn prewarmed_exit(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    assert_eq!(prewarmed(), [], "nothing is prewarmed before the first launch");
    finish(launcher.launch(&shell("true"), ProgramStreams::captured()).unwrap());
    let (waiting, first) = wait_for_prewarmed();
    // It holds nothing of any caller: no environment, and no request.
    for process in [waiting, first] {
        assert_eq!(std::fs::read(format!("/proc/{process}/environ")).unwrap(), b"");
    }
    drop(launcher);
    let is_there = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(!is_there(waiting) && !is_there(first));
    println!("ended");
}

/// The launchers of one process share a fork server.
fn shared(state_dir: &std::path::Path) {
    let (one, other) = (launcher(state_dir), launcher(&state_dir.join("other")));
    for launcher in [&one, &other] {
        assert_eq!(
            finish(launcher.launch(&shell("echo on"), ProgramStreams::captured()).unwrap()).ok(),
            "on\n"
        );
    }
    assert_eq!(children(std::process::id()).len(), 1);
    drop(one);
    assert_eq!(finish(other.launch(&shell("echo on"), ProgramStreams::captured()).unwrap()).ok(), "on\n");
    drop(other);
    assert_eq!(children(std::process::id()), [] as [u32; 0]);
    println!("shared");
}

fn launchers_of_a_process_share_a_fork_server() {
    part(&["shared"], tempfile::tempdir().unwrap().path(), "shared\n");
}

fn prewarmed_launcher_exits_with_its_fork_server() {
    part(&["prewarmed"], tempfile::tempdir().unwrap().path(), "ended\n");
}

/// Launches without prewarming, and with a user id that was reserved.
fn single_launch(state_dir: &std::path::Path) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let single = launcher(state_dir).without_prewarm();
    let ran = finish(single.launch(&shell("sleep 0.1; echo on"), ProgramStreams::captured()).unwrap());
    assert_eq!((ran.ok().as_str(), prewarmed()), ("on\n", Vec::new()));
    drop(single);
    assert_eq!(children(std::process::id()), [] as [u32; 0]);

    // Callers that need the user id first, to set the owner of sockets, also get the prewarmed launcher.
    let launcher = launcher(state_dir);
    for _ in 0..3 {
        finish(launcher.launch(&shell("true"), ProgramStreams::captured()).unwrap());
        let (waiting, _) = wait_for_prewarmed();
        let uid = tribune_sandbox::fresh_user();
        let mut profile = shell("true");
        profile.runs_as = RunsAs::User { uid, gid: uid };
        let child = launcher.launch(&profile, ProgramStreams::captured()).unwrap();
        assert_eq!((child.id(), child.started().uid), (waiting, uid));
        finish(child);
        wait_for_prewarmed();
    }
    println!("reserved user");
}

fn single_launch_prewarms_nothing_and_reserved_uids_fit() {
    part(&["once"], tempfile::tempdir().unwrap().path(), "reserved user\n");
}

/// A fork server whose prewarmed launcher is stopped is replaced.
fn stopped(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let says = |word: &str| {
        finish(launcher.launch(&shell(&format!("echo {word}")), ProgramStreams::captured()).unwrap())
    };
    assert_eq!(says("one").ok(), "one\n");
    let (waiting, _) = wait_for_prewarmed();
    rustix::process::kill_process(pid(waiting), Signal::STOP).unwrap();
    assert_eq!(says("two").ok(), "two\n");
    rustix::process::kill_process(pid(waiting), Signal::KILL).unwrap();
    println!("went on");
}

fn stopped_prewarmed_launcher_is_replaced() {
    part(&["stopped"], tempfile::tempdir().unwrap().path(), "went on\n");
}

/// Kills the prewarmed launcher or its process 1, then launches.
fn killed_prewarmed(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let says = |word: &str| {
        finish(launcher.launch(&shell(&format!("echo {word}")), ProgramStreams::captured()).unwrap())
    };
    assert_eq!(says("one").ok(), "one\n");
    let (waiting, first) = wait_for_prewarmed();
    rustix::process::kill_process(pid(waiting), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("two").ok(), "two\n");
    let (_, first) = wait_for_prewarmed();
    rustix::process::kill_process(pid(first), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("three").ok(), "three\n");
    println!("no loss");
}

fn killed_prewarmed_launcher_is_replaced() {
    part(&["killed-prewarmed"], tempfile::tempdir().unwrap().path(), "no loss\n");
}

/// Lists a folder, and again after each line of input. The sandbox was prewarmed before that line.
fn look_twice(folder: &std::path::Path) {
    let mut profile = shell("ls /shown; cat /etc/services");
    profile.mounts =
        vec![Mount::ReadOnly { source: folder.to_owned(), target: "/shown".into(), hide: Vec::new() }];
    let launcher = launcher(folder);
    for line in ["first", "second", "third"] {
        let ran = finish(launcher.launch(&profile, ProgramStreams::captured()).unwrap()).ok();
        let (_, first) = wait_for_prewarmed();
        println!("{line}: {}", ran.replace('\n', " "));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        if line == "first" {
            // The prewarmed process 1 holds the old mount, and is discarded without waiting for the next launch.
            wait_for_end(pid(first));
        }
    }
}

/// In its own mount namespace: changes a mount, and replaces a file in `/etc`, between two launches.
fn changed_machine(state_dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    let tmpfs = |place: &std::path::Path| {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", place, "tmpfs", flags, Some(c"mode=755")).unwrap();
    };
    // A writable copy of the parts of /etc that this test needs.
    let cache = std::fs::read("/etc/ld.so.cache").unwrap();
    tmpfs("/etc".as_ref());
    std::fs::write("/etc/ld.so.cache", cache).unwrap();
    std::fs::write("/etc/services", "before").unwrap();
    let shown = state_dir.join("shown");
    std::fs::create_dir(&shown).unwrap();
    for folder in [state_dir, &shown] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::write(shown.join("below"), "").unwrap();
    let exe = state_dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    // As root and as an ordinary user.
    for user in [0, crate::probes::bait::AGENT] {
        let mut looking = Command::new(&exe);
        looking.arg("look-twice").arg(&shown).stdin(Stdio::piped()).stdout(Stdio::piped());
        looking.uid(user).gid(user);
        let mut looking = looking.spawn().unwrap();
        let mut said = BufReader::new(looking.stdout.take().unwrap()).lines();
        let mut stdin = looking.stdin.take().unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "first: below before");
        tmpfs(&shown);
        std::fs::write(shown.join("above"), "").unwrap();
        stdin.write_all(b"\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "second: above before");
        // Replaces a file and restores the folder's modification time.
        let times = std::fs::metadata("/etc").unwrap().modified().unwrap();
        std::fs::write("/etc/services.new", "after").unwrap();
        std::fs::rename("/etc/services.new", "/etc/services").unwrap();
        std::fs::File::open("/etc").unwrap().set_modified(times).unwrap();
        stdin.write_all(b"\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "third: above after");
        stdin.write_all(b"\n").unwrap();
        assert!(looking.wait().unwrap().success());
        rustix::mount::unmount(&shown, rustix::mount::UnmountFlags::DETACH).unwrap();
        std::fs::write("/etc/services", "before").unwrap();
    }
    println!("as it is");
}

fn killed_fork_server_is_replaced() {
    let state_dir = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("fork-server")
        .arg(state_dir.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "replaced\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn prewarmed_launcher_is_discarded_when_mounts_or_etc_change() {
    let state_dir = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .arg("changed-machine")
        .arg(state_dir.path())
        .output()
        .unwrap();
    let erred = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "as it is\n", "{erred}");
}

/// Alternates launches with a dynamic user and a chosen one: each sandbox runs as the requested user.
fn made_for(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let mut fresh = std::collections::BTreeSet::new();
    for round in 0..4 {
        for runs_as in [RunsAs::Dynamic, RunsAs::User { uid: 4242, gid: 4243 }] {
            let mut profile = shell("read line");
            profile.runs_as = runs_as;
            let mut child = launcher.launch(&profile, ProgramStreams::piped()).unwrap();
            let started = (child.started().uid, child.started().gid);
            match runs_as {
                RunsAs::Dynamic => assert!(fresh.insert(started), "{started:?} came twice"),
                RunsAs::User { uid, gid } => assert_eq!(started, (uid, gid)),
            }
            // The reported ids are those of process 1 in the kernel.
            let [first] = children(child.id())[..] else { panic!("process 1 is the launcher's only child") };
            let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap_or_default();
            let ids = |what: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
                line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
            };
            assert_eq!((ids("Uid:"), ids("Gid:")), (vec![started.0; 4], vec![started.1; 4]));
            assert_eq!(ids("Groups:"), [] as [u32; 0]);
            child.stdin().unwrap().write_all(b"\n").unwrap();
            assert_eq!(finish(child).exit, ProgramExit::Code { code: 0 });
            if round % 2 == 0 {
                wait_for_prewarmed();
            }
        }
    }
    println!("each");
}

fn sandbox_runs_as_the_requested_user() {
    part(&["made-for"], tempfile::tempdir().unwrap().path(), "each\n");
}

fn orphans_are_reaped() {
    // A hundred orphans that exit at once; none may remain as a zombie.
    let line = "for i in $(seq 100); do (sh -c 'exit 0' &) ; done; \
                for i in $(seq 200); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); \
                [ $n = 0 ] && echo buried && exit; sleep 0.05; done";
    assert_eq!(run(&shell(line)).unwrap().ok(), "buried\n");
}

fn start_report_has_user_and_limits() {
    let state_dir = tempfile::tempdir().unwrap();
    let child = launcher(state_dir.path())
        .launch(&shell("id -u; hostname; ls /proc/self/fd"), ProgramStreams::captured())
        .unwrap();
    let started = child.started().clone();
    assert!(started.uid > 1000 && started.gid == started.uid, "{started:?}");
    assert_ne!(started.limited_by, LimitedBy::Rlimits, "root can always make a cgroup");
    assert_eq!(finish(child).ok(), "1000\nsandbox\n0\n1\n2\n3\n");
}

fn failures_name_their_cause() {
    let stage = |profile: &tribune_contract::LaunchProfile| match run(profile) {
        Err(LaunchError::Failed(failed)) => (failed.stage, failed.to_string()),
        other => panic!("{other:?}"),
    };
    let mut missing = shell("true");
    missing.program = "/nowhere/program".into();
    let (at, text) = stage(&missing);
    assert_eq!(at, LaunchStage::Program);
    assert!(text.contains("/nowhere/program"), "{text}");

    let mut unmounted = shell("true");
    unmounted.mounts =
        vec![Mount::ReadOnly { source: "/nowhere/folder".into(), target: "/there".into(), hide: Vec::new() }];
    let (at, text) = stage(&unmounted);
    assert_eq!(at, LaunchStage::Mounts);
    assert!(text.contains("/nowhere/folder"), "{text}");

    let mut inside_usr = shell("true");
    inside_usr.mounts = vec![Mount::Tmpfs { target: "/usr/made-up/x".into(), bytes: 4096, inodes: 10 }];
    assert_eq!(stage(&inside_usr).0, LaunchStage::Mounts);

    let mut newer = shell("true");
    newer.landlock_abi = 9;
    let (at, text) = stage(&newer);
    assert_eq!(at, LaunchStage::Landlock);
    assert!(text.contains("version 9 is needed"), "{text}");

    let mut lost = shell("true");
    lost.cwd = "/nowhere".into();
    assert_eq!(stage(&lost).0, LaunchStage::Program);
}

fn ordinary_user_cannot_choose_the_sandbox_user() {
    let folder = tempfile::tempdir().unwrap();
    let said = as_user(folder.path(), &["choose"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("only root can choose"), "{said}");
}

fn streams_must_be_pipes_or_terminals() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for path in [folder.path().to_owned(), folder.path().join("file")] {
        let opened = std::fs::File::open(&path).unwrap();
        let streams =
            ProgramStreams { stdin: ProgramStream::Given(opened.into()), ..ProgramStreams::captured() };
        let refused = launcher(folder.path()).launch(&shell("true"), streams).unwrap_err();
        assert!(matches!(refused, LaunchError::Stream), "{refused}");
    }
}
