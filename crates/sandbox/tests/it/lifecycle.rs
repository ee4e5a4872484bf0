//! Starting, ending and being ended.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal};
use tribune_contract::{Exit, LaunchStage, LimitedBy, Mount, RunsAs};
use tribune_sandbox::{LaunchError, Stream, Streams, sweep};

use crate::support::{
    Test, ahead, as_user, cgroups, children, finish, launcher, marked, run, shell, unique_sleep,
    wait_for_end, wait_for_one_ahead,
};

pub(crate) const TESTS: &[Test] = &[
    ("what_a_program_says_and_how_it_ends_is_told", what_a_program_says_and_how_it_ends_is_told),
    ("a_program_reads_what_it_is_given", a_program_reads_what_it_is_given),
    ("signals_reach_the_program", signals_reach_the_program),
    ("time_runs_out", time_runs_out),
    ("a_kill_ends_everything", a_kill_ends_everything),
    ("dropping_ends_everything", dropping_ends_everything),
    ("killing_the_launcher_ends_everything", killing_the_launcher_ends_everything),
    (
        "a_daemon_that_is_killed_leaves_nothing_after_a_sweep",
        a_daemon_that_is_killed_leaves_nothing_after_a_sweep,
    ),
    ("200_starts_leave_nothing", starts_leave_nothing),
    ("200_starts_by_a_user_leave_nothing", starts_by_a_user_leave_nothing),
    ("an_usher_that_is_gone_is_replaced", an_usher_that_is_gone_is_replaced),
    ("launchers_of_a_process_share_an_usher", launchers_of_a_process_share_an_usher),
    ("what_was_made_ahead_ends_with_its_usher", what_was_made_ahead_ends_with_its_usher),
    (
        "one_for_once_makes_none_ahead_and_users_are_told_before",
        one_for_once_makes_none_ahead_and_users_are_told_before,
    ),
    ("what_was_made_ahead_and_is_stopped_is_replaced", what_was_made_ahead_and_is_stopped_is_replaced),
    ("what_was_made_ahead_and_is_gone_is_nobodys_loss", what_was_made_ahead_and_is_gone_is_nobodys_loss),
    ("what_was_made_ahead_is_of_this_machine_as_it_is", what_was_made_ahead_is_of_this_machine_as_it_is),
    ("who_it_was_made_for_is_who_it_is", who_it_was_made_for_is_who_it_is),
    ("orphans_are_buried", orphans_are_buried),
    ("it_says_who_it_is_and_what_limits_it", it_says_who_it_is_and_what_limits_it),
    ("failures_name_their_cause", failures_name_their_cause),
    ("a_user_cannot_choose_another", a_user_cannot_choose_another),
    ("streams_are_pipes_and_terminals", streams_are_pipes_and_terminals),
];

