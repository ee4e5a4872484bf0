//! Templates, filled in with what a session knows.

use serde_json::{Map, Value};

use super::{Content, HomePath, Profile, Template};

/// The words that a template may hold.
pub(super) const NAMES: [&str; 9] =
    ["arch", "conversation", "home", "workspace", "program", "node", "model", "model_url", "placeholder_key"];

/// What a session knows, as paths and addresses are inside its box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The machine, as npm calls it: `x64` or `arm64`.
    pub arch: String,
    /// The agent's own name for what was said before, if it is to take that up.
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
    /// Where the model is asked, without a path.
    pub model_url: String,
    /// What stands where a key would. The real one is put in outside.
    pub placeholder_key: String,
}

/// A profile with nothing left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Program and arguments. Never empty.
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Paths beneath the home folder, and what stands there.
    pub files: Vec<(String, String)>,
    /// Paths beneath `/etc`, and what stands there.
    pub system: Vec<(String, String)>,
}

impl Profile {
    /// Fills in what a session knows.
    pub fn fill(&self, with: &Surroundings) -> Filled {
        let resume = with.conversation.as_ref().map_or(&[][..], |_| self.resume());
        let command = self.command().iter().chain(resume).map(|part| part.fill(with)).collect();
        let variable = |(name, value): (&String, &Template)| (name.clone(), value.fill(with));
        let environment = self.environment().iter().map(variable).collect();
        let file = |(path, content): (&HomePath, &Content)| (path.as_str().to_owned(), content.fill(with));
        let (files, system) = (self.files().iter().map(file), self.system().iter().map(file));
        Filled { command, environment, files: files.collect(), system: system.collect() }
    }
}

impl Profile {
    /// Whether a conversation of this name can be taken up. A name that becomes an argument is a word and never an option: it is
    /// the agent that gave it.
    pub fn takes_up(&self, conversation: &str) -> bool {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_word = conversation.starts_with(|first: char| first.is_ascii_alphanumeric())
            && conversation.bytes().all(word);
        self.resume().is_empty() || is_word
    }
}

impl Template {
    /// The text with its words filled in, each once: what is filled in is not looked through again.
    pub fn fill(&self, with: &Surroundings) -> String {
        let mut filled = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some((at, word)) = first_word(rest) {
            filled.push_str(&rest[..at]);
            filled.push_str(with.value(word).unwrap_or(&rest[at..at + word.len() + 2]));
            rest = &rest[at + word.len() + 2..];
        }
        filled + rest
    }
}

impl Content {
    fn fill(&self, with: &Surroundings) -> String {
        match self {
            Self::Text(text) => text.fill(with),
            Self::Json(members) => format!("{:#}\n", fill_json(&Value::Object(members.clone()), with)),
        }
    }
}

impl Surroundings {
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

fn fill_json(value: &Value, with: &Surroundings) -> Value {
    let text = |text: &str| Template(text.to_owned()).fill(with);
    match value {
        Value::String(words) => Value::String(text(words)),
        Value::Array(items) => items.iter().map(|item| fill_json(item, with)).collect(),
        Value::Object(members) => {
            let filled = members.iter().map(|(name, value)| (text(name), fill_json(value, with)));
            Value::Object(filled.collect::<Map<String, Value>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The words in braces of a text. Braces around anything but small letters and `_` are braces.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (at, word) = first_word(rest)?;
        rest = &rest[at + word.len() + 2..];
        Some(word)
    })
}

/// The first word in braces, and where its brace stands.
fn first_word(text: &str) -> Option<(usize, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let inner = &text[at + 1..];
        let (word, _) = inner.split_once('}')?;
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_word.then_some((at, word))
    })
}
