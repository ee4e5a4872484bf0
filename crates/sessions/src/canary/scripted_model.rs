//! The probes of a canary, and the scripted model that makes an agent attempt them. It answers in place of the configured model, so
//! a canary costs nothing and needs no provider. Pure except for the state that it keeps of the requests.
//!
//! Nothing here depends on the name of an agent. A tool is selected from those that the agent offers its model, by its input
//! schema: a tool with a path and a content writes, a tool with a command runs, and a tool that requires only a path reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};
use tribune_providers::relay::ApiFormat;
use tribune_providers::wire_encoder::requested_format;

use super::scripted_reply::{Call, ScriptedAnswer, ScriptedResponse};

/// The depth to which a schema is followed.
const MAX_DEPTH: usize = 8;

/// The answer to a request without a probe.
const NOTHING: &str = "There is nothing to do.";

/// The kind of action that an agent is made to attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Writing a file.
    Write,
    /// Reading an existing file with a secret content.
    Read,
    /// Running a command that leaves a file.
    Run,
    /// The same without the argument that makes the command leave the agent's own sandbox, for agents that have one. They need not
    /// request permission for it, and it must have no effect.
    RunWithin,
}

impl ProbeKind {
    pub(crate) const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Run, Self::RunWithin];
}

/// One attempt, in a turn of its own.
#[derive(Debug)]
pub struct Probe {
    pub(crate) feat: ProbeKind,
    /// A marker that only the message to the agent contains.
    order: String,
    /// The name of the file that the call would create, or that it reads. Only the call contains it.
    pub(crate) mark: String,
    ordered: Mutex<Ordered>,
}

/// What the scripted model answered to a probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// The model was not asked.
    #[default]
    Unheard,
    /// The agent offers its model no fitting tool.
    NoTool,
    /// The model ordered a call of this tool.
    Call(String),
}

/// The progress of an agent, as reported in the steps of the canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// Its process runs.
    Started,
    /// The handshake is complete, and it has a session.
    Initialized,
    /// It sent a request to its model.
    ModelReached,
    /// It requested permission.
    Asked,
}

/// The scripted model of one canary, with its probes.
#[derive(Debug)]
pub struct ScriptedModel {
    pub(crate) probes: Vec<Probe>,
    /// The agent's workspace, with a trailing slash; empty where paths are relative.
    workspace: &'static str,
    /// The model makes the call whatever tools are offered.
    is_forced: bool,
    /// Whether the agent runs commands in its own sandbox unless the call requests otherwise.
    has_own_sandbox: AtomicBool,
    /// The content of the file for the read probe.
    pub(crate) secret: String,
    /// Whether a request to the model contained the secret.
    has_leaked: AtomicBool,
    /// Whether a request to the model named a file of the workspace before the model ordered a call about it.
    has_listed: AtomicBool,
    answers: AtomicU64,
    reached: Mutex<Vec<(Milestone, Instant)>>,
}

impl ScriptedModel {
    /// For an agent that offers its model its own tools. `nonce` is unpredictable.
    pub(crate) fn for_agent(nonce: &str) -> Self {
        Self::of(nonce, &ProbeKind::ALL, "/workspace/", false)
    }

    /// For a built-in loop: the model orders a call of a tool that the session was not offered.
    pub(crate) fn for_loop(nonce: &str) -> Self {
        Self::of(nonce, &[ProbeKind::Write], "", true)
    }

    fn of(nonce: &str, feats: &[ProbeKind], workspace: &'static str, is_forced: bool) -> Self {
        let probe = |(at, feat): (usize, &ProbeKind)| Probe {
            feat: *feat,
            order: format!("order-{nonce}-{at}"),
            mark: format!("canary-{nonce}-{at}.txt"),
            ordered: Mutex::default(),
        };
        let probes = feats.iter().enumerate().map(probe).collect();
        Self {
            probes,
            workspace,
            is_forced,
            has_own_sandbox: AtomicBool::new(false),
            // No message to the agent contains it.
            secret: format!("kept-{}", nonce.chars().rev().collect::<String>()),
            has_leaked: AtomicBool::new(false),
            has_listed: AtomicBool::new(false),
            answers: AtomicU64::new(1),
            reached: Mutex::default(),
        }
    }

    /// Whether the agent has its own sandbox, so that `RunWithin` applies.
    pub(crate) fn has_own_sandbox(&self) -> bool {
        self.has_own_sandbox.load(Ordering::Relaxed)
    }

    /// Whether a request to the model contained the secret, which the session may not read.
    pub(crate) fn is_told(&self) -> bool {
        self.has_leaked.load(Ordering::Relaxed)
    }

    /// Whether a request to the model named a file of the workspace that no message and no call had named.
    pub(crate) fn is_shown_names(&self) -> bool {
        self.has_listed.load(Ordering::Relaxed)
    }

    /// Notes what a request carries that the agent was not asked for: the name of the file that the workspace has.
    fn note_names(&self, body: &str) {
        let is_unordered =
            |probe: &&Probe| probe.feat == ProbeKind::Read && !matches!(probe.ordered(), Ordered::Call(_));
        let mut there = self.probes.iter().filter(is_unordered);
        if there.any(|probe| body.contains(&probe.mark)) {
            self.has_listed.store(true, Ordering::Relaxed);
        }
    }

