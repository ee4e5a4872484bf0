//! Whether a request fits into a model, decided before anything is sent.
//!
//! Nobody but the provider can count tokens exactly, so an upper bound is used: a token of a byte-level vocabulary covers at
//! least one byte of text, so text has at most as many tokens as bytes. What a provider adds around messages and tools is
//! bounded by constants. The bound is generous (English has about four bytes to a token), so once a provider has reported
//! how many tokens a request had, that number stands for everything that was in it, and only what is new is bounded. The
//! house's own texts, the system prompt and the tools, are prose and JSON that people wrote: two of their ASCII bytes are
//! taken for one token, so that they fit into a small model before anything was reported.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use super::catalog::ModelLimits;
use super::event::TokenUsage;
use super::message::{AssistantPart, ModelRequest, Said, UserPart};
use super::model_ref::ModelRef;

/// What a provider puts around the whole request.
const REQUEST_TOKENS: u64 = 64;

/// What a provider puts around a message or one of its parts: role, separators, ids.
const PART_TOKENS: u64 = 16;

/// What a provider tells a model about tools if there are any. Anthropic's is the longest known, with some 500.
const TOOLS_TOKENS: u64 = 1024;

/// What a provider puts around a tool.
const TOOL_TOKENS: u64 = 32;

/// An image. Providers scale images down; the largest that Claude sees has some 4800 tokens, and the others' have fewer. This
/// is declared and not derived: a provider with larger ones is not bounded by it.
const IMAGE_TOKENS: u64 = 5_000;

/// The least window that a local server is taken to have. Its declared window is often what it was started with, not what
/// the model has.
pub const MINIMUM_CONTEXT_TOKENS: u32 = 8_192;

/// At most how many tokens the prompt has.
pub fn estimate(request: &ModelRequest) -> u64 {
    head(request) + request.messages.iter().map(message).sum::<u64>()
}

fn bytes(text: &str) -> u64 {
    text.len() as u64
}

/// Tokens of the house's own text: words and JSON, in which no run of letters is without meaning.
fn own(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    ascii.div_ceil(2) + (bytes(text) - ascii)
}

/// At most how many tokens everything before the messages has.
pub fn head(request: &ModelRequest) -> u64 {
    let system: u64 = request.system.iter().map(|part| own(part) + PART_TOKENS).sum();
    let tools = request.tools.iter().map(|tool| {
        TOOL_TOKENS + own(&tool.name) + own(&tool.description) + own(&tool.input_schema.to_string())
    });
    let telling = if request.tools.is_empty() { 0 } else { TOOLS_TOKENS };
    REQUEST_TOKENS + system + telling + tools.sum::<u64>()
}

/// At most how many tokens a message has.
pub fn message(said: &Said) -> u64 {
    let parts: u64 = match said {
        Said::User(parts) => parts.iter().map(|part| PART_TOKENS + user(part)).sum(),
        Said::Assistant(parts) => parts.iter().map(|part| PART_TOKENS + assistant(part)).sum(),
        Said::Results(results) => {
            results.iter().map(|result| 2 * PART_TOKENS + bytes(&result.id) + bytes(&result.content)).sum()
        }
    };
    PART_TOKENS + parts
}

fn user(part: &UserPart) -> u64 {
    match part {
        UserPart::Text(text) => bytes(text),
        UserPart::Image { .. } => IMAGE_TOKENS,
    }
}