/// Programs that these tests start.
pub(crate) fn program(words: &[&str]) -> Option<ExitCode> {
    match words {
        ["hold", state_dir, seconds] => {
            let mut child = launcher(state_dir.as_ref())
                .launch(&shell(&format!("echo ready; exec sleep {seconds}")), Streams::captured())
                .unwrap();
            let mut stdout = BufReader::new(child.stdout().unwrap());
            let mut said = String::new();
            stdout.read_line(&mut said).unwrap();
            // The shell says so before it becomes what is looked for.
            while marked(seconds).len() < 2 {
                std::thread::yield_now();
            }
            println!("held");
            let _ = stdout.read(&mut [0]);
        }
        ["many", state_dir] => many(state_dir.as_ref()),
        ["usher", state_dir] => usher(state_dir.as_ref()),
        ["shared", state_dir] => shared(state_dir.as_ref()),
        ["once", state_dir] => once_and_for_whom(state_dir.as_ref()),
        ["stopped", state_dir] => stopped(state_dir.as_ref()),
        ["ahead", state_dir] => ended_ahead(state_dir.as_ref()),
        ["killed-ahead", state_dir] => killed_ahead(state_dir.as_ref()),
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

fn what_a_program_says_and_how_it_ends_is_told() {
    let ran = run(&shell("echo out; echo err >&2; exit 7")).unwrap();
    assert_eq!(
        (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
        (Exit::Code { code: 7 }, "out\n", "err\n")
    );
    assert_eq!(run(&shell("kill -9 $$")).unwrap().exit, Exit::Signal { signal: 9 });
}

fn a_program_reads_what_it_is_given() {
    let state_dir = tempfile::tempdir().unwrap();
    let mut child = launcher(state_dir.path()).launch(&shell("cat"), Streams::piped()).unwrap();
    let mut stdin = child.stdin().unwrap();
    stdin.write_all(b"to and fro").unwrap();
    drop(stdin);
    assert_eq!(finish(child).ok(), "to and fro");
}

fn signals_reach_the_program() {
    let state_dir = tempfile::tempdir().unwrap();
    let line = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = launcher(state_dir.path()).launch(&shell(line), Streams::captured()).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    child.signal(Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Code { code: 42 });
}

fn time_runs_out() {
    let mut profile = shell("sleep 1000 & sleep 1000");
    profile.limits.wall_ms = Some(100);
    assert_eq!(run(&profile).unwrap().exit, Exit::OutOfTime);
}

fn a_kill_ends_everything() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let line = format!("sleep {seconds} & setsid sleep {seconds} & sleep {seconds}");
    let mut child = launcher(state_dir.path()).launch(&shell(&line), Streams::captured()).unwrap();
    child.kill();
    assert_eq!(child.wait().unwrap(), Exit::Killed);
    assert_eq!(marked(&seconds), []);
}

fn dropping_ends_everything() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let child =
        launcher(state_dir.path()).launch(&shell(&format!("sleep {seconds}")), Streams::captured()).unwrap();
    drop(child);
    assert_eq!(marked(&seconds), []);
}

fn killing_the_launcher_ends_everything() {
    let (state_dir, seconds) = (tempfile::tempdir().unwrap(), unique_sleep());
    let line = format!("setsid sleep {seconds} & echo ready; exec sleep {seconds}");
    let mut child = launcher(state_dir.path()).launch(&shell(&line), Streams::captured()).unwrap();
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let inside = marked(&seconds);
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    inside.into_iter().for_each(wait_for_end);
    assert_eq!(child.wait().unwrap(), Exit::Killed);
    assert_eq!(marked(&seconds), []);
}

fn a_daemon_that_is_killed_leaves_nothing_after_a_sweep() {
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
    // While it lives, nothing of it is swept.
    let own = |swept: Vec<std::path::PathBuf>| -> Vec<std::path::PathBuf> {
        swept.into_iter().filter(|path| path.display().to_string().contains(&format!(".{mark}."))).collect()
    };
    assert_eq!(own(sweep(&sessions).cgroups), [] as [std::path::PathBuf; 0]);
    assert!(!cgroups(&format!(".{mark}.")).is_empty());
    // The daemon, which has it as an argument, and what runs inside.
    let inside = marked(&seconds);
    assert_eq!(inside.len(), 2, "{inside:?}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    inside.into_iter().for_each(wait_for_end);
    assert_eq!(marked(&seconds), []);

    // Whoever sweeps, for its own state_dir or another: somebody beside this test may be first.
    let swept = sweep(&sessions);
    assert!(swept.left.is_empty(), "{swept:?}");
    assert_eq!(cgroups(&format!(".{mark}.")), [] as [std::path::PathBuf; 0]);
}

/// Starts 200 sandboxes and ends them in different ways. Runs in a process of its own, whose descriptors it counts, and to which
/// everything comes that loses its parent.
fn many(state_dir: &std::path::Path) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let seconds = unique_sleep();
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let before = (count("/proc/self/fd"), mounts(), count(state_dir.to_str().unwrap()));
    let mut kept = None;
    for index in 0..200 {
        // The first half each with an usher of its own, the second with one that makes the next ones ahead.
        if index == 100 {
            kept = Some(launcher(state_dir));
        }
        if index > 150 {
            wait_for_one_ahead();
        }
        let mut child = launcher(state_dir)
            .launch(&shell(&format!("sleep {seconds} & sleep {seconds}")), Streams::captured())
            .unwrap();
        match index % 3 {
            0 => {
                child.kill();
                assert_eq!(child.wait().unwrap(), Exit::Killed);
            }
            1 => drop(child),
            _ => {
                child.signal(Signal::TERM).unwrap();
                assert_eq!(child.wait().unwrap(), Exit::Signal { signal: Signal::TERM.as_raw() });
            }
        }
    }
    drop(kept);
    let after = (count("/proc/self/fd"), mounts(), count(state_dir.to_str().unwrap()));
    assert_eq!(before, after);
    assert_eq!(children(std::process::id()), [] as [u32; 0], "neither somebody who waits nor a zombie");
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

/// Kills the process that launchers are forked from. Runs in a process of its own, whose children it looks at.
fn usher(state_dir: &std::path::Path) {
    let children = || children(std::process::id());
    let launcher = launcher(state_dir);
    let says =
        |word: &str| finish(launcher.launch(&shell(&format!("echo {word}")), Streams::captured()).unwrap());
    assert_eq!(says("one").ok(), "one\n");
    let [first] = children()[..] else { panic!("one process stands ready") };
    // So that it does nothing while it is looked at.
    wait_for_one_ahead();
    // It holds nothing of anyone's: streams to nowhere and one socket.
    assert_eq!(std::fs::read(format!("/proc/{first}/environ")).unwrap(), b"");
    let held = std::fs::read_dir(format!("/proc/{first}/fd")).unwrap();
    let held = held.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string());
    // The one that it made ahead it holds by two of these. The last is what this program leaks on purpose, for the probes.
    let is_known = |name: &String| {
        let known = ["/dev/null", "socket:", "anon_inode:[pidfd]", "pidfd:", "/dev/full"];
        known.iter().any(|known| name.starts_with(known))
    };
    assert!(held.into_iter().all(|name| is_known(&name)));

    // What it forked goes on without it, and the next launch has another.
    let child = launcher.launch(&shell("sleep 0.2; echo two"), Streams::captured()).unwrap();
    rustix::process::kill_process(pid(first), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("three").ok(), "three\n");
    assert_eq!(finish(child).ok(), "two\n");
    let [second] = children()[..] else { panic!("one process stands ready, and no zombie is left") };
    assert_ne!(first, second);
    drop(launcher);
    assert_eq!(children(), [] as [u32; 0]);
    println!("replaced");
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

/// Runs a part of this program in a process of its own, which says one thing if all is well.
fn part(words: &[&str], state_dir: &std::path::Path, says: &str) {
    let output = Command::new(std::env::current_exe().unwrap()).args(words).arg(state_dir).output().unwrap();
    let erred = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), says, "{erred}");
}

