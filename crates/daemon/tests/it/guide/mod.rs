//! The guides match the daemon: every example runs against a daemon, and every documented item has one.

mod coverage;
mod fences;
mod http;
mod in_process_daemon;
mod law;
mod pattern;
mod rpc;

use std::collections::{BTreeMap, BTreeSet};

use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::Value;
use tribune_gateway::{CODES, METHODS, challenge_text, openapi};
use tribune_providers::ProviderError;
use tribune_providers::catalog::BUILT_IN_PROVIDERS;
use tribune_runtime::EventKind;

use self::coverage::Coverage;
use self::fences::{Fence, docs, fences, guide, rows};
use self::in_process_daemon::InProcessDaemon;
use self::pattern::{Names, matches};

/// The word for the daemon with narrow limits; the other examples run against one with the defaults.
const STRICT: &str = "strict";

/// Errors that no client can cause, and the reason.
const NOT_REPRODUCIBLE: [(&str, &str); 4] = [
    ("internal", "a fault in the daemon itself"),
    ("storage", "the disk has to fail"),
    ("backend", "the rehearsal agent refuses nothing"),
    ("no_key", "the proxy says it, which is no RPC"),
];

/// Paths without an example in the REST guide: they are forwarded to a provider, and the tests of the proxy cover
/// them.
const FORWARDED: &str = "/v1/proxy/";

/// Paths whose examples do not succeed: they are about workspaces that only a program in a sandbox makes, and the
/// tests of the command line cover them.
const ABOUT_RUNS: &str = "/v1/workspaces/{id}";

/// Defines the name of each type of event, and a list of all. A new type does not compile until it is added here, and
/// then needs an example.
macro_rules! event_types {
    ($($variant:ident => $name:literal),+ $(,)?) => {
        const EVENT_TYPES: &[&str] = &[$($name),+];

        const fn event_type(kind: &EventKind) -> &'static str {
            match kind { $(EventKind::$variant { .. } => $name),+ }
        }
    };
}
event_types! {
    TurnStarted => "turn_started",
    TextDelta => "text_delta",
    ReasoningDelta => "reasoning_delta",
    ToolCall => "tool_call",
    ToolCallUpdate => "tool_call_update",
    ToolResult => "tool_result",
    UsageUpdate => "usage_update",
    PolicyGate => "policy_gate",
    ApprovalRequested => "approval_requested",
    ApprovalDecided => "approval_decided",
    MailboxInjected => "mailbox_injected",
    LedgerAppend => "ledger_append",
    Error => "error",
    Notice => "notice",
    AgentUpdate => "agent_update",
    Ungoverned => "ungoverned",
    Done => "done",
}

/// The same for the errors of a provider.
macro_rules! provider_codes {
    ($($variant:ident => $name:literal),+ $(,)?) => {
        const PROVIDER_CODES: &[&str] = &[$($name),+];

        const fn provider_code(error: &ProviderError) -> &'static str {
            match error { $(ProviderError::$variant { .. } => $name),+ }
        }
    };
}
provider_codes! {
    MissingKey => "missing_key",
    UnusableKey => "unusable_key",
    InsecureUrl => "insecure_url",
    TlsUnavailable => "no_tls",
    Unauthorized => "unauthorized",
    NoCredit => "no_credit",
    Forbidden => "forbidden",
    NotFound => "not_found",
    BadRequest => "bad_request",
    ContextTooLong => "context_too_long",
    RequestTooLarge => "request_too_large",
    RateLimited => "rate_limited",
    Overloaded => "overloaded",
    UpstreamFailed => "upstream_failed",
    Redirected => "redirected",
    DnsFailed => "dns_failed",
    TlsFailed => "tls_failed",
    ConnectFailed => "connect_failed",
    ConnectTimeout => "connect_timeout",
    ConnectionLost => "connection_lost",
    FirstByteTimeout => "first_byte_timeout",
    IdleTimeout => "idle_timeout",
    AnswerTimeout => "answer_timeout",
    MalformedStream => "malformed_stream",
    NotAStream => "not_a_stream",
    TruncatedStream => "cut_stream",
    TooLarge => "too_large",
    Cancelled => "cancelled",
    SerializationFailed => "unwritable",
    RelayOnly => "only_relayed",
}