/// A thought that is shown in short is whole in its signature, so both count.
fn assistant(part: &AssistantPart) -> u64 {
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

/// What reported usage has taught about one conversation. It holds hashes, not words.
#[derive(Debug, Clone, Default)]
pub struct Correction {
    measured: Option<Measured>,
}

#[derive(Debug, Clone)]
struct Measured {
    /// Of everything before the messages.
    head: u64,
    messages: Vec<u64>,
    tokens: u64,
}

impl Correction {
    /// Takes what the provider reported for exactly this request. A report of nothing is none.
    pub fn learn(&mut self, request: &ModelRequest, usage: &TokenUsage) {
        if usage.prompt() > 0 {
            let messages = request.messages.iter().map(fingerprint).collect();
            self.measured =
                Some(Measured { head: head_fingerprint(request), messages, tokens: usage.prompt() });
        }
    }

    /// At most how many tokens the prompt has: the reported number for what was measured, if the request begins with it, and
    /// the bound for the rest.
    pub fn estimate(&self, request: &ModelRequest) -> u64 {
        let known = |measured: &Measured| {
            let (known, new) = request.messages.split_at_checked(measured.messages.len())?;
            let is_measured = measured.head == head_fingerprint(request)
                && known.iter().map(fingerprint).eq(measured.messages.iter().copied());
            is_measured.then(|| measured.tokens.saturating_add(new.iter().map(message).sum()))
        };
        self.measured.as_ref().and_then(known).unwrap_or_else(|| estimate(request))
    }
}

fn head_fingerprint(request: &ModelRequest) -> u64 {
    fingerprint(&(&request.model, &request.system, &request.tools, request.thinking))
}

/// Tells values apart that are not made to collide, which is enough: whoever makes them collide only fools the estimate.
fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A request that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request may have {estimated} tokens, and with {reserved} for the answer {model} has room for {window}: \
     shorten the conversation or begin a new one"
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

/// The window of a model: as declared, but on this machine not under [`MINIMUM_CONTEXT_TOKENS`].
pub fn window(limits: &ModelLimits, is_local: bool) -> u32 {
    if is_local { limits.context_window.max(MINIMUM_CONTEXT_TOKENS) } else { limits.context_window }
}

/// Tokens to keep free for the answer: what is asked for, within what the model can give.
pub fn reserve(asked: u32, limits: &ModelLimits) -> u32 {
    asked.min(limits.max_output_tokens)
}

/// Whether an estimate and the reserve for the answer fit into a window.
pub fn fits(estimated: u64, reserved: u32, window: u32, model: &ModelRef) -> Result<(), OverBudgetError> {
    if estimated.saturating_add(u64::from(reserved)) <= u64::from(window) {
        return Ok(());
    }
    Err(OverBudgetError { estimated, reserved, window, model: model.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::built_in;
    use crate::tool_spec::ToolSpec;

    fn request(messages: Vec<Said>) -> ModelRequest {
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
    fn every_byte_counts() {
        let short = estimate(&request(vec![Said::user("")]));
        assert!(short >= 500, "two bytes of our own prose to a token");
        assert_eq!(estimate(&request(vec![Said::user("ä")])), short + 2);
        let image =
            Said::User(vec![UserPart::Image { mime_type: "image/png".into(), data: "A".repeat(1 << 20) }]);
        assert_eq!(estimate(&request(vec![image])), short + IMAGE_TOKENS);
    }

    #[test]
    fn what_was_measured_is_known_and_the_rest_is_bounded() {
        let mut correction = Correction::default();
        let first = request(vec![Said::user("x".repeat(5000))]);
        assert_eq!(correction.estimate(&first), estimate(&first));
        correction.learn(&first, &usage(300, 1200));
        assert_eq!(correction.estimate(&first), 1500);
        let next = Said::Assistant(vec![AssistantPart::Text("y".repeat(10))]);
        let mut second = first.clone();
        second.messages.push(next.clone());
        assert_eq!(correction.estimate(&second), 1500 + message(&next));
        // Nothing is known of another beginning, another model or other tools.
        let other = request(vec![Said::user("z".repeat(5000)), next]);
        assert_eq!(correction.estimate(&other), estimate(&other));
        let elsewhere = ModelRequest { model: "n".into(), ..first.clone() };
        assert_eq!(correction.estimate(&elsewhere), estimate(&elsewhere));
        let bare = ModelRequest { tools: Vec::new(), ..first.clone() };
        assert_eq!(correction.estimate(&bare), estimate(&bare));
        let empty = request(Vec::new());
        assert_eq!(correction.estimate(&empty), estimate(&empty));
        // A server that reports nothing teaches nothing.
        correction.learn(&second, &TokenUsage::default());
        assert_eq!(correction.estimate(&first), 1500);
    }

    #[test]
    fn a_window_is_full_to_the_token() {
        let model: ModelRef = "moonshot:kimi-k1-32k".parse().unwrap();
        let limits = built_in("moonshot").unwrap().limits(model.model()).unwrap();
        let reserved = reserve(100_000, &limits);
        assert_eq!(reserved, 4096);
        let window = window(&limits, false);
        assert_eq!(fits(28_672, reserved, window, &model), Ok(()));
        let error = fits(28_673, reserved, window, &model).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the request may have 28673 tokens, and with 4096 for the answer moonshot:kimi-k1-32k has room for 32768: \
             shorten the conversation or begin a new one"
        );
        assert!(fits(u64::MAX, 1, window, &model).is_err());
    }

    #[test]
    fn only_local_windows_have_a_minimum() {
        let tiny = ModelLimits { context_window: 2048, ..built_in("moonshot").unwrap().models[0].1 };
        assert_eq!(window(&tiny, true), MINIMUM_CONTEXT_TOKENS);
        assert_eq!(window(&tiny, false), 2048);
    }
}
