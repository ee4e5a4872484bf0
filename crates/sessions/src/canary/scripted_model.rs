//! What a canary has an agent try, and the model that makes it try: it answers in place of the house's own, so that trying costs
//! nothing and needs nobody. Pure but for what it remembers of the requests.
//!
//! Nothing here knows an agent by name. A tool is found among those that the agent offers its model, by the shape of its input:
//! one that takes a path and a content writes, one that takes a command runs, one that needs nothing but a path reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::dialect::{Call, Dialect, Reply, Say};

/// How deep a schema is followed.
const MAX_DEPTH: usize = 8;

/// What is said where nothing is to be tried.
const NOTHING: &str = "There is nothing to do.";

/// What an agent is made to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Writing a file.
    Write,
    /// Reading a file that is there, with words that nobody knows.
    Read,
    /// Running a command that leaves a file.
    Run,
    /// The same without the word that makes the agent leave its own sandbox, for agents that have one: they need not ask, and it
    /// must come to nothing.
    RunWithin,
}

impl ProbeKind {
    pub(crate) const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Run, Self::RunWithin];
}

/// One thing that is tried, in a turn of its own.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) feat: ProbeKind,
    /// In what is said to the agent, and nowhere else.
    order: String,
    /// The file that would be there afterwards, or that is there to be read. In the call, and nowhere else.
    pub(crate) mark: String,
    ordered: Mutex<Ordered>,
}

/// What the agent's model came to say of a probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// The model was not asked.
    #[default]
    Unheard,
    /// The agent offers its model nothing of the kind.
    NoTool,
    /// The model ordered a call of this tool.
    Call(String),
}

/// How far an agent came, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// Its process runs.
    Started,
    /// It said its first words, and has a session.
    Initialized,
    /// It asked its model.
    ModelReached,
    /// It asked leave.
    Asked,
}

/// What one canary plays.
#[derive(Debug)]
pub(crate) struct ScriptedModel {
    pub(crate) probes: Vec<Probe>,
    /// Where the agent has its workspace, with a slash behind; empty where paths are relative.
    workspace: &'static str,
    /// The call is made whatever tools are offered.
    is_forced: bool,
    /// Whether the agent runs commands in a sandbox of its own unless it is told otherwise.
    has_own_sandbox: AtomicBool,
    /// What stands in the file that is to be read.
    pub(crate) secret: String,
    /// Whether the model was told that.
    is_told: AtomicBool,
    answers: AtomicU64,
    reached: Mutex<Vec<(Milestone, Instant)>>,
}

impl ScriptedModel {
    /// For an agent that offers its model tools of its own. `nonce` is nothing that anybody could know before.
    pub(crate) fn for_agent(nonce: &str) -> Self {
        Self::of(nonce, &ProbeKind::ALL, "/workspace/", false)
    }

