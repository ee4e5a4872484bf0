//! Clients for model providers: requests in two API dialects, responses as one stream of events.
//!
//! Where to start reading: [`message`] for the messages of a request, [`event`] for the events of a response, [`client`]
//! for the HTTP client, [`catalog`] for the built-in providers, [`budget`] for whether a request fits into a context
//! window. [`wire_encoder`] goes the other way: it writes what a provider sends, for scripted models.
//!
//! What it deliberately does not do: execute tool calls, store conversations, choose a provider or a model, or fall
//! back to another one when one fails. It reads no environment variables and writes no log.

pub mod answer;
mod anthropic;
mod arguments;
mod body;
pub mod budget;
pub mod catalog;
pub mod client;
pub mod decode_error;
pub mod endpoint;
pub mod error;
pub mod error_body;
pub mod event;
pub mod ids;
pub mod key;
pub mod limits;
pub mod message;
pub mod model_ref;
mod openai;
pub mod parser;
pub mod relay;
mod retry;
mod sanitize;
mod sse;
pub mod stream;
mod tool_spec;
mod transport;
pub mod wire_encoder;

pub use answer::ModelResponse;
pub use budget::{MINIMUM_CONTEXT_TOKENS, OverBudgetError, TokenCalibration, check_fits, estimate_tokens};
pub use catalog::{BuiltInProvider, ModelLimits, ThinkingForm, built_in_provider};
pub use client::ProviderClient;
pub use decode_error::DecodeError;
pub use endpoint::{ApiDialect, BaseUrl, BaseUrlError, ProviderEndpoint, RequestTimeouts};
pub use error::ProviderError;
pub use event::{FinishReason, ModelEvent, TokenUsage};
pub use ids::CallIds;
pub use key::ApiKey;
pub use message::{AssistantPart, ChatMessage, ModelRequest, Thinking, ToolResult, UserPart};
pub use model_ref::{ModelRef, ModelRefError};
pub use parser::StreamParser;
pub use stream::ModelStream;
pub use tool_spec::ToolSpec;
