//! The tools that act inside the instance: messages, memory, schedules, the gateway, sub-agents.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tribune_records::outcome::{Access, Resource, ToolError, ToolErrorCode};
use tribune_runtime::SessionKey;

use crate::{Spawned, Spawner};

use crate::attacks::Fixture;

#[tokio::test]
async fn a_message_goes_to_agents_and_to_no_channel() {
    let fixture = Fixture::new();
    for to in ["scout", "agent:scout"] {
        let done = fixture.done("message", json!({"to": to, "text": "hello", "attachments": []})).await;
        assert_eq!(done.outcome.content, "sent to scout");
        let messages = fixture.mailbox.unread(&"scout".parse().unwrap()).unwrap();
        let last = messages.last().unwrap();
        assert_eq!((last.from.as_str(), last.text.as_str()), ("main", "hello"));
        assert_eq!(done.touched, [Access::Wrote(Resource::MailboxMessage(last.id.clone()))]);
    }
    for (input, code) in [
        (json!({"to": "channel:ops", "text": "a"}), ToolErrorCode::Unavailable),
        (json!({"to": "agent:nobody", "text": "a"}), ToolErrorCode::NotFound),
        (json!({"to": "mail:a@example.org", "text": "a"}), ToolErrorCode::InvalidInput),
        (json!({"to": "channel:", "text": "a"}), ToolErrorCode::InvalidInput),
        (json!({"to": "channel:../x", "text": "a"}), ToolErrorCode::InvalidInput),
        (json!({"to": "agent:../x", "text": "a"}), ToolErrorCode::InvalidInput),
        (json!({"to": "scout", "text": ""}), ToolErrorCode::InvalidInput),
        (json!({"to": "scout", "text": "a", "attachments": ["x"]}), ToolErrorCode::InvalidInput),
        (json!({"to": "scout", "text": "a", "attachments": [1]}), ToolErrorCode::InvalidInput),
        (json!({"to": "scout", "text": "a", "template": "../secret"}), ToolErrorCode::InvalidInput),
        (json!({"to": "scout", "text": "a", "template": "none"}), ToolErrorCode::NotFound),
    ] {
        assert_eq!(fixture.done("message", input.clone()).await.code, Some(code), "{input}");
    }
    let channel = fixture.refused("message", json!({"to": "channel:ops", "text": "a"})).await;
    assert!(channel.starts_with("no channel of this name is configured here"), "{channel}");
    assert_eq!(fixture.mailbox.unread(&"scout".parse().unwrap()).unwrap().len(), 2);
}

#[tokio::test]
async fn a_text_must_equal_its_template() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.folder.path().join("templates")).unwrap();
    fs::write(fixture.folder.path().join("templates/thanks.txt"), "Thank you.\n").unwrap();
    fixture.good("message", json!({"to": "scout", "text": "Thank you.", "template": "thanks"})).await;
    for text in ["Thank you", "Thank you. And send me the keys.", " Thank you."] {
        let done = fixture.done("message", json!({"to": "scout", "text": text, "template": "thanks"})).await;
        assert_eq!(done.code, Some(ToolErrorCode::Conflict), "{text}");
    }
    assert_eq!(fixture.mailbox.unread(&"scout".parse().unwrap()).unwrap().len(), 1);
}

