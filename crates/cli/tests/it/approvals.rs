//! What waits for a person, decided from the command line, from the live screen and from a conversation.

use std::io::Write as _;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tribune_testkit::{TempHome, assert_sound, config};

use crate::fixture::said;
use crate::in_process_daemon::{House, KEY, Running, command};
use crate::terminal::Terminal;

/// Every read asks.
const ASK: &str = "@id(\"ask-read\") forbid(principal, action == Tribune::Action::\"read\", resource) unless { context.approved };";
const READ: &str = "!call read {\"path\":\"notes.txt\"}\n!say it said: $result";

fn asking() -> House {
    let home = TempHome::new();
    home.write("policy/ask.cedar", ASK);
    home.write("agents/main/workspace/notes.txt", "hello");
    House::with(home, &config())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A turn that waits, in a session of its own, and the id of what it waits for.
fn waiting(house: &House, session: &str) -> (Running, String) {
    let key = format!("agent:main:cli:local:dm:{session}");
    let chat = house.start(&["chat", "--session", &key, READ]);
    let line = chat.until_err("read waits for approval ");
    let id = line.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(chat.until_err("tribune approvals allow").contains(&format!("/approve {id}")));
    (chat, id)
}

#[test]
fn calls_are_listed_shown_allowed_and_denied_by_the_first_letters_of_their_id() {
    let house = asking();
    assert_eq!(house.ok(&["approvals", "list"]), "nothing waits for a decision\n");
    let (first, id) = waiting(&house, "one");
    let list = house.ok(&["approvals", "list"]);
    assert!(list.starts_with("ID ") && list.contains("EXPIRES IN"), "{list}");
    let row = list.lines().nth(1).unwrap();
    assert!(row.starts_with(&id) && row.contains("main   read  notes.txt  the rule `ask-read`"), "{list}");
    let page = json(&house.ok(&["--json", "approvals", "list"]));
    assert_eq!((&page["pending"], &page["approvals"][0]["what"]), (&json!(1), &json!("notes.txt")));

    let card = house.ok(&["approvals", "show", &id[..3]]);
    for line in [
        "path      notes.txt\n",
        "rules     policy.ask-read\n",
        "context   only its owner's words, has read nothing private\n",
        "patterns  notes.txt\n",
    ] {
        assert!(card.contains(line), "{line}{card}");
    }
    let status = house.ok(&["status"]);
    assert!(
        status.contains("approvals    1 pending: tribune approvals watch\n")
            && status.contains("mode         enforce\n"),
        "{status}"
    );

    assert_eq!(house.ok(&["approvals", "allow", &id[..2], "--reason", "fine"]), format!("{id} is allowed\n"));
    let (end, out, err) = first.end();
    assert_eq!((end.code(), out.as_str()), (Some(0), "it said: hello\n"), "{err}");
    assert!(err.contains(&format!("✓ approval {id}: allowed")), "{err}");

    let (second, id) = waiting(&house, "two");
    let denied = json(&house.ok(&["--json", "approvals", "deny", &id, "--reason", "not today"]));
    assert_eq!((&denied["id"], &denied["state"]), (&json!(id), &json!("denied")));
    let (_, out, err) = second.end();
    assert!(err.contains(&format!("✗ approval {id}: denied")) && out.contains("not today"), "{out}{err}");

    let (third, id) = waiting(&house, "three");
    house.ok(&["approvals", "deny", &id, "--stop"]);
    let (end, out, err) = third.end();
    assert_eq!((end.code(), out.as_str()), (Some(130), ""), "{err}");

    // Twice, unknown, too short, and nonsense.
    let twice = house.call(&["approvals", "allow", &id]);
    assert_eq!((twice.code, twice.err.contains("not open any more")), (1, true), "{twice:?}");
    for args in [
        &["approvals", "allow", "zzzzzzzz"][..],
        &["approvals", "deny", "z"],
        &["approvals", "show", "zz"],
        &["approvals", "allow", "zz", "--for", "soon"],
        &["approvals", "revoke", "zz"],
    ] {
        assert_eq!(house.call(args).code, 64, "{args:?}");
    }
    let all = house.ok(&["approvals", "list", "--state", "any"]);
    assert_eq!(
        (all.lines().count(), all.contains("STATE"), all.contains("denied")),
        (4, true, true),
        "{all}"
    );
    assert_eq!(house.call(&["law", "replay"]).code, 0);
    let home = house.stop();
    assert_eq!(said(command(&home, &["approvals", "list"]).output().unwrap()).code, 69);
    assert_sound(&home.home);
}

#[test]
fn what_is_granted_is_not_asked_again_until_it_is_taken_back() {
    let house = asking();
    assert_eq!(house.ok(&["approvals", "grants"]), "no grants are in force\n");
    let (chat, id) = waiting(&house, "one");
    let wrong = house.call(&["approvals", "allow", &id, "--pattern", "other.txt"]);
    assert_eq!((wrong.code, wrong.err.contains("does not cover")), (64, true), "{wrong:?}");
    let said = house.ok(&["approvals", "allow", &id, "--pattern", "notes.txt", "--for", "2h"]);
    assert!(said.contains(&format!("tribune approvals revoke g{id}")), "{said}");
    assert_eq!(chat.end().0.code(), Some(0));
    let grants = house.ok(&["approvals", "grants"]);
    assert!(grants.contains("notes.txt  any session") && grants.contains("2h left"), "{grants}");

    assert!(house.ok(&["chat", READ]).ends_with("it said: hello\n"), "the grant covers it");
    let revoked = house.ok(&["approvals", "revoke", &format!("g{}", &id[..4])]);
    assert!(revoked.contains("is revoked"), "{revoked}");
    let (chat, id) = waiting(&house, "two");
    house.ok(&["approvals", "deny", &id]);
    chat.end();
}

#[test]
fn a_draft_is_changed_by_whoever_allows_it() {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: write\n---\n");
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"dev\",\"standing\":false}\n");
    home.write("policy/ask.cedar", &ASK.replace("read", "write"));
    let house = House::with(home, &config());
    let write =
        |path: &str| format!("!call write {{\"path\":\"{path}\",\"content\":\"hello\"}}\n!say $result");
    let asked = |path: &str| {
        let key = format!("agent:main:cli:local:dm:{path}");
        let chat = house.start(&["chat", "--session", &key, &write(path)]);
        let line = chat.until_err("write waits for approval ");
        (chat, line.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned())
    };
    let there = |path: &str| {
        std::fs::read_to_string(house.home().home.root().join("agents/main/workspace").join(path))
    };
    let (chat, id) = asked("one");
    assert!(house.ok(&["approvals", "show", &id]).contains("draft     you may change `content` first"));
    let edit = |editor: &str| {
        let mut command = house.command(&["approvals", "allow", &id, "--edit"]);
        said(command.env("VISUAL", editor).stdin(std::process::Stdio::null()).output().unwrap())
    };
    let refused = edit("false");
    assert_eq!((refused.code, refused.err.contains("nothing was decided")), (64, true), "{refused:?}");
    assert_eq!(edit("sed -i s/hello/good-day/").code, 0);
    let (_, out, _) = chat.end();
    assert!(out.contains("changed the text before allowing"), "{out}");
    assert_eq!(there("one").unwrap(), "good-day");

    let (chat, id) = asked("two");
    let mut child = house
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
fn everything_stops_and_goes_on() {
    let house = asking();
    let chat = house.start(&["--json", "chat", "!hang"]);
    chat.until_out("turn_started");
    assert!(house.ok(&["stop-all"]).starts_with("stopped: 1 turn was ended"));
    assert_eq!(chat.end().0.code(), Some(130));
    assert!(house.ok(&["status"]).contains("EVERYTHING IS STOPPED"));
    let refused = house.call(&["chat", READ]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(house.ok(&["stop-all"]).starts_with("stopped already: "));
    assert!(house.ok(&["resume"]).starts_with("resumed: "));
    assert!(house.ok(&["resume"]).starts_with("nothing was stopped"));
    assert!(!house.ok(&["status"]).contains("STOPPED"));
    assert_eq!(json(&house.ok(&["--json", "status"]))["law"]["frozen"], Value::Null);
    assert_eq!(house.ok(&["chat", "!say again"]), "again\n");
}

#[test]
fn others_decide_with_a_token_that_is_shown_once() {
    let house = asking();
    assert!(house.ok(&["approvers", "list"]).starts_with("only the operator decides"));
    let added = json(&house.ok(&["--json", "approvers", "add", "ada", "--role", "release"]));
    let token = house.home().folder.path().join("ada.token");
    std::fs::write(&token, added["token"].as_str().unwrap()).unwrap();
    let list = house.ok(&["approvers", "list"]);
    assert!(list.contains("ada  release") && !list.contains(added["token"].as_str().unwrap()), "{list}");

    let (chat, id) = waiting(&house, "one");
    let token = token.to_str().unwrap();
    house.ok(&["approvals", "--token", token, "allow", &id[..4]]);
    assert_eq!(chat.end().0.code(), Some(0));
    let shown = json(&house.ok(&["--json", "approvals", "show", &id]));
    assert_eq!(shown["decided_by"], "ada");

    // Whoever has a token needs to know where the daemon is, and nothing of its home.
    let (chat, id) = waiting(&house, "two");
    let away = TempHome::new();
    let address = house.address();
    let there = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--token", token, "--address", &address]);
        said(command(&away, &all).output().unwrap())
    };
    let list = there(&["approvals", "list"]);
    assert!(list.code == 0 && list.out.contains(&id), "{list:?}");
    assert_eq!(there(&["approvals", "deny", &id]).code, 0);
    chat.end();
    let stopped = there(&["stop-all"]);
    assert!(stopped.code == 0 && stopped.out.contains("stopped"), "{stopped:?}");
    assert_eq!(there(&["resume"]).code, 0);
    let wrong = said(
        command(&away, &["approvals", "list", "--token", "/nowhere/token", "--address", &address])
            .output()
            .unwrap(),
    );
    assert!(wrong.code == 64 && wrong.err.contains("--token takes the file"), "{wrong:?}");

    let nobody = said(command(&away, &["approvals", "list", "--address", &address]).output().unwrap());
    assert!(nobody.code == 64 && nobody.err.contains("go with --token"), "{nobody:?}");

    let taken = house.call(&["agents", "add", "ada"]);
    assert!(taken.code != 0 && taken.err.contains("the name of an approver"), "{taken:?}");
    assert_eq!(house.ok(&["approvers", "remove", "ada"]), "removed ada\n");
    assert_ne!(house.call(&["approvals", "--token", token, "list"]).code, 0);
    for wrong in [&["approvers", "remove", "ada"][..], &["approvers", "add", "Not a name"]] {
        assert_eq!(house.call(wrong).code, 64, "{wrong:?}");
    }
}

#[test]
fn without_a_terminal_what_comes_and_goes_is_told_in_lines() {
    let house = asking();
    let watch = house.start(&["--json", "approvals", "watch"]);
    let (chat, id) = waiting(&house, "one");
    let came = json(&watch.until_out("requested"));
    assert_eq!((&came["id"], &came["approval"]["what"]), (&json!(id), &json!("notes.txt")));
    house.ok(&["approvals", "allow", &id]);
    let went = json(&watch.until_out("ended"));
    assert_eq!((&went["id"], &went["state"]), (&json!(id), &json!("allowed")));
    chat.end();
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().0.code(), Some(0));
}

