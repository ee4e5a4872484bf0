//! Wire types of the gateway: parameters and results of the methods, for JSON-RPC and REST alike. Unknown members are refused, so
//! that a misspelled option is an error and not silently ignored.

mod agents;
mod approvals;
mod connection;
mod daemon;
mod ledger;
mod sessions;

pub(crate) use agents::{AgentAdd, AgentInfo, AgentList, AgentRef, AgentTest, AgentTested, TestStep};
pub(crate) use approvals::{
    ApprovalDecide, ApprovalInfo, ApprovalList, ApprovalPage, ById, DecisionBody, DecisionResult, Frozen,
    Grants, Past, Replaced,
};
pub(crate) use connection::{
    AuthAgent, AuthDaemon, AuthToken, Challenge, DaemonProof, Done, ErrorBody, ErrorInfo, WhoAmI,
};
pub(crate) use daemon::{CanaryInfo, DaemonStatus};
pub(crate) use ledger::{
    CheckpointInfo, Entries, EntryInfo, EntryName, LedgerTail, NoteWrite, NotesWritten, Written,
};
pub(crate) use sessions::{
    Cancelled, EventPage, Following, Forgotten, History, MessageInfo, Newest, SessionEvents, SessionInfo,
    SessionInit, SessionList, SessionNewest, SessionPage, SessionRef, TurnContent, TurnInfo, TurnResult,
    TurnRun, Turns, Unfollow,
};