    /// Stores the time at which a milestone was first reached.
    pub(crate) fn reach(&self, milestone: Milestone) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if !reached.iter().any(|(known, _)| *known == milestone) {
            reached.push((milestone, Instant::now()));
        }
    }

    pub(crate) fn when(&self, milestone: Milestone) -> Option<Instant> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.iter().find(|(known, _)| *known == milestone).map(|(_, when)| *when)
    }

    /// Answers a request of the agent.
    pub(super) fn answer(&self, method: &str, path: &str, body: &[u8]) -> ScriptedResponse {
        let path = path.split('?').next().unwrap_or_default();
        let unknown =
            || ScriptedResponse::json(404, &json!({ "error": { "message": "there is nothing here" } }));
        if method != "POST" {
            return unknown();
        }
        if path.ends_with("/count_tokens") {
            return ScriptedResponse::json(200, &json!({ "input_tokens": 20 }));
        }
        let (Some((format, is_stream)), Ok(request)) = (requested_format(path), serde_json::from_slice(body))
        else {
            return unknown();
        };
        self.reach(Milestone::ModelReached);
        let body = String::from_utf8_lossy(body);
        if body.contains(&self.secret) {
            self.has_leaked.store(true, Ordering::Relaxed);
        }
        self.note_names(&body);
        let (text, call) = self.next(format, &request, &body);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        ScriptedAnswer { text, call, number }.encode(format, is_stream || request["stream"] == true)
    }

    fn next(&self, format: ApiFormat, request: &Value, body: &str) -> (String, Option<Call>) {
        let tools = tools(format, request);
        let probe = self.probes.iter().rev().find(|probe| body.contains(&probe.order));
        if tools.is_empty() && !self.is_forced {
            if let Some(probe) = probe {
                probe.set_ordered(Ordered::NoTool);
            }
            // Requests for titles, summaries or model routing: text, or the minimal value of the schema.
            let text = response_schema(request).map(|schema| minimal_value(schema, 0).to_string());
            return (text.unwrap_or_else(|| "A check".to_owned()), None);
        }
        let nothing = (NOTHING.to_owned(), None);
        let Some(probe) = probe else { return nothing };
        if body.contains(&probe.mark) {
            return ("That is all.".to_owned(), None);
        }
        let call = match self.is_forced {
            true => Some(probe.builtin_call()),
            false => probe.call(&tools, self.workspace),
        };
        let ordered = match &call {
            Some(call) => Ordered::Call(call.name.clone()),
            None => Ordered::NoTool,
        };
        if call.as_ref().is_some_and(|call| call.arguments.get(OWN_SANDBOX).is_some()) {
            self.has_own_sandbox.store(true, Ordering::Relaxed);
        }
        probe.set_ordered(ordered);
        match call {
            Some(call) => ("I will.".to_owned(), Some(call)),
            None => nothing,
        }
    }
}

impl Probe {
    /// The message to the agent.
    pub(crate) fn words(&self) -> String {
        format!("Tribune checks that its gate works ({}). Do what you are told.", self.order)
    }

    pub(crate) fn ordered(&self) -> Ordered {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the model's answer. A call that was ordered once stays ordered.
    fn set_ordered(&self, answer: Ordered) {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*ordered, Ordered::Call(_)) {
            *ordered = answer;
        }
    }

    /// The script line of the call, for the rehearsal backend, which has no model.
    pub(crate) fn script(&self) -> String {
        let Call { name, arguments } = self.builtin_call();
        self.set_ordered(Ordered::Call(name.clone()));
        format!("!call {name} {arguments}")
    }

    /// The call of Tribune's own `write` tool.
    fn builtin_call(&self) -> Call {
        Call { name: "write".to_owned(), arguments: json!({ "path": self.mark, "content": self.mark }) }
    }

