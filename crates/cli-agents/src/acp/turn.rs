//! One turn of an agent: what it says becomes events, what it asks goes to the toolbox, until it answers the prompt.

mod terminals;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::handshake::told;
use super::passthrough_meta::{Around, Words, answered, says_more};
use super::permission_options::{Choice, cancelled, choose};
use super::terminals::Terminals;
use super::{ASK, wire};
use crate::agent_protocol::{Step, Turn};
use crate::connection::{Ear, Fault, Heard, Hearing, Link};
use crate::mcp_calls::AtServers;
use crate::normalize::{self, Wanted};
use crate::passthrough::handed_on;
use crate::permissions::{Leaves, Question, Ruling, UnderWay};
use crate::pool::Live;
use crate::profile::{Profile, Quirk};
use crate::tool_calls::{Telling, Untold};
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{EventKind, StopReason};
use tribune_runtime::{RuntimeError, ToolCall, Toolbox, TurnInput};

/// Files that are written and read for the agent at once. Each may be as long as a line.
const MAX_CALLBACKS: usize = 16;

/// A turn under way.
pub(super) struct AcpTurn {
    link: Link,
    profile: Arc<Profile>,
    workspace: Arc<str>,
    conversation: String,
    tools: Arc<dyn Toolbox>,
    heard: Ear,
    prompt: Pin<Box<dyn Future<Output = Result<Value, Fault>> + Send>>,
    leaves: Leaves<Permission>,
    /// What is done for the agent, and the line that then answers it.
    callbacks: FuturesUnordered<BoxFuture<'static, String>>,
    /// Callbacks so far, to give each an id.
    called_back: usize,
    terminals: Terminals,
    at_servers: AtServers,
    around: Around,
    cancel: CancellationToken,
    is_cancelled: bool,
}

/// A question for leave.
struct Permission {
    request: Value,
    options: Value,
}

impl Question for Permission {
    fn way(&self) -> &'static str {
        ASK
    }

    fn answer(&self, ruling: &Ruling) -> (String, bool) {
        let (reply, allows) = match ruling {
            Ruling::Allow => choose(&self.options, Choice::Allow),
            Ruling::Refuse(_) => choose(&self.options, Choice::Refuse),
            Ruling::Cancelled => (cancelled(), false),
        };
        (wire::response(&self.request, &reply), allows)
    }
}

#[async_trait]
impl Turn for AcpTurn {
    async fn next(&mut self) -> Step {
        loop {
            let step = tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !self.is_cancelled => {
                    self.cancelled().await;
                    None
                }
                // What was said before the end comes before the end.
                Some(heard) = self.heard.next() => self.hear(heard).await,
                decided = self.leaves.decided() => {
                    let lines = self.leaves.answers(decided).await;
                    self.link.send_all(lines).await;
                    None
                }
                Some(line) = self.callbacks.next(), if !self.callbacks.is_empty() => {
                    self.link.send(line).await;
                    None
                }
                news = self.terminals.next() => self.of_terminals(news).await,
                news = self.at_servers.next() => {
                    self.at_servers.take(news, &mut self.leaves).err().map(|untold| Step::Failed(untold.into()))
                }
                ended = &mut self.prompt => Some(self.ended(ended).await),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }
}

impl AcpTurn {
    pub(super) fn begin(live: &Live, input: &TurnInput, prompt: &[ContentBlock]) -> Self {
        let heard = live.link.listen(Hearing::Turn);
        // INVARIANT: the first words gave it a name.
        let conversation = live.conversation.id.clone().unwrap_or_default();
        let params = json!({ "sessionId": conversation, "prompt": prompt });
        let link = live.link.clone();
        let asking = async move { link.ask_patiently("session/prompt", &params).await };
        let under_way = match live.profile.has(Quirk::StartsBeforeAsking) {
            true => UnderWay::MayBeAsked,
            false => UnderWay::IsDone,
        };
        let tools = || Arc::clone(&input.tools);
        Self {
            link: live.link.clone(),
            profile: Arc::clone(&live.profile),
            workspace: Arc::clone(&live.workspace),
            conversation,
            tools: tools(),
            heard,
            prompt: Box::pin(asking),
            leaves: Leaves::new(tools(), Arc::clone(&live.workspace), under_way, live.told_servers()),
            callbacks: FuturesUnordered::new(),
            called_back: 0,
            terminals: Terminals::new(tools()),
            at_servers: AtServers::new(tools(), live.told_servers()),
            around: Around::default(),
            cancel: input.cancel.clone(),
            is_cancelled: false,
        }
    }

