//! Agents that speak ACP: JSON-RPC, one message per line. How they are started, kept and judged is the crate root's.
//!
//! [`wire`] is JSON-RPC; [`handshake`] the first words; [`turn`] a turn, with [`permission_options`] for how its questions are answered and
//! [`passthrough_meta`] for what it says beside its words. Of the client's side, files and terminals are offered where the profile says so:
//! both are calls of the house's own; [`terminal_request`] is what a terminal is to run, [`terminals`] those of a turn.

mod handshake;
mod passthrough_meta;
mod permission_options;
mod terminal_request;
mod terminals;
mod turn;
mod wire;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent_protocol::{Conversation, FirstWords, Message, Told, Tongue, Turn, Unmet};
use crate::connection::Link;
use crate::pool::Live;
use crate::profile::Protocol;
use tribune_runtime::TurnInput;
use tribune_runtime::content::ContentBlock;

/// The name of this backend.
pub const BACKEND: &str = Protocol::Acp.backend();

/// Bytes of one line. The longest that a real agent was seen to write has 12 kB; pictures have more.
const MAX_LINE_BYTES: usize = 4 << 20;

/// How a question for leave is called.
const ASK: &str = "session/request_permission";

/// The Agent Client Protocol.
pub(crate) struct Acp;

#[async_trait]
impl Tongue for Acp {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn protocol(&self) -> Protocol {
        Protocol::Acp
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
        match method {
            ASK => wire::response(id, &permission_options::cancelled()),
            _ => wire::error(id, wire::INTERNAL, "no turn is running: nothing is done"),
        }
    }

    /// A call that is begun. What is told late of one that was begun before is no harm.
    fn is_work(&self, told: &Value) -> bool {
        let update = &told["update"];
        match update["sessionUpdate"].as_str() {
            Some("tool_call") => update["kind"] != "think",
            Some("tool_call_update") => update["status"] == "in_progress",
            _ => false,
        }
    }

    fn call<'a>(&self, told: &'a Value) -> Option<(&'a str, Told)> {
        let update = match told.get("toolCall") {
            Some(asked) => return Some((asked["toolCallId"].as_str()?, Told::UnderWay)),
            None => &told["update"],
        };
        let is_call = update["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("tool_call"));
        let told = match update["status"].as_str() {
            None | Some("pending") => Told::ToCome,
            Some(_) => Told::UnderWay,
        };
        Some((update["toolCallId"].as_str().filter(|_| is_call)?, told))
    }

    async fn shake_hands(&self, link: &Link, first: FirstWords<'_>) -> Result<Conversation, Unmet> {
        handshake::shake_hands(link, first).await.map_err(Unmet::Failed)
    }

    fn begin(&self, live: &Live, input: &TurnInput, prompt: &[ContentBlock]) -> Box<dyn Turn> {
        Box::new(turn::AcpTurn::begin(live, input, prompt))
    }
}