/// Runs every example of a guide, from top to bottom.
fn play(name: &str) -> Coverage {
    let fences = fences(name);
    let (strict, plain): (Vec<&Fence>, Vec<&Fence>) =
        fences.iter().filter(|fence| fence.file().is_some()).partition(|fence| fence.has(STRICT));
    let mut daemons = [InProcessDaemon::start(&plain), InProcessDaemon::start(&strict)];
    let mut shown = Coverage::default();
    for fence in &fences {
        let daemon = &mut daemons[usize::from(fence.has(STRICT))];
        match fence.kind() {
            "rpc" => rpc::play(fence, daemon, &mut shown),
            "http" => http::play(fence, daemon, &mut shown),
            _ => {}
        }
    }
    shown
}

#[test]
fn rpc_guide_examples_match_the_daemon() {
    let shown = play("rpc.md");

    let methods: BTreeSet<&str> = shown.methods.iter().map(String::as_str).collect();
    assert_eq!(methods, BTreeSet::from(METHODS), "every method has a successful example");

    let excused: BTreeMap<&str, &str> = NOT_REPRODUCIBLE.into();
    let rows = rows("rpc.md");
    for (word, number, status) in CODES {
        let row = [format!("`{word}`"), number.to_string(), status.to_string()];
        assert!(rows.iter().any(|cells| cells.starts_with(&row)), "{row:?} is not in the table of errors");
        assert_ne!(
            shown.codes.contains(word),
            excused.contains_key(word),
            "`{word}` needs an example, or a reason why it has none"
        );
    }

    let mut examples = BTreeSet::new();
    for fence in fences("rpc.md").iter().filter(|fence| fence.kind() == "event") {
        let expected: Value =
            serde_json::from_str(&fence.text).unwrap_or_else(|error| panic!("{}: {error}", fence.place));
        let arrived = shown.events.iter().find(|event| matches(&expected, event, &mut Names::new()).is_ok());
        let arrived = arrived.unwrap_or_else(|| panic!("{}: no such event arrived: {expected}", fence.place));
        let read: tribune_runtime::RuntimeEvent = serde_json::from_value(arrived.clone()).unwrap();
        let members = |event: &Value| event.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(members(&expected), members(arrived), "{}: all members are shown", fence.place);
        examples.insert(event_type(&read.kind));
    }
    let cli_agent_events = EVENT_TYPES.iter().filter(|kind| CLI_AGENT_EVENTS.contains(kind)).count();
    assert_eq!(cli_agent_events, CLI_AGENT_EVENTS.len());
    let played = EVENT_TYPES.iter().copied().filter(|kind| !CLI_AGENT_EVENTS.contains(kind));
    assert_eq!(examples, played.collect(), "every event has an example");
    let guide = guide("rpc.md");
    for kind in CLI_AGENT_EVENTS {
        assert!(guide.contains(&format!("\n### {kind}\n")), "{kind} is explained");
    }
}

/// Events that only CLI agents cause; the guides have none. Their own tests cover them.
const CLI_AGENT_EVENTS: [&str; 3] = ["notice", "agent_update", "ungoverned"];

#[test]
fn approvals_guide_examples_match_the_daemon() {
    let shown = play("approvals.md");
    for method in ["approval.decide", "approval.list", "approval.show", "gate.resume", "gate.stop_all"] {
        assert!(shown.methods.contains(method), "{method}");
    }
}

