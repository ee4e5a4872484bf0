//! The official SDKs through the model proxy, with `e2e/proxy_sdk.py`: they see a provider as they know it, the
//! provider sees the real key, and they never do.

use std::process::Command;

use serde_json::{Value, json};
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::daemon_process::ForegroundDaemon;
use crate::fixture::{Place, cli_output, workspace};
use crate::python_verifier::python;

/// The key in the daemon's environment, which must not appear anywhere.
const SECRET: &str = "fixture-key-5f1c9e0b7a";

/// The provider's answers, in the order of the script's requests.
fn replies(upstream: &FakeUpstream) {
    let call = ModelOutput::new()
        .text("Let me look that up.")
        .call("call_1", "weather", r#"{"city":"Zürich"}"#)
        .usage(30, 7, 0);
    let words = ModelOutput::new().text("It is 18 degrees in Zürich.").usage(30, 7, 0);
    let message = |text: &str| {
        json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_reason": "end_turn",
                "stop_sequence": null, "content": [{ "type": "text", "text": text }],
                "usage": { "input_tokens": 5, "output_tokens": 2 } })
    };
    let refusal =
        |kind: &str, text: &str| json!({ "type": "error", "error": { "type": kind, "message": text } });
    let completion = json!({
        "id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4.1",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Hello." } }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7 },
    });
    let unknown = json!({ "error": { "message": "The model `no` does not exist", "type": "invalid_request_error", "param": null, "code": "model_not_found" } });
    upstream
        .reply(call.anthropic())
        .reply(words.anthropic())
        .reply(UpstreamReply::json(200, &message("Hello.")).header("x-request-id", SECRET))
        .reply(UpstreamReply::json(200, &json!({ "input_tokens": 12 })))
        .reply(UpstreamReply::json(404, &refusal("not_found_error", "model: no")))
        .reply(UpstreamReply::json(
            401,
            &refusal("authentication_error", &format!("invalid x-api-key {SECRET}")),
        ))
        .reply(UpstreamReply::json(200, &message("Hello, agent.")))
        .reply(call.openai())
        .reply(words.openai())
        .reply(UpstreamReply::json(200, &completion))
        .reply(UpstreamReply::json(404, &unknown));
}

#[test]
fn the_official_sdks_run_a_conversation_with_tools_through_the_proxy() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let upstream = runtime.block_on(FakeUpstream::start());
    replies(&upstream);
    let place = Place::new();
    let base = upstream.base_url();
    std::fs::create_dir_all(place.home().join("data")).unwrap();
    let config = format!(
        "{{ models: {{ providers: {{ anthropic: {{ baseUrl: '{base}', startupValidation: 'off' }}, \
         openai: {{ baseUrl: '{base}/v1', startupValidation: 'off' }} }} }} }}"
    );
    std::fs::write(place.home().join("config.json5"), config).unwrap();
    let roster = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"anthropic:claude-haiku-4-5\",\"mandate\":\"default\",\"standing\":false}\n";
    std::fs::write(place.home().join("data/agent-roster.jsonl"), roster).unwrap();
    let mut up = place.command(&["up", "--port", "0"]);
    up.env("ANTHROPIC_API_KEY", SECRET).env("OPENAI_API_KEY", SECRET);
    let running = ForegroundDaemon::start_with(up, "stop with Ctrl-C");

    let token = std::fs::read_to_string(place.home().join("run/token")).unwrap();
    let whereabouts = std::fs::read(place.home().join("run/daemon.json")).unwrap();
    let whereabouts: Value = serde_json::from_slice(&whereabouts).unwrap();
    let address = format!("http://{}", whereabouts["address"].as_str().unwrap());
    let pass: Value =
        serde_json::from_str(&place.ok(&["agents", "pass", "main", "--minutes", "5", "--json"])).unwrap();
    let mut script = Command::new(python());
    script.arg(workspace().join("e2e/proxy_sdk.py"));
    script.args([&address, token.trim(), pass["token"].as_str().unwrap(), SECRET]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        script.env_remove(name);
    }
    let said = cli_output(script.output().unwrap());
    assert_eq!(said.code, 0, "{}\n{}", said.out, said.err);
    assert!(said.out.contains("anthropic") && said.out.contains("openai"), "{}", said.out);

    let seen = upstream.requests();
    assert_eq!(seen.len(), 11, "refused requests were not sent");
    for request in &seen {
        let key =
            request.header("x-api-key").or_else(|| request.header("authorization")?.strip_prefix("Bearer "));
        assert_eq!(key, Some(SECRET), "{}", request.path);
        let headers = format!("{:?}", request.headers);
        assert!(!headers.contains("trb") && !headers.contains("stainless"), "{headers}");
    }
    assert_eq!(seen[1].json()["messages"][2]["content"][0]["content"], "18 degrees, föhn");
    assert_eq!(seen[7].json()["stream_options"], json!({ "include_usage": true }));
    assert_eq!(seen[8].json()["messages"][2]["content"], "18 degrees, föhn");

    let tail = place.ok(&["ledger", "tail", "-n", "100", "--json"]);
    assert!(tail.contains("proxy:anthropic") && tail.contains("proxy:openai"), "{tail}");
    assert!(!tail.contains(SECRET) && !tail.contains("Zürich"), "{tail}");
    drop(running);
}
