//! The labels that enter a session without a call: with a connection out of its sandbox, and with an MCP server.

use tribune_constitution::Trust;
use tribune_constitution::labels::Labels;

/// Added to a session by a connection: the other side sends what it likes.
pub const EGRESS_LABELS: Labels = Labels::UNKNOWN;

/// Added to a session by an MCP server that starts: the descriptions of its tools. The operator chose the program, so they
/// count like files and programs of this machine. What its tools answer counts for less.
pub const MCP_SERVER_LABELS: Labels = Labels::new(Trust::Verified, false);
