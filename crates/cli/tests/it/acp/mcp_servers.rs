//! MCP servers from an editor, for a session with a CLI agent: Tribune runs the servers, the agent reaches them over a
//! port of its sandbox, and each call passes the gate.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::UNTRIED;
use crate::editors::EditorHome;
use crate::editors::mcp_servers::Bench;

const MANDATE: &str = "---\ntools: read, write, mcp\n---\n# For work\n";

/// Allowed without an approval.
const FREE: &str = r#"@id("free") permit(principal, action == Tribune::Action::"mcp", resource);"#;

/// Denied for everyone.
const NONE: &str = r#"@id("none") @reason("no servers today") forbid(principal, action == Tribune::Action::"mcp", resource);"#;

/// A bench with an editor and a scripted agent.
fn bench(role: &str, law: &str) -> Bench {
    let desk = EditorHome::new();
    let folder = desk.place.path("played");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(folder.join("agent.py"), include_str!("agent.py")).unwrap();
    let folder = folder.display();
    let profile = format!(
        "{{ id: 'played', title: 'a played agent', command: ['python3', '{folder}/agent.py', '{role}'], folders: ['{folder}'], keep: ['talks'] }}"
    );
    let config = format!("{{ gateway: {{ address: '127.0.0.1:0' }}, {}", UNTRIED.trim_start_matches('{'));
    let roster = "{\"id\":\"main\",\"backend\":\"acp\",\"profile\":\"played\",\"mandate\":\"work\"}\n";
    let files = [
        ("config.json5", config.as_str()),
        ("mandates/work.md", MANDATE),
        ("policy/law.cedar", law),
        ("profiles/played.json5", &profile),
        ("data/agent-roster.jsonl", roster),
    ];
    Bench::at(desk, &files)
}

/// Makes the agent perform these acts.
fn plays(bench: &mut Bench, session: &str, acts: &Value) -> String {
    bench.say(session, &script(acts))
}

/// In hex, so that no part of it counts as the owner's own text.
fn script(acts: &Value) -> String {
    acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn write(path: &str) -> Value {
    json!({ "path": path, "text": "made" })
}

/// A call that the agent requests permission for, and executes if it is granted.
fn asked(call: &str, input: &Value) -> Value {
    json!({
        "ask": { "toolCallId": call, "title": "mcp__probe__write", "kind": "other", "rawInput": input },
        "do": { "use": ["probe", "write", input] },
    })
}

/// A call that it makes without a permission request.
fn unasked(input: &Value) -> Value {
    json!({ "do": { "use": ["probe", "write", input] } })
}

/// The verdicts about MCP tools: at which stage, and which decision.
fn verdicts(bench: &Bench, session: &str) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let of_mcp = |entry: &&Value| entry["facts"]["tool"] == "mcp" && entry["facts"]["stage"] != "offer";
    let entries = bench.entries(session);
    entries
        .iter()
        .filter(of_mcp)
        .map(|entry| (word(&entry["facts"]["stage"]), word(&entry["decision"])))
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(stage, decision)| ((*stage).to_owned(), (*decision).to_owned())).collect()
}

#[test]
fn l1_a_call_is_decided_once_whether_the_agent_asks_or_not() {
    for act in [asked("t", &write("made.txt")), unasked(&write("made.txt"))] {
        let mut bench = bench("", FREE);
        let session = bench.open(&json!([bench.server("well")]));
        let told = plays(&mut bench, &session, &json!([act]));
        assert!(!told.contains("left out") && !told.contains("denied"), "{told}");
        let made = bench.desk.project().join("made.txt");
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "made", "{told}");
        assert_eq!(verdicts(&bench, &session), pairs(&[("call", "allow")]), "{act}");
        assert_eq!(bench.questions(), [] as [&str; 0]);
        let entries = bench.entries(&session);
        let called = entries
            .iter()
            .find(|entry| entry["facts"]["tool"] == "mcp" && entry["facts"]["stage"] == "call")
            .unwrap();
        assert_eq!(
            (&called["facts"]["args"]["name"], &called["facts"]["args"]["action"]),
            (&json!("probe"), &json!("write"))
        );
        // A server's answer is untrusted, no matter who made the call.
        let shown = bench.desk.place.ok(&["sessions", "show", &session, "--json"]);
        assert!(shown.contains("untrusted"), "{shown}");
        // From now on an approval is needed, despite the permit.
        bench.answers("deny");
        plays(&mut bench, &session, &json!([unasked(&write("again.txt"))]));
        assert!(!bench.desk.project().join("again.txt").exists());
        assert_eq!(bench.questions(), ["probe: write"]);
    }
}

#[test]
fn l1_a_call_that_the_law_denies_reaches_no_server() {
    for act in [asked("t", &write("made.txt")), unasked(&write("made.txt"))] {
        let mut bench = bench("", NONE);
        let session = bench.open(&json!([bench.server("well")]));
        let told = plays(&mut bench, &session, &json!([act]));
        assert!(!bench.desk.project().join("made.txt").exists(), "{told}");
        assert_eq!(verdicts(&bench, &session), pairs(&[("call", "deny")]), "{act}");
        assert!(told.contains("[no]") || told.contains("no servers today"), "{told}");
        assert_eq!(plays(&mut bench, &session, &json!([{ "say": "on" }])), "on", "it goes on");
    }
}