#[test]
fn rest_guide_examples_match_the_daemon() {
    let shown = play("rest.md");
    let document = serde_json::to_value(openapi()).unwrap();
    let mut missing = Vec::new();
    let paths = document["paths"].as_object().unwrap();
    for (path, verbs) in
        paths.iter().filter(|(path, _)| !path.starts_with(FORWARDED) && !path.starts_with(ABOUT_RUNS))
    {
        for verb in verbs.as_object().unwrap().keys() {
            let is_it = |(shown_verb, shown_path): &(String, String)| {
                shown_verb.eq_ignore_ascii_case(verb)
                    && shown_path.split('/').count() == path.split('/').count()
                    && path.split('/').zip(shown_path.split('/')).all(|(a, b)| a == b || a.starts_with('{'))
            };
            if !shown.requests.iter().any(is_it) {
                missing.push(format!("{verb} {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "without an example: {missing:?}");
}

/// The requests and responses of the REST guide, each as text and as JSON.
fn shown_by_the_rest_guide() -> Vec<Value> {
    let mut shown = Vec::new();
    for fence in fences("rest.md").iter().filter(|fence| fence.kind() == "http") {
        let (request, answer) = fence.text.split_once("← ").unwrap();
        let body = request.split_once("\n\n").map_or("", |(_, body)| body.trim());
        for text in [body, answer.split_once('\n').unwrap().1.trim()] {
            shown.push(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)));
        }
    }
    shown
}

#[test]
fn openapi_operations_events_and_errors_have_replayed_examples() {
    let document = serde_json::to_value(openapi()).unwrap();
    let shown = shown_by_the_rest_guide();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (verb, operation) in verbs.as_object().unwrap() {
            let mut examples = Vec::new();
            let mut look = |what: &str, content: &Value| {
                for (kind, content) in content.as_object().unwrap() {
                    let example = &content["example"];
                    assert!(!example.is_null(), "{verb} {path}: no example of {what} as {kind}");
                    examples.push(example.clone());
                }
            };
            if let Some(body) = operation.get("requestBody") {
                look("the request", &body["content"]);
            }
            for (status, response) in operation["responses"].as_object().unwrap() {
                // Error bodies without a status of their own here, and values that only a run makes.
                let is_open = status == "default" || status == "200" && path.starts_with(ABOUT_RUNS);
                if !is_open {
                    look(status, &response["content"]);
                }
            }
            let is_played = |example: &Value| shown.contains(example);
            assert!(
                path.starts_with(FORWARDED) || path == "/readyz" || examples.iter().all(is_played),
                "{verb} {path}: an example is not in the guide"
            );
        }
    }
    let schemas = &document["components"]["schemas"];
    let words = |name: &str, word: fn(&Value) -> &Value| -> BTreeSet<String> {
        let examples = schemas[name]["examples"].as_array().unwrap().iter();
        examples.map(|example| word(example).as_str().unwrap().to_owned()).collect()
    };
    let events = EVENT_TYPES.iter().filter(|kind| !CLI_AGENT_EVENTS.contains(kind));
    assert_eq!(words("Event", |event| &event["type"]), events.map(|kind| (*kind).to_owned()).collect());
    assert_eq!(
        words("ErrorBody", |body| &body["error"]["code"]),
        CODES.iter().map(|(word, ..)| (*word).to_owned()).collect()
    );
    assert!(
        !words("ErrorBody", |body| &body["error"]["message"]).contains(""),
        "each error code has a description"
    );
}

#[test]
fn openapi_document_equals_the_committed_file() {
    let mut document = serde_json::to_value(openapi()).unwrap();
    document.sort_all_objects();
    let text = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    let path = docs().join("openapi.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/openapi.json is out of date: run this test with UPDATE_DOCS=1 and look at the change"
    );

    let daemon = InProcessDaemon::start(&[]);
    let served: Value =
        serde_json::from_str(&http::send(daemon.address(), "GET /v1/openapi.json", "").text()).unwrap();
    assert_eq!(served, document);

    let events = document["components"]["schemas"]["EventKind"].to_string();
    for name in EVENT_TYPES {
        assert!(events.contains(&format!("\"{name}\"")), "`{name}` is not in the document");
    }
}

/// Paths of all values, without objects that have members.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, found);
            }
        }
        value => found.push((path.to_owned(), value.clone())),
    }
}

