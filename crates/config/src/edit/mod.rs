//! Edits a configuration that a person wrote, and keeps its comments and whitespace.
//!
//! The text is not serialized again, and no crate does it: the one for JSON5 (`json-five` 0.3.1) writes block comments without
//! their last character. [`scan`] locates the members of an object, and one piece of text is inserted between them.
//! The result is parsed by the real parser and must differ from the old configuration in the one provider only.

mod file;
mod provider;
pub(super) mod scan;
#[cfg(test)]
mod tests;

pub use file::add_provider;
pub use provider::{DeclaredModel, NewProvider};

use std::io;
use std::path::PathBuf;

use self::scan::{Object, object};
use super::{Config, ConfigError, ProviderConfig};

/// One step of indentation, as in the example.
const STEP: &str = "  ";

/// What happens to an entry that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Replace,
}

/// Why a provider was not added. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The existing text is invalid.
    #[error(transparent)]
    Before(ConfigError),
    /// The edited text would be invalid. Without a position, because that text is never written.
    #[error("config.json5 is unchanged, because the edited file would be invalid: {0}")]
    After(String),
    /// Names the argument that contains the secret, never the value.
    #[error(
        "{0} contains something that looks like a key: keys come from the environment only, so name the variable that holds the key \
         with --key-env; this key is now in the history of your shell, so rotate it"
    )]
    Secret(&'static str),
    #[error(
        "--key-env takes the name of a variable, such as EXAMPLE_API_KEY, never the key itself: if this was a key, rotate it, because \
         it is now in the history of your shell"
    )]
    NoVariable,
    #[error("`{path}` cannot be written ({error}): check its mode and owner; nothing was changed", path = .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(
        "`{0}` is already in config.json5 with other values: change it there, give only --model to add a model to it, or replace \
         the entry with --replace"
    )]
    Exists(String),
    #[error(
        "`{provider}:{model}` is already in config.json5: change it there, or replace the provider with --replace"
    )]
    ModelExists { provider: String, model: String },
    #[error(
        "the key would be sent to `{0}` without encryption: use https, or an address of this machine; nothing was changed"
    )]
    Insecure(String),
    #[error(
        "config.json5 has a form that cannot be edited automatically: add `{0}` under models.providers by hand"
    )]
    Unclear(String),
}

/// The text with the provider added. Error messages call it `file_name`.
pub(crate) fn with_provider(
    file_name: &str,
    text: &str,
    provider: &NewProvider,
    existing: Existing,
) -> Result<String, EditError> {
    let before = Config::parse(file_name, text).map_err(EditError::Before)?;
    provider.check()?;
    let unclear = || EditError::Unclear(provider.id.clone());
    let known = before.models.providers.get(&provider.id).filter(|known| known.is_configured).cloned();
    let changed = match (&known, existing) {
        (Some(known), Existing::Keep) => with_models(text, provider, known)?.ok_or_else(unclear)?,
        (None, _) | (_, Existing::Replace) => put(text, provider).ok_or_else(unclear)?,
    };
    let after = Config::parse(file_name, &changed).map_err(|error| match error {
        ConfigError::Text(error) => EditError::After(error.message),
        other => EditError::After(other.to_string()),
    })?;
    if let Some(after) = after.models.providers.get(&provider.id) {
        let url = &after.base_url;
        if after.key_env.is_some() && !url.is_https() && !url.is_loopback() {
            return Err(EditError::Insecure(url.to_string()));
        }
    }
    if !differ_by_one(before, after, &provider.id) {
        return Err(unclear());
    }
    Ok(changed)
}

/// Adds or replaces the provider's entry. `None` if [`scan`] does not understand the text.
fn put(text: &str, provider: &NewProvider) -> Option<String> {
    let id = provider.id.as_str();
    let root = object(text, 0)?;
    let Some(models) = root.member("models") else {
        let entry = |indent: &str| {
            let (one, two) = (format!("{indent}{STEP}"), format!("{indent}{STEP}{STEP}"));
            let written = provider.written(&two);
            format!("models: {{\n{one}providers: {{\n{two}{written},\n{one}}},\n{indent}}}")
        };
        return Some(insert(text, &root, entry));
    };
    let models = object(text, models.start)?;
    let Some(providers) = models.member("providers") else {
        let entry = |indent: &str| {
            let one = format!("{indent}{STEP}");
            format!("providers: {{\n{one}{},\n{indent}}}", provider.written(&one))
        };
        return Some(insert(text, &models, entry));
    };
    let providers = object(text, providers.start)?;
    match providers.member(id) {
        None => Some(insert(text, &providers, |indent| provider.written(indent))),
        Some(value) => {
            let value_text = provider.value(indent_at(text, value.start));
            Some(format!("{}{value_text}{}", &text[..value.start], &text[value.end..]))
        }
    }
}

/// Adds models to an existing entry, whose other values must agree with the given ones.
fn with_models(
    text: &str,
    provider: &NewProvider,
    known: &ProviderConfig,
) -> Result<Option<String>, EditError> {
    if provider.models.is_empty() || !provider.agrees_with(known) {
        return Err(EditError::Exists(provider.id.clone()));
    }
    let mut changed = text.to_owned();
    for model in &provider.models {
        let Some(own) = provider_object(&changed, &provider.id) else { return Ok(None) };
        changed = match own.member("models") {
            None => insert(&changed, &own, |indent| {
                format!("models: {{\n{indent}{STEP}{},\n{indent}}}", model.written())
            }),
            Some(models) => {
                let Some(models) = object(&changed, models.start) else { return Ok(None) };
                if models.member(&model.name).is_some() {
                    let (provider, model) = (provider.id.clone(), model.name.clone());
                    return Err(EditError::ModelExists { provider, model });
                }
                insert(&changed, &models, |_| model.written())
            }
        };
    }
    Ok(Some(changed))
}

/// The entry of a provider in the text.
fn provider_object(text: &str, id: &str) -> Option<Object> {
    let models = object(text, object(text, 0)?.member("models")?.start)?;
    let providers = object(text, models.member("providers")?.start)?;
    object(text, providers.member(id)?.start)
}

/// Inserts a member after the last one of an object, on lines of its own.
fn insert(text: &str, object: &Object, entry: impl FnOnce(&str) -> String) -> String {
    let base = indent_at(text, object.close).to_owned();
    // The indentation follows the existing members, as far as one begins a line.
    let first = object.members.iter().map(|member| member.key.start).find(|start| begins_line(text, *start));
    let indent = first.map_or_else(|| format!("{base}{STEP}"), |start| indent_at(text, start).to_owned());
    let (inside, rest) = (text[..object.close].trim_end(), &text[object.close..]);
    let head = match object.members.last() {
        // A comment after the last member stays after it.
        Some(last) if !object.ends_with_comma => {
            format!("{},{}", &inside[..last.value.end], &inside[last.value.end..])
        }
        _ => inside.to_owned(),
    };
    format!("{head}\n{indent}{},\n{base}{rest}", entry(&indent))
}

/// The indentation of the line that contains `place`.
fn indent_at(text: &str, place: usize) -> &str {
    let line = text[..place].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = &text[line..place];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

fn begins_line(text: &str, place: usize) -> bool {
    let line = text[..place].rfind('\n').map_or(0, |newline| newline + 1);
    line > 0 && text[line..place].bytes().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// Whether the two configurations differ in this provider only.
fn differ_by_one(mut before: Config, mut after: Config, id: &str) -> bool {
    before.models.providers.remove(id);
    let is_there = after.models.providers.remove(id).is_some_and(|provider| provider.is_configured);
    is_there && before == after
}
