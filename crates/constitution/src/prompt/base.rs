//! The base prompt: what every agent of Tribune's own loop is told first.
//!
//! Its words lie in a versioned file, not in the code, and the build fails if they differ from their declared hash.
//! Agents of other backends bring a base prompt of their own and are not given this one.

/// The first part of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasePrompt {
    /// Names these words; other words have another id.
    pub version_id: &'static str,
    /// Of the file, in lowercase hex digits.
    pub sha256: &'static str,
    /// Confidential, see [`super::Disclosure`].
    pub content: &'static str,
}

/// The base prompt in force.
pub const fn base_prompt() -> BasePrompt {
    BasePrompt {
        version_id: "TRIBUNE_BASE_PROMPT_V1",
        sha256: include_str!("../../prompts/tribune_base_prompt_v1.sha256").trim_ascii_end(),
        content: include_str!("../../prompts/tribune_base_prompt_v1.txt"),
    }
}
