//! The base prompt: the first text of every agent of Tribune's own loop.
//!
//! The text is in a versioned file, not in the code, and the build fails if it differs from its declared hash. CLI
//! agents have base prompts of their own and do not get this one.

/// The first layer of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasePrompt {
    /// The id of this text; another text has another id.
    pub version_id: &'static str,
    /// The hash of the file, in lowercase hex digits.
    pub sha256: &'static str,
    /// The text. Confidential, see [`super::DisclosureFilter`].
    pub content: &'static str,
}

/// The base prompt in force.
pub const fn base_prompt() -> BasePrompt {
    BasePrompt {
        version_id: "TRIBUNE_BASE_PROMPT_V2",
        sha256: include_str!("../../prompts/tribune_base_prompt_v2.sha256").trim_ascii_end(),
        content: include_str!("../../prompts/tribune_base_prompt_v2.txt"),
    }
}
