//! `exec` without a sandbox: a command leaves no process behind and inherits nothing from the daemon.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tribune_records::outcome::{Access, Resource, ToolErrorCode};
use tribune_runtime::terminal::EndRequest;
use tribune_runtime::{Terminal, ToolCall};

use crate::UnsandboxedLauncher;

use crate::attacks::{Fixture, admitted};

fn fixture() -> Fixture {
    Fixture::new().with(|tools| tools.with_launcher(Arc::new(UnsandboxedLauncher)))
}

async fn run(fixture: &Fixture, command: &str) -> String {
    fixture.good("exec", json!({"command": command})).await
}

/// Whether the process is running. A dead process that was not reaped is not.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_a_sandbox_nothing_runs() {
    let fixture = Fixture::new();
    let done = fixture.done("exec", json!({"command": "touch made"})).await;
    assert_eq!(
        done.outcome.content,
        "commands cannot run here, because there is no sandbox for them: work without `exec`, or ask the operator, who can set `sandbox` in config.json5"
    );
    assert_eq!((done.code, done.touched), (Some(ToolErrorCode::Unavailable), vec![]));
    assert!(!fixture.inside("made").exists());
}

#[tokio::test]
async fn a_command_returns_its_exit_code_and_output() {
    let fixture = fixture();
    fixture.write("folder/file", "inside\n");
    assert_eq!(
        run(&fixture, "cat folder/file; echo no >&2; exit 3").await,
        "exit code 3\n[stdout]\ninside\n[stderr]\nno\n"
    );
    assert_eq!(run(&fixture, "kill -9 $$").await, "ended by signal 9\n");
    let done = fixture.done("exec", json!({"command": "printf x; cat", "cwd": "folder"})).await;
    assert_eq!(done.outcome.content, "exit code 0\n[stdout]\nx\n");
    assert_eq!(done.touched, [Access::Read(Resource::Workspace), Access::Wrote(Resource::Workspace)]);
    assert_eq!(
        fixture.good("exec", json!({"command": "cat file", "cwd": "./folder"})).await,
        "exit code 0\n[stdout]\ninside\n"
    );
    for (cwd, code) in [
        ("..", ToolErrorCode::Refused),
        ("/", ToolErrorCode::Refused),
        ("gone", ToolErrorCode::NotFound),
        ("folder/file", ToolErrorCode::InvalidInput),
    ] {
        assert_eq!(
            fixture.done("exec", json!({"command": "true", "cwd": cwd})).await.code,
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
        assert_eq!(fixture.done("exec", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
}

#[tokio::test]
async fn the_environment_is_clean() {
    let fixture = fixture();
    // The test process has many variables, as a daemon has.
    assert!(std::env::vars_os().count() > 4);
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input: json!({"command": "env"}) };
    let text = fixture.tools.run(admitted(&call)).await.outcome.content;
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('=').map(|(name, _)| name)).collect();
    names.sort_unstable();
    // The shell sets these itself.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    assert_eq!(names, ["HOME", "LANG", "PATH", "TERM"]);
    let home = fixture.inside("").to_str().unwrap().trim_end_matches('/').to_owned();
    assert!(text.contains(&format!("HOME={home}\n")), "{text}");
    assert_eq!(run(&fixture, "[ -t 0 ] || read line || echo none").await, "exit code 0\n[stdout]\nnone\n");
    // The shell's own three, the folder that `ls` reads, and descriptors that this process inherited.
    let left_open = |entry: &fs::DirEntry| {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
        number > 2 && u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
    };
    let open = 4 + fs::read_dir("/proc/self/fd").unwrap().flatten().filter(left_open).count();
    assert_eq!(run(&fixture, "ls /proc/self/fd | wc -l").await, format!("exit code 0\n[stdout]\n{open}\n"));
}

#[tokio::test]
async fn everything_a_command_started_ends_with_it() {
    let fixture = fixture();
    let started = Instant::now();
    let done = fixture
        .done(
            "exec",
            json!({"command": "(sleep 300 & echo $! > grandchild; sleep 300) & echo $! > child; echo begun; sleep 300", "timeoutSeconds": 1}),
        )
        .await;
    assert_eq!(done.code, Some(ToolErrorCode::TimedOut));
    assert_eq!(
        done.outcome.content,
        "the command and everything it started were ended after 1 s: do less, or raise `timeoutSeconds`\n[stdout]\nbegun\n"
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    for name in ["child", "grandchild"] {
        let pid = fs::read_to_string(fixture.inside(name)).unwrap();
        until("the end", || !is_alive(&pid)).await;
    }
    // A process that a shell leaves behind is soon gone.
    let started = Instant::now();
    assert_eq!(run(&fixture, "sleep 300 & echo $! > left; echo done").await, "exit code 0\n[stdout]\ndone\n");
    assert!(started.elapsed() < Duration::from_secs(20));
    let pid = fs::read_to_string(fixture.inside("left")).unwrap();
    until("the end", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let fixture = fixture();
    let input = json!({"command": "sleep 300 & echo $! > sleeper; wait", "timeoutSeconds": 600});
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input };
    let sleeper = fixture.inside("sleeper");
    let written = || fs::read_to_string(&sleeper).is_ok_and(|pid| pid.ends_with('\n'));
    tokio::select! {
        outcome = fixture.tools.run(admitted(&call)) => panic!("{outcome:?}"),
        () = until("the sleeper", written) => {}
    }
    let pid = fs::read_to_string(&sleeper).unwrap();
    until("the end", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn an_output_without_end_is_cut() {
    let fixture = fixture();
    let loud: Value = json!({"command": "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last; yes >&2", "timeoutSeconds": 2});
    let done = fixture.done("exec", loud).await;
    let text = done.outcome.content;
    assert_eq!(done.code, Some(ToolErrorCode::TimedOut));
    assert!(
        text.contains("[stdout]\nfirst\nxxx") && text.contains("xxx\nlast\n[stderr]\ny\ny\n"),
        "{}",
        &text[..300]
    );
    assert_eq!(text.matches("[cut: ").count(), 2);
    assert!(text.len() < 200 * 1024);
}

/// A command with a terminal shows its output while it runs, and ends on request.
#[tokio::test]
async fn a_command_with_a_terminal_is_visible_and_ends_on_request() {
    let fixture = fixture();
    let input = json!({ "command": "sleep 9999 & echo $!; echo err >&2; wait" });
    let call = ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input };
    let terminal = Arc::new(Terminal::new(1000));
    let running = fixture.tools.run_followed(admitted(&call), Some(Arc::clone(&terminal)));
    let watching = async {
        terminal.begun().await;
        until("both were written", || terminal.snapshot().output.lines().count() == 2).await;
        assert!(!terminal.is_closed());
        let output = terminal.snapshot().output;
        let pid = output.lines().find(|line| *line != "err").unwrap().to_owned();
        assert!(is_alive(&pid));
        terminal.request_end(EndRequest::Killed);
        pid
    };
    let (done, pid) = tokio::join!(running, watching);
    let said = "the command and everything it started were ended, because its agent requested it\n";
    assert!(done.outcome.content.starts_with(said) && done.outcome.is_error, "{done:?}");
    assert_eq!(done.code, Some(ToolErrorCode::Killed));
    until("it is gone", || !is_alive(&pid)).await;

    // After the request nothing starts.
    let call = ToolCall { input: json!({ "command": "echo x > made.txt" }), ..call };
    let terminal = Arc::new(Terminal::new(1000));
    terminal.request_end(EndRequest::TurnEnded);
    let done = fixture.tools.run_followed(admitted(&call), Some(Arc::clone(&terminal))).await;
    assert!(done.outcome.is_error && !terminal.has_started() && done.touched.is_empty(), "{done:?}");
    assert!(!fixture.inside("made.txt").exists());
}