/// Looks at what waits for an order that never comes.
fn ended_ahead(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    assert_eq!(ahead(), [], "nothing is made before it is known that somebody wants it");
    finish(launcher.launch(&shell("true"), Streams::captured()).unwrap());
    let (waiting, first) = wait_for_one_ahead();
    // It has nothing of anyone's: no variable, and no order that it could have read.
    for process in [waiting, first] {
        assert_eq!(std::fs::read(format!("/proc/{process}/environ")).unwrap(), b"");
    }
    drop(launcher);
    let is_there = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(!is_there(waiting) && !is_there(first));
    println!("ended");
}

/// Launchers of one process have one usher.
fn shared(state_dir: &std::path::Path) {
    let (one, other) = (launcher(state_dir), launcher(&state_dir.join("other")));
    for launcher in [&one, &other] {
        assert_eq!(finish(launcher.launch(&shell("echo on"), Streams::captured()).unwrap()).ok(), "on\n");
    }
    assert_eq!(children(std::process::id()).len(), 1);
    drop(one);
    assert_eq!(finish(other.launch(&shell("echo on"), Streams::captured()).unwrap()).ok(), "on\n");
    drop(other);
    assert_eq!(children(std::process::id()), [] as [u32; 0]);
    println!("shared");
}

fn launchers_of_a_process_share_an_usher() {
    part(&["shared"], tempfile::tempdir().unwrap().path(), "shared\n");
}