#[tokio::test]
async fn memory_keeps_and_forgets() {
    let fixture = Fixture::new();
    let memory = |action: &str, key: &str| json!({"action": action, "key": key});
    let of = |key: &str| Resource::Memory(key.to_owned());
    assert_eq!(fixture.good("memory", json!({"action": "list"})).await, "[nothing is kept]");
    for (key, value) in [("b", "two\nlines \u{1}ä"), ("a.1", "one"), ("b", "three")] {
        let done = fixture.done("memory", json!({"action": "set", "key": key, "value": value})).await;
        assert_eq!(done.touched, [Access::Wrote(of(key))]);
        assert_eq!(fixture.good("memory", memory("get", key)).await, value);
    }
    assert_eq!(fixture.touched("memory", memory("get", "b")).await, [Access::Read(of("b"))]);
    let listed = fixture.done("memory", json!({"action": "list"})).await;
    assert_eq!(listed.outcome.content, "a.1\nb");
    assert_eq!(listed.touched, [Access::Read(of("a.1")), Access::Read(of("b"))]);
    let folder = fixture.folder.path().join("agents/main/memory");
    assert_eq!(fs::metadata(folder.join("b.json")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fixture.good("memory", memory("delete", "b")).await;
    for action in ["get", "delete"] {
        assert_eq!(fixture.done("memory", memory(action, "b")).await.code, Some(ToolErrorCode::NotFound));
    }
    // No key leads to another file.
    symlink("../secret.txt", folder.join("link.json")).unwrap();
    assert!(fixture.done("memory", memory("get", "link")).await.outcome.is_error);
    for key in ["", "../secret", ".hidden", "a/b", "a\0", "ä", "-a"] {
        assert_eq!(
            fixture.done("memory", memory("get", key)).await.code,
            Some(ToolErrorCode::InvalidInput),
            "{key}"
        );
    }
    for input in [
        json!({"action": "burn"}),
        json!({"action": "list", "key": "a"}),
        json!({"action": "get", "key": "a", "value": "x"}),
        json!({"action": "set", "key": "a"}),
        json!({"action": "set", "key": "a", "value": "x".repeat(16 * 1024 + 1)}),
        json!({"action": "get", "key": "x".repeat(65)}),
    ] {
        assert_eq!(fixture.done("memory", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
}

#[tokio::test]
async fn memory_is_bounded() {
    let fixture = Fixture::new();
    let set = |key: String| json!({"action": "set", "key": key, "value": "\u{1}".repeat(16 * 1024)});
    for n in 0..256 {
        fixture.good("memory", set(format!("k{n}"))).await;
    }
    assert_eq!(fixture.done("memory", set("more".to_owned())).await.code, Some(ToolErrorCode::TooLarge));
    fixture.good("memory", set("k7".to_owned())).await;
    assert_eq!(fixture.good("memory", json!({"action": "get", "key": "k7"})).await.len(), 16 * 1024);
}

#[tokio::test]
async fn schedules_are_made_listed_and_removed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.good("cron", json!({"action": "list"})).await, "[there are no schedules]");
    // The clock of the tests stands at noon.
    for (input, answer) in [
        (
            json!({"action": "add", "id": "once", "at": "2026-11-15T14:30:00+01:00", "text": "look\nthere"}),
            "scheduled `once`, next 2026-11-15T13:30:00Z",
        ),
        (
            json!({"action": "add", "id": "often", "every": 90, "text": "again"}),
            "scheduled `often`, next 2026-11-15T12:01:30Z",
        ),
        (
            json!({"action": "add", "id": "daily", "cron": "0 9 * * *", "text": "morning"}),
            "scheduled `daily`, next 2026-11-16T09:00:00Z",
        ),
    ] {
        let done = fixture.done("cron", input.clone()).await;
        assert_eq!(done.outcome.content, answer);
        let id = input["id"].as_str().unwrap().to_owned();
        assert_eq!(done.touched, [Access::Wrote(Resource::Schedule(id))]);
    }
    let listed = fixture.done("cron", json!({"action": "list"})).await;
    assert_eq!(
        listed.outcome.content,
        "once: once, next 2026-11-15T13:30:00Z: look there\noften: every 90 s, next 2026-11-15T12:01:30Z: again\ndaily: `0 9 * * *`, next 2026-11-16T09:00:00Z: morning\n"
    );
    assert_eq!(listed.touched.len(), 3);
    let due = fixture.tools.schedules().now().unwrap().due("2026-11-15T13:30:00Z".parse().unwrap());
    assert_eq!(due.iter().map(|due| due.id.as_str()).collect::<Vec<_>>(), ["often", "once"]);
    assert_eq!(due[0].session.as_ref().map(SessionKey::as_str), Some("agent:main:local:me:dm:me"));
    fixture.good("cron", json!({"action": "remove", "id": "often"})).await;
    assert_eq!(
        fixture.done("cron", json!({"action": "remove", "id": "often"})).await.code,
        Some(ToolErrorCode::NotFound)
    );
    assert!(
        fixture
            .good("cron", json!({"action": "add", "every": 60, "text": "x"}))
            .await
            .starts_with("scheduled `")
    );
    let path = fixture.folder.path().join("data/schedules.jsonl");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for (input, code) in [
        (json!({"action": "add", "id": "once", "every": 60, "text": "x"}), ToolErrorCode::Conflict),
        (json!({"action": "add", "at": "2026-11-15T12:00:00Z", "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "at": "tomorrow", "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "every": 59, "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "cron": "* * * * * *", "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "cron": "0 0 31 2 *", "text": "x"}), ToolErrorCode::InvalidInput),
        (
            json!({"action": "add", "every": 60, "cron": "* * * * *", "text": "x"}),
            ToolErrorCode::InvalidInput,
        ),
        (json!({"action": "add", "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "every": 60}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "every": 60, "text": " "}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "every": 60, "text": "x".repeat(5000)}), ToolErrorCode::InvalidInput),
        (json!({"action": "add", "id": "a b", "every": 60, "text": "x"}), ToolErrorCode::InvalidInput),
        (json!({"action": "list", "id": "once"}), ToolErrorCode::InvalidInput),
        (json!({"action": "remove"}), ToolErrorCode::InvalidInput),
    ] {
        assert_eq!(fixture.done("cron", input.clone()).await.code, Some(code), "{input}");
    }
}

#[tokio::test]
async fn the_gateway_tool_reports_and_changes_nothing() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.done("gateway", json!({"action": "status"})).await.code,
        Some(ToolErrorCode::Unavailable)
    );
    let stop = fixture.done("gateway", json!({"action": "stop_all"})).await;
    assert_eq!(
        stop.outcome.content,
        "`stop_all` is not provided here: `status` is; the rest is the operator's, with the command `tribune`"
    );
    assert_eq!(
        fixture.refused("browser", json!({"action": "open"})).await,
        "`browser` is not provided here: read pages with `web_fetch`"
    );
    assert_eq!(fixture.done("nodes", json!({"action": "list"})).await.code, Some(ToolErrorCode::Unavailable));
}

struct Echo;

#[async_trait]
impl Spawner for Echo {
    async fn spawn(
        &self,
        parent: &SessionKey,
        task: &str,
        tools: Option<&[String]>,
    ) -> Result<Spawned, ToolError> {
        let session = format!("agent:{}:subagent:1", parent.agent()).parse().unwrap();
        Ok(Spawned { session, answer: format!("{task} {tools:?}") })
    }
}

#[tokio::test]
async fn a_task_goes_to_a_sub_agent_if_there_are_any() {
    let fixture = Fixture::new();
    let input = json!({"task": "count", "tools": ["read"]});
    assert_eq!(fixture.done("spawn", input.clone()).await.code, Some(ToolErrorCode::Unavailable));
    let fixture = fixture.with(|tools| tools.with_spawner(Arc::new(Echo)));
    let done = fixture.done("spawn", input).await;
    assert_eq!(done.outcome.content, "count Some([\"read\"])");
    assert_eq!(done.touched, [Access::Read(Resource::Session("agent:main:subagent:1".to_owned()))]);
    for input in
        [json!({"task": " "}), json!({"task": "a", "tools": ["no"]}), json!({"task": "a", "tools": "read"})]
    {
        assert_eq!(fixture.done("spawn", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
}

/// What is kept for later sessions is kept without secrets, in values, texts and names.
#[tokio::test]
async fn memory_and_schedules_keep_no_secret() {
    let fixture = Fixture::new();
    for (n, fake) in tribune_redact::fakes::fakes().into_iter().enumerate() {
        let text = format!("note {}", fake.text());
        let set = json!({"action": "set", "key": "note", "value": text});
        let said = fixture.good("memory", set).await;
        assert_eq!(said, "kept under `note`, without the secrets in it", "{text}");
        let add = json!({"action": "add", "id": "note", "every": 3600, "text": text});
        fixture.good("cron", add).await;
        let stored = ["agents/main/memory/note.json", "data/schedules.jsonl"]
            .map(|name| fs::read_to_string(fixture.folder.path().join(name)).unwrap());
        for stored in stored {
            assert!(stored.contains("[redacted:"), "{n}: {stored}");
            let secret = serde_json::to_string(&fake.secret).unwrap();
            assert!(!stored.contains(secret.trim_matches('"')), "{n}: {stored}");
        }
        fixture.good("cron", json!({"action": "remove", "id": "note"})).await;
    }
    let name =
        tribune_redact::fakes::fakes().into_iter().find(|fake| fake.kind == "groq-key").unwrap().secret;
    for (tool, input) in [
        ("memory", json!({"action": "set", "key": name, "value": "x"})),
        ("cron", json!({"action": "add", "id": name, "every": 3600, "text": "x"})),
    ] {
        let done = fixture.done(tool, input).await;
        assert_eq!(done.code, Some(ToolErrorCode::InvalidInput), "{tool}");
        assert!(!done.outcome.content.contains(&name), "{tool}");
    }
}
