//! Tool names and actions that the kernel itself refers to.
//!
//! Most of them name calls that the daemon makes on behalf of an agent. No agent can make such a call itself.

/// The call of the daemon when an agent's budget is used up: permission to spend more. It is in every mandate, no agent
/// is offered it, and a person decides.
pub const SPEND: &str = "spend";

/// The call of the daemon when a program in a sandbox wants to connect somewhere.
pub const EGRESS: &str = "egress";

/// The action of a call of [`EGRESS`] to a host on the operator's allowlist for the agent: the list replaces the
/// approval.
pub const LISTED: &str = "listed";

/// The call of the daemon before the changes of a sandbox land in the folder that they were made for. It is in every
/// mandate.
pub const LAND: &str = "landing";

/// A call of a tool of an MCP server, which agents can make. Its name is the server's, its action the tool's.
pub const MCP: &str = "mcp";

/// The call of the daemon before it starts an MCP server for a session. It is in every mandate that has [`MCP`].
pub const MCP_SERVER: &str = "mcp_server";

/// The action of a call of [`LAND`] or [`MCP_SERVER`] that the operator requested: the operator is the person that the
/// side effect needs.
pub const BY_OPERATOR: &str = "operator";
