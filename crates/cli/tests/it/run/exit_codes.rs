//! How a run ends: by itself, by a signal, with its parent process, or because of a limit.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tribune_testkit::{TempHome, config};

use super::{Site, session, within};
use crate::fixture::Place;
use crate::sandboxed_commands::{mark, sleeping};
use crate::turn_crash::start;

/// The cgroups that a process created for its sandboxes.
pub(crate) fn groups_of(process: u32) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![PathBuf::from("/sys/fs/cgroup")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().into_string().unwrap_or_default();
                let is_its = name.starts_with("tribune.") && name.contains(&format!(".{process}."));
                found.extend(is_its.then(|| entry.path()));
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn the_exit_code_is_the_commands() {
    let site = Site::new();
    for (line, code) in [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -9 $$", 137)] {
        assert_eq!(site.run(&["-q", "--", "sh", "-c", line]).code, code, "{line}");
    }
    let ran = site.run(&["--", "no-such-program"]);
    assert!(ran.code == 127 && ran.err.contains("not found"), "{ran:?}");
    let ran = site.run(&["--", "/workspace/a.txt"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    // JSON goes to the last line of standard error, because standard output belongs to the command.
    let ran = site.run(&["--json", "--", "sh", "-c", "echo out; echo new > b.txt; exit 7"]);
    let said: serde_json::Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
    assert_eq!((ran.out.as_str(), &said["exit_code"], &said["changes"]), ("out\n", &json!(7), &json!(1)));
    site.end();
}

#[test]
fn signals_are_passed_on() {
    let site = Site::new();
    let line = "trap 'echo interrupted' INT; trap 'echo one' USR1; echo ready; \
                while true; do sleep 0.05; done";
    let run = site.start(&["--", "sh", "-c", line]);
    run.until_out("ready");
    run.signal(Signal::INT);
    run.until_out("interrupted");
    run.signal(Signal::USR1);
    run.until_out("one");
    run.signal(Signal::TERM);
    let (status, ..) = run.end();
    assert_eq!(status.code(), Some(143));
    site.end();
}

#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let site = Site::new();
    let line =
        "trap 'echo gone; exit 1' HUP; trap 'exit 3' USR1; echo ready; while true; do sleep 0.05; done";
    let plain = site.command(&["run", "-q", "--", "sh", "-c", line]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "nohup"]).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(site.project());
    let run = crate::in_process_daemon::RunningCall::new(command);
    run.until_out("ready");
    run.signal(Signal::HUP);
    run.signal(Signal::USR1);
    let (status, out, _) = run.end();
    assert_eq!((status.code(), out.as_str()), (Some(3), ""));
    site.end();
}

#[test]
fn l2_terminated_run_ends_all_its_processes() {
    let site = Site::new();
    for signal in [Signal::TERM, Signal::HUP] {
        let mark = mark();
        // Both ignore the signal, and one is in another process group.
        let line = format!("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}");
        let run = site.start(&["--", "sh", "-c", &line]);
        within("both sleep", || sleeping(&mark).len() == 2);
        run.signal(signal);
        let (status, ..) = run.end();
        assert_eq!(status.code(), Some(137), "{signal:?}");
        assert_eq!(sleeping(&mark), Vec::<String>::new());
    }
    site.end();
}

#[test]
fn l2_a_run_whose_terminal_is_killed_leaves_nothing_running_and_is_on_record() {
    let site = Site::new();
    let mark = mark();
    let line = format!("echo half > b.txt; setsid sleep {mark} & sleep {mark}");
    let run = site.start(&["--name", "lost", "--", "sh", "-c", &line]);
    within("both sleep", || sleeping(&mark).len() == 2);
    // The sandbox is recorded once the command runs.
    let limited_by = || {
        let log = site.log(&session("lost"), "session_lifecycle");
        log.iter().find_map(|payload| payload["limited_by"].as_str().map(str::to_owned))
    };
    within("what holds it is on record", || limited_by().is_some());
    let has_groups = limited_by().is_some_and(|limited_by| limited_by.starts_with("cgroup"));
    let id = run.id();
    assert_eq!(!groups_of(id).is_empty(), has_groups);
    run.signal(Signal::KILL);
    within("all are gone", || sleeping(&mark).is_empty());
    // Its parent may not have reaped it yet; a zombie counts as ended.
    within("what held them is gone", || groups_of(id).is_empty());
    run.end();
    let closed =
        || site.events(&session("lost"), "session_lifecycle").last().is_some_and(|last| last == "closed");
    within("the session is closed", closed);
    let log = site.log(&session("lost"), "session_lifecycle");
    assert_eq!(log[log.len() - 2]["outcome"], "lost");
    assert_eq!(
        std::fs::read_dir(site.daemon.home().home.root().join("run/s")).unwrap().count(),
        0,
        "no way out"
    );
    // Its changes can be shown.
    let diff = site.daemon.ok(&["workspace", "diff", "lost"]);
    assert!(diff.starts_with(" A b.txt") && diff.contains("+half"), "{diff}");
    site.daemon.ok(&["workspace", "discard", "lost"]);
    site.end();
}

#[test]
fn l2_killed_daemon_ends_network_access_and_not_the_work() {
    let place = Place::new();
    std::fs::create_dir(place.path("project")).unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap().to_string();
    let (mut daemon, ..) = start(&place);
    let line = "echo ready; read go; curl -s --max-time 10 http://$AT/ || echo closed; echo kept > b.txt";
    let args =
        ["run", "--name", "orphan", "--net", &at, "--env", &format!("AT={at}"), "--", "sh", "-c", line];
    let mut command = place.command(&args);
    let mut child = command
        .current_dir(place.path("project"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    std::io::BufRead::read_line(&mut out, &mut said).unwrap();
    assert_eq!(said, "ready\n");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    let (mut errors, mut stderr) = (String::new(), child.stderr.take().unwrap());
    std::io::Read::read_to_string(&mut stderr, &mut errors).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("closed\n", Some(0)), "{errors}");
    assert!(errors.contains("the daemon has ended"), "{errors}");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "nobody came");

    // The next daemon records the loss, and has the changes.
    let (mut daemon, ..) = start(&place);
    let diff = place.ok(&["workspace", "diff", "orphan"]);
    assert!(diff.contains("+kept"), "{diff}");
    let log = place.ok(&["ledger", "tail", "--entity", &session("orphan"), "--json"]);
    assert!(log.contains("\"outcome\":\"lost\"") && log.contains("\"event\":\"closed\""), "{log}");
    place.ok(&["workspace", "land", "orphan", "--all"]);
    assert_eq!(std::fs::read_to_string(place.path("project/b.txt")).unwrap(), "kept\n");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    tribune_testkit::assert_sound(&tribune_storage::home::Home::at(place.home()));
}

#[test]
fn run_over_quota_is_ended_with_a_message() {
    let mut config = config();
    config.workspaces.max_bytes = 4 << 20;
    let site = Site::in_home(TempHome::new(), &config);
    let line = "for n in 1 2 3 4; do head -c 2000000 /dev/urandom > f$n; done; echo written; sleep 9999";
    let ran = site.shell("large", line);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("workspaces.maxBytes is 4096 KiB: raise that in config.json5"), "{ran:?}");
    let log = site.log(&session("large"), "session_lifecycle");
    assert_eq!(log[log.len() - 2]["outcome"], "over_quota");
    let started = log.iter().find(|payload| payload["event"] == "run_started").unwrap();
    assert_eq!((&started["file_bytes"], &started["layer_bytes"]), (&json!(4 << 20), &json!(4 << 20)));
    // The size of a single file is limited by the kernel.
    let ran = site.shell("one", "head -c 9000000 /dev/zero > f; ls -l f | cut -d' ' -f5");
    assert!(!ran.out.contains("9000000"), "{ran:?}");
    // Files in folders without read permission are counted too.
    if !rustix::process::geteuid().is_root() {
        let line =
            "mkdir d; for n in 1 2; do head -c 3000000 /dev/urandom > d/$n; done; chmod 000 d; sleep 9999";
        let ran = site.shell("hidden", line);
        assert!(ran.code == 125 && ran.err.contains("workspaces.maxBytes"), "{ran:?}");
    }
    site.end();
}

