//! An ACP agent behind Tribune, as a client sees it: its messages unchanged, with Tribune's messages beside them.

use std::path::Path;

use serde_json::{Value, json};
use tribune_client::acp;

use super::{ASK, Rig, Setting, within, write};

/// Performs acts in a session whose client allows everything. Returns the answer to the prompt, and all other messages.
async fn plays(rig: &Rig, folder: &Path, acts: Value) -> (Value, Vec<Value>) {
    plays_in(rig, json!({ "cwd": folder, "mcpServers": [] }), acts).await
}

/// Does so in a session with these parameters.
async fn plays_in(rig: &Rig, wanted: Value, acts: Value) -> (Value, Vec<Value>) {
    let connected = acp::connect(&rig.address, Some(&rig.token), Some("coder"), None).await;
    let (mut sending, mut receiving) = connected.unwrap();
    // In hex, so that no part of it counts as the owner's own text.
    let script: String = acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
    let (mut heard, mut next) = (Vec::new(), 1);
    let mut ask = async |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": next, "method": method, "params": params });
        next += 1;
        sending.send(message.to_string()).await.unwrap();
        loop {
            let said: Value = serde_json::from_str(&within(receiving.next()).await.unwrap()).unwrap();
            if said["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
                let answer = json!({ "jsonrpc": "2.0", "id": said["id"], "result": outcome });
                sending.send(answer.to_string()).await.unwrap();
            }
            if said["id"] == next - 1 && said["method"].is_null() {
                return said["result"].clone();
            }
            heard.push(said);
        }
    };
    ask("initialize", json!({ "protocolVersion": 1 })).await;
    let opened = ask("session/new", wanted).await;
    let prompt = json!([{ "type": "text", "text": script }]);
    let ended = ask("session/prompt", json!({ "sessionId": opened["sessionId"], "prompt": prompt })).await;
    (ended, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_messages_reach_the_client_unchanged() {
    let rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().canonicalize().unwrap();
    let told = json!({
        "sessionUpdate": "tool_call", "toolCallId": "w1", "title": "Write it", "kind": "edit", "status": "pending",
        "rawInput": { "file_path": "made.txt" }, "_theirs": { "deep": [1, { "x": null }] },
    });
    let plan = json!({ "sessionUpdate": "plan", "entries": [{ "content": "c", "priority": "high", "status": "pending", "_more": 1 }] });
    let unknown = json!({ "sessionUpdate": "weather", "sun": 1 });
    let own = json!({ "name": "own", "description": "d", "_meta": { "of": "command" } });
    let commands = json!({ "sessionUpdate": "available_commands_update", "availableCommands": [own], "_meta": { "of": "all" } });
    let acts = json!([
        { "update": told }, { "update": plan }, { "update": unknown }, { "update": commands, "beside": { "_meta": { "of": "message" } } }, write("w1", "made.txt", "by hand"),
    ]);
    let (ended, heard) = plays(&rig, &folder, acts).await;
    assert_eq!(ended["stopReason"], "end_turn", "{heard:#?}");
    assert_eq!(
        std::fs::read_to_string(folder.join("made.txt")).unwrap(),
        "by hand",
        "it works in the client's folder"
    );
    let updates: Vec<&Value> = heard.iter().map(|said| &said["params"]["update"]).collect();
    for said in [&told, &plan, &unknown] {
        assert_eq!(updates.iter().filter(|update| *update == &said).count(), 1, "{said}");
    }
    // The agent reports its call once; Tribune reports the decision.
    assert_eq!(updates.iter().filter(|update| update["sessionUpdate"] == "tool_call").count(), 1);
    let of_call = |update: &&&Value| update["toolCallId"] == "w1";
    let decisions: Vec<&str> = updates
        .iter()
        .filter(of_call)
        .filter_map(|update| update["_meta"]["tribune"]["decision"].as_str())
        .collect();
    assert_eq!(decisions, ["ask", "allow"]);
    assert!(updates.iter().filter(of_call).any(|update| update["status"] == "completed"));
    let asked = heard.iter().find(|said| said["method"] == "session/request_permission").unwrap();
    let shown = &asked["params"]["toolCall"];
    assert_eq!(shown["title"], "write made.txt", "the approver sees Tribune's own description");
    // Its commands are listed beside Tribune's.
    let offered =
        updates.iter().rev().find(|update| update["sessionUpdate"] == "available_commands_update").unwrap();
    let names: Vec<&str> = offered["availableCommands"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|command| command["name"].as_str())
        .collect();
    assert_eq!(names, ["tribune", "agents", "approvals", "spend", "own"]);
    assert_eq!((&offered["availableCommands"][4], &offered["_meta"]), (&own, &json!({ "of": "all" })));
    let message = heard.iter().find(|said| said["params"]["update"] == **offered).unwrap();
    assert_eq!(message["params"]["_meta"], json!({ "of": "message" }));
    rig.end();
}

/// An agent that adds unknown members wherever it can: all of them reach the client, and no secret does.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_members_reach_the_client() {
    const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
    let rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().canonicalize().unwrap();
    let theirs = |n: u32| json!({ "theirs": { "deep": [n, { "x": null }], "of": "ünïcode" } });
    let chunk = |kind: &str, text: &str, n: u32| {
        json!({ "sessionUpdate": kind, "messageId": format!("m{n}"), "_meta": theirs(n), "other": [n],
                "content": { "type": "text", "text": text, "annotations": { "priority": n }, "_meta": theirs(n) } })
    };
    let beside = |n: u32| json!({ "_meta": theirs(n), "next to it": n });
    let call = json!({
        "toolCallId": "w1", "title": "Write it", "kind": "edit", "_meta": theirs(7), "unknown": [theirs(8)],
        "content": [{ "type": "diff", "path": "/workspace/made.txt", "newText": "by hand", "_meta": theirs(9) }],
    });
    let options = json!([
        { "optionId": "yes", "name": "Yes", "kind": "allow_once", "_meta": theirs(10), "unknown": 1 },
        { "optionId": "no", "name": "No", "kind": "reject_once" },
    ]);
    let plan = json!({ "sessionUpdate": "plan", "entries": [], "_meta": theirs(11) });
    let acts = json!([
        { "say": "Plain words. " },
        { "update": chunk("agent_message_chunk", "Words with more. ", 1), "beside": beside(1) },
        { "update": chunk("agent_message_chunk", "", 2) },
        { "update": chunk("agent_thought_chunk", "A thought. ", 3), "beside": beside(3) },
        // A secret in two pieces, with other text around each.
        { "update": chunk("agent_message_chunk", &format!("It is {}", &KEY[..20]), 4) },
        { "update": chunk("agent_message_chunk", &format!("{}, really. ", &KEY[20..]), 5) },
        { "update": plan, "beside": beside(11) },
        { "notify": ["_theirs/weather", { "sun": theirs(12), "key": KEY }] },
        { "notify": ["_tribune/event", { "forged": true }] },
        { "ask": call, "options": options, "beside": beside(6), "do": { "write": ["/workspace/made.txt", "by hand"] } },
        { "result": { "_meta": theirs(13), "unknown": 13, "usage": { "thoughtTokens": 5 } } },
    ]);
    let (ended, heard) = plays(&rig, &folder, acts).await;
    assert_eq!(std::fs::read_to_string(folder.join("made.txt")).unwrap(), "by hand");
    assert_eq!(
        (&ended["stopReason"], &ended["unknown"], &ended["_meta"]["theirs"], &ended["usage"]),
        (
            &json!("end_turn"),
            &json!(13),
            &theirs(13)["theirs"],
            &json!({ "inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "thoughtTokens": 5 })
        ),
        "{ended:#}"
    );
    assert!(ended["_meta"]["tribune"]["turn"].is_string(), "{ended:#}");

    let of = |kind: &str| {
        heard.iter().filter(|said| said["params"]["update"]["sessionUpdate"] == kind).collect::<Vec<_>>()
    };
    let words = of("agent_message_chunk");
    // All messages except its text, and then its text as a whole.
    let around = |said: &Value| {
        let mut params = said["params"].clone();
        params["update"]["content"]["text"] = "".into();
        params["sessionId"] = "s".into();
        params
    };
    let expected = |kind: &str, n: u32, has_beside: bool| {
        let mut params = json!({ "sessionId": "s", "update": chunk(kind, "", n) });
        if has_beside {
            params.as_object_mut().unwrap().extend(beside(n).as_object().unwrap().clone());
        }
        params
    };
    let mut arounds: Vec<Value> = words.iter().map(|said| around(said)).collect();
    arounds.dedup();
    let bare = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "" } });
    let (plain, more): (Vec<_>, Vec<_>) = arounds.iter().cloned().partition(|said| said["update"] == bare);
    assert!(plain.len() >= 2, "an update without metadata has none: {arounds:#?}");
    assert_eq!(
        more,
        [
            expected("agent_message_chunk", 1, true),
            expected("agent_message_chunk", 2, false),
            expected("agent_message_chunk", 4, false),
            expected("agent_message_chunk", 5, false),
        ],
        "{arounds:#?}"
    );
    let text: String =
        words.iter().map(|said| said["params"]["update"]["content"]["text"].as_str().unwrap()).collect();
    assert!(text.starts_with("Plain words. Words with more. It is [redacted"), "{text}");
    assert!(text.contains("], really. "), "{text}");
    let thoughts = of("agent_thought_chunk");
    assert_eq!(around(thoughts[0]), expected("agent_thought_chunk", 3, true), "{thoughts:#?}");

    let said = of("plan")[0];
    assert_eq!((&said["params"]["update"], &said["params"]["_meta"]), (&plan, &theirs(11)));
    let weather = heard.iter().find(|said| said["method"] == "_theirs/weather").unwrap();
    assert_eq!(weather["params"]["sun"], theirs(12));
    assert_eq!(weather["params"]["sessionId"], said["params"]["sessionId"], "the client's own name for it");
    assert!(heard.iter().all(|said| said["method"] != "_tribune/event"), "only Tribune sends it");

    let asked = heard.iter().find(|said| said["method"] == "session/request_permission").unwrap();
    let shown = &asked["params"]["toolCall"];
    assert_eq!((&shown["unknown"], &shown["_meta"]["theirs"]), (&call["unknown"], &theirs(7)["theirs"]));
    let meta = &asked["params"]["_meta"];
    assert_eq!(meta["tribune"]["agent_request"]["toolCall"]["content"][0]["_meta"], theirs(9), "{meta:#}");
    assert_eq!(
        (&meta["theirs"], &meta["tribune"]["agent_request"]["options"]),
        (&theirs(6)["theirs"], &options)
    );
    assert_eq!(meta["tribune"]["agent_request"]["next to it"], 6);
    let all = serde_json::to_string(&heard).unwrap();
    assert!(!all.contains(KEY) && !all.contains(&KEY[10..30]), "{all}");
    rig.end();
}