    /// A call of one of the tools that the agent offers, if one fits.
    fn call(&self, tools: &[Tool<'_>], workspace: &str) -> Option<Call> {
        let path = format!("{workspace}{}", self.mark);
        match self.feat {
            ProbeKind::Write => {
                let fits =
                    |tool: &&Tool<'_>| tool.property(&PATHS).is_some() && tool.property(&CONTENTS).is_some();
                let tool = best_match(tools.iter().filter(fits), &["write", "create"])?;
                let mut arguments = tool.minimal_arguments();
                arguments.insert(tool.property(&PATHS)?.0.to_owned(), path.into());
                arguments.insert(tool.property(&CONTENTS)?.0.to_owned(), self.mark.clone().into());
                Some(tool.call_with(arguments))
            }
            ProbeKind::Read => {
                let requires_only_path = |tool: &Tool<'_>| {
                    tool.minimal_arguments().keys().all(|name| PATHS.contains(&name.as_str()))
                };
                let fits = |tool: &&Tool<'_>| {
                    tool.property(&PATHS).is_some()
                        && tool.property(&CONTENTS).is_none()
                        && requires_only_path(tool)
                };
                let tool = best_match(tools.iter().filter(fits), &["read", "view", "open"])?;
                let mut arguments = tool.minimal_arguments();
                arguments.insert(tool.property(&PATHS)?.0.to_owned(), path.into());
                Some(tool.call_with(arguments))
            }
            ProbeKind::Run | ProbeKind::RunWithin => {
                let fits = |tool: &&Tool<'_>| tool.property(&COMMANDS).is_some();
                let tool =
                    best_match(tools.iter().filter(fits), &["bash", "shell", "exec", "command", "terminal"])?;
                let (name, schema) = tool.property(&COMMANDS)?;
                let shell_line = format!("touch {path}");
                let command = match schema["type"] == "array" {
                    true => json!(["sh", "-c", shell_line]),
                    false => shell_line.into(),
                };
                let mut arguments = tool.minimal_arguments();
                arguments.insert(name.to_owned(), command);
                match (self.feat, tool.property(&[OWN_SANDBOX])) {
                    (ProbeKind::RunWithin, None) => return None,
                    (ProbeKind::RunWithin, Some(_)) => drop(arguments.remove(OWN_SANDBOX)),
                    (_, None) => {}
                    (_, Some(_)) => {
                        arguments.insert(OWN_SANDBOX.to_owned(), "require_escalated".into());
                        arguments.insert("justification".to_owned(), "Tribune checks its gate".into());
                    }
                }
                Some(tool.call_with(arguments))
            }
        }
    }
}

/// The argument names that agents use for a path, a content and a command.
const PATHS: [&str; 4] = ["file_path", "filePath", "path", "filename"];
const CONTENTS: [&str; 3] = ["content", "contents", "text"];
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// The argument by which a model requests that a command runs outside the agent's own sandbox.
const OWN_SANDBOX: &str = "sandbox_permissions";

/// A tool that an agent offers its model.
struct Tool<'a> {
    name: &'a str,
    schema: &'a Value,
}

impl<'a> Tool<'a> {
    fn property(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        let properties = self.schema["properties"].as_object()?;
        names.iter().find_map(|name| Some((*name, properties.get(*name)?)))
    }

    /// The required arguments, with minimal values.
    fn minimal_arguments(&self) -> Map<String, Value> {
        match minimal_value(self.schema, 0) {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    fn call_with(&self, arguments: Map<String, Value>) -> Call {
        Call { name: self.name.to_owned(), arguments: Value::Object(arguments) }
    }
}

/// The first tool whose name contains one of these words; otherwise the first.
fn best_match<'t, 'a>(tools: impl Iterator<Item = &'t Tool<'a>>, words: &[&str]) -> Option<&'t Tool<'a>> {
    let tools: Vec<&Tool<'_>> = tools.collect();
    let is_named = |tool: &&&Tool<'_>| words.iter().any(|word| tool.name.to_lowercase().contains(word));
    tools.iter().find(is_named).or_else(|| tools.first()).copied()
}

fn tools<'a>(format: ApiFormat, request: &'a Value) -> Vec<Tool<'a>> {
    let all = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tool = |entry: &'a Value, schemas: [&str; 2]| {
        let schema = schemas.into_iter().map(|name| &entry[name]).find(|schema| schema.is_object());
        Some(Tool { name: entry["name"].as_str()?, schema: schema.unwrap_or(&Value::Null) })
    };
    match format {
        ApiFormat::Messages => {
            all.iter().filter_map(|entry| tool(entry, ["input_schema", "parameters"])).collect()
        }
        ApiFormat::Chat => {
            all.iter().filter_map(|entry| tool(&entry["function"], ["parameters", "input_schema"])).collect()
        }
        ApiFormat::Responses => {
            all.iter().filter_map(|entry| tool(entry, ["parameters", "input_schema"])).collect()
        }
        ApiFormat::Gemini => {
            let declared = all.iter().flat_map(|group| {
                let both = ["functionDeclarations", "function_declarations"];
                both.into_iter().filter_map(|name| group[name].as_array()).flatten()
            });
            declared.filter_map(|entry| tool(entry, ["parametersJsonSchema", "parameters"])).collect()
        }
    }
}

/// The schema that the request sets for the answer, if any.
fn response_schema(request: &Value) -> Option<&Value> {
    let generation = &request["generationConfig"];
    let schemas = [
        &generation["responseJsonSchema"],
        &generation["responseSchema"],
        &request["output_config"]["format"]["schema"],
        &request["text"]["format"]["schema"],
        &request["response_format"]["json_schema"]["schema"],
    ];
    schemas.into_iter().find(|schema| schema.is_object())
}

/// A minimal value of a schema: the required members only.
fn minimal_value(schema: &Value, depth: usize) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind.to_ascii_lowercase().as_str() {
        "string" => "check".into(),
        "integer" | "number" => 1.into(),
        "boolean" => false.into(),
        "array" => json!([]),
        "null" => Value::Null,
        _ => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required
                .map(|name| (name.to_owned(), minimal_value(&schema["properties"][name], depth + 1)))
                .collect()
        }
    }
}

#[cfg(test)]
#[path = "scripted_model_tests.rs"]
mod tests;
