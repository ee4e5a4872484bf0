//! Parses the bytes of a streamed response into events. The result does not depend on how the bytes are chunked.
//!
//! Pure: it does not depend on HTTP, time or the provider.

use super::endpoint::Dialect;
use super::event::ModelEvent;
use super::fault::Fault;
use super::ids::CallIds;
use super::limits::MAX_STREAM_BYTES;
use super::sse::SseReader;
use super::{anthropic, openai};

/// Parses one response.
pub struct Parser {
    sse: SseReader,
    reader: Reader,
    bytes: usize,
    /// The first error; every later call returns it again.
    fault: Option<Fault>,
}

enum Reader {
    Anthropic(anthropic::Reader),
    OpenAi(openai::Reader),
    /// A dialect that is only relayed.
    Unsupported,
}

impl std::fmt::Debug for Parser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parser")
            .field("bytes", &self.bytes)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Parser {
    /// `ids` are the call ids that the conversation has used.
    pub fn new(dialect: Dialect, ids: CallIds) -> Self {
        let reader = match dialect {
            Dialect::Anthropic => Reader::Anthropic(anthropic::Reader::new(ids)),
            Dialect::OpenAi | Dialect::OpenAiCompatible => Reader::OpenAi(openai::Reader::new(ids)),
            Dialect::Gemini => Reader::Unsupported,
        };
        Self { sse: SseReader::new(), reader, bytes: 0, fault: None }
    }

    /// Parses the next bytes. On an error, `out` still contains the events before it.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let remaining = MAX_STREAM_BYTES - self.bytes;
        let accepted = &bytes[..bytes.len().min(remaining)];
        self.bytes += accepted.len();
        let reader = &mut self.reader;
        let mut result = self.sse.push(accepted, |event| {
            let Some(data) = event.data.as_deref().map(str::trim).filter(|data| !data.is_empty()) else {
                return Ok(());
            };
            match reader {
                Reader::Anthropic(reader) => reader.event(event.event.as_deref(), data, out),
                Reader::OpenAi(reader) => reader.event(event.event.as_deref(), data, out),
                Reader::Unsupported => Err(Fault::malformed("its dialect is only relayed")),
            }
        });
        if result.is_ok() && accepted.len() < bytes.len() {
            result = Err(Fault::too_large("the answer", MAX_STREAM_BYTES));
        }
        self.store_error(result)
    }

    /// Handles the end of the body.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let result = match &mut self.reader {
            Reader::Anthropic(reader) => reader.finish(out),
            Reader::OpenAi(reader) => reader.finish(out),
            Reader::Unsupported => Ok(()),
        };
        self.store_error(result)
    }

    fn store_error(&mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        if let Err(fault) = &result {
            self.fault = Some(fault.clone());
        }
        result
    }
}
