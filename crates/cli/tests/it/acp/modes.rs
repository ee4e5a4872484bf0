//! Approval modes of agents, and agents on a folder: modes in the roster, and `tribune run NAME`.

use std::process::Output;

use serde_json::{Value, json};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::Verdicts;

use super::{ASK, Rig, Setting, run, within, write};
use crate::fixture::Place;

/// Every call needs an approval or is denied.
const STRICT: &str = r#"@id("no-secrets") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource)
    when { context has path && context.path like "secrets/*" };"#;

fn read(call: &str) -> Value {
    json!({ "ask": { "toolCallId": call, "title": "Read", "kind": "read", "rawInput": { "path": "/workspace/notes.txt" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_a_mode_is_decided_by_the_law_and_stands_in_its_facts() {
    for (mode, said) in [
        ("approve-all", "[yes][yes][no][yes]"),
        ("approve-reads", "[no][no][no][yes]"),
        ("deny-all", "[no][no][no][no]"),
    ] {
        let roster = format!(",\"mode\":\"{mode}\"");
        let mut rig = Rig::new(Setting { law: STRICT, roster: &roster, ..Setting::default() }).await;
        let acts = json!([
            write("a", "a.txt", "x"),
            run("r", "touch b.txt"),
            write("s", "secrets/key", "x"),
            read("n"),
        ]);
        let played = rig.plays(acts).await;
        assert_eq!(played.text, said, "{mode}: {played:#?}");
        assert_eq!(rig.workspace("a.txt").is_some(), mode == "approve-all", "{mode}");
        if mode == "approve-all" {
            // Autorun files still need an approval.
            let mut operator = rig.operator().await;
            let running = rig.begins(json!([write("e", ".envrc", "x")])).await;
            let waiting = Rig::waiting(&mut operator).await;
            Rig::decide(&mut operator, &waiting[0], "deny").await;
            assert_eq!(rig.ended(running).await.text, "[no]");
        } else {
            let forced = rig.plays(json!([{ "do": { "run": "echo x > c.txt" } }])).await;
            assert_eq!(rig.workspace("c.txt"), None, "{mode}: {forced:#?}");
        }
        let place = rig.end();
        let reader = Reader::open(&Home::at(place.home())).unwrap();
        let judged = Verdicts::from(&reader, 0).map(|judged| judged.unwrap().record.unwrap());
        let own: Vec<_> = judged.filter(|record| record.facts.agent == "coder").collect();
        assert!(
            !own.is_empty()
                && own
                    .iter()
                    .all(|record| record.facts.approval_mode.map(|mode| mode.as_str()) == Some(mode))
        );
    }
}

fn on(place: &Place, folder: &str, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        place.command(args).current_dir(place.path(folder)).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_an_agent_works_on_a_folder_of_the_operators_and_nowhere_else() {
    let place = Rig::set_up(Setting::default());
    for name in ["project", "other"] {
        std::fs::create_dir(place.path(name)).unwrap();
        std::fs::write(place.path(name).join("notes.txt"), name).unwrap();
    }
    for (args, why) in [
        (&["run", "played", "--", "--yolo"][..], "drives it over ACP"),
        (&["run", "--net", "a.example", "played"], "egress.agents"),
        (&["run", "--env", "A=b", "played"], "its profile"),
        (&["run", "claude"], "tribune agents install claude"),
        (&["run", "--mode", "approve-all", "--", "true"], "for agents"),
        (&["run", "--mode", "everything", "played"], "approve-reads"),
    ] {
        let (code, _, err) = on(&place, "project", args);
        assert!(code != 0 && err.contains(why), "{args:?}: {err}");
    }
    let hex = |acts: Value| acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let acts = hex(json!([write("a", "a.txt", "x"), { "do": { "run": "cat notes.txt; ls /workspace" } }]));
    for folder in ["project", "other"] {
        let (code, out, err) = on(&place, folder, &["run", "played", "--", &acts]);
        assert_eq!(code, 0, "{out} {err}");
        assert!(out.contains("[yes]") && out.contains(folder), "{out} {err}");
        assert_eq!(std::fs::read_to_string(place.path(folder).join("a.txt")).unwrap(), "x");
    }
    // The same agent the next time, and another agent for another mode.
    let count = || place.ok(&["agents", "list"]).lines().filter(|line| line.contains("played-")).count();
    assert_eq!(count(), 2);
    on(&place, "project", &["run", "played", "--", &acts]);
    assert_eq!(count(), 2);
    let more = hex(json!([write("b", "b.txt", "x"), { "do": { "run": "echo x > c.txt" } }]));
    let (_, out, err) = on(&place, "project", &["run", "--workspace", "read-only", "played", "--", &more]);
    assert!(out.contains("[no]"), "{out} {err}");
    assert!(!place.path("project").join("b.txt").exists() && !place.path("project").join("c.txt").exists());
    assert_eq!(count(), 3);
    place.ok(&["down"]);
}

/// The mode of an editor's session answers by what Tribune recorded of a call. Here the agent describes a command as a read,
/// under an id that is the daemon's for the command.
#[tokio::test(flavor = "multi_thread")]
async fn l1_a_mode_of_an_editor_answers_by_tribunes_record_of_a_call() {
    let profile = ", capabilities: { terminal: true }";
    let place = Rig::set_up(Setting { law: ASK, profile, ..Setting::default() });
    std::fs::write(place.home().join("policy/law.json5"), "{}").unwrap();
    let rig = Rig::on(place, &[]).await;
    let folder = rig.place.path("project");
    std::fs::create_dir(&folder).unwrap();
    let connected = tribune_client::acp::connect(&rig.address, Some(&rig.token), Some("coder"), None).await;
    let (mut sending, mut receiving) = connected.unwrap();
    let mut talk = async |id: u64, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        sending.send(request.to_string()).await.unwrap();
        let mut asked = Vec::new();
        loop {
            let text = within(receiving.next()).await.unwrap();
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "deny" } });
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome });
                sending.send(answer.to_string()).await.unwrap();
                asked.push(message["params"]["toolCall"].clone());
            } else if message["id"] == id && message["method"].is_null() {
                return (message, asked);
            }
        }
    };
    talk(1, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
    let (opened, _) = talk(2, "session/new", json!({ "cwd": folder, "mcpServers": [] })).await;
    let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    talk(3, "session/set_mode", json!({ "sessionId": session, "modeId": "approve-reads" })).await;
    for (n, own) in ["callback-1", "tribune-callback-1"].into_iter().enumerate() {
        let said = json!({ "sessionUpdate": "tool_call", "toolCallId": own, "title": "look around",
                           "kind": "read", "status": "pending" });
        let acts = json!([
            { "update": said },
            { "create": { "command": "touch made.txt" } },
            { "terminal": ["wait_for_exit", "t"] },
        ]);
        let script: String = acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": script }] });
        let (ended, asked) = talk(10 + n as u64, "session/prompt", prompt).await;
        assert!(ended["result"].is_object(), "{own}: {ended}");
        assert!(!folder.join("made.txt").exists(), "{own}: no read was approved");
        let asked: Vec<(&Value, &Value)> = asked.iter().map(|call| (&call["kind"], &call["title"])).collect();
        assert_eq!(asked, [(&json!("execute"), &json!("exec touch made.txt"))], "{own}");
    }
    rig.end();
}
