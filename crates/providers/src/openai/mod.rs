//! The Chat Completions dialects: OpenAI and compatible providers.

mod calls;
mod read;
pub(super) mod reasoning;
pub(super) mod usage;
mod write;

pub(super) use read::CompletionDecoder;
pub(super) use write::body;
