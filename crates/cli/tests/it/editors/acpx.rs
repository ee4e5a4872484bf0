//! acpx over standard input and output.

use std::process::{Command, Stdio};

use super::{EditorHome, assert_valid};
use crate::fixture::binary;

const WRITE: &str = "!call write {\"path\":\"made.txt\",\"content\":\"by acpx\"}\n!say It said: $result";

#[test]
fn exec_with_everything_approved_writes_into_the_project() {
    let desk = EditorHome::new();
    let said = desk.acpx(&["--approve-all", "--format", "json", "exec", WRITE]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(std::fs::read_to_string(desk.project().join("made.txt")).unwrap(), "by acpx");
    assert!(said.out.contains("\"stopReason\":\"end_turn\""), "{}", said.out);
    assert!(assert_valid(&desk.place, &said.out) > 10);
    // acpx kills its agent's process tree. The daemon is not in it.
    desk.place.ok(&["status"]);
}

#[test]
fn exec_with_everything_denied_writes_nothing() {
    let desk = EditorHome::new();
    let said = desk.acpx(&["--deny-all", "--format", "json", "exec", WRITE]);
    assert!(!desk.project().join("made.txt").exists());
    assert!(said.out.contains("denied by operator"), "{said:?}");
    assert_valid(&desk.place, &said.out);
    let tail = desk.place.ok(&["ledger", "tail", "--json", "--quality", "approval"]);
    assert!(tail.contains("\"deny\""), "{tail}");
}

#[test]
fn a_client_that_fails_at_the_first_question_ends_its_turn() {
    let desk = EditorHome::new();
    let said = desk.acpx(&["--non-interactive-permissions", "fail", "--format", "json", "exec", WRITE]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(!desk.project().join("made.txt").exists());
    let waiting = desk.place.ok(&["approvals", "list", "--json"]);
    assert!(waiting.contains("\"pending\":0") || waiting.contains("\"approvals\":[]"), "{waiting}");
    let sessions = desk.place.ok(&["sessions", "list", "--json"]);
    assert!(!sessions.contains("\"running\""), "{sessions}");
}

#[test]
fn a_named_session_remembers_what_was_said() {
    let desk = EditorHome::new();
    assert_eq!(desk.acpx(&["--ttl", "1", "sessions", "new", "--name", "work"]).code, 0);
    let first = desk.acpx(&["--ttl", "1", "prompt", "-s", "work", "/play ask"]);
    assert!(first.out.contains("What is your name?"), "{first:?}");
    // The second prompt may go to another `tribune acp` process, after the first has ended.
    let second = desk.acpx(&["--ttl", "1", "--format", "json", "prompt", "-s", "work", "Ada"]);
    assert!(second.out.contains("Good to meet you, Ada."), "{second:?}");
    assert_valid(&desk.place, &second.out);
    let sessions = desk.place.ok(&["sessions", "list", "--json"]);
    assert_eq!(sessions.matches("agent:main:acp:local:dm:").count(), 1, "one session: {sessions}");
}

#[test]
fn cancel_ends_a_running_prompt() {
    let desk = EditorHome::new();
    assert_eq!(desk.acpx(&["sessions", "new", "--name", "long"]).code, 0);
    let agent = format!("{} --home {} acp ", binary().display(), desk.place.home().display());
    let mut running = Command::new(super::node());
    running.arg(super::programs().join("node_modules/acpx/dist/cli.js"));
    running.args(["--agent", &agent, "--ttl", "1", "--format", "json", "prompt", "-s", "long", "/play slow"]);
    running
        .env("HOME", desk.place.path("acpx"))
        .env("PATH", super::path_with_node())
        .current_dir(desk.project());
    let child = running.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Before the turn runs, acpx reports that there is nothing to cancel.
    let cancelled = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let state = desk.place.ok(&["sessions", "list", "--json"]);
        state.contains("\"running\"") && desk.acpx(&["cancel", "-s", "long"]).out.contains("ancel")
    });
    assert!(cancelled);
    let output = crate::fixture::cli_output(child.wait_with_output().unwrap());
    assert!(output.out.contains("\"stopReason\":\"cancelled\""), "{output:?}");
    assert_valid(&desk.place, &output.out);
}