/// Session metadata that an agent sends at the start: every client gets it with the first turn, unchanged, without
/// secrets.
#[tokio::test(flavor = "multi_thread")]
async fn session_metadata_reaches_every_client() {
    const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rig = Rig::new(Setting { role: "talkative", ..Setting::default() }).await;
    let played = rig.plays(json!([{ "say": "hello" }])).await;
    let told = played.of_type("agent_update");
    let opened: Vec<&&Value> = told.iter().filter(|event| event["kind"] == "session/new").collect();
    assert_eq!(opened.len(), 1, "{played:#?}");
    let line = opened[0]["line"].as_str().unwrap();
    let (before, behind) = line.split_once("[redacted").unwrap_or_else(|| panic!("{line}"));
    let came = "{ \"result\" : {\"configOptions\":[{\"id\":\"depth\", \"theirs\":1.50}],\"modes\": {\"currentModeId\":\"plan\",\
                \"availableModes\":[]}, \"sessionId\":\"s-talk\",\"_meta\":{\"theirs\":{\"x\":null, \"of\":\"\\u00fcn\u{ef}code\"}},\
                \"unknown\":[1e2,\"";
    assert_eq!(before, came);
    assert!(behind.ends_with("\"]},\"jsonrpc\":\"2.0\", \"id\":2}"), "{line}");
    // It is sent once and kept: a later client gets the same.
    let again = rig.plays(json!([{ "say": "again" }])).await;
    assert!(again.of_type("agent_update").iter().all(|event| event["kind"] != "session/new"), "{again:#?}");
    let kept = rig
        .client
        .call("session.events", &json!({ "session_key": super::KEY, "follow": false }))
        .await
        .unwrap();
    let kept: Vec<&Value> =
        kept["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "session/new").collect();
    assert_eq!(kept.iter().map(|event| event["line"].as_str().unwrap()).collect::<Vec<_>>(), [line]);

    let project = tempfile::tempdir().unwrap();
    let (_, heard) = plays(&rig, &project.path().canonicalize().unwrap(), json!([{ "say": "hello" }])).await;
    let updates = heard.iter().map(|said| &said["params"]["update"]);
    let metas: Vec<&Value> = updates
        .filter(|update| update["sessionUpdate"] == "session_info_update")
        .map(|update| &update["_meta"])
        .filter(|meta| meta["tribune"]["agent_session"].is_object())
        .collect();
    assert_eq!(metas.len(), 1, "{heard:#?}");
    let session = &metas[0]["tribune"]["agent_session"];
    let theirs = json!({ "theirs": { "x": null, "of": "\u{fc}n\u{ef}code" } });
    assert_eq!((&metas[0]["theirs"], &session["_meta"]), (&theirs["theirs"], &theirs));
    assert_eq!(session["configOptions"], json!([{ "id": "depth", "theirs": 1.5 }]));
    assert_eq!(session["modes"], json!({ "currentModeId": "plan", "availableModes": [] }));
    assert_eq!((&session["unknown"][0], session.get("sessionId")), (&json!(100.0), None));
    assert!(!json!(heard).to_string().contains(KEY) && !json!(played.events).to_string().contains(KEY));
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_messages_keep_their_order() {
    let rig = Rig::new(Setting::default()).await;
    let project = tempfile::tempdir().unwrap();
    let call = |id: &str| json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": "Think", "kind": "think", "status": "completed" });
    let thought =
        json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": "Hm, a key" } });
    let used = json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2 });
    // The ends of these texts may be the start of a secret, and are held back until that is known.
    let acts = json!([
        { "say": "Look at config" }, { "update": call("one") }, { "say": "then at token" }, { "update": used }, { "say": "s" },
        { "update": call("two") }, { "update": thought }, { "update": call("three") }, { "say": ". Done" },
    ]);
    let (ended, heard) = plays(&rig, &project.path().canonicalize().unwrap(), acts).await;
    assert_eq!(ended["stopReason"], "end_turn");
    let mut lines: Vec<String> = Vec::new();
    for update in heard.iter().map(|said| &said["params"]["update"]) {
        let (kind, text) = match update["sessionUpdate"].as_str().unwrap_or_default() {
            kind @ ("agent_message_chunk" | "agent_thought_chunk") => (kind, &update["content"]["text"]),
            kind @ "tool_call" => (kind, &update["toolCallId"]),
            _ => continue,
        };
        let text = text.as_str().unwrap();
        match lines.last_mut() {
            Some(line) if line.starts_with(&format!("{kind}: ")) => line.push_str(text),
            _ => lines.push(format!("{kind}: {text}")),
        }
    }
    assert_eq!(
        lines,
        [
            "agent_message_chunk: Look at config",
            "tool_call: one",
            "agent_message_chunk: then at tokens",
            "tool_call: two",
            "agent_thought_chunk: Hm, a key",
            "tool_call: three",
            "agent_message_chunk: . Done",
        ]
    );
    rig.end();
}