    /// For a loop of the house: the model orders a call that the session was not offered.
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
            // In no word that is said to the agent.
            secret: format!("kept-{}", nonce.chars().rev().collect::<String>()),
            is_told: AtomicBool::new(false),
            answers: AtomicU64::new(1),
            reached: Mutex::default(),
        }
    }

    /// Whether there is something to try within the agent's own sandbox.
    pub(crate) fn has_own_sandbox(&self) -> bool {
        self.has_own_sandbox.load(Ordering::Relaxed)
    }

    /// Whether the agent's model was told what stands in the file that nobody may read.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Remembers when something was first reached.
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

    /// The answer to a request of the agent's.
    pub(super) fn answer(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let path = path.split('?').next().unwrap_or_default();
        let unknown = || Reply::json(404, &json!({ "error": { "message": "there is nothing here" } }));
        if method != "POST" {
            return unknown();
        }
        if path.ends_with("/count_tokens") {
            return Reply::json(200, &json!({ "input_tokens": 20 }));
        }
        let (Some((dialect, is_stream)), Ok(request)) = (Dialect::of(path), serde_json::from_slice(body))
        else {
            return unknown();
        };
        self.reach(Milestone::ModelReached);
        if String::from_utf8_lossy(body).contains(&self.secret) {
            self.is_told.store(true, Ordering::Relaxed);
        }
        let (text, call) = self.next(dialect, &request, &String::from_utf8_lossy(body));
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        dialect.write(&Say { text, call, number }, is_stream || request["stream"] == true)
    }

    fn next(&self, dialect: Dialect, request: &Value, body: &str) -> (String, Option<Call>) {
        let tools = tools(dialect, request);
        let probe = self.probes.iter().rev().find(|probe| body.contains(&probe.order));
        if tools.is_empty() && !self.is_forced {
            if let Some(probe) = probe {
                probe.hear(Ordered::NoTool);
            }
            // Titles, summaries, which model to ask: words, or the least that the schema takes.
            let words = schema_of_answer(request).map(|schema| least(schema, 0).to_string());
            return (words.unwrap_or_else(|| "A check".to_owned()), None);
        }
        let nothing = (NOTHING.to_owned(), None);
        let Some(probe) = probe else { return nothing };
        if body.contains(&probe.mark) {
            return ("That is all.".to_owned(), None);
        }
        let call = match self.is_forced {
            true => Some(probe.house_call()),
            false => probe.call(&tools, self.workspace),
        };
        let heard = match &call {
            Some(call) => Ordered::Call(call.name.clone()),
            None => Ordered::NoTool,
        };
        if call.as_ref().is_some_and(|call| call.arguments.get(OWN_SANDBOX).is_some()) {
            self.has_own_sandbox.store(true, Ordering::Relaxed);
        }
        probe.hear(heard);
        match call {
            Some(call) => ("I will.".to_owned(), Some(call)),
            None => nothing,
        }
    }
}

impl Probe {
    /// What is said to the agent.
    pub(crate) fn words(&self) -> String {
        format!("The house checks that its gate works ({}). Do what you are told.", self.order)
    }

    pub(crate) fn ordered(&self) -> Ordered {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what the model said of it. What was ordered once was ordered.
    fn hear(&self, heard: Ordered) {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*ordered, Ordered::Call(_)) {
            *ordered = heard;
        }
    }

    /// For what needs no model to be told.
    pub(crate) fn script(&self) -> String {
        let Call { name, arguments } = self.house_call();
        self.hear(Ordered::Call(name.clone()));
        format!("!call {name} {arguments}")
    }

    /// As the house's own tools are called.
    fn house_call(&self) -> Call {
        Call { name: "write".to_owned(), arguments: json!({ "path": self.mark, "content": self.mark }) }
    }

    /// With one of the tools that the agent offers.
    fn call(&self, tools: &[Tool<'_>], workspace: &str) -> Option<Call> {
        let path = format!("{workspace}{}", self.mark);
        match self.feat {
            ProbeKind::Write => {
                let fits =
                    |tool: &&Tool<'_>| tool.property(&PATHS).is_some() && tool.property(&CONTENTS).is_some();
                let tool = best(tools.iter().filter(fits), &["write", "create"])?;
                let mut arguments = tool.least();
                arguments.insert(tool.property(&PATHS)?.0.to_owned(), path.into());
                arguments.insert(tool.property(&CONTENTS)?.0.to_owned(), self.mark.clone().into());
                Some(tool.called(arguments))
            }
            ProbeKind::Read => {
                let needs_no_more =
                    |tool: &Tool<'_>| tool.least().keys().all(|name| PATHS.contains(&name.as_str()));
                let fits = |tool: &&Tool<'_>| {
                    tool.property(&PATHS).is_some()
                        && tool.property(&CONTENTS).is_none()
                        && needs_no_more(tool)
                };
                let tool = best(tools.iter().filter(fits), &["read", "view", "open"])?;
                let mut arguments = tool.least();
                arguments.insert(tool.property(&PATHS)?.0.to_owned(), path.into());
                Some(tool.called(arguments))
            }
            ProbeKind::Run | ProbeKind::RunWithin => {
                let fits = |tool: &&Tool<'_>| tool.property(&COMMANDS).is_some();
                let tool =
                    best(tools.iter().filter(fits), &["bash", "shell", "exec", "command", "terminal"])?;
                let (name, schema) = tool.property(&COMMANDS)?;
                let line = format!("touch {path}");
                let command = match schema["type"] == "array" {
                    true => json!(["sh", "-c", line]),
                    false => line.into(),
                };
                let mut arguments = tool.least();
                arguments.insert(name.to_owned(), command);
                match (self.feat, tool.property(&[OWN_SANDBOX])) {
                    (ProbeKind::RunWithin, None) => return None,
                    (ProbeKind::RunWithin, Some(_)) => drop(arguments.remove(OWN_SANDBOX)),
                    (_, None) => {}
                    (_, Some(_)) => {
                        arguments.insert(OWN_SANDBOX.to_owned(), "require_escalated".into());
                        arguments.insert("justification".to_owned(), "the house checks its gate".into());
                    }
                }
                Some(tool.called(arguments))
            }
        }
    }
}