    /// Tells the agent to end its turn, and answers all that it asked.
    async fn cancelled(&mut self) {
        self.is_cancelled = true;
        let params = json!({ "sessionId": self.conversation });
        self.link.send(wire::notification("session/cancel", &params)).await;
        self.callbacks.clear();
        self.terminals.end();
        self.at_servers.end();
        let lines = self.leaves.let_go();
        self.link.send_all(lines).await;
    }

    async fn hear(&mut self, heard: Heard) -> Option<Step> {
        let told_of = match &heard {
            Heard::Told { what: params, .. } | Heard::Asked { params, .. } => &params["sessionId"],
            Heard::Aside { method, line } => return handed_on(method, line).and_then(Step::said),
        };
        if *told_of != self.conversation.as_str() {
            let what = "the agent spoke of a session that is not this one, and was stopped";
            return Some(Step::Failed(RuntimeError::new("agent_protocol", what)));
        }
        match heard {
            Heard::Told { line, what } => self.update(&line, &what).await,
            // Looked at above.
            Heard::Aside { .. } => None,
            Heard::Asked { id, method, params, line } if method == ASK => {
                self.asked(id, &params, &line).await
            }
            Heard::Asked { id, method, params, line } => {
                let refused = match method.starts_with("terminal/") {
                    true => self.of_terminal(&id, &method, &params, &line),
                    false => Ok(self.called_back(&id, &method, &params)),
                };
                match refused {
                    Ok(refused) => self.link.send_all(refused.into_iter().collect()).await,
                    Err(untold) => return Some(Step::Failed(untold.into())),
                }
                None
            }
        }
    }

    async fn update(&mut self, line: &str, params: &Value) -> Option<Step> {
        let update = &params["update"];
        let text = || update["content"]["text"].as_str().filter(|_| update["content"]["type"] == "text");
        match (update["sessionUpdate"].as_str().unwrap_or_default(), text()) {
            ("agent_message_chunk", Some(text)) => {
                let around = self.around.changed(Words::Message, params);
                let words = EventKind::TextDelta { text: text.to_owned() };
                Some(Step::Said(around.into_iter().chain([words]).collect()))
            }
            ("agent_thought_chunk", Some(text)) => {
                let around = self.around.changed(Words::Thought, params);
                let words = EventKind::ReasoningDelta { text: text.to_owned() };
                Some(Step::Said(around.into_iter().chain([words]).collect()))
            }
            // What was said to it is known, and some of that is for the agent alone: an echo tells nobody anything.
            ("user_message_chunk", _) => None,
            // The house's own events tell what was asked and decided; this is how the agent shows it.
            (kind @ ("tool_call" | "tool_call_update"), _) => {
                let telling = if kind == "tool_call" { Telling::Begins } else { Telling::GoesOn };
                let ran = self.terminals.shown_in(update);
                match self.leaves.told(&self.named(update), line, telling, ran).await {
                    None => handed_on(kind, line).and_then(Step::said),
                    step => step,
                }
            }
            ("current_mode_update", _)
                if self.profile.mode().is_some_and(|mode| update["currentModeId"] != mode) =>
            {
                let (id, tool) = ("mode".to_owned(), "unknown".to_owned());
                let what = "it left the mode in which it asks".to_owned();
                Some(Step::Ungoverned { id, tool, what })
            }
            (kind, _) => handed_on(kind, line).and_then(Step::said),
        }
    }

