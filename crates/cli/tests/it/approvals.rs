//! Pending approvals, decided from the command line, from the live screen and in a chat.

use std::io::Write as _;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tribune_testkit::{TempHome, assert_sound, config};

use crate::fixture::cli_output;
use crate::in_process_daemon::{InProcessDaemon, KEY, RunningCall, command};
use crate::terminal::Terminal;

/// Every read needs an approval.
const ASK: &str = "@id(\"ask-read\") forbid(principal, action == Tribune::Action::\"read\", resource) unless { context.approved };";
const READ: &str = "!call read {\"path\":\"notes.txt\"}\n!say it said: $result";

fn asking() -> InProcessDaemon {
    let home = TempHome::new();
    home.write("policy/ask.cedar", ASK);
    home.write("agents/main/workspace/notes.txt", "hello");
    InProcessDaemon::with(home, &config())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A turn that waits in its own session, and the id of its approval.
fn waiting(daemon: &InProcessDaemon, session: &str) -> (RunningCall, String) {
    let key = format!("agent:main:cli:local:dm:{session}");
    let chat = daemon.start(&["chat", "--session", &key, READ]);
    let line = chat.until_err("read waits for approval ");
    let id = line.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(chat.until_err("tribune approvals allow").contains(&format!("/approve {id}")));
    (chat, id)
}

#[test]
fn calls_are_decided_by_an_id_prefix() {
    let daemon = asking();
    assert_eq!(daemon.ok(&["approvals", "list"]), "nothing waits for a decision\n");
    let (first, id) = waiting(&daemon, "one");
    let list = daemon.ok(&["approvals", "list"]);
    assert!(list.starts_with("ID ") && list.contains("EXPIRES IN"), "{list}");
    let row = list.lines().nth(1).unwrap();
    assert!(row.starts_with(&id) && row.contains("main   read  notes.txt  the rule `ask-read`"), "{list}");
    let page = json(&daemon.ok(&["--json", "approvals", "list"]));
    assert_eq!((&page["pending"], &page["approvals"][0]["what"]), (&json!(1), &json!("notes.txt")));

    let card = daemon.ok(&["approvals", "show", &id[..3]]);
    for line in [
        "path      notes.txt\n",
        "rules     policy.ask-read\n",
        "context   only its owner's words, has read nothing private\n",
        "patterns  notes.txt\n",
    ] {
        assert!(card.contains(line), "{line}{card}");
    }
    let status = daemon.ok(&["status"]);
    assert!(
        status.contains("approvals    1 pending: tribune approvals watch\n")
            && status.contains("mode         enforce\n"),
        "{status}"
    );

    assert_eq!(
        daemon.ok(&["approvals", "allow", &id[..2], "--reason", "fine"]),
        format!("{id} is allowed\n")
    );
    let (end, out, err) = first.end();
    assert_eq!((end.code(), out.as_str()), (Some(0), "it said: hello\n"), "{err}");
    assert!(err.contains(&format!("✓ approval {id}: allowed")), "{err}");

    let (second, id) = waiting(&daemon, "two");
    let denied = json(&daemon.ok(&["--json", "approvals", "deny", &id, "--reason", "not today"]));
    assert_eq!((&denied["id"], &denied["state"]), (&json!(id), &json!("denied")));
    let (_, out, err) = second.end();
    assert!(err.contains(&format!("✗ approval {id}: denied")) && out.contains("not today"), "{out}{err}");

    let (third, id) = waiting(&daemon, "three");
    daemon.ok(&["approvals", "deny", &id, "--stop"]);
    let (end, out, err) = third.end();
    assert_eq!((end.code(), out.as_str()), (Some(130), ""), "{err}");

    // Decided twice, unknown, too short, and nonsense.
    let twice = daemon.call(&["approvals", "allow", &id]);
    assert_eq!((twice.code, twice.err.contains("not open any more")), (1, true), "{twice:?}");
    for args in [
        &["approvals", "allow", "zzzzzzzz"][..],
        &["approvals", "deny", "z"],
        &["approvals", "show", "zz"],
        &["approvals", "allow", "zz", "--for", "soon"],
        &["approvals", "revoke", "zz"],
    ] {
        assert_eq!(daemon.call(args).code, 64, "{args:?}");
    }
    let all = daemon.ok(&["approvals", "list", "--state", "any"]);
    assert_eq!(
        (all.lines().count(), all.contains("STATE"), all.contains("denied")),
        (4, true, true),
        "{all}"
    );
    assert_eq!(daemon.call(&["law", "replay"]).code, 0);
    let home = daemon.stop();
    assert_eq!(cli_output(command(&home, &["approvals", "list"]).output().unwrap()).code, 69);
    assert_sound(&home.home);
}

#[test]
fn granted_calls_are_not_asked_again_until_revoked() {
    let daemon = asking();
    assert_eq!(daemon.ok(&["approvals", "grants"]), "no grants are in force\n");
    let (chat, id) = waiting(&daemon, "one");
    let wrong = daemon.call(&["approvals", "allow", &id, "--pattern", "other.txt"]);
    assert_eq!((wrong.code, wrong.err.contains("does not cover")), (64, true), "{wrong:?}");
    let said = daemon.ok(&["approvals", "allow", &id, "--pattern", "notes.txt", "--for", "2h"]);
    assert!(said.contains(&format!("tribune approvals revoke g{id}")), "{said}");
    assert_eq!(chat.end().0.code(), Some(0));
    let grants = daemon.ok(&["approvals", "grants"]);
    assert!(grants.contains("notes.txt  any session") && grants.contains("2h left"), "{grants}");

    assert!(daemon.ok(&["chat", READ]).ends_with("it said: hello\n"), "the grant covers it");
    let revoked = daemon.ok(&["approvals", "revoke", &format!("g{}", &id[..4])]);
    assert!(revoked.contains("is revoked"), "{revoked}");
    let (chat, id) = waiting(&daemon, "two");
    daemon.ok(&["approvals", "deny", &id]);
    chat.end();
}

#[test]
fn draft_is_edited_when_it_is_allowed() {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: write\n---\n");
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"dev\",\"standing\":false}\n");
    home.write("policy/ask.cedar", &ASK.replace("read", "write"));
    let daemon = InProcessDaemon::with(home, &config());
    let write =
        |path: &str| format!("!call write {{\"path\":\"{path}\",\"content\":\"hello\"}}\n!say $result");
    let asked = |path: &str| {
        let key = format!("agent:main:cli:local:dm:{path}");
        let chat = daemon.start(&["chat", "--session", &key, &write(path)]);
        let line = chat.until_err("write waits for approval ");
        (chat, line.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned())
    };
    let there = |path: &str| {
        std::fs::read_to_string(daemon.home().home.root().join("agents/main/workspace").join(path))
    };
    let (chat, id) = asked("one");
    assert!(daemon.ok(&["approvals", "show", &id]).contains("draft     you may edit `content` first"));
    let edit = |editor: &str| {
        let mut command = daemon.command(&["approvals", "allow", &id, "--edit"]);
        cli_output(command.env("VISUAL", editor).stdin(std::process::Stdio::null()).output().unwrap())
    };
    let refused = edit("false");
    assert_eq!((refused.code, refused.err.contains("nothing was decided")), (64, true), "{refused:?}");
    assert_eq!(edit("sed -i s/hello/good-day/").code, 0);
    let (_, out, _) = chat.end();
    assert!(out.contains("changed the text before allowing"), "{out}");
    assert_eq!(there("one").unwrap(), "good-day");

    let (chat, id) = asked("two");
    let mut child = daemon
        .command(&["approvals", "allow", &id, "--text-file", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    chat.end();
    assert_eq!(there("two").unwrap(), "from a pipe");
}

#[test]
fn stop_all_and_resume() {
    let daemon = asking();
    let chat = daemon.start(&["--json", "chat", "!hang"]);
    chat.until_out("turn_started");
    assert!(daemon.ok(&["stop-all"]).starts_with("stopped: 1 turn was ended"));
    assert_eq!(chat.end().0.code(), Some(130));
    assert!(daemon.ok(&["status"]).contains("EVERYTHING IS STOPPED"));
    let refused = daemon.call(&["chat", READ]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(daemon.ok(&["stop-all"]).starts_with("stopped already: "));
    assert!(daemon.ok(&["resume"]).starts_with("resumed: "));
    assert!(daemon.ok(&["resume"]).starts_with("work was not stopped"));
    assert!(!daemon.ok(&["status"]).contains("STOPPED"));
    assert_eq!(json(&daemon.ok(&["--json", "status"]))["law"]["frozen"], Value::Null);
    assert_eq!(daemon.ok(&["chat", "!say again"]), "again\n");
}

#[test]
fn approver_decides_with_a_token_shown_once() {
    let daemon = asking();
    assert!(daemon.ok(&["approvers", "list"]).starts_with("only the operator decides"));
    let added = json(&daemon.ok(&["--json", "approvers", "add", "ada", "--role", "release"]));
    let token = daemon.home().folder.path().join("ada.token");
    std::fs::write(&token, added["token"].as_str().unwrap()).unwrap();
    let list = daemon.ok(&["approvers", "list"]);
    assert!(list.contains("ada  release") && !list.contains(added["token"].as_str().unwrap()), "{list}");

    let (chat, id) = waiting(&daemon, "one");
    let token = token.to_str().unwrap();
    daemon.ok(&["approvals", "--token", token, "allow", &id[..4]]);
    assert_eq!(chat.end().0.code(), Some(0));
    let shown = json(&daemon.ok(&["--json", "approvals", "show", &id]));
    assert_eq!(shown["decided_by"], "ada");

    // An approver with a token needs the daemon's address, and not its home.
    let (chat, id) = waiting(&daemon, "two");
    let away = TempHome::new();
    let address = daemon.address();
    let there = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--token", token, "--address", &address]);
        cli_output(command(&away, &all).output().unwrap())
    };
    let list = there(&["approvals", "list"]);
    assert!(list.code == 0 && list.out.contains(&id), "{list:?}");
    assert_eq!(there(&["approvals", "deny", &id]).code, 0);
    chat.end();
    let stopped = there(&["stop-all"]);
    assert!(stopped.code == 0 && stopped.out.contains("stopped"), "{stopped:?}");
    assert_eq!(there(&["resume"]).code, 0);
    let wrong = cli_output(
        command(&away, &["approvals", "list", "--token", "/nowhere/token", "--address", &address])
            .output()
            .unwrap(),
    );
    assert!(wrong.code == 64 && wrong.err.contains("--token takes a file"), "{wrong:?}");

    let nobody = cli_output(command(&away, &["approvals", "list", "--address", &address]).output().unwrap());
    assert!(nobody.code == 64 && nobody.err.contains("require --token"), "{nobody:?}");

    let taken = daemon.call(&["agents", "add", "ada"]);
    assert!(taken.code != 0 && taken.err.contains("the name of an approver"), "{taken:?}");
    assert_eq!(daemon.ok(&["approvers", "remove", "ada"]), "removed ada\n");
    assert_ne!(daemon.call(&["approvals", "--token", token, "list"]).code, 0);
    for wrong in [&["approvers", "remove", "ada"][..], &["approvers", "add", "Not a name"]] {
        assert_eq!(daemon.call(wrong).code, 64, "{wrong:?}");
    }
}

#[test]
fn watch_without_a_terminal_prints_lines() {
    let daemon = asking();
    let watch = daemon.start(&["--json", "approvals", "watch"]);
    let (chat, id) = waiting(&daemon, "one");
    let came = json(&watch.until_out("requested"));
    assert_eq!((&came["id"], &came["approval"]["what"]), (&json!(id), &json!("notes.txt")));
    daemon.ok(&["approvals", "allow", &id]);
    let went = json(&watch.until_out("ended"));
    assert_eq!((&went["id"], &went["state"]), (&json!(id), &json!("allowed")));
    chat.end();
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().0.code(), Some(0));
}

#[test]
fn watch_prints_calls_in_creation_order() {
    let daemon = asking();
    let (chats, came): (Vec<RunningCall>, Vec<String>) =
        (1..=5).map(|n| waiting(&daemon, &format!("number-{n}"))).unzip();
    let watch = daemon.start(&["--json", "approvals", "watch"]);
    let told = |event: &str| -> Vec<String> {
        let line = |_: &String| json(&watch.until_out(event))["id"].as_str().unwrap().to_owned();
        came.iter().map(line).collect()
    };
    assert_eq!(told("requested"), came);
    for id in &came {
        daemon.ok(&["approvals", "deny", id]);
    }
    assert_eq!(told("ended"), came);
    chats.into_iter().for_each(|chat| drop(chat.end()));
    let listed = |state: &str| -> Vec<String> {
        let page = json(&daemon.ok(&["--json", "approvals", "list", "--state", state, "--limit", "3"]));
        page["approvals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest: Vec<String> = came.iter().rev().take(3).cloned().collect();
    assert_eq!((listed("denied"), listed("any")), (newest.clone(), newest));
    // A call that was decided long ago is still found by a prefix.
    let oldest = json(&daemon.ok(&["--json", "approvals", "show", &came[0][..6]]));
    assert_eq!(oldest["id"], json!(came[0]));
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().0.code(), Some(0));
}

#[test]
fn live_screen_decides_with_one_key_and_restores_the_terminal() {
    let daemon = asking();
    let Terminal { mut child, mut keyboard, screen, .. } = {
        let terminal = Terminal::start(daemon.command(&["approvals", "watch"]));
        terminal.screen.until("nothing waits for a decision");
        assert!(!terminal.is_ordinary());
        let (chat, id) = waiting(&daemon, "one");
        terminal.screen.until(&id);
        terminal.screen.until("path      notes.txt");
        // Longer than the settle time of the selection: the screen is redrawn each second.
        terminal.screen.until("path      notes.txt");
        (&terminal.keyboard).write_all(b"a").unwrap();
        terminal.screen.until(&format!("{id} is allowed"));
        assert_eq!(chat.end().0.code(), Some(0));

        let (chat, id) = waiting(&daemon, "two");
        terminal.screen.until(&id);
        terminal.screen.until("path      notes.txt");
        terminal.screen.until("path      notes.txt");
        (&terminal.keyboard).write_all(b"d").unwrap();
        terminal.screen.until(&format!("{id} is denied"));
        chat.end();
        (&terminal.keyboard).write_all(b"q").unwrap();
        terminal.screen.until("\u{1b}[?1049l");
        let mut terminal = terminal;
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        assert!(terminal.is_ordinary());
        Terminal::start(daemon.command(&["approvals", "watch"]))
    };
    // Ctrl-C quits too.
    screen.until("nothing waits for a decision");
    keyboard.write_all(b"\x03").unwrap();
    screen.until("\u{1b}[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // So does a signal.
    let mut terminal = Terminal::start(daemon.command(&["approvals", "watch"]));
    terminal.screen.until("nothing waits for a decision");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).unwrap();
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    assert!(terminal.is_ordinary());
}

#[test]
fn chat_decides_calls_and_shows_the_law() {
    let daemon = asking();
    let Terminal { mut child, mut keyboard, screen, .. } = Terminal::start(daemon.command(&["chat"]));
    screen.until("› ");
    let say = |keyboard: &mut std::fs::File, line: &str| {
        keyboard.write_all(format!("{line}\n").as_bytes()).unwrap()
    };
    say(&mut keyboard, "!call read {\"path\":\"notes.txt\"}");
    screen.until("waits for approval");
    screen.until("tribune approvals allow");
    say(&mut keyboard, "/approve zz");
    screen.until("name the call: ");
    say(&mut keyboard, "/approve");
    screen.until("allowed");
    screen.until("end_turn");
    screen.until("› ");
    say(&mut keyboard, "!call read {\"path\":\"notes.txt\"}");
    screen.until("tribune approvals allow");
    say(&mut keyboard, "/deny");
    screen.until("denied");
    screen.until("› ");
    say(&mut keyboard, "!call exec {\"command\":\"ls\"}");
    screen.until("exec denied (mandate.not_listed)");
    screen.until("› ");
    say(&mut keyboard, "/deny zz");
    screen.until("no waiting call has an id that begins with");
    screen.until("› ");
    for word in ["/tribune", "/clawos"] {
        say(&mut keyboard, word);
        for line in [
            "mode",
            "enforce",
            "manifests",
            "20, of which 0",
            "approvals",
            "none pending",
            "denied here",
            "exec (mandate.not_listed)",
        ] {
            screen.until(line);
        }
        screen.until("› ");
    }
    keyboard.write_all(b"\x04").unwrap();
    screen.until("The session stays open");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // One message shows it, without a turn of the agent.
    for word in ["/tribune", "/clawos"] {
        let said = daemon.ok(&["chat", word]);
        assert!(said.contains("denied here") && said.contains("exec (mandate.not_listed)"), "{said}");
    }
    assert_eq!(daemon.ask("session.status", &json!({ "session_key": KEY }))["turns"], 3);
    let status = daemon.ok(&["status"]);
    assert!(status.contains("denied lately") && status.contains("exec (mandate.not_listed)"), "{status}");
    let session = daemon.ok(&["sessions", "show", KEY]);
    assert!(session.contains("has read private data"), "{session}");
}

#[test]
fn queued_message_shows_the_approval_it_waits_for() {
    let daemon = asking();
    let (first, id) = waiting(&daemon, "one");
    let second = daemon.start(&["chat", "--session", "agent:main:cli:local:dm:one", "!say two"]);
    let line = second.until_err("the previous turn waits for approval ");
    assert!(line.contains(&id) && line.contains("(read)"), "{line}");
    let line = second.until_err("this message is queued");
    assert!(
        line.contains(&format!("approvals allow {id}")) && line.contains(&format!("approvals deny {id}")),
        "{line}"
    );
    daemon.ok(&["approvals", "allow", &id]);
    assert_eq!(first.end().1, "it said: hello\n");
    assert_eq!(second.end().1, "two\n");
}
