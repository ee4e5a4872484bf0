use super::*;

fn post(play: &ScriptedModel, path: &str, request: &Value) -> String {
    let reply = play.answer("POST", path, request.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// A path, the tools that are offered there, and the request for a message.
type DialectCase = (&'static str, Value, fn(&str) -> Value);

/// Tools as four agents offer them, each in its API format, with the request for a message.
fn dialects() -> Vec<DialectCase> {
    let bash = schema(&json!({ "command": text(), "description": text() }), &["command", "description"]);
    let write = schema(&json!({ "file_path": text(), "content": text() }), &["file_path", "content"]);
    let edit = schema(&json!({ "file_path": text(), "old_string": text() }), &["file_path", "old_string"]);
    let read = schema(&json!({ "file_path": text(), "limit": { "type": "integer" } }), &["file_path"]);
    let exec =
        schema(&json!({ "cmd": text(), "sandbox_permissions": text(), "justification": text() }), &["cmd"]);
    let camel = schema(&json!({ "filePath": text(), "content": text() }), &["filePath", "content"]);
    vec![
        (
            "/v1/messages?beta=true",
            json!([
                { "name": "Edit", "input_schema": edit }, { "name": "Read", "input_schema": read }, { "name": "Write", "input_schema": write },
                { "name": "Bash", "input_schema": bash },
            ]),
            |words| json!({ "messages": [{ "role": "user", "content": words }], "stream": true }),
        ),
        (
            "/v1/chat/completions",
            json!([
                { "type": "function", "function": { "name": "write", "parameters": camel } },
                { "type": "function", "function": { "name": "bash", "parameters": bash } },
            ]),
            |words| json!({ "messages": [{ "role": "user", "content": words }], "stream": true }),
        ),
        (
            "/v1/responses",
            json!([
                { "type": "function", "name": "exec_command", "parameters": exec },
                { "type": "custom", "name": "apply_patch" },
            ]),
            |words| json!({ "input": [{ "type": "message", "role": "user", "content": words }], "stream": true }),
        ),
        (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            json!([{ "functionDeclarations": [
                { "name": "write_file", "parametersJsonSchema": write }, { "name": "run_shell_command", "parametersJsonSchema": bash },
            ] }]),
            |words| json!({ "contents": [{ "role": "user", "parts": [{ "text": words }] }] }),
        ),
    ]
}

#[test]
fn every_dialect_gets_write_read_and_run_calls() {
    for (path, tools, say) in dialects() {
        let play = ScriptedModel::for_agent("n0nce");
        for probe in &play.probes {
            let mut request = say(&probe.words());
            request["tools"] = tools.clone();
            let body = post(&play, path, &request);
            let has_tool = match probe.feat {
                ProbeKind::Write => !path.contains("responses"),
                ProbeKind::Read => path.contains("messages"),
                ProbeKind::Run => true,
                ProbeKind::RunWithin => path.contains("responses"),
            };
            assert_eq!(body.contains(&probe.mark), has_tool, "{path} {:?}: {body}", probe.feat);
            assert_eq!(matches!(probe.ordered(), Ordered::Call(_)), has_tool, "{path} {:?}", probe.feat);
            let escalates = body.contains("require_escalated");
            assert_eq!(
                escalates,
                path.contains("responses") && probe.feat == ProbeKind::Run,
                "{path} {:?}",
                probe.feat
            );
            // With the call in the conversation, the probe is over.
            let mut after = say(&format!("{} {}", probe.words(), probe.mark));
            after["tools"] = tools.clone();
            assert!(post(&play, path, &after).contains("That is all."), "{path}");
        }
    }
}

#[test]
fn l1_secret_in_a_model_request_is_detected() {
    let play = ScriptedModel::for_agent("n0nce");
    let (path, _, say) = dialects().remove(0);
    post(&play, path, &say(&play.probes[1].words()));
    assert!(!play.is_told(), "the order does not contain it");
    post(&play, path, &say(&format!("it says: {}", play.secret)));
    assert!(play.is_told());
}

/// An agent that sends the tree of the workspace with a request has read it without asking.
#[test]
fn l1_names_of_files_in_a_model_request_are_detected() {
    let (path, tools, say) = dialects().remove(0);
    let ask = |play: &ScriptedModel, words: &str| {
        let mut request = say(words);
        request["tools"] = tools.clone();
        post(play, path, &request)
    };
    for at in 0..2 {
        let play = ScriptedModel::for_agent("n0nce");
        let tree = format!("{} /workspace: {}", play.probes[at].words(), play.probes[1].mark);
        ask(&play, &tree);
        assert!(play.is_shown_names(), "with probe {at}");
    }
    // A call that the model ordered names the file, and so does everything after it.
    let play = ScriptedModel::for_agent("n0nce");
    assert!(ask(&play, &play.probes[1].words()).contains(&play.probes[1].mark));
    ask(&play, &format!("{} {}", play.probes[1].words(), play.probes[1].mark));
    ask(&play, &format!("{} {}", play.probes[0].words(), play.probes[0].mark));
    assert!(!play.is_shown_names());
}

#[test]
fn request_without_tools_gets_text_or_minimal_json() {
    let play = ScriptedModel::for_agent("n0nce");
    let order = play.probes[0].words();
    let title = json!({ "messages": [{ "role": "user", "content": order }] });
    assert!(!post(&play, "/v1/messages", &title).contains("tool_use"));
    let routing = schema(
        &json!({ "reasoning": text(), "model_choice": { "type": "string", "enum": ["pro", "flash"] } }),
        &["reasoning", "model_choice"],
    );
    let request = json!({ "contents": [], "generationConfig": { "responseJsonSchema": routing } });
    let body: Value =
        serde_json::from_str(&post(&play, "/v1beta/models/m:generateContent", &request)).unwrap();
    let words = body["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(words).unwrap(),
        json!({ "reasoning": "check", "model_choice": "pro" })
    );
    assert_eq!(play.answer("GET", "/v1/models", b"").status, 404);
    assert_eq!(play.answer("POST", "/v1/messages", b"{").status, 404);
    assert!(play.when(Milestone::ModelReached).is_some());
}

#[test]
fn unknown_order_or_unfit_tool_gets_no_call() {
    let play = ScriptedModel::for_agent("n0nce");
    let (path, tools, say) = dialects().remove(0);
    let mut request = say("order-another-0");
    request["tools"] = tools;
    assert!(post(&play, path, &request).contains(NOTHING));
    assert!(play.probes.iter().all(|probe| probe.ordered() == Ordered::Unheard));
    let unfit = ScriptedModel::for_agent("n0nce");
    let mut request = say(&unfit.probes[0].words());
    request["tools"] =
        json!([{ "name": "List", "input_schema": schema(&json!({ "folder": text() }), &["folder"]) }]);
    assert!(post(&unfit, path, &request).contains(NOTHING));
    assert_eq!(unfit.probes[0].ordered(), Ordered::NoTool);
}

#[test]
fn builtin_loop_gets_a_call_of_a_tool_that_was_not_offered() {
    let play = ScriptedModel::for_loop("n0nce");
    let request = json!({ "messages": [{ "role": "user", "content": play.probes[0].words() }] });
    let body: Value = serde_json::from_str(&post(&play, "/v1/chat/completions", &request)).unwrap();
    let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "write");
    assert!(call["arguments"].as_str().unwrap().contains(&play.probes[0].mark));
}
