//! The loop against a fake provider over HTTP, in both dialects.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_providers::{
    ApiDialect, BaseUrl, ChatMessage, ModelLimits, ModelRef, ProviderClient, ProviderEndpoint,
    RequestTimeouts, ThinkingForm,
};
use tribune_runtime::native::{
    Compaction, HostServices, HostServicesSource, ModelBinding, ModelResolver, NativeBackend, RequestStats,
    StoredMessage,
};
use tribune_runtime::{
    AgentExecutedCall, AgentId, AgentRuntime, ContentBlock, ErrorKind, EventKind, Handle, PermissionOutcome,
    ReportedOutcome, RuntimeError, SessionInput, SessionMode, SessionTerms, Speaker, StopReason, ToolCall,
    ToolOutcome, ToolSpec, Toolbox, TurnInput,
};
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};

const KEY: &str = "agent:main:cli:local:dm:ada";

/// One model at a fake provider.
struct OneModel(ModelBinding);

impl ModelResolver for OneModel {
    fn resolve(&self, _: &AgentId, model: Option<&str>) -> Result<ModelBinding, RuntimeError> {
        match model {
            Some("fake:gone") => {
                Err(RuntimeError::new(ErrorKind::UnknownModel, "there is no model `fake:gone`"))
            }
            _ => Ok(self.0.clone()),
        }
    }
}

fn binding(upstream: &FakeUpstream, dialect: ApiDialect, window: u32) -> ModelBinding {
    let endpoint = ProviderEndpoint {
        provider: "fake".into(),
        dialect,
        base_url: BaseUrl::parse(&upstream.base_url()).unwrap(),
        key: None,
        key_env: None,
        timeouts: RequestTimeouts {
            max_attempts: 1,
            idle: Duration::from_millis(300),
            ..RequestTimeouts::default()
        },
    };
    let limits = ModelLimits {
        context_window: window,
        max_output_tokens: 1000,
        supports_tools: true,
        supports_streaming: true,
        supports_images: true,
        thinking: ThinkingForm::NoParameter,
    };
    ModelBinding {
        client: ProviderClient::new(endpoint).unwrap(),
        model: ModelRef::new("fake", "m").unwrap(),
        limits,
        is_local: false,
        max_output_tokens: 1000,
        thinking: None,
        keep_turns: 2,
    }
}

/// A host that stores in memory.
#[derive(Default)]
struct Home {
    turn: Mutex<u32>,
    said: Mutex<Vec<StoredMessage>>,
    summaries: Mutex<Vec<Compaction>>,
    asked: Mutex<Vec<RequestStats>>,
    poor: bool,
}

#[async_trait]
impl HostServices for Home {
    fn system_prompt(&self) -> Vec<String> {
        vec!["base".into(), "law".into()]
    }

    fn context_note(&self) -> Option<String> {
        None
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Owned(text.replace("hunter2", "[redacted]"))
    }

    fn redact_json(&self, value: &Value) -> Value {
        serde_json::from_str(&self.redact(&value.to_string())).unwrap()
    }

    async fn load_conversation(&self) -> Result<Vec<StoredMessage>, RuntimeError> {
        *self.turn.lock().unwrap() += 1;
        Ok(self.said.lock().unwrap().clone())
    }

    async fn store_messages(&self, said: &[ChatMessage]) -> Result<(), RuntimeError> {
        let turn = format!("b3:{:064}", self.turn.lock().unwrap());
        let said = said.iter().map(|said| StoredMessage { turn: turn.clone(), message: said.clone() });
        self.said.lock().unwrap().extend(said);
        Ok(())
    }

    async fn store_compaction(&self, summary: &Compaction) -> Result<(), RuntimeError> {
        let mut said = self.said.lock().unwrap();
        let rest = said.split_off(summary.messages);
        *said = vec![StoredMessage {
            turn: summary.turns.last().unwrap().clone(),
            message: summary.digest.clone(),
        }];
        said.extend(rest);
        self.summaries.lock().unwrap().push(summary.clone());
        Ok(())
    }

