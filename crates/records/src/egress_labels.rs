//! The taint labels that enter a session without a call: through a connection out of its sandbox, and with an MCP server.

use tribune_constitution::Trust;
use tribune_constitution::labels::Labels;

/// The labels that a connection adds to a session: the remote side can send anything.
pub const EGRESS_LABELS: Labels = Labels::UNKNOWN;

/// The labels that the start of an MCP server adds to a session, for the descriptions of its tools. The operator chose the
/// program, so they are trusted like files and programs of this machine. The results of its tools are trusted less.
pub const MCP_SERVER_LABELS: Labels = Labels::new(Trust::Verified, false);
