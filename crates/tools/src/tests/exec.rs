//! `exec` without a sandbox: nothing it started is left, and it starts with nothing of the daemon's.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tribune_records::outcome::{Code, Resource, Touched};
use serde_json::{Value, json};
use tribune_runtime::terminal::Ending;
use tribune_runtime::{Terminal, ToolCall};

use crate::DirectLauncher;

use crate::attacks::{Fixture, admitted};

fn house() -> Fixture {
    Fixture::new().with(|tools| tools.with_launcher(Arc::new(DirectLauncher)))
}

async fn run(house: &Fixture, command: &str) -> String {
    house.good("exec", json!({"command": command})).await
}

/// Whether the process still runs; one that is dead and not yet buried does not.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_a_sandbox_nothing_runs() {
    let house = Fixture::new();
    let done = house.done("exec", json!({"command": "touch made"})).await;
    assert_eq!(
        done.outcome.content,
        "commands cannot run here, because there is no sandbox for them: work without `exec`, or ask the operator, who can set `sandbox` in config.json5"
    );
    assert_eq!((done.code, done.touched), (Some(Code::Unavailable), vec![]));
    assert!(!house.inside("made").exists());
}

#[tokio::test]
async fn a_command_answers_with_its_code_and_output() {
    let house = house();
    house.write("folder/file", "inside\n");
    assert_eq!(
        run(&house, "cat folder/file; echo no >&2; exit 3").await,
        "exit code 3\n[stdout]\ninside\n[stderr]\nno\n"
    );
    assert_eq!(run(&house, "kill -9 $$").await, "ended by signal 9\n");
    let done = house.done("exec", json!({"command": "printf x; cat", "cwd": "folder"})).await;
    assert_eq!(done.outcome.content, "exit code 0\n[stdout]\nx\n");
    assert_eq!(done.touched, [Touched::Read(Resource::Workspace), Touched::Wrote(Resource::Workspace)]);
    assert_eq!(
        house.good("exec", json!({"command": "cat file", "cwd": "./folder"})).await,
        "exit code 0\n[stdout]\ninside\n"
    );
    for (cwd, code) in [
        ("..", Code::Refused),
        ("/", Code::Refused),
        ("gone", Code::NotFound),
        ("folder/file", Code::InvalidInput),
    ] {
        assert_eq!(
            house.done("exec", json!({"command": "true", "cwd": cwd})).await.code,
            Some(code),
            "{cwd}"
        );
    }
    for input in [
        json!({"command": ""}),
        json!({"command": " \n"}),
        json!({"command": "a\0b"}),
        json!({"command": "x".repeat(40_000)}),
        json!({"command": "true", "timeoutSeconds": 0}),
        json!({"command": "true", "timeoutSeconds": 601}),
    ] {
        assert_eq!(house.done("exec", input).await.code, Some(Code::InvalidInput));
    }
}

#[tokio::test]
async fn the_environment_is_clean() {
    let house = house();
    // The tests have plenty of variables, as a daemon has.
    assert!(std::env::vars_os().count() > 4);
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input: json!({"command": "env"}) };
    let text = house.tools.run(admitted(&call)).await.outcome.content;
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('=').map(|(name, _)| name)).collect();
    names.sort_unstable();
    // The shell itself says where it is.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    assert_eq!(names, ["HOME", "LANG", "PATH", "TERM"]);
    let home = house.inside("").to_str().unwrap().trim_end_matches('/').to_owned();
    assert!(text.contains(&format!("HOME={home}\n")), "{text}");
    assert_eq!(run(&house, "[ -t 0 ] || read line || echo none").await, "exit code 0\n[stdout]\nnone\n");
    // Three of its own, the folder that `ls` reads, and what this process was itself left open by whoever started it.
    let left_open = |entry: &fs::DirEntry| {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
        number > 2 && u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
    };
    let open = 4 + fs::read_dir("/proc/self/fd").unwrap().flatten().filter(left_open).count();
    assert_eq!(run(&house, "ls /proc/self/fd | wc -l").await, format!("exit code 0\n[stdout]\n{open}\n"));
}

