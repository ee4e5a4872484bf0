//! The built-in tools, called by an agent that tries to see more than it may.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{CWD, Mode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tribune_records::outcome::{Access, Resource, ToolErrorCode, ToolRun};
use tribune_records::text::RESULT_BYTES;
use tribune_registry::Mailbox;
use tribune_registry::mailbox::MAX_TEXT_BYTES;
use tribune_runtime::{AgentId, ToolCall, ToolOutcome};

use crate::{HostTools, NAMES};
use tribune_governance::gate::Admission;
use tribune_storage::clock::Clock;

mod exec;
mod exec_binding;
mod hidden;
mod host;
mod races;
mod web;
mod write;

/// A clock that stands still.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> tribune_ledger::Timestamp {
        "2026-11-15T12:00:00.000000Z".parse().unwrap()
    }
}

/// An admission, as the gate would issue it.
pub(super) fn admitted(call: &ToolCall) -> Admission {
    Admission::of_test(call.clone(), "agent:main:local:me:dm:me".parse().unwrap())
}

/// The content of files that no agent may see.
const SECRET: &str = "the secret of the daemon";

pub(super) struct Fixture {
    pub(super) folder: TempDir,
    pub(super) tools: HostTools,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Fixture {
    /// A state folder with a workspace for `main`, and secrets all around it.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let mailbox = Arc::new(Mailbox::new(root.join("data/agent-mailbox.jsonl")));
        let known = |id: &AgentId| ["main", "scout"].contains(&id.as_str());
        let tools = HostTools::new(root.clone(), Arc::clone(&mailbox), Arc::new(Stopped), Arc::new(known));
        let fixture = Self { folder, tools, mailbox };
        fs::create_dir_all(fixture.inside("")).unwrap();
        fs::create_dir_all(root.join("agents/scout/workspace")).unwrap();
        for place in
            ["secret.txt", "agents/secret.txt", "agents/main/secret.txt", "agents/scout/workspace/secret.txt"]
        {
            fs::write(root.join(place), format!("{SECRET}\n")).unwrap();
        }
        fixture
    }

    /// The same fixture with other tools.
    pub(super) fn with(self, change: impl FnOnce(HostTools) -> HostTools) -> Self {
        Self { tools: change(self.tools), ..self }
    }

    pub(super) fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("agents/main/workspace").join(path)
    }

    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) async fn call(&self, name: &str, input: Value) -> ToolOutcome {
        let call = ToolCall { id: "1".to_owned(), name: name.to_owned(), input };
        let outcome = self.tools.run(admitted(&call)).await.outcome;
        self.check(&call, &outcome);
        outcome
    }

    fn check(&self, call: &ToolCall, outcome: &ToolOutcome) {
        assert!(!outcome.content.contains(SECRET), "{} gave away {:?}", call.name, call.input);
        assert!(!outcome.content.contains(self.folder.path().to_str().unwrap()), "{}", outcome.content);
        assert!(outcome.content.len() <= RESULT_BYTES);
    }

    /// A call from a session of `main`.
    pub(super) async fn done(&self, name: &str, input: Value) -> ToolRun {
        let call = ToolCall { id: "1".to_owned(), name: name.to_owned(), input };
        let done = self.tools.run(admitted(&call)).await;
        self.check(&call, &done.outcome);
        assert_eq!(done.outcome.is_error, done.code.is_some(), "{done:?}");
        done
    }

    /// The access of a call that succeeds.
    pub(super) async fn touched(&self, name: &str, input: Value) -> Vec<Access> {
        let done = self.done(name, input).await;
        assert!(!done.outcome.is_error, "{}", done.outcome.content);
        done.touched
    }

    pub(super) async fn good(&self, name: &str, input: Value) -> String {
        let outcome = self.call(name, input).await;
        assert!(!outcome.is_error, "{}", outcome.content);
        outcome.content
    }

    pub(super) async fn refused(&self, name: &str, input: Value) -> String {
        let outcome = self.call(name, input).await;
        assert!(outcome.is_error, "{}", outcome.content);
        outcome.content
    }
}

