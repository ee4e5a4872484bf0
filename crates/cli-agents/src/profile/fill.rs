//! Fills in the templates of a profile with the values of a session.

use serde_json::{Map, Value};

use super::{FileContent, HomePath, Profile, ProfileTemplate};
use crate::mcp_bridge::ServerEndpoint;

/// The words that a template may hold.
pub(super) const NAMES: [&str; 11] = [
    "arch",
    "conversation",
    "home",
    "workspace",
    "program",
    "node",
    "model",
    "model_url",
    "placeholder_key",
    "server",
    "server_url",
];

/// The values of a session; paths and addresses are those inside its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileContext {
    /// The architecture, as npm names it: `x64` or `arm64`.
    pub arch: String,
    /// The agent's own id of the conversation to resume, if there is one.
    pub conversation: Option<String>,
    /// The session's own home folder.
    pub home: String,
    pub workspace: String,
    /// The folder that the program is installed in.
    pub program: String,
    /// The Node that runs it.
    pub node: String,
    /// The model's name, as its provider writes it.
    pub model: String,
    /// The base address of the model's API, without a path.
    pub model_url: String,
    /// Stands where a key would. The real key is added outside the sandbox.
    pub placeholder_key: String,
    /// MCP servers that the host runs for the session.
    pub servers: Vec<ServerEndpoint>,
}

/// A profile with every template filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledProfile {
    /// Program and arguments. Never empty.
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Paths beneath the home folder, and the content of each.
    pub files: Vec<(String, String)>,
    /// Paths beneath `/etc`, and the content of each.
    pub system: Vec<(String, String)>,
}

impl Profile {
    /// Fills in the values of a session.
    pub fn fill(&self, with: &ProfileContext) -> FilledProfile {
        let resume = with.conversation.as_ref().map_or(&[][..], |_| self.resume());
        let command = self.command().iter().chain(resume).map(|part| part.fill(with)).collect();
        let variable = |(name, value): (&String, &ProfileTemplate)| (name.clone(), value.fill(with));
        let environment = self.environment().iter().map(variable).collect();
        let file =
            |(path, content): (&HomePath, &FileContent)| (path.as_str().to_owned(), content.fill(with));
        let files = self.files().iter().map(file).collect();
        let system = |(path, content): (&HomePath, &FileContent)| {
            let mut whole = content.filled(with, None);
            for served in &with.servers {
                let more = self.per_server().get(path).map(|more| more.filled(with, Some(served)));
                more.into_iter().for_each(|more| whole.add(more));
            }
            (path.as_str().to_owned(), whole.text())
        };
        let system = self.system().iter().map(system).collect();
        FilledProfile { command, environment, files, system }
    }
}

impl Profile {
    /// Whether a conversation of this id can be resumed. An id that becomes an argument must be a word and never an
    /// option, because the agent chose it.
    pub fn takes_up(&self, conversation: &str) -> bool {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_word = conversation.starts_with(|first: char| first.is_ascii_alphanumeric())
            && conversation.bytes().all(word);
        self.resume().is_empty() || is_word
    }
}

impl ProfileTemplate {
    /// The text with its words filled in, each once: values are not searched for words.
    pub fn fill(&self, with: &ProfileContext) -> String {
        self.filled(with, None)
    }

    /// The same, for one MCP server.
    fn filled(&self, with: &ProfileContext, server: Option<&ServerEndpoint>) -> String {
        let mut filled = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some((at, word)) = first_word(rest) {
            filled.push_str(&rest[..at]);
            let value = with.value(word).or_else(|| of_server(server?, word));
            filled.push_str(value.unwrap_or(&rest[at..at + word.len() + 2]));
            rest = &rest[at + word.len() + 2..];
        }
        filled + rest
    }
}

fn of_server<'a>(server: &'a ServerEndpoint, word: &str) -> Option<&'a str> {
    match word {
        "server" => Some(&server.name),
        "server_url" => Some(&server.url),
        _ => None,
    }
}

/// Content with every template filled in.
enum FilledContent {
    Text(String),
    Json(Value),
}

impl FilledContent {
    /// Appends to a text, or merges into JSON.
    fn add(&mut self, more: Self) {
        match (self, more) {
            (Self::Text(text), more) => text.push_str(&more.text()),
            (Self::Json(value), Self::Json(more)) => merge(value, more),
            // JSON cannot hold lines.
            (Self::Json(_), Self::Text(_)) => {}
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(value) => format!("{value:#}\n"),
        }
    }
}

/// Merges members and appends items; everything else is replaced.
fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                match members.get_mut(&name) {
                    Some(own) => merge(own, more),
                    None => drop(members.insert(name, more)),
                }
            }
        }
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (value, more) => *value = more,
    }
}

impl FileContent {
    fn fill(&self, with: &ProfileContext) -> String {
        self.filled(with, None).text()
    }

    fn filled(&self, with: &ProfileContext, server: Option<&ServerEndpoint>) -> FilledContent {
        match self {
            Self::Text(text) => FilledContent::Text(text.filled(with, server)),
            Self::Json(members) => FilledContent::Json(fill_json(&Value::Object(members.clone()), &|text| {
                text.filled(with, server)
            })),
        }
    }
}

impl ProfileContext {
    fn value(&self, word: &str) -> Option<&str> {
        let value: &str = match word {
            "arch" => &self.arch,
            "conversation" => self.conversation.as_deref().unwrap_or_default(),
            "home" => &self.home,
            "workspace" => &self.workspace,
            "program" => &self.program,
            "node" => &self.node,
            "model" => &self.model,
            "model_url" => &self.model_url,
            "placeholder_key" => &self.placeholder_key,
            _ => return None,
        };
        Some(value)
    }
}

fn fill_json(value: &Value, fill: &dyn Fn(&ProfileTemplate) -> String) -> Value {
    let text = |text: &str| fill(&ProfileTemplate(text.to_owned()));
    match value {
        Value::String(words) => Value::String(text(words)),
        Value::Array(items) => items.iter().map(|item| fill_json(item, fill)).collect(),
        Value::Object(members) => {
            let filled = members.iter().map(|(name, value)| (text(name), fill_json(value, fill)));
            Value::Object(filled.collect::<Map<String, Value>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The words in braces of a text. Braces around anything but small letters and `_` are text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (at, word) = first_word(rest)?;
        rest = &rest[at + word.len() + 2..];
        Some(word)
    })
}

/// The first word in braces, and the place of its brace.
fn first_word(text: &str) -> Option<(usize, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let inner = &text[at + 1..];
        let (word, _) = inner.split_once('}')?;
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_word.then_some((at, word))
    })
}
