//! Selects the script that a turn plays. Only the text of the user decides.

use std::sync::Arc;

use super::answer::answer;
use super::error::{ScriptError, quoted};
use super::parse::parse;
use super::scenes::Scenes;
use super::script::{Script, ScriptStep};
use crate::error::{ErrorKind, RuntimeError};
use crate::runtime::TurnInput;
use crate::suggest_name::suggest_name;

/// Begins a line of a script in a message.
const INLINE: char = '!';

/// The script for this text.
pub(super) fn script_for(text: &str, scenes: &Scenes, input: &TurnInput) -> Arc<Script> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (Some("/scenes"), None) => recite(listing(scenes)),
        (Some("/play"), Some(name)) => scenes.script(name).unwrap_or_else(|| recite(no_such(name, scenes))),
        (Some("/play"), None) => recite(format!("Which scene? Write `/play NAME`.\n\n{}", listing(scenes))),
        _ => match inline(text) {
            Some(Ok(script)) => Arc::new(script),
            Some(Err(error)) => {
                let error =
                    RuntimeError::new(ErrorKind::BadScript, format!("The script is wrong in {error}"));
                Arc::new(Script::of(ScriptStep::Abort(error)))
            }
            None => recite(answer(text, input)),
        },
    }
}

fn recite(text: String) -> Arc<Script> {
    Arc::new(Script::of(ScriptStep::Recite(text)))
}

/// Every line that is not blank begins with `!`, and there is one.
fn inline(text: &str) -> Option<Result<Script, ScriptError>> {
    let mut lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty()).peekable();
    lines.peek()?;
    if !lines.all(|line| line.starts_with(INLINE)) {
        return None;
    }
    // A space in its place keeps every column where the writer sees it.
    let source: Vec<String> = text.lines().map(|line| line.replacen(INLINE, " ", 1)).collect();
    Some(parse(&source.join("\n")))
}

fn no_such(name: &str, scenes: &Scenes) -> String {
    let meant = suggest_name(name, scenes.names())
        .map_or_else(String::new, |nearest| format!(" Did you mean `/play {nearest}`?"));
    format!("There is no scene `{}`.{meant}\n\n{}", quoted(name), listing(scenes))
}

fn listing(scenes: &Scenes) -> String {
    let mut lines = vec!["The scenes, each played with `/play NAME`:\n".to_owned()];
    for (name, description) in scenes.descriptions() {
        lines.push(if description.is_empty() {
            format!("- `{name}`")
        } else {
            format!("- `{name}`: {description}")
        });
    }
    lines.join("\n")
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
