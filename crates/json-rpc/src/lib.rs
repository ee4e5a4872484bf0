//! JSON-RPC 2.0: parses the members of a message, writes messages, and reads lines of bounded length.
//!
//! [`RpcMessage`] accepts any JSON object and reports what it found, because the protocols over JSON-RPC differ in what
//! they refuse: Tribune RPC refuses unknown members, ACP is extended with them, MCP servers send anything. Each user
//! checks its own rules on the parsed members.
//!
//! This crate has no transport, dispatches no methods, matches no responses to requests, and has no batches.

mod depth;
mod error_object;
mod line_buffer;
mod line_reader;
mod request_id;
mod rpc_message;
mod write;

pub use depth::is_deeper_than;
pub use error_object::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
};
pub use line_buffer::{LineBuffer, LineTooLong, Pushed};
pub use line_reader::{BoundedLine, LineEnd, LineError, LineReader};
pub use request_id::RequestId;
pub use rpc_message::{Repeated, RpcMessage, decode_member};
pub use write::{NULL_ID, error_response, notification, request, response};
