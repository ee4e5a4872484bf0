//! Characters that make a command look different from what it is.

use super::{CommandSyntaxError, SimpleCommand};
use crate::text::sanitize;

/// Refuses control characters except tab and newline, blanks outside ASCII, and every character that is invisible
/// or changes the direction of the text.
pub(super) fn check_visible(text: &str) -> Result<(), CommandSyntaxError> {
    match text.char_indices().find(|&(_, c)| is_hidden(c)) {
        Some((at, c)) => Err(CommandSyntaxError::Invisible { at, code: u32::from(c) }),
        None => Ok(()),
    }
}

/// Programs, options and the names of variables are ASCII; words after them may be in any script.
pub(super) fn check_ascii(commands: &[SimpleCommand]) -> Result<(), CommandSyntaxError> {
    for simple in commands {
        let options = simple.words.iter().skip(1).filter(|word| word.text.starts_with(is_dash));
        let names = simple.assignments.iter().map(|assignment| assignment.name.as_str());
        let program = simple.words.first();
        let mut checked = program.into_iter().chain(options).map(|word| word.text.as_str()).chain(names);
        if let Some(word) = checked.find(|word| !word.is_ascii()) {
            return Err(CommandSyntaxError::LookAlike { word: sanitize(word) });
        }
    }
    Ok(())
}

/// Whether a character is invisible, or changes the direction of the text around it.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\t' | '\n' | ' ' => false,
        c if c.is_control() || c.is_whitespace() => true,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{115F}' | '\u{1160}' => true,
        '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' => true,
        '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' => true,
        '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFF}' => true,
        '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{10FFFF}' => true,
        _ => false,
    }
}

/// A hyphen, or a character that looks like one.
fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{58A}' | '\u{5BE}' | '\u{1806}' | '\u{2010}'..='\u{2015}' | '\u{2043}' | '\u{2212}')
        || matches!(
            c,
            '\u{2E3A}' | '\u{2E3B}' | '\u{30FC}' | '\u{FE31}' | '\u{FE58}' | '\u{FE63}' | '\u{FF0D}'
        )
}