#[test]
fn l2_a_person_decides_about_exactly_the_call() {
    for (option, is_made) in [("allow_once", true), ("deny", false)] {
        for act in [asked("t", &write("made.txt")), unasked(&write("made.txt"))] {
            let mut bench = bench("", "");
            bench.answers(option);
            let session = bench.open(&json!([bench.server("well")]));
            let told = plays(&mut bench, &session, &json!([act]));
            assert_eq!(bench.desk.project().join("made.txt").exists(), is_made, "{option}: {told}");
            assert_eq!(bench.questions(), ["probe: write"], "{option}: one question");
            let after: &[(&str, &str)] =
                if is_made { &[("call", "ask"), ("dispatch", "allow")] } else { &[("call", "ask")] };
            assert_eq!(verdicts(&bench, &session), pairs(after), "{option}: {act}");
        }
    }
}

/// The permission for one call covers no other call.
#[test]
fn l2_unrequested_call_still_waits_for_a_person() {
    let mut bench = bench("", "");
    let session = bench.open(&json!([bench.server("well")]));
    let ask = json!({ "ask": { "toolCallId": "t", "title": "mcp__probe__write", "kind": "other", "rawInput": write("one.txt") } });
    plays(&mut bench, &session, &json!([ask, unasked(&write("two.txt")), unasked(&write("one.txt"))]));
    assert_eq!(bench.questions().len(), 2, "one for each call");
    for name in ["one.txt", "two.txt"] {
        assert!(bench.desk.project().join(name).exists(), "{name}");
    }
}

/// A call that is reported as done was executed by Tribune, or it ends the turn.
#[test]
fn l1_mcp_call_outside_tribune_is_ungoverned() {
    let mut bench = bench("", "");
    let session = bench.open(&json!([bench.server("well")]));
    let told = json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "u", "title": "mcp__probe__write", "kind": "other",
                                   "status": "completed", "rawInput": write("made.txt") } });
    let prompt =
        json!({ "sessionId": session, "prompt": [{ "type": "text", "text": script(&json!([told])) }] });
    let answer = bench.call("session/prompt", &prompt);
    assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains("ungoverned")), "{answer}");
    let entries = bench.entries(&session);
    assert!(
        entries.iter().any(|entry| entry["event"] == "ungoverned" || entry["type"] == "ungoverned"),
        "{entries:?}"
    );
}

/// A call that waits for a person when its turn is cancelled is answered, and not executed.
#[test]
fn l8_a_call_ends_with_its_turn() {
    for act in [asked("t", &write("made.txt")), unasked(&write("made.txt"))] {
        let mut bench = bench("", "");
        let session = bench.open(&json!([bench.server("well")]));
        bench.cancels();
        let prompt =
            json!({ "sessionId": session, "prompt": [{ "type": "text", "text": script(&json!([act])) }] });
        let answer = bench.call("session/prompt", &prompt);
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
        assert_eq!(bench.questions(), ["probe: write"]);
        assert_eq!(plays(&mut bench, &session, &json!([{ "say": "on" }])), "on", "it goes on");
        assert!(!bench.desk.project().join("made.txt").exists());
        assert_eq!(verdicts(&bench, &session), pairs(&[("call", "ask")]));
    }
}

/// The port serves MCP, for this agent only.
#[test]
fn servers_are_listed_over_mcp() {
    let mut bench = bench("", FREE);
    let session = bench.open(&json!([bench.server("well")]));
    let speak = |message: Value| json!({ "speak": ["probe", message] });
    let hello = json!({ "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18" } });
    let told = plays(
        &mut bench,
        &session,
        &json!([
            speak(hello),
            speak(json!({ "method": "notifications/initialized" })),
            speak(json!({ "id": "two", "method": "tools/list" })),
            speak(json!({ "id": 3, "method": "resources/list" })),
        ]),
    );
    let answers: Vec<Value> =
        serde_json::Deserializer::from_str(&told).into_iter().map(Result::unwrap).collect();
    let bodies: Vec<(&Value, &Value)> = answers.iter().map(|answer| (&answer[0][0], &answer[0][1])).collect();
    assert_eq!((bodies[0].0, &bodies[0].1["result"]["protocolVersion"]), (&json!(200), &json!("2025-06-18")));
    assert_eq!(bodies[1], (&json!(202), &Value::Null));
    let tools = bodies[2].1["result"]["tools"].as_array().unwrap();
    assert_eq!((tools.len(), &tools[0]["name"]), (9, &json!("add")));
    assert_eq!(bodies[3].1["error"]["code"], -32601);
}

/// An agent that supports no servers gets none, and the session reports it.
#[test]
fn agent_without_server_support_gets_no_servers() {
    let mut bench = bench("serverless", FREE);
    let session = bench.open(&json!([bench.server("well")]));
    let told = plays(&mut bench, &session, &json!([{ "say": "on" }]));
    assert_eq!(told, "on");
    assert!(
        bench.heard("this agent takes no MCP servers from Tribune; left out: `probe`"),
        "{}",
        bench.lines()
    );
}

/// With other servers than before, the agent is restarted and keeps its conversation.
#[test]
fn agent_gets_servers_that_are_added_later() {
    let mut bench = bench("", FREE);
    let session = bench.open(&json!([]));
    assert_eq!(plays(&mut bench, &session, &json!(["turns"])), "turn 1");
    let servers = json!([bench.server("well")]);
    let again = json!({ "sessionId": session, "cwd": bench.desk.project(), "mcpServers": servers });
    assert!(bench.call("session/resume", &again)["result"].is_object());
    let told = plays(&mut bench, &session, &json!(["turns", unasked(&write("made.txt"))]));
    assert!(told.contains("turn 2") && told.ends_with("written"), "{told}");
    assert!(bench.desk.project().join("made.txt").exists());
}
