use serde_json::json;
use tribune_ledger::{Cid, LedgerEntry};
use tribune_runtime::StopReason;

use super::*;

fn mapper() -> UpdateMapper {
    let mut mapper = UpdateMapper::new(Path::new("/srv/project"));
    mapper.messages(event(5, EventKind::TurnStarted { turn: "b3:turn".into() }));
    mapper
}

fn event(seq: u64, kind: EventKind) -> RuntimeEvent {
    RuntimeEvent { seq, kind }
}

fn update(messages: &[AcpMessage]) -> &Value {
    match messages {
        [AcpMessage::Update(update)] => update,
        other => panic!("{other:?}"),
    }
}

/// A ledger entry of a session with these parents.
fn entry(quality: EntryQuality, parents: Vec<Cid>, payload: Value) -> Box<LedgerEntry> {
    Box::new(LedgerEntry {
        cid: Cid::from_bytes([7; 32]),
        entity_id: "agent:main:acp:local:dm:x".into(),
        seq: 0,
        target: "write".into(),
        quality,
        timestamp: "2026-11-15T12:00:00.000000Z".parse().unwrap(),
        source: "agent:main:acp:local:dm:x".into(),
        actor: "main".into(),
        parents,
        tags: Vec::new(),
        payload: payload.as_object().unwrap().clone(),
        attested_by: None,
        proof: tribune_ledger::Proof::Null,
        envelope: None,
    })
}

#[test]
fn a_call_is_reported_from_request_to_result() {
    let mut mapper = mapper();
    let input = json!({ "path": "src/a.rs", "old": "1", "new": "2" });
    let called = mapper.messages(event(
        6,
        EventKind::ToolCall { id: "c1".into(), name: "edit".into(), input: input.clone() },
    ));
    assert_eq!(
        *update(&called),
        json!({
            "sessionUpdate": "tool_call", "toolCallId": "t5-c1", "title": "edit src/a.rs", "kind": "edit", "name": "edit",
            "status": "pending", "rawInput": input, "locations": [{ "path": "/srv/project/src/a.rs" }],
            "content": [{ "type": "diff", "path": "/srv/project/src/a.rs", "oldText": "1", "newText": "2" }],
        })
    );
    let call = entry(EntryQuality::ToolCall, Vec::new(), json!({ "call_id": "c1" }));
    let cid = call.cid;
    let recorded = mapper.messages(event(7, EventKind::LedgerAppend { entry: call }));
    assert_eq!(update(&recorded)["_meta"]["tribune"], json!({ "call": cid.to_string() }));
    let verdict = json!({ "decision": "deny", "rules": ["a.b"], "reason": "because" });
    let judged = entry(EntryQuality::PolicyVerdict, vec![cid], verdict);
    let messages = mapper.messages(event(8, EventKind::PolicyGate { entry: judged }));
    assert_eq!(update(&messages)["_meta"]["tribune"]["reason"], "because");
    assert!(update(&messages)["status"].is_null());
    let over = mapper.messages(event(
        9,
        EventKind::ToolResult { id: "c1".into(), content: "denied (a.b): because".into(), is_error: true },
    ));
    let over = update(&over);
    assert_eq!((&over["status"], &over["rawOutput"]), (&json!("failed"), &json!("denied (a.b): because")));
    assert_eq!(over["content"].as_array().unwrap().len(), 2, "the change stays beside the reason");
    // Verdicts about the tool offer belong to no call.
    let offered = entry(EntryQuality::PolicyVerdict, Vec::new(), json!({ "decision": "allow" }));
    assert_eq!(mapper.messages(event(10, EventKind::PolicyGate { entry: offered })), []);
    assert_eq!(mapper.messages(event(11, EventKind::Done { stop_reason: StopReason::EndTurn })), []);
}

#[test]
fn an_input_delta_already_opens_the_call() {
    let mut mapper = mapper();
    let delta = |text: &str| EventKind::ToolCallUpdate { id: "c1".into(), input_delta: text.into() };
    let first = mapper.messages(event(6, delta("{")));
    assert!(
        matches!(&first[..], [AcpMessage::Update(call), AcpMessage::Update(_)] if call["sessionUpdate"] == "tool_call")
    );
    assert_eq!(update(&mapper.messages(event(7, delta("}"))))["_meta"]["tribune"]["input_delta"], "}");
    let called = mapper.messages(event(
        8,
        EventKind::ToolCall { id: "c1".into(), name: "exec".into(), input: json!({ "command": "ls" }) },
    ));
    assert_eq!(update(&called)["sessionUpdate"], "tool_call_update");
    assert_eq!((&update(&called)["kind"], &update(&called)["title"]), (&json!("execute"), &json!("exec ls")));
}

