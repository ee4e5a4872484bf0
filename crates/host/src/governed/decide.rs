//! A person's decision, and what follows from it: a turn that waits goes on by itself; a call that outlived its turn is
//! taken up here.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tribune_agents::SessionKey;
use tribune_constitution::Labels;

use super::Governance;
use crate::approval::action::Action;
use crate::approval::grant::Terms;
use crate::approval::record::{Requested, Runner};
use crate::approval::{ApprovalError, Approver, Outcome, Wish};
use crate::gate::schema_pin;
use crate::redact::Redactor;
use crate::store::StoreError;

/// How often the inbox is looked through for what nobody decided in time.
const EXPIRY_TICK: Duration = Duration::from_secs(1);

impl Governance {
    /// Whether turns are being ended because the daemon or everyone is stopped.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled() || self.gate.is_frozen()
    }

    /// From now on turns end because the daemon does.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
        self.work.close();
    }

    /// Decides about an approval.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: &str,
        wish: Wish,
        who: Approver,
    ) -> Result<Outcome, ApprovalError> {
        if self.gate.is_frozen() && wish.decision.allows() {
            return Err(ApprovalError::Frozen);
        }
        let name = id.to_owned();
        let row = self.readers.read(move |reader| reader.approval(&name)).await?;
        let Some(row) = row else { return Err(ApprovalError::Unknown(id.to_owned())) };
        let action = self.action_of(&row.requested).await?;
        let terms = Terms {
            schema: schema_pin(&row.requested.tool),
            input: action.map(|action| action.input),
            output: Labels::of_output(self.gate.law.manifest(&row.requested.tool), None),
            holds_secret: |text| Redactor::new().redact(text) != text,
        };
        let outcome = self.gate.inbox.decide(id, wish, who, terms).await?;
        if outcome.is_orphan && outcome.missing == 0 && outcome.requested.runner == Runner::Host {
            self.finish(outcome.requested.id.clone());
        }
        Ok(outcome)
    }

    /// Takes up a decided call that no turn waits for, whoever still listens.
    pub(super) fn finish(self: &Arc<Self>, id: String) {
        let governance = Arc::clone(self);
        self.work.spawn(async move {
            if let Err(error) = governance.resume_decided(&id).await {
                tracing::error!(approval = id, code = error.code, "a decided call could not be taken up");
            }
        });
    }

    /// The exact action of a request, if its words are still there.
    pub(crate) async fn action_of(
        self: &Arc<Self>,
        requested: &Requested,
    ) -> Result<Option<Action>, StoreError> {
        let (governance, requested) = (Arc::clone(self), requested.clone());
        let read = tokio::task::spawn_blocking(move || {
            if requested.session.parse::<SessionKey>().is_err() {
                return Ok(None);
            }
            let session = governance.readers.now(|reader| reader.session(&requested.session))?;
            let Some(session) = session else { return Ok(None) };
            let words = governance.vault.content(&session.id, &requested.action.to_string())?;
            Ok(words.and_then(|json| serde_json::from_slice(&json).ok()))
        });
        read.await.map_err(|_| StoreError::Closed)?
    }

    /// Refuses what nobody decided in time, until the daemon stops.
    pub(crate) async fn expire_approvals(self: Arc<Self>, stopping: CancellationToken) {
        let mut tick = tokio::time::interval(EXPIRY_TICK);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stopping.cancelled() => return,
            }
            for requested in self.gate.inbox.expire().await {
                self.finish(requested.id);
            }
        }
    }
}
