//! Claude Code, in its own stream-json: `claude -p` with JSON on both streams, one message per line, many turns in one process. How it
//! is started, kept and judged is the crate root's.
//!
//! Beside what it says, both sides send each other control requests ([`wire`]). With the first of them ([`handshake`]) we ask to be
//! called back before each of its calls, whatever its own settings say of that; and it asks for leave once more for calls that its
//! settings name. Both are one question ([`permission`]). [`turn`] is a turn, with [`stream_dedup`] for words that come in pieces and again as
//! a whole, and [`tool_kinds`] for what its tools are called elsewhere.

mod handshake;
mod permission;
mod stream_dedup;
mod tool_kinds;
mod turn;
mod wire;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent_protocol::{Conversation, FirstWords, Message, Tongue, Turn, Unmet};
use crate::connection::Link;
use crate::pool::Live;
use crate::profile::Protocol;
use tribune_runtime::TurnInput;
use tribune_runtime::content::ContentBlock;

/// The name of this backend.
pub const BACKEND: &str = Protocol::ClaudeStreamJson.backend();

/// The profile that agents of this backend have if they name none.
pub const PROFILE: &str = "claude-code";

/// Bytes of one line. A picture that it read is told twice in one.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Claude Code's stream-json.
pub(crate) struct ClaudeCode;

#[async_trait]
impl Tongue for ClaudeCode {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn protocol(&self) -> Protocol {
        Protocol::ClaudeStreamJson
    }

    fn max_line_bytes(&self) -> usize {
        MAX_LINE_BYTES
    }

    fn parse(&self, line: &str) -> Option<Message> {
        wire::parse(line)
    }

    fn request(&self, id: u64, method: &str, params: &Value) -> String {
        wire::request(id, method, params)
    }

    fn refuse_unheard(&self, id: &Value, method: &str) -> String {
        permission::refuse(id, method, "no turn is running: nothing is done")
    }

    /// A call that was carried out. One that is only announced is asked about, and refused.
    fn is_work(&self, told: &Value) -> bool {
        turn::results(told).any(|result| result.status() != tool_kinds::Status::Failed)
    }

    async fn shake_hands(&self, link: &Link, first: FirstWords<'_>) -> Result<Conversation, Unmet> {
        handshake::shake_hands(self, link, first).await
    }

    fn begin(&self, live: &Live, input: &TurnInput, prompt: &[ContentBlock]) -> Box<dyn Turn> {
        Box::new(turn::ClaudeTurn::begin(live, input, prompt))
    }
}
