//! The way to a model: requests in two dialects, answers as one stream of events.
//!
//! Where to start reading: [`message`] for what is asked, [`event`] for what comes back, [`client`] for how, [`catalog`] for whom, [`budget`] for
//! what fits.
//!
//! What it deliberately does not do: run calls, keep conversations, choose a provider or a model, or turn to another one when
//! one fails. It reads no environment and writes no log.

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

pub use answer::Answer;
pub use budget::{Correction, MINIMUM_CONTEXT_TOKENS, OverBudgetError, estimate, fits};
pub use catalog::{BuiltIn, ModelLimits, ThinkingForm, built_in};
pub use client::Client;
pub use decode_error::Fault;
pub use endpoint::{BaseUrl, BaseUrlError, Dialect, Endpoint, Patience};
pub use error::ProviderError;
pub use event::{Ended, ModelEvent, TokenUsage};
pub use ids::CallIds;
pub use key::ApiKey;
pub use message::{AssistantPart, ModelRequest, Said, Thinking, ToolResult, UserPart};
pub use model_ref::{ModelRef, ModelRefError};
pub use parser::Parser;
pub use stream::ModelStream;
pub use tool_spec::ToolSpec;
