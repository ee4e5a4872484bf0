//! Decides whether a request fits into a model's context window, before it is sent.
//!
//! Only the provider can count tokens exactly, so this module uses an upper bound: a token of a byte-level vocabulary
//! covers at least one byte, so a text has at most as many tokens as bytes. Constants bound what a provider adds around
//! messages and tools. The bound is loose (English has about four bytes per token). Once a provider has reported the
//! token count of a request, that count replaces the bound for everything that the request contained, and only new
//! messages are bounded. Tribune's own texts (system prompt and tool definitions) are prose and JSON written by people:
//! two ASCII bytes of them count as one token, so that they fit into a small context window before any usage was
//! reported.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::catalog::ModelLimits;
use super::event::TokenUsage;
use super::message::{AssistantPart, ChatMessage, ModelRequest, UserPart};
use super::model_ref::ModelRef;

/// Overhead of the whole request.
const REQUEST_TOKENS: u64 = 64;

/// Overhead of a message or of one of its parts: role, separators, ids.
const PART_TOKENS: u64 = 16;

/// The provider's own instructions about tools, present if there are any tools. Anthropic's is the longest known, about
/// 500.
const TOOLS_TOKENS: u64 = 1024;

/// Overhead of one tool definition.
const TOOL_TOKENS: u64 = 32;

/// An image. Providers scale images down; the largest for Claude has about 4800 tokens, and other providers use fewer.
/// This is a declared value, not a derived one: it does not bound a provider that uses more.
const IMAGE_TOKENS: u64 = 5_000;

/// The smallest context window assumed for a local server. The window that it declares is often the value it was
/// started with, not the one of the model.
pub const MINIMUM_CONTEXT_TOKENS: u32 = 8_192;

/// Upper bound of the tokens in the prompt.
pub fn estimate_tokens(request: &ModelRequest) -> u64 {
    prefix_tokens(request) + request.messages.iter().map(message_tokens).sum::<u64>()
}

fn bytes(text: &str) -> u64 {
    text.len() as u64
}

/// Token bound of Tribune's own text: prose and JSON, which contain no random character runs.
fn own_text_tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    ascii.div_ceil(2) + (bytes(text) - ascii)
}

/// Upper bound of the tokens before the messages: system prompt and tools.
pub fn prefix_tokens(request: &ModelRequest) -> u64 {
    let system: u64 = request.system.iter().map(|part| own_text_tokens(part) + PART_TOKENS).sum();
    let tools = request.tools.iter().map(|tool| {
        TOOL_TOKENS
            + own_text_tokens(&tool.name)
            + own_text_tokens(&tool.description)
            + own_text_tokens(&tool.input_schema.to_string())
    });
    let tool_preamble = if request.tools.is_empty() { 0 } else { TOOLS_TOKENS };
    REQUEST_TOKENS + system + tool_preamble + tools.sum::<u64>()
}

/// Upper bound of the tokens in a message.
pub fn message_tokens(message: &ChatMessage) -> u64 {
    let parts: u64 = match message {
        ChatMessage::User(parts) => parts.iter().map(|part| PART_TOKENS + user_part_tokens(part)).sum(),
        ChatMessage::Assistant(parts) => {
            parts.iter().map(|part| PART_TOKENS + assistant_part_tokens(part)).sum()
        }
        ChatMessage::Results(results) => {
            results.iter().map(|result| 2 * PART_TOKENS + bytes(&result.id) + bytes(&result.content)).sum()
        }
    };
    PART_TOKENS + parts
}

fn user_part_tokens(part: &UserPart) -> u64 {
    match part {
        UserPart::Text(text) => bytes(text),
        UserPart::Image { .. } => IMAGE_TOKENS,
    }
}

/// The signature of a summarized thought contains the full thought, so both count.
fn assistant_part_tokens(part: &AssistantPart) -> u64 {
    let signed = |signature: &Option<String>| signature.as_deref().map_or(0, bytes);
    match part {
        AssistantPart::Thinking { text, signature } => bytes(text) + signed(signature),
        AssistantPart::RedactedThinking { data } => bytes(data),
        AssistantPart::ReasoningDetail(detail) => bytes(&detail.to_string()),
        AssistantPart::Text(text) => bytes(text),
        AssistantPart::ToolUse { id, name, arguments, signature } => {
            bytes(id) + bytes(name) + bytes(arguments) + signed(signature)
        }
    }
}

/// Replaces the bound of a conversation's prefix by the usage that the provider reported for it. Holds hashes, no text.
#[derive(Debug, Clone, Default)]
pub struct TokenCalibration {
    measured: Option<Measured>,
}

#[derive(Debug, Clone)]
struct Measured {
    /// Hash of everything before the messages.
    head: u64,
    /// Hash of each message.
    messages: Vec<u64>,
    tokens: u64,
}

impl TokenCalibration {
    /// Records the usage that the provider reported for exactly this request. Usage without prompt tokens is ignored.
    pub fn record_usage(&mut self, request: &ModelRequest, usage: &TokenUsage) {
        if usage.prompt() > 0 {
            let messages = request.messages.iter().map(fingerprint).collect();
            self.measured =
                Some(Measured { head: head_fingerprint(request), messages, tokens: usage.prompt() });
        }
    }

    /// Upper bound of the tokens in the prompt: the reported number for the measured prefix, if the request starts with
    /// it, plus the bound of the rest.
    pub fn estimate(&self, request: &ModelRequest) -> u64 {
        let known = |measured: &Measured| {
            let (known, new) = request.messages.split_at_checked(measured.messages.len())?;
            let is_measured = measured.head == head_fingerprint(request)
                && known.iter().map(fingerprint).eq(measured.messages.iter().copied());
            is_measured.then(|| measured.tokens.saturating_add(new.iter().map(message_tokens).sum()))
        };
        self.measured.as_ref().and_then(known).unwrap_or_else(|| estimate_tokens(request))
    }
}

