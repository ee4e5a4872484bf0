//! Leave to carry out one call.

use std::sync::Arc;

use tribune_constitution::Labels;
use tribune_ledger::Cid;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::store::Appended;

use crate::turn::Durable;

/// Leave to carry out one call, once. Everything that acts for an agent takes one by value; only the gate gives one out,
/// and only when the verdict that allows the call is durable.
///
/// Nobody else can make one:
///
/// ```compile_fail,E0451
/// use tribune_governance::gate::Admission;
/// fn forged(call: tribune_runtime::ToolCall, session: std::sync::Arc<tribune_runtime::SessionKey>) -> Admission {
///     let (entry, labels) = (tribune_ledger::Cid::from_bytes([0; 32]), tribune_constitution::Labels::FRESH);
///     let ground = tribune_records::workspace_roots::Ground::own(session.agent().clone());
///     Admission { call, session, entry, labels, ground }
/// }
/// ```
///
/// as they can of their own that has the same fields:
///
/// ```
/// use tribune_runtime::{SessionKey, ToolCall};
/// struct Own {
///     call: ToolCall,
///     session: std::sync::Arc<SessionKey>,
///     entry: tribune_ledger::Cid,
///     labels: tribune_constitution::Labels,
///     ground: tribune_records::workspace_roots::Ground,
/// }
/// fn made(call: ToolCall, session: std::sync::Arc<SessionKey>) -> Own {
///     let (entry, labels) = (tribune_ledger::Cid::from_bytes([0; 32]), tribune_constitution::Labels::FRESH);
///     let ground = tribune_records::workspace_roots::Ground::own(session.agent().clone());
///     Own { call, session, entry, labels, ground }
/// }
/// ```
///
/// and without one no tool runs:
///
/// ```compile_fail,E0308
/// use tribune_governance::turn::ToolExecutor;
/// async fn unasked(tools: &dyn ToolExecutor, call: tribune_runtime::ToolCall) {
///     tools.run(call, None).await;
/// }
/// ```
///
/// while with one it does:
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
    /// Where the session works.
    ground: WorkspaceRoots,
}

#[cfg(any(test, feature = "fakes"))]
impl Admission {
    /// For tests of what acts: as if the gate had said yes.
    pub fn of_test(call: ToolCall, session: SessionKey) -> Self {
        let ground = WorkspaceRoots::own(session.agent().clone());
        Self::of_test_in(call, session, ground)
    }

    /// The same in a session that works there.
    pub fn of_test_in(call: ToolCall, session: SessionKey, ground: WorkspaceRoots) -> Self {
        let (entry, labels) = (Cid::from_bytes([0; 32]), Labels::FRESH);
        Self { call, session: Arc::new(session), entry, labels, ground }
    }
}

impl Admission {
    /// Leave for a call whose verdict stands in a history beside its session's.
    // INVARIANT: the ledger's writer tells of an entry only when it is durable.
    pub(crate) fn appended(
        leave: super::AllowToken,
        call: ToolCall,
        session: Arc<SessionKey>,
        verdict: &Appended,
    ) -> Self {
        let ground = WorkspaceRoots::own(session.agent().clone());
        Self { call, session, entry: verdict.cid, labels: leave.labels, ground }
    }

    pub const fn call(&self) -> &ToolCall {
        &self.call
    }

    pub const fn session(&self) -> &Arc<SessionKey> {
        &self.session
    }

    /// Where the session works.
    pub fn ground(&self) -> WorkspaceRoots {
        self.ground.clone()
    }

    /// The call's entry.
    pub const fn entry(&self) -> Cid {
        self.entry
    }

    /// What the session had taken in when the call was allowed.
    pub const fn labels(&self) -> Labels {
        self.labels
    }
}

/// An allowed call whose verdict is still being written.
#[derive(Debug)]
#[must_use = "a ticket that is not redeemed is a call that is never made"]
pub(crate) struct Ticket {
    pub(super) admission: Admission,
    /// The verdict's place in its session's history.
    pub(super) place: u64,
}

impl Ticket {
    pub(crate) fn new(
        leave: super::AllowToken,
        call: ToolCall,
        (session, ground): (Arc<SessionKey>, WorkspaceRoots),
        entry: Cid,
        place: u64,
    ) -> Self {
        let labels = leave.labels;
        Self { admission: Admission { call, session, entry, labels, ground }, place }
    }

    /// The admission, once the verdict is durable. `None` if `written` does not reach that far.
    pub(crate) fn redeem(self, written: &Durable) -> Option<Admission> {
        (written.reaches(self.place)).then_some(self.admission)
    }
}