    async fn reserve_tokens(&self, _: &ModelRef, _: u64, _: u64) -> Result<Option<ToolCall>, RuntimeError> {
        if self.poor {
            Err(RuntimeError::new(ErrorKind::from_code("over_spend"), "nothing is left for today"))
        } else {
            Ok(None)
        }
    }

    async fn record_request(&self, asked: RequestStats) {
        self.asked.lock().unwrap().push(asked);
    }
}

/// Hands the same host to every turn.
struct SameHome(Arc<Home>);

impl HostServicesSource for SameHome {
    fn take(&self, _: &Handle) -> Option<Arc<dyn HostServices>> {
        Some(self.0.clone())
    }
}

/// Tools with fixed results.
#[derive(Default)]
struct Tools {
    specs: Vec<ToolSpec>,
    answers: HashMap<String, ToolOutcome>,
    calls: Mutex<Vec<ToolCall>>,
    hangs: bool,
}

impl Tools {
    fn new(answers: &[(&str, ToolOutcome)]) -> Self {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: "Does it.".to_owned(),
            input_schema: json!({ "type": "object" }),
        };
        Self {
            specs: answers.iter().map(|(name, _)| spec(name)).collect(),
            answers: answers.iter().map(|(name, outcome)| ((*name).to_owned(), outcome.clone())).collect(),
            ..Self::default()
        }
    }
}

#[async_trait]
impl Toolbox for Tools {
    fn tools(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> ToolOutcome {
        let outcome = self.answers.get(&call.name).cloned();
        // The later a call was made, the sooner it returns.
        let before = self.calls.lock().unwrap().len() as u64;
        self.calls.lock().unwrap().push(call);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(20_u64.saturating_sub(10 * before))).await;
        outcome.unwrap_or_else(|| ToolOutcome::error("denied (mandate.deny): it is not in the mandate"))
    }

    async fn request_permission(&self, _: AgentExecutedCall) -> PermissionOutcome {
        PermissionOutcome::Denied("there are no tools here".to_owned())
    }

    async fn execute_granted(&self, _: &str) -> ToolOutcome {
        ToolOutcome::error("there are no tools here")
    }

    async fn report_result(&self, _: &str, _: ReportedOutcome) {}
}

struct Rig {
    upstream: FakeUpstream,
    backend: NativeBackend,
    handle: Handle,
    home: Arc<Home>,
    tools: Arc<Tools>,
}

impl Rig {
    async fn new(dialect: ApiDialect, tools: Tools) -> Self {
        Self::with(dialect, tools, 100_000, Home::default()).await
    }

    async fn with(dialect: ApiDialect, tools: Tools, window: u32, home: Home) -> Self {
        let upstream = FakeUpstream::start().await;
        let home = Arc::new(home);
        let models = Arc::new(OneModel(binding(&upstream, dialect, window)));
        let backend = NativeBackend::new(models, Arc::new(SameHome(Arc::clone(&home))));
        let handle = backend.ensure_session(session(None)).await.unwrap();
        Self { upstream, backend, handle, home, tools: Arc::new(tools) }
    }

    fn input(&self, text: &str) -> TurnInput {
        TurnInput {
            content: vec![ContentBlock::text(text)],
            speaker: Speaker::Owner,
            schedule_id: None,
            system: String::new(),
            injected_messages: Vec::new(),
            tools: self.tools.clone(),
            cancel: CancellationToken::new(),
        }
    }

    async fn turn(&self, text: &str) -> (Vec<EventKind>, Result<StopReason, RuntimeError>) {
        self.play(self.input(text)).await
    }

