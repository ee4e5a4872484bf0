//! The text of a new provider entry.

use tribune_providers::{ApiDialect, BaseUrl};
use tribune_redact::Redactor;

use super::{EditError, STEP};
use crate::models::dialect_name;
use crate::{ProviderConfig, is_variable};

/// A provider to add. Missing values are those of the built-in provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewProvider {
    pub id: String,
    pub dialect: Option<ApiDialect>,
    pub base_url: Option<String>,
    pub key_env: Option<String>,
    pub is_local: bool,
    pub models: Vec<DeclaredModel>,
}

/// A model with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredModel {
    pub name: String,
    pub context_window: u64,
    pub max_output_tokens: u64,
}

impl NewProvider {
    /// Rejects a value that may be an API key, in any argument.
    pub(super) fn check(&self) -> Result<(), EditError> {
        let models = self.models.iter().map(|model| ("--model", model.name.as_str()));
        let others = [
            ("the provider's name", Some(self.id.as_str())),
            ("--base-url", self.base_url.as_deref()),
            ("--key-env", self.key_env.as_deref()),
        ];
        let mut given = others.into_iter().filter_map(|(name, value)| Some((name, value?))).chain(models);
        let redactor = Redactor::new();
        if let Some((name, _)) = given.find(|(_, value)| redactor.contains_secret(value)) {
            return Err(EditError::Secret(name));
        }
        match &self.key_env {
            Some(name) if !is_variable(name) => Err(EditError::NoVariable),
            _ => Ok(()),
        }
    }

    /// Whether every given value except the models equals the existing entry.
    pub(super) fn agrees_with(&self, known: &ProviderConfig) -> bool {
        let url = self.base_url.as_deref().map(BaseUrl::parse);
        self.dialect.is_none_or(|dialect| dialect == known.dialect)
            && url.is_none_or(|url| url.is_ok_and(|url| url == known.base_url))
            && self.key_env.as_ref().is_none_or(|env| known.key_env.as_ref() == Some(env))
            && (!self.is_local || known.is_local)
    }

    /// The entry as a member of `models.providers`; lines after the first are indented.
    pub(super) fn written(&self, indent: &str) -> String {
        format!("{}: {}", key(&self.id), self.value(indent))
    }

    /// The value without its key.
    pub(super) fn value(&self, indent: &str) -> String {
        let mut lines = Vec::new();
        lines.extend(self.dialect.map(|kind| format!("kind: {}", quoted(dialect_name(kind)))));
        lines.extend(self.base_url.as_deref().map(|url| format!("baseUrl: {}", quoted(url))));
        lines.extend(self.key_env.as_deref().map(|env| format!("keyEnv: {}", quoted(env))));
        if self.is_local {
            lines.push("local: true".to_owned());
        }
        if !self.models.is_empty() {
            let inner = format!("{indent}{STEP}");
            let model = |model: &DeclaredModel| format!("{inner}{STEP}{},\n", model.written());
            let models: String = self.models.iter().map(model).collect();
            lines.push(format!("models: {{\n{models}{inner}}}"));
        }
        let body: String = lines.iter().map(|line| format!("{indent}{STEP}{line},\n")).collect();
        if body.is_empty() { "{}".to_owned() } else { format!("{{\n{body}{indent}}}") }
    }
}

impl DeclaredModel {
    /// The entry as a member of `models`.
    pub(super) fn written(&self) -> String {
        let Self { name, context_window, max_output_tokens } = self;
        format!("{}: {{ contextWindow: {context_window}, maxOutputTokens: {max_output_tokens} }}", key(name))
    }
}

/// A key, quoted where JSON5 requires it.
fn key(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { name.to_owned() } else { quoted(name) }
}

/// A JSON string is a JSON5 string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
