//! `tribune chat` and `tribune sessions`.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use insta::{Settings, assert_snapshot};
use rustix::process::Signal;
use serde_json::{Value, json};
use tribune_testkit::{TempHome, assert_sound, config};

use crate::fixture::cli_output;
use crate::in_process_daemon::{InProcessDaemon, KEY, command};
use crate::terminal::Terminal;

/// Replaces values that differ from run to run.
fn settings() -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(r"b3c?:[0-9a-f]{64}", "[CID]");
    settings.add_filter(r"b3:[0-9a-f]{12}", "[CID]");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "[TIME]");
    settings.add_filter(r"--home /[^\s`]+", "--home [HOME]");
    settings.add_filter(r"\d+ in, \d+ out", "[N] in, [N] out");
    settings.add_filter(r"\[CID\](  \S+ +)\d+ +\d+ ", "[CID]${1}[N] [N] ");
    settings.add_filter("\"(session_id)\":\"[0-9a-f]{64}\"", "\"$1\":\"[ID]\"");
    settings
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that event numbers rise by one from the first to the last.
fn assert_gapless(events: &[Value]) {
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (seqs[0]..seqs[0] + seqs.len() as u64).collect();
    assert_eq!(seqs, expected);
}

#[test]
fn one_message_is_answered_and_what_the_agent_does_is_shown() {
    let daemon = InProcessDaemon::new();
    daemon.home().write("agents/main/workspace/welcome.txt", "Hello from the file.");
    let said = daemon.call(&["chat", "/play", "read"]);
    assert_eq!(said.code, 0, "{said:?}");
    // Only the answer, so that it can be piped.
    assert_eq!(said.out, "I will read welcome.txt.\nThis came back:\nHello from the file.\n");

    let screen = |message: &str| daemon.screen(&["chat", message]);
    settings().bind(|| {
        assert_snapshot!("chat_read", screen("/play read").1);
        assert_snapshot!("chat_denied", screen("/play denied-shell").1);
        assert_snapshot!("chat_think", screen("/play think").1);
        assert_snapshot!("chat_parallel_end", screen("/play parallel").1.lines().next_back().unwrap());
        assert_snapshot!("chat_mail_sent", screen("/play mail").1);
        assert_snapshot!("chat_mail_received", screen("what now?").1);
        let (code, text) = screen("/play fail");
        assert_eq!(code, 1, "{text}");
        assert_snapshot!("chat_fail", text);
        assert_snapshot!("chat_bad_script", screen("!sya hello").1);
        let (code, text) = screen("/help me");
        assert_eq!(
            (code, text.contains("You said")),
            (0, true),
            "one message is always for the agent: {text}"
        );
    });
}

