//! Chat Completions, as OpenAI and those who took it up speak it.

mod calls;
mod read;
pub(super) mod reasoning;
pub(super) mod usage;
mod write;

pub(super) use read::Reader;
pub(super) use write::body;