#[tokio::test]
async fn a_file_is_read_whole_or_in_pieces() {
    let fixture = Fixture::new();
    fixture.write("notes/plan.md", "eins\nzwei ä\n");
    assert_eq!(fixture.good("read", json!({"path": "notes/plan.md"})).await, "eins\nzwei ä\n");
    assert_eq!(
        fixture.good("read", json!({"path": "./notes/../notes/plan.md", "limit": null})).await,
        "eins\nzwei ä\n"
    );
    assert_eq!(
        fixture.good("read", json!({"path": "notes/plan.md", "offset": 5, "limit": 6})).await,
        "zwei \n[cut: bytes 5 to 10 of 13; read on with offset 10]"
    );
    assert_eq!(fixture.good("read", json!({"path": "notes/plan.md", "offset": 10})).await, "ä\n");
    assert_eq!(fixture.good("read", json!({"path": "notes/plan.md", "offset": 11})).await, "\n");
    assert_eq!(fixture.good("read", json!({"path": "notes/plan.md", "offset": 13})).await, "");
    assert_eq!(
        fixture.refused("read", json!({"path": "notes/plan.md", "offset": u64::MAX})).await,
        "`notes/plan.md` has 13 bytes: choose an `offset` within them"
    );
    fixture.write("image.png", b"\x89PNG\r\n\x1a\n\x00\xff");
    assert_eq!(
        fixture.refused("read", json!({"path": "image.png"})).await,
        "`image.png` is not UTF-8 text (10 bytes): it cannot be shown"
    );
}

#[tokio::test]
async fn a_folder_is_listed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.good("read", json!({"path": "."})).await, "[the folder is empty]");
    fixture.write("b/x", "");
    fixture.write("a.txt", "");
    fixture.write("c\n[the end]", "");
    assert_eq!(fixture.good("read", json!({"path": "."})).await, "a.txt\nb/\nc\u{fffd}[the end]\n");
    for n in 0..1200 {
        fixture.write(&format!("many/{n:04}"), "");
    }
    let listing = fixture.good("read", json!({"path": "many/"})).await;
    assert_eq!(listing.lines().count(), 1001);
    assert!(
        listing.starts_with("0000\n0001\n")
            && listing.ends_with("0999\n[cut: the folder has more than 1000 names]\n")
    );
}