    async fn play(&self, input: TurnInput) -> (Vec<EventKind>, Result<StopReason, RuntimeError>) {
        let mut stream = self.backend.run_turn(&self.handle, input);
        let mut events = Vec::new();
        let mut next = 1;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    assert_eq!(event.seq, next);
                    next += 1;
                    if let EventKind::Done { stop_reason } = event.kind {
                        return (events, Ok(stop_reason));
                    }
                    events.push(event.kind);
                }
                Err(error) => return (events, Err(error)),
            }
        }
        panic!("the stream ended without an end");
    }

    /// The JSON bodies of all requests.
    fn bodies(&self) -> Vec<Value> {
        self.upstream.requests().iter().map(|request| request.json()).collect()
    }
}

fn session(model: Option<&str>) -> SessionInput {
    SessionInput {
        key: KEY.parse().unwrap(),
        terms: SessionTerms {
            model: model.map(str::to_owned),
            ..SessionTerms::new("native", SessionMode::Persistent, "default")
        },
        opened_by: "operator".into(),
        lineage: None,
    }
}

fn text(events: &[EventKind]) -> String {
    let text = |event: &EventKind| match event {
        EventKind::TextDelta { text } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

const DIALECTS: [ApiDialect; 2] = [ApiDialect::Anthropic, ApiDialect::OpenAiCompatible];

fn reply(say: &ModelOutput, dialect: ApiDialect) -> UpstreamReply {
    match dialect {
        ApiDialect::Anthropic => say.anthropic(),
        ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => say.openai(),
        ApiDialect::Gemini => say.gemini(),
    }
}

#[tokio::test]
async fn calls_run_concurrently_and_results_are_in_order() {
    for dialect in DIALECTS {
        let tools =
            Tools::new(&[("read", ToolOutcome::good("hello")), ("search", ToolOutcome::good("found"))]);
        let rig = Rig::new(dialect, tools).await;
        let both = ModelOutput::new().text("I look.").call("c1", "read", r#"{"path":"a"}"#).call(
            "c2",
            "search",
            r#"{"q":"b"}"#,
        );
        rig.upstream.reply(reply(&both, dialect)).reply(reply(&ModelOutput::new().text("Done."), dialect));
        let (events, end) = rig.turn("go on").await;
        assert_eq!((text(&events).as_str(), end), ("I look.Done.", Ok(StopReason::EndTurn)), "{dialect:?}");
        let calls: Vec<(String, Value)> = rig
            .tools
            .calls
            .lock()
            .unwrap()
            .iter()
            .map(|call| (call.name.clone(), call.input.clone()))
            .collect();
        assert_eq!(
            calls,
            [("read".to_owned(), json!({ "path": "a" })), ("search".to_owned(), json!({ "q": "b" }))]
        );
        let streamed: String = events
            .iter()
            .filter_map(|event| match event {
                EventKind::ToolCallUpdate { id, input_delta } if id == "c1" => Some(input_delta.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(streamed, r#"{"path":"a"}"#);
        let second = rig.bodies()[1].to_string();
        assert!(second.find("hello").unwrap() < second.find("found").unwrap(), "{second}");
        let usage = events.iter().rev().find_map(|event| match event {
            EventKind::UsageUpdate { input_tokens, output_tokens } => Some((*input_tokens, *output_tokens)),
            _ => None,
        });
        assert_eq!(usage, Some((50, 30)), "both requests of the turn count");
        let asked = rig.home.asked.lock().unwrap().clone();
        assert_eq!(
            asked.iter().map(|asked| asked.ending.as_str()).collect::<Vec<_>>(),
            ["tool_use", "end_turn"]
        );
    }
}

#[tokio::test]
async fn a_denial_is_an_error_that_the_model_sees() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::new(&[])).await;
    rig.upstream
        .reply(ModelOutput::new().call("c1", "exec", r#"{"command":"ls"}"#).anthropic())
        .reply(ModelOutput::new().text("I may not.").anthropic());
    let (events, end) = rig.turn("ls").await;
    assert_eq!((text(&events).as_str(), end), ("I may not.", Ok(StopReason::EndTurn)));
    let result = &rig.bodies()[1]["messages"][2]["content"][0];
    assert_eq!((&result["type"], &result["is_error"]), (&json!("tool_result"), &json!(true)));
    assert!(result["content"].to_string().contains("denied (mandate.deny)"), "{result}");
}

#[tokio::test]
async fn a_model_that_repeats_a_failing_call_is_stopped() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::new(&[])).await;
    for n in 0..5 {
        rig.upstream
            .reply(ModelOutput::new().call(&format!("c{n}"), "exec", r#"{"command":"ls"}"#).anthropic());
    }
    let (_, end) = rig.turn("ls").await;
    assert_eq!(end.unwrap_err().code(), "repeating");
    assert_eq!(rig.upstream.requests().len(), 3);
    // The session is usable afterwards, and the next turn counts from zero.
    rig.upstream.reply(ModelOutput::new().text("hello").anthropic());
    let (events, end) = rig.turn("hello").await;
    assert_eq!((text(&events).as_str(), end), ("hello", Ok(StopReason::EndTurn)));
}

#[tokio::test]
async fn a_request_that_does_not_fit_is_not_sent() {
    let rig = Rig::with(ApiDialect::Anthropic, Tools::default(), 6_000, Home::default()).await;
    let (_, end) = rig.turn(&"word ".repeat(2_000)).await;
    let error = end.unwrap_err();
    assert_eq!(error.code(), "over_budget");
    assert!(error.message.contains("6000"), "{error}");
    assert_eq!(rig.upstream.connections(), 0, "nothing was opened");
}

#[tokio::test]
async fn without_budget_no_request_is_sent() {
    let rig =
        Rig::with(ApiDialect::Anthropic, Tools::default(), 100_000, Home { poor: true, ..Home::default() })
            .await;
    let (_, end) = rig.turn("hello").await;
    assert_eq!(end.unwrap_err().code(), "over_spend");
    assert_eq!(rig.upstream.connections(), 0);
}

#[tokio::test]
async fn a_long_conversation_is_compacted() {
    let rig = Rig::with(ApiDialect::Anthropic, Tools::default(), 6_000, Home::default()).await;
    for n in 0..12 {
        rig.upstream.reply(ModelOutput::new().text(&format!("answer {n}")).usage(0, 0, 0).anthropic());
        let (_, end) = rig.turn(&format!("question {n} {}", "padding ".repeat(60))).await;
        assert_eq!(end, Ok(StopReason::EndTurn), "{n}");
    }
    let summaries = rig.home.summaries.lock().unwrap().clone();
    assert!(!summaries.is_empty());
    assert!(
        summaries.iter().all(|summary| !summary.turns.is_empty() && !summary.turns.contains(&"now".into()))
    );
    let bodies = rig.bodies();
    let last = bodies.last().unwrap();
    assert_eq!(last["system"], bodies[0]["system"], "the prompt stays as it is");
    let said = last["messages"].to_string();
    assert!(said.contains("earlier turns, shortened") && said.contains("question 11 padding"), "{said}");
    assert!(said.contains("answer 10"), "the last turns stay as they are");
}

/// With any room: a smaller digest, then fewer turns beside it.
#[tokio::test]
async fn a_conversation_never_grows_too_long_to_go_on() {
    let rig = Rig::with(ApiDialect::Anthropic, Tools::default(), 6_000, Home::default()).await;
    for n in 0..40 {
        rig.upstream.reply(ModelOutput::new().text(&"answer ".repeat(100)).usage(0, 0, 0).anthropic());
        let (_, end) = rig.turn(&format!("question {n} {}", "padding ".repeat(80))).await;
        assert_eq!(end, Ok(StopReason::EndTurn), "{n}");
    }
    let bodies = rig.bodies();
    let said = bodies.last().unwrap()["messages"].to_string();
    assert!(said.contains("earlier turns, shortened") && said.contains("question 39 padding"), "{said}");
}

#[tokio::test]
async fn a_message_that_was_too_long_does_not_block_the_next_turn() {
    let rig = Rig::with(ApiDialect::Anthropic, Tools::default(), 6_000, Home::default()).await;
    let (_, end) = rig.turn(&"word ".repeat(2_000)).await;
    assert_eq!(end.unwrap_err().code(), "over_budget");
    rig.upstream.reply(ModelOutput::new().text("here").anthropic());
    let (_, end) = rig.turn("are you there?").await;
    assert_eq!(end, Ok(StopReason::EndTurn));
    let said = rig.bodies().last().unwrap()["messages"].to_string();
    assert!(said.contains("are you there?") && said.contains("user: word word"), "{said}");
}

/// A result longer than the window is truncated, and the turn goes on; earlier turns make room.
#[tokio::test]
async fn a_long_result_is_truncated_to_the_window() {
    for reported in [true, false] {
        let long = format!("first {} last", "line of a file\n".repeat(10_000));
        let tools = Tools::new(&[("read", ToolOutcome::good(&long)), ("stat", ToolOutcome::good("short"))]);
        let rig = Rig::with(ApiDialect::Anthropic, tools, 12_000, Home::default()).await;
        let say = |say: ModelOutput| if reported { say.anthropic() } else { say.usage(0, 0, 0).anthropic() };
        for n in 0..3 {
            rig.upstream.reply(say(ModelOutput::new().text("understood")));
            let (_, end) = rig.turn(&format!("note {n} {}", "padding ".repeat(150))).await;
            assert_eq!(end, Ok(StopReason::EndTurn));
        }
        rig.upstream.reply(say(ModelOutput::new().call("c1", "stat", "{}").call("c2", "read", "{}")));
        rig.upstream.reply(say(ModelOutput::new().call("c3", "read", "{}")));
        rig.upstream.reply(say(ModelOutput::new().text("long")));
        let (_, end) = rig.turn("read it").await;
        assert_eq!(end, Ok(StopReason::EndTurn), "reported: {reported}");
        let bodies = rig.bodies();
        let said = bodies[4]["messages"].to_string();
        assert!(said.contains("short") && said.contains("first line of a file"), "{said}");
        assert!(said.contains("bytes left out") && said.contains("line of a file\\n last"), "{said}");
        assert!(bodies[5]["messages"].to_string().matches("bytes left out").count() == 2);
        // The next turn has the truncated result.
        rig.upstream.reply(say(ModelOutput::new().text("yes")));
        assert_eq!(rig.turn("and now?").await.1, Ok(StopReason::EndTurn));
    }
}

#[tokio::test]
async fn a_turn_is_cancelled_in_an_answer_and_in_a_call() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::default()).await;
    rig.upstream.reply(ModelOutput::new().text("this takes long").anthropic().first(5).then_silence());
    let input = rig.input("go on");
    let cancel = input.cancel.clone();
    let (played, ()) = tokio::join!(rig.play(input), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert_eq!(played.1, Ok(StopReason::Cancelled));
    assert!(!text(&played.0).is_empty());

    let tools = Tools { hangs: true, ..Tools::new(&[("read", ToolOutcome::good("x"))]) };
    let rig = Rig::new(ApiDialect::Anthropic, tools).await;
    rig.upstream.reply(ModelOutput::new().call("c1", "read", "{}").anthropic());
    let input = rig.input("go on");
    let cancel = input.cancel.clone();
    let (played, ()) = tokio::join!(rig.play(input), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert_eq!(played.1, Ok(StopReason::Cancelled));
    // The next turn finds a result for every call.
    rig.upstream.reply(ModelOutput::new().text("well").anthropic());
    let (_, end) = rig.turn("and now?").await;
    assert_eq!(end, Ok(StopReason::EndTurn));
    let said = rig.bodies()[1]["messages"].to_string();
    assert!(said.contains("tool_result") && said.contains("cancelled"), "{said}");
}

#[tokio::test]
async fn a_cut_answer_is_kept_and_the_session_goes_on() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::default()).await;
    rig.upstream.reply(ModelOutput::new().text("half a sentence that").anthropic().first(4).then_reset());
    let (events, end) = rig.turn("go on").await;
    let error = end.unwrap_err();
    assert_eq!(error.code(), "cut_stream", "{error}");
    assert!(!text(&events).is_empty());
    rig.upstream.reply(ModelOutput::new().text("yes").anthropic());
    let (_, end) = rig.turn("are you there?").await;
    assert_eq!(end, Ok(StopReason::EndTurn));
    let said = rig.bodies()[1]["messages"].to_string();
    assert!(said.contains(&text(&events)), "{said}");
}

#[tokio::test]
async fn secrets_do_not_reach_the_model() {
    let rig =
        Rig::new(ApiDialect::Anthropic, Tools::new(&[("read", ToolOutcome::good("it is hunter2"))])).await;
    rig.upstream
        .reply(ModelOutput::new().call("c1", "read", "{}").anthropic())
        .reply(ModelOutput::new().text("ok").anthropic());
    rig.turn("my password is hunter2").await.1.unwrap();
    for request in rig.upstream.requests() {
        assert!(!request.text().contains("hunter2"));
    }
    assert!(!format!("{:?}", rig.home.said.lock().unwrap()).contains("hunter2"));
}

#[tokio::test]
async fn an_unknown_model_is_refused_when_the_session_opens() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::default()).await;
    let refused = rig.backend.ensure_session(session(Some("fake:gone"))).await.unwrap_err();
    assert_eq!(refused.code(), "unknown_model");
}

#[tokio::test]
async fn bad_arguments_are_an_error_and_a_cut_call_is_not_executed() {
    let rig = Rig::new(ApiDialect::Anthropic, Tools::new(&[("read", ToolOutcome::good("x"))])).await;
    rig.upstream
        .reply(ModelOutput::new().call("c1", "read", r#"{"path":"#).anthropic())
        .reply(ModelOutput::new().call("c2", "read", r#"{"path":"a"}"#).stop("max_tokens").anthropic());
    let (_, end) = rig.turn("go on").await;
    assert_eq!(end, Ok(StopReason::MaxTokens));
    assert!(rig.tools.calls.lock().unwrap().is_empty(), "nothing was carried out");
    assert!(rig.bodies()[1]["messages"].to_string().contains("the arguments are not JSON"));
}

#[tokio::test]
async fn reasoning_details_go_back_as_they_came() {
    let rig =
        Rig::new(ApiDialect::OpenAiCompatible, Tools::new(&[("read", ToolOutcome::good("hello"))])).await;
    let piece = |text: &str, signature: Value| json!({ "type": "reasoning.text", "text": text, "signature": signature, "format": "anthropic-claude-v1", "index": 0 });
    let sealed = json!({ "type": "reasoning.encrypted", "data": "c2VhbGVk", "id": "r1", "index": 1 });
    let first = ModelOutput::new()
        .reasoning_detail("I ", piece("I ", Value::Null))
        .reasoning_detail("look", piece("look", Value::Null))
        .reasoning_detail("", piece("", "c2ln".into()))
        .reasoning_detail("", sealed.clone())
        .call("c1", "read", r#"{"path":"a"}"#);
    rig.upstream.reply(first.openai()).reply(ModelOutput::new().text("hello").openai());
    let (events, end) = rig.turn("read it").await;
    assert_eq!((text(&events).as_str(), end), ("hello", Ok(StopReason::EndTurn)));
    let thought = |event: &EventKind| match event {
        EventKind::ReasoningDelta { text } => Some(text.clone()),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(thought).collect::<String>(), "I look");
    let details = json!([piece("I look", "c2ln".into()), sealed]);
    let said = &rig.bodies()[1]["messages"][2];
    assert_eq!((&said["role"], &said["reasoning_details"]), (&json!("assistant"), &details), "{said}");
    assert_eq!(said.get("reasoning_content"), None);
    // In the next turn they are unchanged.
    rig.upstream.reply(ModelOutput::new().text("again").openai());
    rig.turn("once more").await.1.unwrap();
    assert_eq!(rig.bodies()[2]["messages"][2]["reasoning_details"], details);
}