#[tokio::test]
async fn everything_a_command_started_ends_with_it() {
    let house = house();
    let started = Instant::now();
    let done = house
        .done(
            "exec",
            json!({"command": "(sleep 300 & echo $! > grandchild; sleep 300) & echo $! > child; echo begun; sleep 300", "timeoutSeconds": 1}),
        )
        .await;
    assert_eq!(done.code, Some(Code::TimedOut));
    assert_eq!(
        done.outcome.content,
        "the command and everything it started were ended after 1 s: do less, or raise `timeoutSeconds`\n[stdout]\nbegun\n"
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    for name in ["child", "grandchild"] {
        let pid = fs::read_to_string(house.inside(name)).unwrap();
        until("the end", || !is_alive(&pid)).await;
    }
    // A shell that leaves something behind does not leave it for long.
    let started = Instant::now();
    assert_eq!(run(&house, "sleep 300 & echo $! > left; echo done").await, "exit code 0\n[stdout]\ndone\n");
    assert!(started.elapsed() < Duration::from_secs(20));
    let pid = fs::read_to_string(house.inside("left")).unwrap();
    until("the end", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let house = house();
    let input = json!({"command": "sleep 300 & echo $! > sleeper; wait", "timeoutSeconds": 600});
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input };
    let sleeper = house.inside("sleeper");
    let written = || fs::read_to_string(&sleeper).is_ok_and(|pid| pid.ends_with('\n'));
    tokio::select! {
        outcome = house.tools.run(admitted(&call)) => panic!("{outcome:?}"),
        () = until("the sleeper", written) => {}
    }
    let pid = fs::read_to_string(&sleeper).unwrap();
    until("the end", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn an_output_without_end_is_cut() {
    let house = house();
    let loud: Value = json!({"command": "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last; yes >&2", "timeoutSeconds": 2});
    let done = house.done("exec", loud).await;
    let text = done.outcome.content;
    assert_eq!(done.code, Some(Code::TimedOut));
    assert!(
        text.contains("[stdout]\nfirst\nxxx") && text.contains("xxx\nlast\n[stderr]\ny\ny\n"),
        "{}",
        &text[..300]
    );
    assert_eq!(text.matches("[cut: ").count(), 2);
    assert!(text.len() < 200 * 1024);
}

/// A command that is followed shows what it writes before it is over, and ends when nobody wants it.
#[tokio::test]
async fn a_followed_command_is_seen_and_ended() {
    let house = house();
    let input = json!({ "command": "sleep 9999 & echo $!; echo err >&2; wait" });
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input };
    let terminal = Arc::new(Terminal::new(1000));
    let running = house.tools.run_followed(admitted(&call), Some(Arc::clone(&terminal)));
    let watching = async {
        terminal.begun().await;
        until("both were written", || terminal.seen().output.lines().count() == 2).await;
        assert!(!terminal.is_over());
        let output = terminal.seen().output;
        let pid = output.lines().find(|line| *line != "err").unwrap().to_owned();
        assert!(is_alive(&pid));
        terminal.end(Ending::Killed);
        pid
    };
    let (done, pid) = tokio::join!(running, watching);
    let said = "the command and everything it started were ended, because its agent requested it\n";
    assert!(done.outcome.content.starts_with(said) && done.outcome.is_error, "{done:?}");
    assert_eq!(done.code, Some(Code::Killed));
    until("it is gone", || !is_alive(&pid)).await;

    // What nobody wants any more is not begun.
    let call = ToolCall { input: json!({ "command": "echo x > made.txt" }), ..call };
    let terminal = Arc::new(Terminal::new(1000));
    terminal.end(Ending::TurnOver);
    let done = house.tools.run_followed(admitted(&call), Some(Arc::clone(&terminal))).await;
    assert!(done.outcome.is_error && !terminal.has_begun() && done.touched.is_empty(), "{done:?}");
    assert!(!house.inside("made.txt").exists());
}
