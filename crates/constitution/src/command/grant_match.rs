//! Matches command lines against grants.

use super::grant::GrantForm;
use super::{CommandGrant, ParsedCommand, SimpleCommand, pattern};

/// Whether the grants cover the line: one grants exactly this line, or the line is plain and a pattern covers each
/// of its commands. Grants never combine to more than their parts: a pattern covers one simple command, and an
/// exact grant covers no part of a longer line.
pub fn covers_all(grants: &[CommandGrant], parsed: &ParsedCommand) -> bool {
    let exactly =
        |grant: &CommandGrant| matches!(&grant.form, GrantForm::Line(line) if line == parsed.line());
    if grants.iter().any(exactly) {
        return true;
    }
    parsed.is_plain()
        && parsed.commands().iter().all(|simple| grants.iter().any(|grant| covers_command(grant, simple)))
}

/// The program must be written without quotes: quotes in its name only serve to hide it.
fn covers_command(grant: &CommandGrant, simple: &SimpleCommand) -> bool {
    let words: Vec<&str> = simple.words.iter().map(|word| word.text.as_str()).collect();
    match &grant.form {
        GrantForm::Line(_) => false,
        GrantForm::Pattern(slots) => {
            simple.words.first().is_some_and(|program| program.bare) && pattern::matches(slots, &words)
        }
    }
}