#[test]
fn daemon_guide_lists_every_configuration_key_with_its_default() {
    let mut keys = Vec::new();
    leaves(&json5::from_str(tribune_config::EXAMPLE).unwrap(), "", &mut keys);
    let rows = rows("daemon.md");
    for (key, default) in &keys {
        let row = [format!("`{key}`"), format!("`{default}`")];
        assert!(rows.iter().any(|cells| cells.starts_with(&row)), "{row:?} is not in the table");
    }
    let known: BTreeSet<String> = keys.into_iter().map(|(key, _)| format!("`{key}`")).collect();
    let sections = ["`gateway.", "`sessions.", "`transcript.", "`log.", "`redact.", "`models."];
    for cells in &rows {
        let is_key = sections.iter().any(|section| cells[0].starts_with(section));
        assert!(!is_key || known.contains(&cells[0]), "{} is no key any more", cells[0]);
    }
}

#[test]
fn models_guide_lists_every_provider_and_error_code() {
    let rows = rows("models.md");
    let has = |first: &str| rows.iter().any(|cells| cells[0] == format!("`{first}`"));
    for code in PROVIDER_CODES {
        assert!(has(code), "`{code}` is not in the table");
    }
    let missing = ProviderError::MissingKey { provider: "x".to_owned(), env: "X".to_owned() };
    assert_eq!(provider_code(&missing), missing.code());
    for provider in BUILT_IN_PROVIDERS {
        let row = rows.iter().find(|cells| cells[0] == format!("`{}`", provider.id));
        let row = row.unwrap_or_else(|| panic!("{} is not in the table", provider.id));
        let env = provider.key_env.map_or_else(|| "none is needed".to_owned(), |env| format!("`{env}`"));
        assert_eq!(row[1], env);
        let models: Vec<String> = provider.models.iter().map(|(name, _)| format!("`{name}`")).collect();
        assert!(models.is_empty() || row[2] == models.join(", "), "{}: {models:?}", provider.id);
    }
    for fence in fences("models.md").iter().filter(|fence| fence.kind() == "json5") {
        tribune_config::Config::parse(&fence.place, &fence.text).unwrap();
    }
}

#[test]
fn egress_guide_files_allow_what_they_list() {
    let fences = fences("egress.md");
    let files: Vec<&Fence> = fences.iter().filter(|fence| fence.file().is_some()).collect();
    let daemon = InProcessDaemon::start(&files);
    let places: Vec<String> =
        daemon.config.egress.agents.values().flatten().map(|place| place.at.to_string()).collect();
    assert_eq!(
        places,
        ["api.example.com:443", "mirror.example.com:80", "db.example.com:5432", "127.0.0.1:8443"]
    );
}

#[test]
fn daemon_guide_files_make_a_valid_home() {
    let fences = fences("daemon.md");
    let files: Vec<&Fence> = fences.iter().filter(|fence| fence.file().is_some()).collect();
    let names: Vec<&str> = files.iter().filter_map(|fence| fence.file()).collect();
    for name in ["config.json5", "data/agent-roster.jsonl", "mandates/clerk.md", "constitution.md"] {
        assert!(names.contains(&name), "{name}");
    }
    let daemon = InProcessDaemon::start(&files);
    let head =
        format!("GET /v1/agents\nAuthorization: Bearer {}", daemon.names()["<token>"].as_str().unwrap());
    let agents: Value = serde_json::from_str(&http::send(daemon.address(), &head, "").text()).unwrap();
    let expected =
        serde_json::json!({ "agents": [{ "agent_id": "clerk", "mandate": "clerk", "rostered": true }] });
    matches(&expected, &agents, &mut Names::new()).unwrap();
}

#[test]
fn rpc_guide_signature_example_verifies() {
    let text = guide("rpc.md");
    let key = SigningKey::from_bytes(&[1; 32]);
    let public_key = format!("ed25519:{}", rpc::hex(key.verifying_key().as_bytes()));
    let signed = challenge_text("example.org/log", &"00".repeat(32), &public_key);
    let shown = format!("`{}`", signed.replace('\n', "\\n"));
    assert!(text.contains(&shown), "{shown}");
    let signature = rpc::hex(&key.sign(signed.as_bytes()).to_bytes());
    assert!(text.contains(&signature), "{signature}");
}
