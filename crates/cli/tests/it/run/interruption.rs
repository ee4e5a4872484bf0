//! Interruptions: `stop-all` while a command runs, and a daemon that is killed while it lands.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use super::egress::server;
use super::{Site, session, within};
use crate::fixture::Place;
use crate::turn_crash::start;

/// Enough files for a kill to fall during their landing.
const MANY: usize = 4_000;

#[test]
fn l1_stop_all_ends_network_access_of_runs_and_not_the_work() {
    let site = Site::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let at = server.local_addr().unwrap().to_string();
    let line = "trap 'curl -s --max-time 9 http://$AT/; echo; echo tried' USR1; echo ready; \
                while true; do sleep 0.05; done";
    let run = site.start(&[
        "-q",
        "--name",
        "kept",
        "--net",
        &at,
        "--env",
        &format!("AT={at}"),
        "--",
        "sh",
        "-c",
        line,
    ]);
    run.until_out("ready");
    site.daemon.ok(&["stop-all"]);
    run.signal(Signal::USR1);
    run.until_out("tried");
    assert!(server.accept().is_err(), "nobody came");
    run.signal(Signal::TERM);
    let (status, ..) = run.end();
    assert_eq!(status.code(), Some(143), "the operator ends the work itself");
    let refused = site.log(&format!("egress:{}", session("kept")), "policy_verdict");
    assert!(refused.iter().all(|one| one["decision"] != "allow"), "{refused:?}");
    site.daemon.ok(&["resume"]);
    site.end();
}

#[test]
fn l2_killed_land_is_recovered_by_the_next_start() {
    let place = Place::new();
    std::fs::create_dir(place.path("project")).unwrap();
    std::fs::write(place.path("project/f1"), "mine\n").unwrap();
    let (mut daemon, ..) = start(&place);
    let line = format!("for n in $(seq {MANY}); do echo run > f$n; done");
    let mut command = place.command(&["run", "-q", "--name", "cut", "--", "sh", "-c", &line]);
    assert!(command.current_dir(place.path("project")).status().unwrap().success());
    let mut landing = place.command(&["workspace", "land", "cut", "--all"]);
    let mut landing = landing.stdout(Stdio::null()).spawn().unwrap();
    let count = || std::fs::read_dir(place.path("project")).unwrap().count();
    within("something has landed", || count() > 20);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    landing.wait().unwrap();

    let (mut daemon, ..) = start(&place);
    let names = std::fs::read_dir(place.path("project")).unwrap();
    let left: Vec<_> = names
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| !name.as_encoded_bytes().starts_with(b"f"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let history = format!("workspace:{}", session("cut"));
    let log = place.ok(&["ledger", "tail", "--entity", &history, "--json"]);
    assert!(log.contains("\"event\":\"landing_interrupted\"") && !log.contains("\"landed\":0"), "{log}");
    // The remaining files land normally.
    let rest = place.call(&["workspace", "land", "cut", "--all"]);
    assert!(!rest.out.contains("left "), "{}", rest.out.lines().rev().take(5).collect::<String>());
    assert_eq!(count(), MANY);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    tribune_testkit::assert_sound(&tribune_storage::home::Home::at(place.home()));
}

/// After both were killed, the next start cleans up, as the end of the run would have. The changes stay for the
/// operator.
#[test]
fn l2_run_killed_with_the_daemon_leaves_no_empty_workspace() {
    let place = Place::new();
    std::fs::create_dir(place.path("project")).unwrap();
    let (mut daemon, ..) = start(&place);
    let mut runs = Vec::new();
    for (name, line) in [("idle", "echo ready; read go"), ("busy", "echo x > made; echo ready; read go")] {
        let mut command = place.command(&["run", "-q", "--name", name, "--", "sh", "-c", line]);
        command.current_dir(place.path("project")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        runs.push(run);
    }
    daemon.kill().unwrap();
    for run in &mut runs {
        run.kill().unwrap();
        run.wait().unwrap();
    }
    daemon.wait().unwrap();
    let is_left = |name: &str| place.home().join("workspaces").join(name).exists();
    assert!(is_left("idle") && is_left("busy"));
    // The sandboxes end shortly after their launchers.
    let is_free = |name: &str| {
        let lock = place.home().join("workspaces").join(name).join("lock");
        tribune_tools::workspaces::lock(&lock).is_ok()
    };
    within("the sandboxes have ended", || is_free("idle") && is_free("busy"));
    // A workspace that was being created when the daemon was killed: it lacks only its label.
    std::fs::create_dir_all(place.home().join("workspaces/half/layers/upper")).unwrap();
    std::fs::write(place.home().join("workspaces/half/lock"), "").unwrap();

    let (mut daemon, ..) = start(&place);
    assert!(!is_left("idle"), "nothing was changed there");
    assert!(!is_left("half"), "nobody could list it");
    assert!(place.ok(&["workspace", "diff", "busy"]).contains("made"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    tribune_testkit::assert_sound(&tribune_storage::home::Home::at(place.home()));
}

#[test]
fn l2_a_daemon_that_is_slow_is_not_gone() {
    let place = Place::new();
    std::fs::create_dir(place.path("project")).unwrap();
    let at = server("hello").to_string();
    let (mut daemon, ..) = start(&place);
    let line = "echo ready; read go; curl -s --max-time 30 http://$AT/";
    let mut command =
        place.command(&["run", "-q", "--net", &at, "--env", &format!("AT={at}"), "--", "sh", "-c", line]);
    command
        .current_dir(place.path("project"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    let pid = rustix::process::Pid::from_raw(daemon.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    // Longer than the answer timeout. No event marks its end, so there is nothing else to wait for.
    std::thread::sleep(Duration::from_secs(5));
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("hello", Some(0)), "{errors}");
    assert!(!errors.contains("is gone"), "{errors}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
