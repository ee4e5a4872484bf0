//! Parses the bytes of a streamed response into events. The result does not depend on how the bytes are chunked.
//!
//! Pure: it does not depend on HTTP, time or the provider.

use super::decode_error::DecodeError;
use super::endpoint::ApiDialect;
use super::event::ModelEvent;
use super::ids::CallIds;
use super::limits::MAX_STREAM_BYTES;
use super::sse::SseReader;
use super::{anthropic, openai};

/// Parses one response.
pub struct StreamParser {
    sse: SseReader,
    reader: DialectReader,
    bytes: usize,
    /// The first error; every later call returns it again.
    error: Option<DecodeError>,
}

enum DialectReader {
    Anthropic(anthropic::MessageDecoder),
    OpenAi(openai::CompletionDecoder),
    /// A dialect that is only relayed.
    Unsupported,
}

impl std::fmt::Debug for StreamParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamParser")
            .field("bytes", &self.bytes)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl StreamParser {
    /// `ids` are the call ids that the conversation has used.
    pub fn new(dialect: ApiDialect, ids: CallIds) -> Self {
        let reader = match dialect {
            ApiDialect::Anthropic => DialectReader::Anthropic(anthropic::MessageDecoder::new(ids)),
            ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => {
                DialectReader::OpenAi(openai::CompletionDecoder::new(ids))
            }
            ApiDialect::Gemini => DialectReader::Unsupported,
        };
        Self { sse: SseReader::new(), reader, bytes: 0, error: None }
    }

    /// Parses the next bytes. On an error, `out` still contains the events before it.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
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
                DialectReader::Anthropic(reader) => reader.event(event.event.as_deref(), data, out),
                DialectReader::OpenAi(reader) => reader.event(event.event.as_deref(), data, out),
                DialectReader::Unsupported => Err(DecodeError::malformed("its dialect is only relayed")),
            }
        });
        if result.is_ok() && accepted.len() < bytes.len() {
            result = Err(DecodeError::too_large("the answer", MAX_STREAM_BYTES));
        }
        self.store_error(result)
    }

    /// Handles the end of the body.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let result = match &mut self.reader {
            DialectReader::Anthropic(reader) => reader.finish(out),
            DialectReader::OpenAi(reader) => reader.finish(out),
            DialectReader::Unsupported => Ok(()),
        };
        self.store_error(result)
    }

    fn store_error(&mut self, result: Result<(), DecodeError>) -> Result<(), DecodeError> {
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }
}