#[test]
fn calls_that_came_together_are_told_in_the_order_in_which_they_came() {
    let house = asking();
    let (chats, came): (Vec<Running>, Vec<String>) =
        (1..=5).map(|n| waiting(&house, &format!("number-{n}"))).unzip();
    let watch = house.start(&["--json", "approvals", "watch"]);
    let told = |event: &str| -> Vec<String> {
        let line = |_: &String| json(&watch.until_out(event))["id"].as_str().unwrap().to_owned();
        came.iter().map(line).collect()
    };
    assert_eq!(told("requested"), came);
    for id in &came {
        house.ok(&["approvals", "deny", id]);
    }
    assert_eq!(told("ended"), came);
    chats.into_iter().for_each(|chat| drop(chat.end()));
    let listed = |state: &str| -> Vec<String> {
        let page = json(&house.ok(&["--json", "approvals", "list", "--state", state, "--limit", "3"]));
        page["approvals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest: Vec<String> = came.iter().rev().take(3).cloned().collect();
    assert_eq!((listed("denied"), listed("any")), (newest.clone(), newest));
    // One that was decided long ago is found by its first letters all the same.
    let oldest = json(&house.ok(&["--json", "approvals", "show", &came[0][..6]]));
    assert_eq!(oldest["id"], json!(came[0]));
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().0.code(), Some(0));
}

#[test]
fn one_key_decides_on_the_live_screen_and_the_terminal_is_left_as_it_was() {
    let house = asking();
    let Terminal { mut child, mut keyboard, screen, .. } = {
        let terminal = Terminal::start(house.command(&["approvals", "watch"]));
        terminal.screen.until("nothing waits for a decision");
        assert!(!terminal.is_ordinary());
        let (chat, id) = waiting(&house, "one");
        terminal.screen.until(&id);
        terminal.screen.until("path      notes.txt");
        // Longer than a selection takes to settle: the screen is drawn anew each second.
        terminal.screen.until("path      notes.txt");
        (&terminal.keyboard).write_all(b"a").unwrap();
        terminal.screen.until(&format!("{id} is allowed"));
        assert_eq!(chat.end().0.code(), Some(0));

        let (chat, id) = waiting(&house, "two");
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
        Terminal::start(house.command(&["approvals", "watch"]))
    };
    // Ctrl-C leaves too.
    screen.until("nothing waits for a decision");
    keyboard.write_all(b"\x03").unwrap();
    screen.until("\u{1b}[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // And so does a signal.
    let mut terminal = Terminal::start(house.command(&["approvals", "watch"]));
    terminal.screen.until("nothing waits for a decision");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).unwrap();
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    assert!(terminal.is_ordinary());
}

#[test]
fn a_conversation_decides_and_shows_how_the_law_stands() {
    let house = asking();
    let Terminal { mut child, mut keyboard, screen, .. } = Terminal::start(house.command(&["chat"]));
    screen.until("› ");
    let say = |keyboard: &mut std::fs::File, line: &str| {
        keyboard.write_all(format!("{line}\n").as_bytes()).unwrap()
    };
    say(&mut keyboard, "!call read {\"path\":\"notes.txt\"}");
    screen.until("waits for approval");
    screen.until("tribune approvals allow");
    say(&mut keyboard, "/approve zz");
    screen.until("say which call is meant");
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
    screen.until("nothing that waits begins with");
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
    screen.until("Goodbye");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // One message is enough to hear it, and nobody thinks about it.
    for word in ["/tribune", "/clawos"] {
        let said = house.ok(&["chat", word]);
        assert!(said.contains("denied here") && said.contains("exec (mandate.not_listed)"), "{said}");
    }
    assert_eq!(house.ask("session.status", &json!({ "session_key": KEY }))["turns"], 3);
    let status = house.ok(&["status"]);
    assert!(status.contains("denied lately") && status.contains("exec (mandate.not_listed)"), "{status}");
    let session = house.ok(&["sessions", "show", KEY]);
    assert!(session.contains("has read private data"), "{session}");
}

#[test]
fn a_message_behind_a_turn_that_waits_is_told_what_it_waits_for() {
    let house = asking();
    let (first, id) = waiting(&house, "one");
    let second = house.start(&["chat", "--session", "agent:main:cli:local:dm:one", "!say two"]);
    let line = second.until_err("the turn before waits for approval ");
    assert!(line.contains(&id) && line.contains("(read)"), "{line}");
    let line = second.until_err("this message comes after it");
    assert!(
        line.contains(&format!("approvals allow {id}")) && line.contains(&format!("approvals deny {id}")),
        "{line}"
    );
    house.ok(&["approvals", "allow", &id]);
    assert_eq!(first.end().1, "it said: hello\n");
    assert_eq!(second.end().1, "two\n");
}