fn what_was_made_ahead_ends_with_its_usher() {
    part(&["ahead"], tempfile::tempdir().unwrap().path(), "ended\n");
}

/// Launches for one time, and for a user that was told before.
fn once_and_for_whom(state_dir: &std::path::Path) {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let single = launcher(state_dir).once();
    let ran = finish(single.launch(&shell("sleep 0.1; echo on"), Streams::captured()).unwrap());
    assert_eq!((ran.ok().as_str(), ahead()), ("on\n", Vec::new()));
    drop(single);
    assert_eq!(children(std::process::id()), [] as [u32; 0]);

    // Whoever needs to know the user before, for sockets that shall be theirs, gets what was made ahead too.
    let launcher = launcher(state_dir);
    for _ in 0..3 {
        finish(launcher.launch(&shell("true"), Streams::captured()).unwrap());
        let (waiting, _) = wait_for_one_ahead();
        let uid = tribune_sandbox::fresh_user();
        let mut profile = shell("true");
        profile.runs_as = RunsAs::User { uid, gid: uid };
        let child = launcher.launch(&profile, Streams::captured()).unwrap();
        assert_eq!((child.id(), child.started().uid), (waiting, uid));
        finish(child);
        wait_for_one_ahead();
    }
    println!("for whom");
}

fn one_for_once_makes_none_ahead_and_users_are_told_before() {
    part(&["once"], tempfile::tempdir().unwrap().path(), "for whom\n");
}

/// An usher that does not go on is replaced, and so is what it made.
fn stopped(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let says =
        |word: &str| finish(launcher.launch(&shell(&format!("echo {word}")), Streams::captured()).unwrap());
    assert_eq!(says("one").ok(), "one\n");
    let (waiting, _) = wait_for_one_ahead();
    rustix::process::kill_process(pid(waiting), Signal::STOP).unwrap();
    assert_eq!(says("two").ok(), "two\n");
    rustix::process::kill_process(pid(waiting), Signal::KILL).unwrap();
    println!("went on");
}

fn what_was_made_ahead_and_is_stopped_is_replaced() {
    part(&["stopped"], tempfile::tempdir().unwrap().path(), "went on\n");
}

/// Kills what waits, the launcher or its process 1, and starts something.
fn killed_ahead(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let says =
        |word: &str| finish(launcher.launch(&shell(&format!("echo {word}")), Streams::captured()).unwrap());
    assert_eq!(says("one").ok(), "one\n");
    let (waiting, first) = wait_for_one_ahead();
    rustix::process::kill_process(pid(waiting), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("two").ok(), "two\n");
    let (_, first) = wait_for_one_ahead();
    rustix::process::kill_process(pid(first), Signal::KILL).unwrap();
    wait_for_end(pid(first));
    assert_eq!(says("three").ok(), "three\n");
    println!("no loss");
}

fn what_was_made_ahead_and_is_gone_is_nobodys_loss() {
    part(&["killed-ahead"], tempfile::tempdir().unwrap().path(), "no loss\n");
}

/// Says what is in a folder, and again after each line of input. What says it was made ahead of that line.
fn look_twice(folder: &std::path::Path) {
    let mut profile = shell("ls /shown; cat /etc/services");
    profile.mounts =
        vec![Mount::ReadOnly { source: folder.to_owned(), target: "/shown".into(), hide: Vec::new() }];
    let launcher = launcher(folder);
    for line in ["first", "second", "third"] {
        let ran = finish(launcher.launch(&profile, Streams::captured()).unwrap()).ok();
        let (_, first) = wait_for_one_ahead();
        println!("{line}: {}", ran.replace('\n', " "));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        if line == "first" {
            // It would hold what was mounted before, and does not wait for the next launch to end.
            wait_for_end(pid(first));
        }
    }
}