/// Tribune runs the agent's terminal: its client sees the output, without secrets.
#[tokio::test(flavor = "multi_thread")]
async fn terminal_output_reaches_the_client_as_text() {
    const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
    let profile = ", capabilities: { terminal: true }";
    let rig = Rig::new(Setting { profile, ..Setting::default() }).await;
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().canonicalize().unwrap();
    std::fs::write(folder.join("key.txt"), KEY).unwrap();
    let told = json!({ "sessionUpdate": "tool_call", "toolCallId": "r1", "title": "Look", "kind": "execute", "status": "pending",
                       "rawInput": { "command": "cat key.txt" } });
    let shows = |status: &str| {
        let content = [json!({ "type": "terminal", "terminalId": "$t", "_meta": { "x": status } })];
        json!({ "update": { "sessionUpdate": "tool_call_update", "toolCallId": "r1", "status": status, "content": content } })
    };
    let acts = json!([
        { "update": told }, { "create": { "command": "cat", "args": ["key.txt"] } }, shows("in_progress"),
        { "terminal": ["wait_for_exit", "t"] }, { "terminal": ["output", "t"] }, shows("completed"),
    ]);
    let (ended, heard) = plays(&rig, &folder, acts).await;
    assert_eq!(ended["stopReason"], "end_turn", "{heard:#?}");
    let all = json!(heard).to_string();
    assert!(!all.contains(KEY) && !all.contains("\"terminal\""), "{all}");
    let updates = heard.iter().map(|said| &said["params"]["update"]);
    let shown: Vec<&Value> =
        updates.filter(|update| update["content"][0]["_meta"]["x"].is_string()).collect();
    let last = shown.last().unwrap();
    assert_eq!((&last["status"], &last["toolCallId"]), (&json!("completed"), &json!("r1")));
    let text = last["content"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("exit code 0\n[stdout]\n"), "{text}");
    // It is one call, without messages of Tribune's own beside it.
    let calls = heard.iter().filter(|said| said["params"]["update"]["sessionUpdate"] == "tool_call").count();
    assert_eq!(calls, 1, "{heard:#?}");
    rig.end();
}

/// Its sandbox has one folder, and the client must not believe that there are more.
#[tokio::test(flavor = "multi_thread")]
async fn additional_directories_are_left_out_for_cli_agents_with_a_notice() {
    let rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let both = tempfile::tempdir().unwrap();
    let root = both.path().canonicalize().unwrap();
    let (folder, additional) = (root.join("app"), root.join("lib"));
    for folder in [&folder, &additional] {
        std::fs::create_dir(folder).unwrap();
    }
    let wanted = json!({ "cwd": folder, "mcpServers": [], "additionalDirectories": [additional] });
    let outside = additional.join("made.txt").to_str().unwrap().to_owned();
    let acts = json!([write("w1", &outside, "by hand"), write("w2", "made.txt", "by hand")]);
    let (_, heard) = plays_in(&rig, wanted, acts).await;
    let told = json!(heard).to_string();
    let name = additional.display();
    assert!(told.contains(&format!("works in one folder. Out of its reach: `{name}`.")), "{told}");
    assert!(!additional.join("made.txt").exists());
    assert_eq!(std::fs::read_to_string(folder.join("made.txt")).unwrap_or_default(), "by hand");
    rig.end();
}