fn head_fingerprint(request: &ModelRequest) -> u64 {
    fingerprint(&(&request.model, &request.system, &request.tools, request.thinking))
}

/// A hash without collision resistance. That is enough: a forged collision only makes the estimate wrong.
fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A request does not fit into the context window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request may need {estimated} tokens plus {reserved} for the answer, and the context window of {model} \
     has {window}: shorten the conversation or start a new one"
)]
pub struct OverBudgetError {
    pub estimated: u64,
    pub reserved: u32,
    pub window: u32,
    pub model: ModelRef,
}

impl OverBudgetError {
    pub const fn code(&self) -> &'static str {
        "over_budget"
    }
}

/// The context window of a model: the declared one, but at least [`MINIMUM_CONTEXT_TOKENS`] for a local server.
pub fn context_window(limits: &ModelLimits, is_local: bool) -> u32 {
    if is_local { limits.context_window.max(MINIMUM_CONTEXT_TOKENS) } else { limits.context_window }
}

/// Tokens to reserve for the answer: the requested number, capped at the model's output limit.
pub fn output_reserve(requested: u32, limits: &ModelLimits) -> u32 {
    requested.min(limits.max_output_tokens)
}

/// Fails if the estimate plus the reserve for the answer exceeds the context window.
pub fn check_fits(
    estimated: u64,
    reserved: u32,
    window: u32,
    model: &ModelRef,
) -> Result<(), OverBudgetError> {
    if estimated.saturating_add(u64::from(reserved)) <= u64::from(window) {
        return Ok(());
    }
    Err(OverBudgetError { estimated, reserved, window, model: model.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::built_in_provider;
    use crate::tool_spec::ToolSpec;

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: vec!["s".repeat(1000)],
            messages,
            tools: vec![ToolSpec {
                name: "read".into(),
                description: "Reads.".into(),
                input_schema: json!({}),
            }],
            max_output_tokens: 100,
            thinking: None,
        }
    }

    fn usage(input: u64, cache_read: u64) -> TokenUsage {
        TokenUsage { input, output: 9, cache_read, cache_written: 0 }
    }

    #[test]
    fn estimate_counts_every_byte_of_a_message() {
        let short = estimate_tokens(&request(vec![ChatMessage::user("")]));
        assert!(short >= 500, "two bytes of Tribune's own prose count as one token");
        assert_eq!(estimate_tokens(&request(vec![ChatMessage::user("ä")])), short + 2);
        let image = ChatMessage::User(vec![UserPart::Image {
            mime_type: "image/png".into(),
            data: "A".repeat(1 << 20),
        }]);
        assert_eq!(estimate_tokens(&request(vec![image])), short + IMAGE_TOKENS);
    }

    #[test]
    fn reported_usage_replaces_the_bound_of_the_measured_prefix() {
        let mut correction = TokenCalibration::default();
        let first = request(vec![ChatMessage::user("x".repeat(5000))]);
        assert_eq!(correction.estimate(&first), estimate_tokens(&first));
        correction.record_usage(&first, &usage(300, 1200));
        assert_eq!(correction.estimate(&first), 1500);
        let next = ChatMessage::Assistant(vec![AssistantPart::Text("y".repeat(10))]);
        let mut second = first.clone();
        second.messages.push(next.clone());
        assert_eq!(correction.estimate(&second), 1500 + message_tokens(&next));
        // The measurement does not apply to another first message, another model or other tools.
        let other = request(vec![ChatMessage::user("z".repeat(5000)), next]);
        assert_eq!(correction.estimate(&other), estimate_tokens(&other));
        let elsewhere = ModelRequest { model: "n".into(), ..first.clone() };
        assert_eq!(correction.estimate(&elsewhere), estimate_tokens(&elsewhere));
        let bare = ModelRequest { tools: Vec::new(), ..first.clone() };
        assert_eq!(correction.estimate(&bare), estimate_tokens(&bare));
        let empty = request(Vec::new());
        assert_eq!(correction.estimate(&empty), estimate_tokens(&empty));
        // Empty usage does not replace a measurement.
        correction.record_usage(&second, &TokenUsage::default());
        assert_eq!(correction.estimate(&first), 1500);
    }

    #[test]
    fn fits_accepts_exactly_the_context_window() {
        let model: ModelRef = "moonshot:kimi-k1-32k".parse().unwrap();
        let limits = built_in_provider("moonshot").unwrap().limits(model.model()).unwrap();
        let reserved = output_reserve(100_000, &limits);
        assert_eq!(reserved, 4096);
        let window = context_window(&limits, false);
        assert_eq!(check_fits(28_672, reserved, window, &model), Ok(()));
        let error = check_fits(28_673, reserved, window, &model).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the request may need 28673 tokens plus 4096 for the answer, and the context window of \
             moonshot:kimi-k1-32k has 32768: shorten the conversation or start a new one"
        );
        assert!(check_fits(u64::MAX, 1, window, &model).is_err());
    }

    #[test]
    fn minimum_window_applies_to_local_servers_only() {
        let tiny = ModelLimits { context_window: 2048, ..built_in_provider("moonshot").unwrap().models[0].1 };
        assert_eq!(context_window(&tiny, true), MINIMUM_CONTEXT_TOKENS);
        assert_eq!(context_window(&tiny, false), 2048);
    }
}