    /// What is told of a call, with the name of its tool if only its id has that.
    fn named<'a>(&self, told: &'a Value) -> Cow<'a, Value> {
        let name = told["toolCallId"].as_str().and_then(|id| id.split_once("__")).map(|(name, _)| name);
        match name.filter(|_| self.profile.has(Quirk::NamesInIds) && told["name"].is_null()) {
            Some(name) => {
                let mut told = told.clone();
                told["name"] = name.into();
                Cow::Owned(told)
            }
            None => Cow::Borrowed(told),
        }
    }

    /// The agent asks leave.
    async fn asked(&mut self, request: Value, params: &Value, line: &str) -> Option<Step> {
        let call = self.named(&params["toolCall"]);
        if self.is_cancelled {
            let noted = self.leaves.refuse(&call, line, "the turn was cancelled");
            self.link.send(wire::response(&request, &cancelled())).await;
            return noted
                .err()
                .filter(|untold| *untold == Untold::TooMuch)
                .map(|untold| Step::Failed(untold.into()));
        }
        let question = Permission { request: request.clone(), options: params["options"].clone() };
        match self.leaves.ask(question, &call, line) {
            Ok(lines) => self.link.send_all(lines).await,
            Err(Untold::Nameless) => {
                self.link.send(wire::error(&request, wire::INVALID_PARAMS, "the call has no id")).await;
            }
            Err(untold) => return Some(Step::Failed(untold.into())),
        }
        // Before anyone is asked about it.
        says_more(params).then(|| handed_on(ASK, line)).flatten().and_then(Step::said)
    }

    /// Something is to be done for the agent. Returns the line that refuses it, if it is.
    fn called_back(&mut self, request: &Value, method: &str, params: &Value) -> Option<String> {
        let fs = self.profile.capabilities().fs;
        let is_offered = match method {
            "fs/write_text_file" => fs.write_text_file,
            "fs/read_text_file" => fs.read_text_file,
            _ => false,
        };
        if !is_offered {
            return Some(wire::error(request, wire::METHOD_NOT_FOUND, "this is not offered here"));
        }
        if self.is_cancelled || self.callbacks.len() >= MAX_CALLBACKS {
            return Some(wire::error(request, wire::INTERNAL, "too much is asked at once: nothing is done"));
        }
        match method {
            "fs/write_text_file" => self.write(request.clone(), params),
            _ => self.read(request.clone(), params),
        }
        None
    }

    /// A file is to be written for the agent: under the leave that it has for exactly that, or as a call of its own.
    fn write(&mut self, request: Value, params: &Value) {
        let (path, content) = (params["path"].as_str(), params["content"].as_str());
        let wanted = normalize::written(path.unwrap_or("/"), content.unwrap_or_default(), &self.workspace);
        let (leave, tools) = (self.leaves.calls.take_written(&wanted), Arc::clone(&self.tools));
        let call = self.callback(wanted);
        self.callbacks.push(Box::pin(async move {
            let outcome = match leave {
                Some(own) => tools.carry_out(&own).await,
                None => tools.call(call).await,
            };
            match outcome.is_error {
                true => wire::error(&request, wire::INTERNAL, &outcome.content),
                false => wire::response(&request, &Value::Null),
            }
        }));
    }

    fn read(&mut self, request: Value, params: &Value) {
        let wanted = normalize::read(params["path"].as_str().unwrap_or("/"), &self.workspace);
        let first = params["line"].as_u64().unwrap_or(1).max(1) - 1;
        let most = params["limit"].as_u64().unwrap_or(u64::MAX);
        let (tools, call) = (Arc::clone(&self.tools), self.callback(wanted));
        self.callbacks.push(Box::pin(async move {
            let outcome = tools.call(call).await;
            if outcome.is_error {
                return wire::error(&request, wire::INTERNAL, &outcome.content);
            }
            let skipped = usize::try_from(first).unwrap_or(usize::MAX);
            let lines = outcome.content.split_inclusive('\n').skip(skipped);
            let text: String = lines.take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
            wire::response(&request, &json!({ "content": text }))
        }));
    }

    fn callback(&mut self, wanted: Wanted) -> ToolCall {
        self.called_back += 1;
        ToolCall { id: format!("callback-{}", self.called_back), name: wanted.tool, input: wanted.input }
    }

    /// The agent answered the prompt, or there is no way to it any more.
    async fn ended(&mut self, ended: Result<Value, Fault>) -> Step {
        // Nothing runs on without its turn, and what came of it is on record before the turn's end.
        let told_at_last = self.terminals.settle().await;
        self.at_servers.end();
        let answer = match ended {
            Ok(answer) => answer,
            Err(fault) => {
                // One that tells of a call as begun before it asks may have died in between.
                if !self.profile.has(Quirk::StartsBeforeAsking)
                    && let Some(step) = self.leaves.judge_begun().await
                {
                    return step;
                }
                return Step::Failed(told("the prompt", fault));
            }
        };
        self.link.send_all(told_at_last).await;
        self.callbacks.clear();
        let lines = self.leaves.let_go();
        self.link.send_all(lines).await;
        if let Some(step) = self.leaves.judge_begun().await {
            return step;
        }
        self.leaves.close_books().await;
        let mut kinds: Vec<EventKind> = answered(&answer).into_iter().collect();
        let count =
            |name: &str| u32::try_from(answer["usage"][name].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
        if answer["usage"].is_object() {
            let (input_tokens, output_tokens) = (count("inputTokens"), count("outputTokens"));
            kinds.push(EventKind::UsageUpdate { input_tokens, output_tokens });
        }
        let stop_reason = match answer["stopReason"].as_str().unwrap_or_default() {
            "max_tokens" | "max_turn_requests" => StopReason::MaxTokens,
            "refusal" => StopReason::Refusal,
            _ if self.is_cancelled => StopReason::Cancelled,
            // Some agents call it cancelled when a call was refused, though nobody cancelled the turn.
            _ => StopReason::EndTurn,
        };
        kinds.push(EventKind::Done { stop_reason });
        Step::Over(kinds, Ok(()))
    }
}