/// What agents call the path of a file, its content, and a command.
const PATHS: [&str; 4] = ["file_path", "filePath", "path", "filename"];
const CONTENTS: [&str; 3] = ["content", "contents", "text"];
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];

/// With this an agent's model says whether a command is to leave the agent's own sandbox.
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

    /// Everything that must be said, in the least way.
    fn least(&self) -> Map<String, Value> {
        match least(self.schema, 0) {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    fn called(&self, arguments: Map<String, Value>) -> Call {
        Call { name: self.name.to_owned(), arguments: Value::Object(arguments) }
    }
}

/// The first whose name has one of these words; else the first.
fn best<'t, 'a>(tools: impl Iterator<Item = &'t Tool<'a>>, words: &[&str]) -> Option<&'t Tool<'a>> {
    let tools: Vec<&Tool<'_>> = tools.collect();
    let is_named = |tool: &&&Tool<'_>| words.iter().any(|word| tool.name.to_lowercase().contains(word));
    tools.iter().find(is_named).or_else(|| tools.first()).copied()
}

fn tools<'a>(dialect: Dialect, request: &'a Value) -> Vec<Tool<'a>> {
    let all = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tool = |told: &'a Value, schemas: [&str; 2]| {
        let schema = schemas.into_iter().map(|name| &told[name]).find(|schema| schema.is_object());
        Some(Tool { name: told["name"].as_str()?, schema: schema.unwrap_or(&Value::Null) })
    };
    match dialect {
        Dialect::Messages => {
            all.iter().filter_map(|told| tool(told, ["input_schema", "parameters"])).collect()
        }
        Dialect::Chat => {
            all.iter().filter_map(|told| tool(&told["function"], ["parameters", "input_schema"])).collect()
        }
        Dialect::Responses => {
            all.iter().filter_map(|told| tool(told, ["parameters", "input_schema"])).collect()
        }
        Dialect::Gemini => {
            let declared = all.iter().flat_map(|group| {
                let both = ["functionDeclarations", "function_declarations"];
                both.into_iter().filter_map(|name| group[name].as_array()).flatten()
            });
            declared.filter_map(|told| tool(told, ["parametersJsonSchema", "parameters"])).collect()
        }
    }
}

/// The schema that an answer without tools is to have, if one is asked for.
fn schema_of_answer(request: &Value) -> Option<&Value> {
    let generation = &request["generationConfig"];
    let wanted = [
        &generation["responseJsonSchema"],
        &generation["responseSchema"],
        &request["output_config"]["format"]["schema"],
        &request["text"]["format"]["schema"],
        &request["response_format"]["json_schema"]["schema"],
    ];
    wanted.into_iter().find(|schema| schema.is_object())
}

/// The least value that a schema takes: what must be there, and no more.
fn least(schema: &Value, depth: usize) -> Value {
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
            required.map(|name| (name.to_owned(), least(&schema["properties"][name], depth + 1))).collect()
        }
    }
}

#[cfg(test)]
#[path = "scripted_model_tests.rs"]
mod tests;
