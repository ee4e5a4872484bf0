//! The grants that a person can be offered for a command.

use super::pattern::{Colon, is_operand, rendered_words};
use super::{CommandGrant, ParsedCommand, ShellWord};

/// Grants that cover the line, narrowest first: exactly this command, then with a wildcard for its last word. There
/// is always a first one; patterns are only offered for a single plain command whose program allows them.
pub fn suggest_grants(parsed: &ParsedCommand) -> Vec<String> {
    let exact = CommandGrant::exact(parsed).to_string();
    let [simple] = parsed.commands() else { return vec![exact] };
    let words = simple.words.as_slice();
    let mut offered: Vec<String> = [Some(rendered_words(words)), wildcard(words)]
        .into_iter()
        .flatten()
        .filter(|text| CommandGrant::parse(text).is_ok_and(|grant| grant.covers(parsed)))
        .collect();
    // The words alone mean the same and also match inside a chain; what cannot be a pattern is offered as an exact
    // line.
    if offered.is_empty() {
        offered.push(exact);
    }
    offered
}

/// The last word becomes `*`, or `dir/*` if it is in a directory.
fn wildcard(words: &[ShellWord]) -> Option<String> {
    let (last, before) = words.split_last()?;
    if before.is_empty() {
        return None;
    }
    let wild = match last.text.rsplit_once('/') {
        Some((directory, file)) if is_operand(file, Colon::Name) => format!("{directory}/*"),
        Some(_) => return None,
        None if is_operand(&last.text, Colon::Name) => "*".to_owned(),
        None => return None,
    };
    Some(format!("{} {wild}", rendered_words(before)))
}