#[test]
fn an_agents_own_call_updates_are_forwarded_unchanged() {
    let mut mapper = mapper();
    let said = json!({ "sessionUpdate": "tool_call", "toolCallId": "toolu_1", "title": "Write", "_own": [1, { "x": null }] });
    let line = |update: &Value| {
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "inner", "update": update } }).to_string()
    };
    let hand_on = |mapper: &mut UpdateMapper, kind: &str, update: &Value| {
        mapper.messages(event(6, EventKind::AgentUpdate { kind: kind.into(), line: line(update) }))
    };
    assert_eq!(hand_on(&mut mapper, "tool_call", &said), [AcpMessage::Update(said)]);
    // Tribune's call is the same call, and so is its second part.
    for id in ["toolu_1", "toolu_1.2"] {
        let call = EventKind::ToolCall {
            id: id.into(),
            name: "write".into(),
            input: json!({ "path": "a", "content": "b" }),
        };
        assert_eq!(mapper.messages(event(7, call)), []);
        let asked = entry(
            EntryQuality::Approval,
            Vec::new(),
            json!({ "call_id": id, "reason": "why", "rules": ["r"] }),
        );
        let messages =
            mapper.messages(event(8, EventKind::ApprovalRequested { id: "ap".into(), entry: asked }));
        let [AcpMessage::Update(_), AcpMessage::PermissionRequested(question)] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!(
            (&question.call["toolCallId"], &question.call["title"]),
            (&json!("toolu_1"), &json!("Write"))
        );
        assert_eq!(question.call["content"][0]["newText"], "b", "the approver sees the change");
        assert_eq!(question.rules, ["r"]);
    }
    for unknown in
        [json!({ "sessionUpdate": "weather", "sun": 1 }), json!({ "sessionUpdate": "plan", "entries": [] })]
    {
        let kind = unknown["sessionUpdate"].as_str().unwrap().to_owned();
        assert_eq!(hand_on(&mut mapper, &kind, &unknown), [AcpMessage::Update(unknown)]);
    }
    let mode = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "yolo" });
    let messages = hand_on(&mut mapper, "current_mode_update", &mode);
    assert_eq!(update(&messages)["sessionUpdate"], "session_info_update", "its modes are not the session's");
    assert_eq!(
        mapper.messages(event(9, EventKind::AgentUpdate { kind: "x".into(), line: "no JSON".into() })),
        []
    );
}

/// An agent that changes the description of its call while a person reads the permission request.
#[test]
fn l8_a_changed_description_is_held_until_the_decision() {
    let mut mapper = mapper();
    let says = |mapper: &mut UpdateMapper, update: Value| {
        let kind = update["sessionUpdate"].as_str().unwrap().to_owned();
        let line = json!({ "method": "session/update", "params": { "update": update } }).to_string();
        mapper.messages(event(6, EventKind::AgentUpdate { kind, line }))
    };
    says(&mut mapper, json!({ "sessionUpdate": "tool_call", "toolCallId": "y", "title": "touch ev" }));
    let call =
        EventKind::ToolCall { id: "y".into(), name: "exec".into(), input: json!({ "command": "touch ev" }) };
    mapper.messages(event(7, call));
    let asked = json!({ "call_id": "y", "reason": "why", "rules": [] });
    let asked = entry(EntryQuality::Approval, Vec::new(), asked);
    mapper.messages(event(8, EventKind::ApprovalRequested { id: "ap".into(), entry: asked }));
    let other = json!({ "title": "ls", "rawInput": { "command": "ls" }, "content": [], "kind": "read", "locations": [] });
    let mut late = other.clone();
    late["sessionUpdate"] = "tool_call_update".into();
    late["toolCallId"] = "y".into();
    late["_meta"] = json!({ "theirs": 1 });
    let meanwhile = says(&mut mapper, late);
    assert_eq!(
        *update(&meanwhile),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "y", "_meta": { "theirs": 1 } })
    );
    let again = json!({ "toolCall": { "toolCallId": "y", "title": "cat" }, "options": [] });
    let line = json!({ "method": "session/request_permission", "params": again }).to_string();
    let again = EventKind::AgentUpdate { kind: "session/request_permission".into(), line };
    let messages = mapper.messages(event(9, again));
    assert_eq!(update(&messages).get("title"), None, "{messages:?}");
    let decided =
        mapper.messages(event(10, EventKind::ApprovalDecided { id: "ap".into(), state: "allowed".into() }));
    let [_, AcpMessage::Update(held), AcpMessage::PermissionClosed { .. }] = &decided[..] else {
        panic!("{decided:?}")
    };
    assert_eq!((&held["title"], &held["rawInput"]), (&json!("cat"), &other["rawInput"]));
}