#[test]
fn run_that_outgrows_its_folder_is_ended_with_a_message() {
    let mut config = config();
    config.workspaces.max_bytes = 4 << 20;
    let site = Site::in_home(TempHome::new(), &config);
    let run =
        |name: &str, line: &str| site.run(&["--name", name, "--workspace", "direct", "--", "sh", "-c", line]);
    // Files from before the run are not counted. File times lag behind the clock, so one that is written right before the run
    // counts as new.
    site.write("old", &"x".repeat(6 << 20));
    std::thread::sleep(Duration::from_millis(60));
    let grow =
        |files: &str| format!("for n in {files}; do head -c 2000000 /dev/urandom > f$n; done; echo written");
    let ran = run("small", &format!("{}; sleep 2.5; cat old >/dev/null; rm f1", grow("1")));
    assert_eq!((ran.code, ran.out.as_str()), (0, "written\n"), "{ran:?}");
    let ran = run("large", &format!("{}; sleep 30", grow("1 2 3 4")));
    assert_eq!((ran.code, ran.out.as_str()), (125, "written\n"), "{ran:?}");
    assert!(ran.err.contains("workspaces.maxBytes is 4096 KiB: raise that in config.json5"), "{ran:?}");
    let log = site.log(&session("large"), "session_lifecycle");
    assert_eq!(log[log.len() - 2]["outcome"], "over_quota");
    site.end();
}
