//! The permission to execute one call.

use std::sync::Arc;

use tribune_constitution::Labels;
use tribune_ledger::Cid;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::store::Appended;

use crate::turn::Durable;

/// The permission to execute one call, once. Everything that acts for an agent takes one by value. Only the gate issues one,
/// and only when the verdict that allows the call is durable.
///
/// Other code cannot construct one:
///
/// ```compile_fail,E0451
/// use tribune_governance::gate::Admission;
/// fn forged(call: tribune_runtime::ToolCall, session: std::sync::Arc<tribune_runtime::SessionKey>) -> Admission {
///     let (entry, labels) = (tribune_ledger::Cid::from_bytes([0; 32]), tribune_constitution::Labels::FRESH);
///     let ground = tribune_records::workspace_roots::WorkspaceRoots::own(session.agent().clone());
///     Admission { call, session, entry, labels, ground }
/// }
/// ```
///
/// although it can construct its own struct with the same fields:
///
/// ```
/// use tribune_runtime::{SessionKey, ToolCall};
/// struct Own {
///     call: ToolCall,
///     session: std::sync::Arc<SessionKey>,
///     entry: tribune_ledger::Cid,
///     labels: tribune_constitution::Labels,
///     ground: tribune_records::workspace_roots::WorkspaceRoots,
/// }
/// fn made(call: ToolCall, session: std::sync::Arc<SessionKey>) -> Own {
///     let (entry, labels) = (tribune_ledger::Cid::from_bytes([0; 32]), tribune_constitution::Labels::FRESH);
///     let ground = tribune_records::workspace_roots::WorkspaceRoots::own(session.agent().clone());
///     Own { call, session, entry, labels, ground }
/// }
/// ```
///
/// Without one, no tool runs:
///
/// ```compile_fail,E0308
/// use tribune_governance::turn::ToolExecutor;
/// async fn unasked(tools: &dyn ToolExecutor, call: tribune_runtime::ToolCall) {
///     tools.run(call, None).await;
/// }
/// ```
///
/// with one, it does:
///
/// ```
/// use tribune_governance::turn::ToolExecutor;
/// async fn asked(tools: &dyn ToolExecutor, admission: tribune_governance::gate::Admission) {
///     tools.run(admission, None).await;
/// }
/// ```
#[derive(Debug)]
pub struct Admission {
    call: ToolCall,
    session: Arc<SessionKey>,
    entry: Cid,
    labels: Labels,
    /// The workspace folders of the session.
    ground: WorkspaceRoots,
}

#[cfg(any(test, feature = "fakes"))]
impl Admission {
    /// For tests of executors: as if the gate had allowed the call.
    pub fn of_test(call: ToolCall, session: SessionKey) -> Self {
        let ground = WorkspaceRoots::own(session.agent().clone());
        Self::of_test_in(call, session, ground)
    }

    /// The same for a session with these workspace folders.
    pub fn of_test_in(call: ToolCall, session: SessionKey, ground: WorkspaceRoots) -> Self {
        let (entry, labels) = (Cid::from_bytes([0; 32]), Labels::FRESH);
        Self { call, session: Arc::new(session), entry, labels, ground }
    }
}

impl Admission {
    /// The admission of a call whose verdict is outside its session's history.
    // INVARIANT: the ledger writer returns an entry only when it is durable.
    pub(crate) fn appended(
        allowed: super::AllowToken,
        call: ToolCall,
        session: Arc<SessionKey>,
        verdict: &Appended,
    ) -> Self {
        let ground = WorkspaceRoots::own(session.agent().clone());
        Self { call, session, entry: verdict.cid, labels: allowed.labels, ground }
    }

    pub const fn call(&self) -> &ToolCall {
        &self.call
    }

    pub const fn session(&self) -> &Arc<SessionKey> {
        &self.session
    }

    /// The workspace folders of the session.
    pub fn ground(&self) -> WorkspaceRoots {
        self.ground.clone()
    }

    /// The call's entry.
    pub const fn entry(&self) -> Cid {
        self.entry
    }

    /// The session's labels when the call was allowed.
    pub const fn labels(&self) -> Labels {
        self.labels
    }
}

/// An allowed call whose verdict is still being written.
#[derive(Debug)]
#[must_use = "a pending admission that is not redeemed is a call that is never executed"]
pub(crate) struct PendingAdmission {
    admission: Admission,
    /// The position of the verdict in its session's history.
    place: u64,
}

impl PendingAdmission {
    pub(crate) fn new(
        allowed: super::AllowToken,
        call: ToolCall,
        session: Arc<SessionKey>,
        ground: WorkspaceRoots,
        entry: Cid,
        place: u64,
    ) -> Self {
        let labels = allowed.labels;
        Self { admission: Admission { call, session, entry, labels, ground }, place }
    }

    /// The admission, once the verdict is durable. `None` if `written` does not cover the verdict.
    pub(crate) fn redeem(self, written: &Durable) -> Option<Admission> {
        written.reaches(self.place).then_some(self.admission)
    }
}