#[test]
fn a_waiting_call_is_kept_after_its_turn_ends() {
    let mut mapper = mapper();
    let call = |name: &str| EventKind::ToolCall {
        id: "c1".into(),
        name: name.into(),
        input: json!({ "path": "a" }),
    };
    mapper.messages(event(6, call("write")));
    let asked = json!({ "call_id": "c1", "call": Cid::from_bytes([9; 32]).to_string(), "reason": "why", "rules": [] });
    let asked = entry(EntryQuality::Approval, Vec::new(), asked);
    mapper.messages(event(7, EventKind::ApprovalRequested { id: "ap".into(), entry: asked }));
    // Another turn has a call with the same id.
    mapper.messages(event(20, EventKind::TurnStarted { turn: "b3:other".into() }));
    assert_eq!(update(&mapper.messages(event(21, call("read"))))["toolCallId"], "t20-c1");
    let over = |text: &str| EventKind::ToolResult { id: "c1".into(), content: text.into(), is_error: false };
    assert_eq!(update(&mapper.messages(event(22, over("one"))))["toolCallId"], "t20-c1");
    let decided =
        mapper.messages(event(30, EventKind::ApprovalDecided { id: "ap".into(), state: "allowed".into() }));
    let [AcpMessage::Update(messages), AcpMessage::PermissionClosed { .. }] = &decided[..] else {
        panic!("{decided:?}")
    };
    assert_eq!(messages["toolCallId"], "t5-c1");
    let verdict =
        entry(EntryQuality::PolicyVerdict, vec![Cid::from_bytes([9; 32])], json!({ "decision": "allow" }));
    assert_eq!(
        update(&mapper.messages(event(31, EventKind::PolicyGate { entry: verdict })))["toolCallId"],
        "t5-c1"
    );
    assert_eq!(update(&mapper.messages(event(32, over("two"))))["toolCallId"], "t5-c1");
}

#[test]
fn context_usage_is_that_of_the_newest_request_not_of_the_turn() {
    let mut mapper = mapper();
    let mut used = |seq: u64, input_tokens: u32, output_tokens: u32| {
        let messages = mapper.messages(event(seq, EventKind::UsageUpdate { input_tokens, output_tokens }));
        let [AcpMessage::ContextUsed { tokens }] = messages[..] else { panic!("{messages:?}") };
        let result = EventKind::ToolResult { id: "c1".into(), content: String::new(), is_error: false };
        (tokens, seq > 6 && mapper.messages(event(seq, result)).is_empty())
    };
    // One request reports its usage more than once.
    assert_eq!(used(6, 100, 0).0, 100);
    assert_eq!(used(7, 100, 20).0, 120);
    // After a call the next request follows; it contains the whole conversation so far.
    assert_eq!(used(8, 250, 25).0, 155);
    mapper.messages(event(20, EventKind::TurnStarted { turn: "b3:other".into() }));
    let messages = mapper.messages(event(21, EventKind::UsageUpdate { input_tokens: 7, output_tokens: 1 }));
    assert_eq!(messages, [AcpMessage::ContextUsed { tokens: 8 }]);
}

#[test]
fn sandbox_paths_become_the_clients_paths() {
    let said = json!({
        "sessionUpdate": "tool_call", "toolCallId": "r", "title": "Read", "rawInput": { "path": "/workspace/a" },
        "locations": [{ "path": "/workspace/a", "line": 3 }, { "path": "/workspaces/b" }, { "path": "/etc/c" }, { "path": "/workspace" }],
        "content": [{ "type": "diff", "path": "/workspace/d/e", "newText": "/workspace/x" }, { "type": "content" }],
    });
    let line = json!({ "params": { "update": said } }).to_string();
    let messages =
        mapper().messages(event(6, EventKind::AgentUpdate { kind: "tool_call".into(), line: line.clone() }));
    let mut expected = said.clone();
    expected["locations"][0]["path"] = "/srv/project/a".into();
    expected["locations"][3]["path"] = "/srv/project".into();
    expected["content"][0]["path"] = "/srv/project/d/e".into();
    assert_eq!(*update(&messages), expected);
    let mut own = UpdateMapper::new(Path::new("/workspace"));
    assert_eq!(
        *update(&own.messages(event(6, EventKind::AgentUpdate { kind: "tool_call".into(), line }))),
        said
    );
}

