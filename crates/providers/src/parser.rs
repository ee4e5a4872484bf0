//! Bytes of an answer in, events out, whatever the chunks they come in.
//!
//! Pure: it knows nothing of HTTP, time or whose answer it is.

use super::decode_error::Fault;
use super::endpoint::Dialect;
use super::event::ModelEvent;
use super::ids::CallIds;
use super::limits::MAX_STREAM_BYTES;
use super::sse::SseReader;
use super::{anthropic, openai};

/// Reads one answer.
pub struct Parser {
    sse: SseReader,
    reader: Reader,
    bytes: usize,
    /// Once something is wrong, it stays so.
    fault: Option<Fault>,
}

enum Reader {
    Anthropic(anthropic::Reader),
    OpenAi(openai::Reader),
    /// Of a dialect that is only handed through.
    Unspoken,
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
    /// `ids` are those that the conversation has used.
    pub fn new(dialect: Dialect, ids: CallIds) -> Self {
        let reader = match dialect {
            Dialect::Anthropic => Reader::Anthropic(anthropic::Reader::new(ids)),
            Dialect::OpenAi | Dialect::OpenAiCompatible => Reader::OpenAi(openai::Reader::new(ids)),
            Dialect::Gemini => Reader::Unspoken,
        };
        Self { sse: SseReader::new(), reader, bytes: 0, fault: None }
    }

    /// Takes more bytes. Events that came before a fault are in `out` all the same.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let room = MAX_STREAM_BYTES - self.bytes;
        let taken = &bytes[..bytes.len().min(room)];
        self.bytes += taken.len();
        let reader = &mut self.reader;
        let mut result = self.sse.push(taken, |event| {
            let Some(data) = event.data.as_deref().map(str::trim).filter(|data| !data.is_empty()) else {
                return Ok(());
            };
            match reader {
                Reader::Anthropic(reader) => reader.event(event.event.as_deref(), data, out),
                Reader::OpenAi(reader) => reader.event(event.event.as_deref(), data, out),
                Reader::Unspoken => Err(Fault::malformed("it is in a dialect that is only handed through")),
            }
        });
        if result.is_ok() && taken.len() < bytes.len() {
            result = Err(Fault::too_large("the answer", MAX_STREAM_BYTES));
        }
        self.keep(result)
    }

    /// The body has ended.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let result = match &mut self.reader {
            Reader::Anthropic(reader) => reader.finish(out),
            Reader::OpenAi(reader) => reader.finish(out),
            Reader::Unspoken => Ok(()),
        };
        self.keep(result)
    }

    fn keep(&mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        if let Err(fault) = &result {
            self.fault = Some(fault.clone());
        }
        result
    }
}