#[tokio::test]
async fn the_workspace_is_private_to_its_owner() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.folder.path().join("agents")).unwrap();
    fixture.good("read", json!({"path": "."})).await;
    for folder in ["agents", "agents/main", "agents/main/workspace"] {
        let mode = fs::metadata(fixture.folder.path().join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
}

#[tokio::test]
async fn no_path_leads_out() {
    let fixture = Fixture::new();
    fixture.write("inner/file.txt", "fine\n");
    let root = fixture.folder.path();
    for (link, target) in [
        ("passwd", "/etc/passwd"),
        ("up", ".."),
        ("far-up", "../../../.."),
        ("neighbour", "../../scout/workspace"),
        ("secret", "../secret.txt"),
        ("proc", "/proc/self/root"),
        ("descriptor", "/proc/self/fd/0"),
        ("chain", "up"),
        ("inner/up", "../../secret.txt"),
        ("absolute-inside", fixture.inside("inner/file.txt").to_str().unwrap()),
    ] {
        symlink(target, fixture.inside(link)).unwrap();
    }
    let absolute = root.join("secret.txt");
    for path in [
        "../../etc/passwd",
        "../secret.txt",
        "../../../secret.txt",
        "../../scout/workspace/secret.txt",
        "inner/../../secret.txt",
        "/etc/passwd",
        "/",
        "//etc/passwd",
        "..",
        absolute.to_str().unwrap(),
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "passwd",
        "up",
        "up/secret.txt",
        "far-up/etc/passwd",
        "neighbour/secret.txt",
        "neighbour",
        "secret",
        "proc/etc/passwd",
        "descriptor",
        "chain/secret.txt",
        "inner/up",
        "absolute-inside",
    ] {
        for (tool, input) in
            [("read", json!({"path": path})), ("search", json!({"path": path, "query": "e"}))]
        {
            let call = ToolCall { id: "1".to_owned(), name: tool.to_owned(), input };
            let outcome = fixture.tools.run(admitted(&call)).await.outcome;
            assert!(outcome.is_error, "{tool} {path}: {}", outcome.content);
            assert!(outcome.content.contains("leads out of the workspace"), "{}", outcome.content);
        }
    }
    assert_eq!(
        fixture.good("search", json!({"query": "secret of"})).await,
        "no match for `secret of` in 1 files\n"
    );
}

#[tokio::test]
async fn links_that_stay_inside_are_followed_when_named() {
    let fixture = Fixture::new();
    fixture.write("inner/file.txt", "fine\n");
    symlink("inner", fixture.inside("alias")).unwrap();
    symlink("../inner/file.txt", fixture.inside("inner/again")).unwrap();
    symlink("loop", fixture.inside("loop")).unwrap();
    assert_eq!(fixture.good("read", json!({"path": "alias/file.txt"})).await, "fine\n");
    assert_eq!(fixture.good("read", json!({"path": "inner/again"})).await, "fine\n");
    assert_eq!(fixture.good("search", json!({"query": "fine"})).await, "inner/file.txt:1: fine\n");
    assert!(fixture.refused("read", json!({"path": "loop"})).await.contains("cannot be followed"));
}

#[tokio::test]
async fn a_workspace_that_is_a_link_is_refused() {
    let fixture = Fixture::new();
    fs::remove_dir(fixture.inside("")).unwrap();
    symlink(fixture.folder.path(), fixture.folder.path().join("agents/main/workspace")).unwrap();
    for (tool, input) in [("read", json!({"path": "secret.txt"})), ("search", json!({"query": "secret"}))] {
        assert!(fixture.refused(tool, input).await.starts_with("the workspace cannot be opened"));
    }
}

#[tokio::test]
async fn special_files_do_not_block() {
    let fixture = Fixture::new();
    rustix::fs::mkfifoat(CWD, fixture.inside("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.inside("socket")).unwrap();
    for path in ["pipe", "socket"] {
        let sentence = format!("`{path}` is neither a file nor a folder: it cannot be read");
        assert_eq!(fixture.refused("read", json!({"path": path})).await, sentence);
        assert_eq!(fixture.refused("search", json!({"path": path, "query": "x"})).await, sentence);
    }
    assert_eq!(fixture.good("search", json!({"query": "x"})).await, "no match for `x` in 0 files\n");
}

#[tokio::test]
async fn a_huge_file_is_read_and_searched_in_part() {
    let fixture = Fixture::new();
    fixture.write("huge", "needle at the top\n");
    File::options().write(true).open(fixture.inside("huge")).unwrap().set_len(1 << 40).unwrap();
    let text = fixture.good("read", json!({"path": "huge"})).await;
    assert!(text.starts_with("needle") && text.contains("of 1099511627776; read on with offset"));
    fixture.write("long", "ab".repeat(200_000) + "needle" + &"cd".repeat(200_000) + "\nneedle\n");
    let found = fixture.good("search", json!({"query": "needle", "path": "long"})).await;
    let lines: Vec<_> = found.lines().collect();
    assert!(
        lines[0].starts_with("long:1: …") && lines[0].contains("needle") && lines[0].chars().count() < 320
    );
    assert_eq!(lines[1..], ["long:2: needle"]);
    let text = "x".repeat(1023) + "\n";
    fixture.write("text", text.repeat(65 * 1024));
    let found = fixture.good("search", json!({"query": "needle", "path": "text"})).await;
    assert_eq!(found, "no match for `needle` in 1 files\n[stopped after 64 MiB: narrow `path`]\n");
}

#[tokio::test]
async fn a_match_is_found_wherever_the_pieces_of_a_long_line_meet() {
    let fixture = Fixture::new();
    for before in (65_520..65_545).chain(131_060..131_080) {
        fixture.write("line", "x".repeat(before) + "needle" + &"y".repeat(70_000));
        let found = fixture.good("search", json!({"query": "needle"})).await;
        assert!(found.starts_with("line:1: ") && found.lines().count() == 1, "{before}: {found}");
    }
}

#[tokio::test]
async fn a_deep_tree_is_searched_to_its_limit() {
    let fixture = Fixture::new();
    let mut folder = fixture.inside("");
    for depth in 0..60 {
        folder.push(format!("d{depth}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("leaf"), "needle\n").unwrap();
    }
    let found = fixture.good("search", json!({"query": "needle"})).await;
    assert_eq!(found.lines().count(), 33, "{found}");
    assert!(found.ends_with("[folders more than 32 deep were passed over: name one in `path`]\n"));
}

#[tokio::test]
async fn a_search_shows_lines_and_says_why_it_ended() {
    let fixture = Fixture::new();
    fixture.write("a.txt", b"one\n  Needle here\r\nneedle\xe4\n");
    fixture.write("b/c.txt", "no newline, needle");
    fixture.write("binary", b"needle\x00needle");
    assert_eq!(
        fixture.good("search", json!({"query": "eedle"})).await,
        "a.txt:2:   Needle here\na.txt:3: needle\u{fffd}\nb/c.txt:1: no newline, needle\n"
    );
    assert_eq!(
        fixture.good("search", json!({"query": "needle", "path": "b/", "max": 7})).await,
        "b/c.txt:1: no newline, needle\n"
    );
    assert_eq!(
        fixture.good("search", json!({"query": "eedle", "max": 1})).await,
        "a.txt:2:   Needle here\n[there are more matches: narrow `path` or `query`, or raise `max`]\n"
    );
    fixture.write("many", "needle\n".repeat(500));
    let all = fixture.good("search", json!({"query": "needle", "max": 1_000_000})).await;
    assert_eq!(all.lines().count(), 201);
    for n in 0..10_010 {
        fixture.write(&format!("zoo/{n}"), "");
    }
    let found = fixture.good("search", json!({"query": "nowhere"})).await;
    assert!(found.ends_with("[stopped after 10000 files and folders: narrow `path`]\n"), "{found}");
}

#[tokio::test]
async fn a_read_is_reported_by_the_resolved_path() {
    let fixture = Fixture::new();
    fixture.write("inner/file.txt", "fine\n");
    fixture.write("inner/other.txt", "nothing\n");
    fixture.write("top", "fine too\n");
    symlink("inner", fixture.inside("alias")).unwrap();
    let read = |path: &str| Access::Read(Resource::File(path.to_owned()));
    for path in ["inner/file.txt", "alias/file.txt", "./inner/../alias//file.txt"] {
        assert_eq!(fixture.touched("read", json!({"path": path})).await, [read("inner/file.txt")]);
    }
    assert_eq!(
        fixture.touched("read", json!({"path": "."})).await,
        [read("alias"), read("inner"), read("top")]
    );
    assert_eq!(
        fixture.touched("read", json!({"path": "alias"})).await,
        [read("inner/file.txt"), read("inner/other.txt")]
    );
    assert_eq!(
        fixture.touched("search", json!({"query": "fine"})).await,
        [read("inner/file.txt"), read("top")]
    );
    assert_eq!(
        fixture.touched("search", json!({"query": "fine", "path": "alias/"})).await,
        [read("inner/file.txt")]
    );
    assert_eq!(fixture.touched("search", json!({"query": "absent"})).await, []);
    let missing = fixture.done("read", json!({"path": "gone"})).await;
    assert_eq!((missing.code, missing.touched), (Some(ToolErrorCode::NotFound), vec![]));
    // A name that is not UTF-8 cannot be reported, so it may be any file.
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"odd/\xff");
    fs::create_dir(fixture.inside("odd")).unwrap();
    fs::write(fixture.inside("").join(name), "fine\n").unwrap();
    assert_eq!(
        fixture.touched("search", json!({"query": "fine", "path": "odd"})).await,
        [Access::Read(Resource::Workspace)]
    );
}

#[tokio::test]
async fn a_file_with_another_name_is_not_read() {
    let fixture = Fixture::new();
    fs::hard_link(fixture.folder.path().join("secret.txt"), fixture.inside("notes")).unwrap();
    assert_eq!(
        fixture.refused("read", json!({"path": "notes"})).await,
        "`notes` has another name as well (a hard link): use a copy of it"
    );
    assert_eq!(
        fixture.good("search", json!({"query": "secret of"})).await,
        "no match for `secret of` in 0 files\n"
    );
}

#[tokio::test]
async fn an_invalid_input_gets_one_sentence_that_names_the_field() {
    let fixture = Fixture::new();
    let long = "x/".repeat(100_000);
    for (tool, input, sentence) in [
        (
            "read",
            json!({"path": ""}),
            "`path` is empty: name a file or folder, or `.` for the whole workspace",
        ),
        ("read", json!({"path": "a\0b"}), "`path` holds a NUL character, which no name has: leave it out"),
        ("read", json!({"path": long}), "`path` has more than 4095 bytes: name something nearer"),
        ("read", json!({"path": "x".repeat(300)}), "a name in `…"),
        (
            "read",
            json!({"path": "nothing"}),
            "there is no `nothing` in the workspace: read `.` to see what there is",
        ),
        ("read", json!({"path": 7}), "`path` is a string, not a number"),
        ("read", json!({"path": ["a"]}), "`path` is a string, not a list"),
        ("read", json!({"path": {"a": 1}}), "`path` is a string, not an object"),
        ("read", json!({}), "`path` is missing: give it as a string"),
        ("read", json!("a"), "the input of read is an object with `path`, `offset`, `limit`, not a string"),
        ("read", json!(null), "the input of read is an object with `path`, `offset`, `limit`, not null"),
        (
            "read",
            json!({"path": "a", "mode": "w"}),
            "read has no field `mode`: its fields are `path`, `offset`, `limit`",
        ),
        ("read", json!({"path": "a", "offset": -1}), "`offset` is a whole number from 0 on, not -1"),
        ("read", json!({"path": "a", "offset": 1.5}), "`offset` is a whole number from 0 on, not 1.5"),
        ("read", json!({"path": "a", "limit": "9"}), "`limit` is a whole number, not a string"),
        (
            "read",
            json!({"path": "a", "limit": 0}),
            "`limit` is at least 1: leave it out to read as much as fits",
        ),
        ("search", json!({"query": ""}), "`query` is empty: say what to look for"),
        ("search", json!({"query": false}), "`query` is a string, not a boolean"),
        (
            "search",
            json!({"query": "x".repeat(10_000_000)}),
            "`query` has 10000000 bytes, and 1024 are allowed: look for a part of it",
        ),
        (
            "search",
            json!({"query": "a\nb"}),
            "`query` has several lines, and lines are searched one by one: look for one of them",
        ),
        (
            "search",
            json!({"query": "a", "path": ""}),
            "`path` is empty: name a file or folder, or `.` for the whole workspace",
        ),
        (
            "search",
            json!({"query": "a", "max": 0}),
            "`max` is at least 1: leave it out to see the first matches",
        ),
        (
            "send_message",
            json!({"to": "../x", "text": "a"}),
            "`to` is the id of an agent, and `../x` is none",
        ),
        (
            "send_message",
            json!({"to": "nobody", "text": "a"}),
            "there is no agent `nobody` to send to: check the id",
        ),
        ("send_message", json!({"to": "scout"}), "`text` is missing: give it as a string"),
        ("send_message", json!({"to": "scout", "text": ""}), "the message is empty: write a text"),
        (
            "send_message",
            json!({"to": "scout", "text": "x".repeat(MAX_TEXT_BYTES + 1)}),
            "the message has 16385 bytes, and 16384 are allowed: send it in parts, or put it in a file and send the file name",
        ),
        (
            "shell",
            json!({}),
            "there is no tool `shell`: the tools are read, search, send_message, write, edit, …",
        ),
    ] {
        let answer = fixture.refused(tool, input).await;
        match sentence.strip_suffix('…') {
            Some(begins) => assert!(answer.starts_with(begins), "{answer}"),
            None => assert_eq!(answer, sentence),
        }
    }
    for tool in NAMES {
        // An unsupported tool is refused as that, whatever its input is.
        let is_absent = ["browser", "nodes"].contains(&tool);
        let code = if is_absent { ToolErrorCode::Unavailable } else { ToolErrorCode::InvalidInput };
        for input in [json!(null), json!([]), json!({"nothing": 1})] {
            assert_eq!(fixture.done(tool, input).await.code, Some(code), "{tool}");
        }
    }
    assert!(!fixture.mailbox.path().exists());
}

#[tokio::test]
async fn a_message_reaches_its_agent() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        let answer = fixture.good("send_message", json!({"to": "scout", "text": "look\nthere"})).await;
        assert_eq!(answer, "sent to scout");
    }
    let messages = fixture.mailbox.unread(&"scout".parse().unwrap()).unwrap();
    assert_eq!(messages.len(), 2);
    assert_ne!(messages[0].id, messages[1].id);
    for message in messages {
        assert_eq!((message.from.as_str(), message.text.as_str()), ("main", "look\nthere"));
        assert!(message.id.len() == 32 && message.id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    fs::remove_file(fixture.mailbox.path()).unwrap();
    fs::create_dir(fixture.mailbox.path()).unwrap();
    assert_eq!(
        fixture.refused("send_message", json!({"to": "scout", "text": "x"})).await,
        "the mailbox cannot be written at the moment: try again later, or tell the operator"
    );
}