/// The daemon's terminals are shown to clients as their output.
#[test]
fn a_terminal_of_the_daemon_is_shown_as_text() {
    let mut mapper = mapper();
    let mut seq = 6;
    let mut tell = |kind: EventKind| {
        seq += 1;
        mapper.messages(event(seq, kind))
    };
    let said = |kind: &str, params: Value| EventKind::AgentUpdate {
        kind: kind.into(),
        line: json!({ "method": kind, "params": params }).to_string(),
    };
    let terminal = json!({ "type": "terminal", "terminalId": "term-1", "_meta": { "x": 1 } });
    let shows = |status: &str, more: Value| {
        let content = [json!([terminal]), more]
            .iter()
            .flat_map(|list| list.as_array().unwrap().clone())
            .collect::<Vec<_>>();
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status, "content": content });
        said("tool_call_update", json!({ "sessionId": "s", "update": update }))
    };
    let text = |text: &str| json!({ "type": "content", "content": { "type": "text", "text": text }, "_meta": { "x": 1 } });

    tell(said(
        "tool_call",
        json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t" } }),
    ));
    tell(EventKind::ToolCall { id: "c".into(), name: "exec".into(), input: json!({ "command": "ls" }) });
    assert_eq!(tell(said(TERMINAL_CREATED, json!({ "terminalId": "term-1", "callId": "c" }))), []);
    let running = tell(shows("in_progress", json!([])));
    let shown = update(&running)["content"][0]["content"]["text"].as_str().unwrap();
    assert!(shown.starts_with("(running"), "{running:?}");
    let over = tell(EventKind::ToolResult { id: "c".into(), content: "exit code 0".into(), is_error: false });
    let expected =
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [text("exit code 0")] });
    assert_eq!(*update(&over), expected);
    let other = json!({ "type": "terminal", "terminalId": "theirs" });
    let last = tell(shows("completed", json!([other])));
    assert_eq!(
        update(&last)["content"],
        json!([text("exit code 0"), other]),
        "a terminal that is not the daemon's is unchanged"
    );
}

/// A terminal that was created before its call was reported has a call of its own. Its output is shown in both calls.
#[test]
fn a_terminal_is_shown_in_every_call_that_has_it() {
    let mut mapper = mapper();
    let call = EventKind::ToolCall {
        id: "tribune-callback-1".into(),
        name: "exec".into(),
        input: json!({ "command": "ls" }),
    };
    mapper.messages(event(7, call));
    let line = json!({ "params": { "terminalId": "term-1", "callId": "tribune-callback-1" } }).to_string();
    mapper.messages(event(8, EventKind::AgentUpdate { kind: TERMINAL_CREATED.into(), line }));
    let content = json!([{ "type": "terminal", "terminalId": "term-1" }]);
    let said = json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "c", "content": content } });
    let line = json!({ "params": said }).to_string();
    mapper.messages(event(9, EventKind::AgentUpdate { kind: "tool_call".into(), line }));
    let result = EventKind::ToolResult {
        id: "tribune-callback-1".into(),
        content: "exit code 0".into(),
        is_error: false,
    };
    let messages = mapper.messages(event(10, result));
    let of = |messages: &AcpMessage| match messages {
        AcpMessage::Update(update) => {
            (update["toolCallId"].clone(), update["content"][0]["content"]["text"].clone())
        }
        other => panic!("{other:?}"),
    };
    let messages: Vec<_> = messages.iter().map(of).collect();
    assert_eq!(
        messages,
        [(json!("c"), json!("exit code 0")), (json!("t5-tribune-callback-1"), json!("exit code 0"))]
    );
}

/// An agent that uses an id of Tribune's describes no call of Tribune's, before it is made, while it waits, or after.
#[test]
fn l1_ids_of_an_agent_are_no_ids_of_tribune() {
    for own in ["tribune-served-1", "t5-c1", "t5-tribune-served-1"] {
        let mut mapper = mapper();
        let said = json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": own, "title": "look", "kind": "read" } });
        let line = json!({ "params": said }).to_string();
        let lie = EventKind::AgentUpdate { kind: "tool_call".into(), line };
        let told = mapper.messages(event(7, lie.clone()));
        assert!(!told.is_empty() && !format!("{told:?}").contains(own), "{told:?}");
        for (seq, id) in [(8, "tribune-served-1"), (10, "c1")] {
            let call =
                EventKind::ToolCall { id: id.into(), name: "exec".into(), input: json!({ "command": "ls" }) };
            let call = mapper.messages(event(seq, call));
            let call = update(&call);
            assert_eq!((&call["kind"], &call["title"]), (&json!("execute"), &json!("exec ls")), "{own}");
            assert_eq!(call["toolCallId"], format!("t5-{id}"));
            let told = mapper.messages(event(seq + 1, lie.clone()));
            assert!(!format!("{told:?}").contains(&format!("t5-{id}")), "{told:?}");
        }
    }
}