#[test]
fn each_line_of_a_pipe_is_a_message() {
    let daemon = InProcessDaemon::new();
    let mut command = daemon.command(&["chat"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let script = "!say one\n\n/cancel\n!say two\n/new\n!say three\n/status\n/history\n/new\n/sessions\n/agents\n/help\n/quit\n!say never\n";
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let said = cli_output(child.wait_with_output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    settings().bind(|| {
        assert_snapshot!("chat_piped", said.out);
        assert_snapshot!("chat_piped_err", said.err);
    });

    let mut command = daemon.command(&["chat"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/play fail\n!say still here\n").unwrap();
    let said = crate::fixture::cli_output(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.ends_with("still here\n")), (1, true), "{said:?}");
}

#[test]
fn ctrl_c_cancels_the_turn_and_a_second_one_quits() {
    let daemon = InProcessDaemon::new();
    // A complete line, so that the test can wait for it.
    let chat = daemon.start(&["chat", "!say I begin\n!call read {\"path\":\".\"}\n!hang"]);
    chat.until_err("←");
    chat.signal(Signal::INT);
    let (status, out, err) = chat.end();
    assert_eq!(status.code(), Some(130), "{err}");
    assert_eq!(out, "I begin\n");
    assert!(err.contains("cancelling\n— cancelled · "), "{err}");
    assert_eq!(daemon.ask("session.status", &json!({ "session_key": KEY }))["state"], "cancelled");

    // Immediately, possibly before the turn has begun.
    let chat = daemon.start(&["--json", "chat", "!hang"]);
    chat.until_out("turn_started");
    chat.signal(Signal::INT);
    let (status, out, err) = chat.end();
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(out.lines().last().unwrap().contains(r#""stop_reason":"cancelled""#), "{out}");

    let chat = daemon.start(&["chat", "!think I do not listen\n!call read {\"path\":\".\"}\n!deaf"]);
    chat.until_err("←");
    chat.signal(Signal::INT);
    chat.until_err("cancelling");
    chat.signal(Signal::INT);
    let (status, _, err) = chat.end();
    assert_eq!((status.code(), err.contains("cancelled")), (Some(130), false), "{err}");
}

#[test]
fn programs_get_every_event_and_the_result() {
    let daemon = InProcessDaemon::new();
    let lines = json_lines(&daemon.ok(&["--json", "chat", "/play denied-shell"]));
    let (result, events) = lines.split_last().unwrap();
    assert_gapless(events);
    assert_eq!(
        (&events[0]["type"], &events.last().unwrap()["type"]),
        (&json!("turn_started"), &json!("done"))
    );
    let expected = json!({
        "type": "result", "session_key": KEY, "turn": events[0]["turn"], "first_seq": 1,
        "last_seq": events.len(), "stop_reason": "end_turn", "usage": result["usage"],
    });
    assert_eq!(*result, expected);
    assert!(result["usage"]["output_tokens"].as_u64().unwrap() > 0);

    let stored = json_lines(&daemon.ok(&["sessions", "events", KEY]));
    assert_eq!(stored, events);
    assert_eq!(json_lines(&daemon.ok(&["sessions", "events", KEY, "--after", "3"])), events[3..]);
}

#[test]
fn agent_text_cannot_control_the_terminal() {
    let daemon = InProcessDaemon::new();
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\rgone";
    let script = format!(
        "!think {evil}\n!say tab\there {evil}\n!call read {{\"path\":\"{}\"}}\n!fail bad {evil}",
        "\u{9b}2J\u{202e}"
    );
    let (_, text) = daemon.screen(&["chat", &script]);
    let shown = daemon.ok(&["sessions", "show", KEY]);
    let events = daemon.ok(&["sessions", "events", KEY]);
    for text in [&text, &shown, &events] {
        let steers =
            |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(steers), "{text:?}");
    }
    assert!(
        text.contains("tab\there \\u{1b}[2J\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}\\u{d}gone"),
        "{text}"
    );
    let said: String = json_lines(&events).iter().filter_map(|event| event["text"].as_str()).collect();
    assert!(said.contains(evil), "spelt out in JSON, it is still the same text: {said:?}");
}

/// A TCP relay to the daemon that can be cut.
struct Wire {
    cuts: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn new(listener: TcpListener, to: String) -> Self {
        let cuts = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&cuts);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&to).unwrap());
                kept.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        });
        Self { cuts }
    }

    fn cut(&self) {
        for stream in self.cuts.lock().unwrap().drain(..) {
            // It may already be closed.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[test]
fn a_lost_connection_loses_nothing_and_repeats_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = listener.local_addr().unwrap().to_string();
    let mut config = config();
    config.gateway.hosts = vec![front.clone()];
    let daemon = InProcessDaemon::with(TempHome::new(), &config);
    let wire = Wire::new(listener, daemon.address());
    let found = daemon.home().read("run/daemon.json").replace(&daemon.address(), &front);
    daemon.home().write("run/daemon.json", &found);

    let words: Vec<String> = (0..60).map(|n| format!("word{n}")).collect();
    let chat = daemon.start(&["--json", "chat", &format!("!slowly 20ms {}", words.join(" "))]);
    let mut events = vec![chat.until_out("turn_started")];
    for word in ["word5 ", "word20 ", "word40 "] {
        events.push(chat.until_out(word));
        wire.cut();
    }
    let (status, out, err) = chat.end();
    assert_eq!(status.code(), Some(0), "{err}");
    // The events that were read to find the positions are in the daemon's history; the rest must continue them exactly.
    let (result, rest) =
        json_lines(&out).split_last().map(|(last, rest)| (last.clone(), rest.to_vec())).unwrap();
    assert_eq!(result["stop_reason"], "end_turn");
    let first: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_gapless(&[&[first], rest.as_slice()].concat());

    // The same in text format, with a notice. The whole answer appears once.
    let chat =
        daemon.start(&["chat", &format!("!call read {{\"path\":\".\"}}\n!slowly 20ms {}", words.join(" "))]);
    chat.until_err("←");
    wire.cut();
    let (status, out, err) = chat.end();
    assert_eq!((status.code(), out.as_str()), (Some(0), format!("{}\n", words.join(" ")).as_str()), "{err}");
    assert!(
        err.starts_with("the connection to the daemon was lost: connecting again\nconnected again\n"),
        "{err}"
    );
}

#[test]
fn a_turn_that_a_crash_interrupts_says_so() {
    let daemon = InProcessDaemon::new();
    let chat = daemon.start(&["chat", "!say I begin\n!call read {\"path\":\".\"}\n!hang"]);
    chat.until_err("←");
    let home = daemon.crash();
    chat.until_err("the connection to the daemon was lost");
    let daemon = InProcessDaemon::with(home, &config());
    let (status, out, err) = chat.end();
    assert_eq!((status.code(), out.as_str()), (Some(1), "I begin\n"), "{err}");
    assert!(err.contains("✗ interrupted: the daemon ended while this turn was running"), "{err}");
    assert!(err.contains("— interrupted · "), "{err}");
    let shown = daemon.ok(&["sessions", "show", KEY]);
    assert!(shown.contains("interrupted"), "{shown}");
    // The session still works.
    assert_eq!(daemon.ok(&["chat", "!say again"]), "again\n");
    assert_sound(&daemon.stop().home);
}

#[test]
fn without_a_daemon_it_says_how_to_start_one() {
    let home = TempHome::new();
    for args in [&["chat", "hello"][..], &["sessions", "list"]] {
        let said = cli_output(command(&home, args).output().unwrap());
        assert_eq!(said.code, 69, "{said:?}");
        assert!(said.err.contains("no daemon is running") && said.err.contains("tribune up"), "{}", said.err);
    }
}

#[test]
fn a_conversation_on_a_terminal() {
    let daemon = InProcessDaemon::new();
    let Terminal { mut child, mut keyboard, screen, .. } = Terminal::start(daemon.command(&["chat"]));

    screen.until("› ");
    keyboard.write_all(b"!say hello\n").unwrap();
    screen.until("end_turn");
    screen.until("› ");
    // `/cancel` cancels a running turn; later lines are queued.
    keyboard.write_all(b"!hang\n").unwrap();
    screen.until("!hang");
    keyboard.write_all(b"/cancel\n!say after\n").unwrap();
    screen.until("cancelled");
    screen.until("end_turn");
    screen.until("› ");
    // Ctrl-C cancels the turn and does not end the conversation.
    keyboard.write_all(b"!say before\n").unwrap();
    screen.until("› ");
    keyboard.write_all(b"/play slow\n").unwrap();
    screen.until("This");
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    screen.until("cancelled");
    screen.until("› ");
    // A refused request does not end it either.
    keyboard.write_all(b"/unknown\n").unwrap();
    screen.until("You said");
    screen.until("› ");
    keyboard.write_all(b"\x04").unwrap();
    screen.until(&format!("The session stays open. Continue it with: tribune chat --session {KEY}"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn sessions_are_listed_shown_closed_and_forgotten() {
    let daemon = InProcessDaemon::new();
    daemon.ok(&["chat", "!say My secret is $input\n!call read {\"path\":\"nothing.txt\"}\n!say done"]);
    daemon.ok(&["chat", "--session", "agent:main:cli:local:dm:bob", "!say hello bob"]);
    settings().bind(|| {
        assert_snapshot!("sessions_list", daemon.ok(&["sessions", "list"]));
        assert_snapshot!("sessions_list_none", daemon.ok(&["sessions", "list", "--state", "closed"]));
        assert_snapshot!("sessions_show", daemon.ok(&["sessions", "show", KEY]));
        assert_snapshot!("sessions_show_one", daemon.ok(&["sessions", "show", KEY, "-n", "1"]));
        assert_snapshot!("sessions_cancel", daemon.ok(&["sessions", "cancel", KEY]));
        assert_snapshot!("sessions_close", daemon.ok(&["sessions", "close", "agent:main:cli:local:dm:bob"]));
        let unasked = daemon.call(&["sessions", "forget", KEY]);
        assert_eq!(unasked.code, 64);
        assert_snapshot!("sessions_forget_unasked", unasked.err);
        assert!(daemon.ok(&["sessions", "show", KEY]).contains("My secret"));
        assert_snapshot!("sessions_forget", daemon.ok(&["sessions", "forget", KEY, "--yes"]));
        let shown = daemon.ok(&["sessions", "show", KEY]);
        assert!(!shown.contains("secret"), "{shown}");
        assert_snapshot!("sessions_show_forgotten", shown);
        let json: Value = serde_json::from_str(&daemon.ok(&["sessions", "show", KEY, "--json"])).unwrap();
        assert_eq!(json["messages"][0]["content"], Value::Null);
        assert_eq!(json["session"]["session_key"], KEY);
    });
    for (args, meant) in [
        (["sessions", "show", "agent:main:cli:local:dm:bub"], "did you mean `agent:main:cli:local:dm:bob`?"),
        (["sessions", "close", "bob"], "did you mean `agent:main:cli:local:dm:bob`?"),
        (["sessions", "cancel", "agent:nobody:x:y:dm:z"], "`tribune sessions list --home "),
        (["sessions", "events", "nonsense"], "`tribune sessions list --home "),
    ] {
        let said = daemon.call(&args);
        assert_eq!((said.code, said.err.contains(meant)), (64, true), "{args:?}: {said:?}");
    }
    assert_sound(&daemon.stop().home);
}

#[test]
fn events_are_followed_as_they_come() {
    let daemon = InProcessDaemon::new();
    daemon.ok(&["chat", "!say one"]);
    let follow = daemon.start(&["sessions", "events", KEY, "--follow", "--after", "2"]);
    follow.until_out("done");
    daemon.ok(&["chat", "!say two"]);
    // Text arrives in pieces of any size.
    let mut text = String::new();
    while text != "two" {
        let event: Value = serde_json::from_str(&follow.until_out("text_delta")).unwrap();
        text.push_str(event["text"].as_str().unwrap());
    }
    daemon.ok(&["sessions", "close", KEY]);
    let (status, _, err) = follow.end();
    assert_eq!(
        (status.code(), err.as_str()),
        (Some(0), "the session was closed: there are no more events\n")
    );
}

#[test]
fn agents_are_added_with_a_daemon_and_without() {
    let home = TempHome::new();
    let call = |args: &[&str]| cli_output(command(&home, args).output().unwrap());
    let ok = |args: &[&str]| {
        let said = call(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out
    };
    let mut settings = settings();
    settings.add_filter(r"--home \S+", "--home [HOME]");
    settings.bind(|| {
        assert_snapshot!("agents_list_empty", ok(&["agents", "list"]));
        assert_snapshot!(
            "agents_add",
            ok(&["agents", "add", "writer", "--name", "The Writer", "--standing"])
        );
        assert_snapshot!("agents_list", ok(&["agents", "list"]));
        assert_snapshot!("agents_show", ok(&["agents", "show", "writer"]));
    });
    let wrong = |args: &[&str], code: i32, what: &str| {
        let said = call(args);
        assert_eq!((said.code, said.err.contains(what)), (code, true), "{args:?}: {said:?}");
    };
    let refusals = || {
        wrong(&["agents", "show", "write"], 64, "did you mean `writer`?");
        wrong(&["agents", "show", "nobody"], 64, "tribune agents add nobody");
    };
    refusals();
    wrong(&["agents", "pass", "writer"], 64, "start one with `tribune up --home ");
    wrong(&["agents", "add", "writer"], 1, "already on line 2");
    wrong(&["agents", "add", "Bad Id"], 64, "is not an agent id");
    wrong(&["agents", "add", "x", "--mandate", "none"], 64, "this home has default");
    wrong(&["agents", "add", "x", "--backend", "gpt"], 64, "this build has rehearsal");
    wrong(&["agents", "add", "x", "--pubkey", "no"], 64, "pubkey");
    let by_hand: Value = serde_json::from_str(&ok(&["agents", "show", "writer", "--json"])).unwrap();

    let daemon = InProcessDaemon::with(home, &config());
    let over_rpc: Value = serde_json::from_str(&daemon.ok(&["agents", "show", "writer", "--json"])).unwrap();
    let (mut a, mut b) = (by_hand, over_rpc);
    // The daemon opened the session of the standing agent; everything else is unchanged.
    for agent in [&mut a, &mut b] {
        for member in ["last_seen", "sessions"] {
            assert!(agent.as_object_mut().unwrap().remove(member).is_some());
        }
    }
    assert_eq!(a, b);
    daemon.ok(&["agents", "add", "clerk"]);
    assert!(daemon.ok(&["agents", "list"]).contains("clerk"));
    assert_eq!(daemon.ok(&["chat", "--agent", "clerk", "!say here"]), "here\n");
    for (args, what) in [
        (&["agents", "show", "clrk"][..], "did you mean `clerk`?"),
        (&["agents", "add", "clerk"], "already on line"),
        (&["agents", "add", "x", "--mandate", "none"], "there is no mandate `none`"),
        (&["chat", "--agent", "nobody", "hello"], "there is no such agent"),
        (&["chat", "--agent", "clerk", "--session", KEY, "hello"], "give only one of them"),
    ] {
        let said = daemon.call(args);
        assert!(said.code != 0 && said.err.contains(what), "{args:?}: {said:?}");
    }
    // The heartbeats are kept after the daemon has stopped.
    let home = daemon.stop();
    let said = cli_output(command(&home, &["agents", "show", "clerk", "--json"]).output().unwrap());
    let clerk: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&clerk["sessions"], &clerk["turns"]), (&json!(1), &json!(1)));
}

#[test]
fn a_standing_session_stays_standing_when_someone_talks_in_it() {
    let daemon = InProcessDaemon::new();
    let key = "agent:main:standing:local:dm:main";
    daemon.ok(&["chat", "--session", key, "!say hello"]);
    let info = daemon.ask("session.status", &json!({ "session_key": key }));
    assert_eq!((&info["mode"], &info["turns"]), (&json!("persistent"), &json!(1)));
}

#[test]
fn help_teaches_how_to_talk() {
    let daemon = InProcessDaemon::new();
    settings().bind(|| {
        assert_snapshot!("help_chat", daemon.ok(&["chat", "--help"]));
        assert_snapshot!("help_sessions", daemon.ok(&["sessions", "--help"]));
        assert_snapshot!("help_forget", daemon.ok(&["sessions", "forget", "--help"]));
        assert_snapshot!("help_agents_add", daemon.ok(&["agents", "add", "--help"]));
        assert_snapshot!("help_agents_pass", daemon.ok(&["agents", "pass", "--help"]));
        assert_snapshot!("help_demo", daemon.ok(&["demo", "--help"]));
    });
}

#[test]
fn a_reader_of_the_answer_that_has_seen_enough_is_no_error() {
    let daemon = InProcessDaemon::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        daemon.command(&["chat", "!say hello"]).stdin(Stdio::null()).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}
