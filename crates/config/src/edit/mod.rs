//! Changes a configuration that a person wrote, without losing a comment or a blank of theirs.
//!
//! The text is never written anew: [`scan`] finds where an object's members are, and one piece of text is put between them.
//! What comes out is read by the real reader, and must differ from what was there by the one provider and nothing else.

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

/// Blanks of one step of indentation, as the example has it.
const STEP: &str = "  ";

/// What happens to an entry that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Replace,
}

/// Why a provider was not added. The text is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// As it was, before anything was touched.
    #[error(transparent)]
    Before(ConfigError),
    /// As it would have become; the place would be one that nobody can look at.
    #[error("config.json5 stays as it is, for it would be refused: {0}")]
    After(String),
    /// What was given where; it is not repeated, for that is how secrets spread.
    #[error(
        "{0} holds what looks like a key: keys come from the environment alone, so name the variable that holds it with --key-env; \
         this one is in the history of your shell now, have it replaced"
    )]
    Secret(&'static str),
    #[error(
        "--key-env takes the name of a variable, such as HOUSE_API_KEY, and never the key: if it was one, have it replaced, for it \
         is in the history of your shell now"
    )]
    NoVariable,
    #[error("`{path}` cannot be written ({error}): check its mode and owner; nothing was changed", path = .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(
        "`{0}` is in config.json5 already and says something else: change it there, give --model alone to add a model to it, or put \
         another in its place with --replace"
    )]
    Exists(String),
    #[error(
        "`{provider}:{model}` is in config.json5 already: change it there, or write the provider anew with --replace"
    )]
    ModelExists { provider: String, model: String },
    #[error(
        "a key would go to `{0}` for everyone on the way to read: write https, or name an address of this machine; nothing was \
         changed"
    )]
    Insecure(String),
    #[error(
        "config.json5 is written in a way that cannot be changed here: add `{0}` under models.providers by hand"
    )]
    Unclear(String),
}

/// The text with a provider more. `file_name` is what messages call it.
pub fn with_provider(
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
        ConfigError::At { message, .. } => EditError::After(message),
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

/// `None` if the text has another form than a configuration that was read.
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

/// Adds the models of a provider to what the text says of it. The rest of it must be what is there.
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

/// What the text says of a provider.
fn provider_object(text: &str, id: &str) -> Option<Object> {
    let models = object(text, object(text, 0)?.member("models")?.start)?;
    let providers = object(text, models.member("providers")?.start)?;
    object(text, providers.member(id)?.start)
}

/// Puts a member behind the last one of an object, on lines of its own.
fn insert(text: &str, object: &Object, entry: impl FnOnce(&str) -> String) -> String {
    let base = indent_at(text, object.close).to_owned();
    // Members that are there show how far they are indented; they count only where they begin a line.
    let first = object.members.iter().map(|member| member.key.start).find(|start| begins_line(text, *start));
    let indent = first.map_or_else(|| format!("{base}{STEP}"), |start| indent_at(text, start).to_owned());
    let (inside, rest) = (text[..object.close].trim_end(), &text[object.close..]);
    let head = match object.members.last() {
        // What stands behind the last member, such as a comment, stays behind it.
        Some(last) if !object.ends_with_comma => {
            format!("{},{}", &inside[..last.value.end], &inside[last.value.end..])
        }
        _ => inside.to_owned(),
    };
    format!("{head}\n{indent}{},\n{base}{rest}", entry(&indent))
}

/// The blanks at the beginning of the line on which a place is.
fn indent_at(text: &str, place: usize) -> &str {
    let line = text[..place].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = &text[line..place];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

fn begins_line(text: &str, place: usize) -> bool {
    let line = text[..place].rfind('\n').map_or(0, |newline| newline + 1);
    line > 0 && text[line..place].bytes().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// Whether nothing but this one provider is another than before.
fn differ_by_one(mut before: Config, mut after: Config, id: &str) -> bool {
    before.models.providers.remove(id);
    let is_there = after.models.providers.remove(id).is_some_and(|provider| provider.is_configured);
    is_there && before == after
}
