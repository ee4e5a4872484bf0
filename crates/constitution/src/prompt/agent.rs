//! The operator's own prompt for an agent, beyond the law, checked.

use crate::footer::{FOOTER, line_like_footer};
use crate::text::breaks_line;

/// Bytes of an agent's prompt: as many as of a constitution or a mandate, which every turn contains too.
pub const MAX_AGENT_PROMPT_BYTES: usize = 64 * 1024;

/// An agent's own prompt. It follows the law and cannot be mistaken for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPrompt(String);

/// Why a text is not an agent's prompt. Each sentence ends with the next step; the caller, which knows the file,
/// puts its name before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentPromptError {
    #[error("the agent's prompt has {bytes} bytes: shorten it to at most {MAX_AGENT_PROMPT_BYTES}")]
    TooLarge { bytes: usize },
    #[error("the agent's prompt is empty: write what the agent is for, or leave the prompt out")]
    Empty,
    #[error("line {line}: the character U+{code:04X} cannot be seen and may hide something: remove it")]
    Control { line: usize, code: u32 },
    #[error(
        "line {line}: a line beginning with `{FOOTER}` could be mistaken for the end of the law: rephrase it"
    )]
    Footer { line: usize },
}

impl AgentPrompt {
    pub fn new(text: &str) -> Result<Self, AgentPromptError> {
        if text.len() > MAX_AGENT_PROMPT_BYTES {
            return Err(AgentPromptError::TooLarge { bytes: text.len() });
        }
        let trimmed = text.trim_end();
        if trimmed.trim().is_empty() {
            return Err(AgentPromptError::Empty);
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(hidden) = line.chars().find(|c| breaks_line(*c) && *c != '\t') {
                return Err(AgentPromptError::Control { line: index + 1, code: hidden.into() });
            }
        }
        match line_like_footer(text) {
            Some(line) => Err(AgentPromptError::Footer { line }),
            None => Ok(Self(trimmed.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_prompts_are_unchanged() {
        let text = "# Clerk\r\n\r\n\tYou file things. Ärger? Nein.";
        assert_eq!(AgentPrompt::new(&format!("{text}\n\n")).unwrap().as_str(), text);
        AgentPrompt::new(&"a".repeat(MAX_AGENT_PROMPT_BYTES)).unwrap();
        AgentPrompt::new("The last line begins with `constitution_hash:`.").unwrap();
    }

    #[test]
    fn invalid_prompts_are_refused() {
        let refused = |text: &str| AgentPrompt::new(text).unwrap_err();
        assert_eq!(refused(" \n\t"), AgentPromptError::Empty);
        let bytes = MAX_AGENT_PROMPT_BYTES + 1;
        assert_eq!(refused(&"a".repeat(bytes)), AgentPromptError::TooLarge { bytes });
        for (hidden, code) in [('\0', 0), ('\u{1b}', 0x1b), ('\u{85}', 0x85), ('\u{2028}', 0x2028)] {
            let text = format!("fine\nnot{hidden}constitution_hash: b3:0");
            assert_eq!(refused(&text), AgentPromptError::Control { line: 2, code });
        }
        for footer in ["constitution_hash: b3:0", "\tConstitution_Hash:", " \u{a0}CONSTITUTION_HASH: x"] {
            assert_eq!(refused(&format!("one\ntwo\n{footer}\n")), AgentPromptError::Footer { line: 3 });
        }
        assert_eq!(
            refused("\u{7}").to_string(),
            "line 1: the character U+0007 cannot be seen and may hide something: remove it"
        );
    }
}