/// In a mount namespace of its own: changes what is mounted, and which file has a name in `/etc`, between two launches.
fn changed_machine(state_dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    let tmpfs = |place: &std::path::Path| {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", place, "tmpfs", flags, Some(c"mode=755")).unwrap();
    };
    // A copy of what matters here of /etc, which may be changed.
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
    // By root and by an ordinary user.
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
        // Another file in the place of one, and the folder's time as it was.
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

fn an_usher_that_is_gone_is_replaced() {
    let state_dir = tempfile::tempdir().unwrap();
    let output =
        Command::new(std::env::current_exe().unwrap()).arg("usher").arg(state_dir.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "replaced\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn what_was_made_ahead_is_of_this_machine_as_it_is() {
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

/// Orders for users of nobody else and for one that is chosen, by turns: each is held by whom it is for.
fn made_for(state_dir: &std::path::Path) {
    let launcher = launcher(state_dir);
    let mut fresh = std::collections::BTreeSet::new();
    for round in 0..4 {
        for runs_as in [RunsAs::Dynamic, RunsAs::User { uid: 4242, gid: 4243 }] {
            let mut profile = shell("read line");
            profile.runs_as = runs_as;
            let mut child = launcher.launch(&profile, Streams::piped()).unwrap();
            let started = (child.started().uid, child.started().gid);
            match runs_as {
                RunsAs::Dynamic => assert!(fresh.insert(started), "{started:?} came twice"),
                RunsAs::User { uid, gid } => assert_eq!(started, (uid, gid)),
            }
            // Who it says it is, is who the kernel knows: process 1 of the box.
            let [first] = children(child.id())[..] else { panic!("process 1 is the launcher's only child") };
            let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap_or_default();
            let ids = |what: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
                line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
            };
            assert_eq!((ids("Uid:"), ids("Gid:")), (vec![started.0; 4], vec![started.1; 4]));
            assert_eq!(ids("Groups:"), [] as [u32; 0]);
            child.stdin().unwrap().write_all(b"\n").unwrap();
            assert_eq!(finish(child).exit, Exit::Code { code: 0 });
            if round % 2 == 0 {
                wait_for_one_ahead();
            }
        }
    }
    println!("each");
}

fn who_it_was_made_for_is_who_it_is() {
    part(&["made-for"], tempfile::tempdir().unwrap().path(), "each\n");
}

fn orphans_are_buried() {
    // A hundred orphans that end at once; none may stay as a zombie of process 1.
    let line = "for i in $(seq 100); do (sh -c 'exit 0' &) ; done; \
                for i in $(seq 200); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); \
                [ $n = 0 ] && echo buried && exit; sleep 0.05; done";
    assert_eq!(run(&shell(line)).unwrap().ok(), "buried\n");
}

fn it_says_who_it_is_and_what_limits_it() {
    let state_dir = tempfile::tempdir().unwrap();
    let child = launcher(state_dir.path())
        .launch(&shell("id -u; hostname; ls /proc/self/fd"), Streams::captured())
        .unwrap();
    let started = child.started().clone();
    assert!(started.uid > 1000 && started.gid == started.uid, "{started:?}");
    assert_ne!(started.limited_by, LimitedBy::Rlimits, "root can always make a cgroup");
    assert_eq!(finish(child).ok(), "1000\nsandbox\n0\n1\n2\n3\n");
}

fn failures_name_their_cause() {
    let stage = |profile: &tribune_contract::LaunchProfile| match run(profile) {
        Err(LaunchError::Refused(failed)) => (failed.stage, failed.to_string()),
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

fn a_user_cannot_choose_another() {
    let folder = tempfile::tempdir().unwrap();
    let said = as_user(folder.path(), &["choose"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("only root can choose"), "{said}");
}

fn streams_are_pipes_and_terminals() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for path in [folder.path().to_owned(), folder.path().join("file")] {
        let opened = std::fs::File::open(&path).unwrap();
        let streams = Streams { stdin: Stream::Given(opened.into()), ..Streams::captured() };
        let refused = launcher(folder.path()).launch(&shell("true"), streams).unwrap_err();
        assert!(matches!(refused, LaunchError::Stream), "{refused}");
    }
}
