//! Lands and discards the changes of a run: requests the decision, executes it and records it in the ledger.

use std::path::PathBuf;
use std::sync::Arc;

use tribune_governance::gate::SandboxWrites;
use tribune_records::ledger_payloads::WorkspaceRecord;
use tribune_runtime::SessionKey;
use tribune_tools::workspaces::{Held, Landed, Wish, Workspace};

use super::{RunError, Runs};
use crate::session::SessionError;

impl Runs {
    /// Lands changes, if the law allows it. Where an approver decides, waits for the decision or for `gone`.
    pub async fn land(
        &self,
        id: &str,
        wish: Wish,
        gone: impl Future<Output = ()>,
    ) -> Result<Landed, RunError> {
        let governance = self.sessions.governance();
        let (workspaces, id) = (self.workspaces.clone(), id.to_owned());
        let (number, most) = (random_number(), self.max_bytes);
        let planned =
            tokio::task::spawn_blocking(move || workspaces.find(&id)?.hold()?.plan(&wish, number, most));
        let Some(planned) = planned.await.map_err(|_| RunError::Leaving)?? else {
            return Ok(Landed::default());
        };
        let key = Arc::new(session_of(planned.held.workspace())?);
        let admission = governance
            .policy
            .out_of_turn
            .authorize_landing(&key, planned.call.clone(), gone)
            .await
            .map_err(|barred| RunError::Barred(barred.code, barred.message))?;
        let verdict = Some(admission.entry());
        let folder = planned.held.workspace().label.folder.clone();
        let writes = SandboxWrites::Paths(&planned.paths);
        governance.policy.out_of_turn.label_sandbox_writes(&key, &folder, writes, verdict).await?;
        let landing = tokio::task::spawn_blocking(move || {
            let landed = planned.land(admission).map_err(|error| (planned.held.mend(), error));
            (landed, planned.held)
        });
        let (landed, held) = landing.await.map_err(|_| RunError::Leaving)?;
        let record = match &landed {
            Ok(landed) => WorkspaceRecord::Landed {
                landed: landed.landed.len() as u64,
                unlanded: landed.left.len() as u64,
                traps: landed.traps,
                paths: governance.policy.out_of_turn.store_content(&key, &paths_json(&landed.landed)).await?,
            },
            Err((mended, _)) => {
                let landed = mended.as_deref().unwrap_or_default();
                let paths = governance.policy.out_of_turn.store_content(&key, &paths_json(landed)).await?;
                WorkspaceRecord::LandingFailed { landed: landed.len() as u64, paths }
            }
        };
        governance.policy.out_of_turn.record_landing(&key, verdict, &record).await?;
        let cleanup = tokio::task::spawn_blocking(move || {
            held.landing_is_over();
            held.remove_if_empty()
        });
        if let Ok(Err(error)) = cleanup.await {
            tracing::warn!(%error, "the workspace of landed changes could not be cleaned up");
        }
        Ok(landed.map_err(|(_, error)| error)?)
    }

    /// Discards changes, all of them if `paths` is empty. Returns how many there were.
    pub async fn discard(&self, id: &str, paths: Vec<PathBuf>) -> Result<u64, RunError> {
        let (workspaces, id) = (self.workspaces.clone(), id.to_owned());
        let discarding = tokio::task::spawn_blocking(move || {
            let held = workspaces.find(&id)?.hold()?;
            let key = session_of(held.workspace());
            Ok::<_, RunError>((key?, held.discard(&paths)?))
        });
        let (key, changes) = discarding.await.map_err(|_| RunError::Leaving)??;
        let record = WorkspaceRecord::Discarded { changes };
        self.sessions.governance().policy.out_of_turn.record_landing(&key, None, &record).await?;
        Ok(changes)
    }

    /// Recovers folders in which an earlier daemon left an unfinished landing, and records it. Removes unused workspaces without
    /// changes, as the end of their runs would have done, and workspaces whose creation or removal was interrupted.
    pub(super) async fn recover_workspaces(&self) -> Result<(), SessionError> {
        let workspaces = self.workspaces.clone();
        let removing = tokio::task::spawn_blocking(move || workspaces.remove_unlabelled()).await;
        for id in removing.unwrap_or_default() {
            tracing::info!(workspace = %id, "removed a workspace that an earlier daemon did not finish");
        }
        let all = self.workspaces.all().unwrap_or_default();
        for held in all.into_iter().filter_map(|workspace| workspace.hold().ok()) {
            let Some(verdict) = held.interrupted() else {
                remove_if_idle(held).await;
                continue;
            };
            let Ok(key) = session_of(held.workspace()) else { continue };
            let mending = tokio::task::spawn_blocking(move || (held.mend(), held)).await;
            let Ok((mended, held)) = mending else { continue };
            let landed = match mended {
                Ok(landed) => landed,
                Err(error) => {
                    // The next start tries again; until then it is not known what landed.
                    tracing::warn!(%error, session = %key, "an unfinished landing could not be recovered");
                    continue;
                }
            };
            let governance = self.sessions.governance();
            let paths = governance.policy.out_of_turn.store_content(&key, &paths_json(&landed)).await?;
            let record = WorkspaceRecord::LandingInterrupted { landed: landed.len() as u64, paths };
            governance.policy.out_of_turn.record_landing(&key, Some(verdict), &record).await?;
            held.landing_is_over();
            remove_if_idle(held).await;
        }
        Ok(())
    }
}

/// Removes a workspace without changes. A workspace that cannot be read counts as one with changes.
async fn remove_if_idle(held: Held) {
    let id = held.workspace().label.id.clone();
    match tokio::task::spawn_blocking(move || held.remove_if_idle()).await {
        Ok(Ok(true)) => {
            tracing::info!(workspace = %id, "removed a workspace without changes that an earlier daemon left")
        }
        Ok(Ok(false)) | Err(_) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, workspace = %id, "a workspace could not be checked for changes")
        }
    }
}

fn session_of(workspace: &Workspace) -> Result<SessionKey, SessionError> {
    Ok(workspace.label.session.parse()?)
}

fn paths_json(paths: &[String]) -> Vec<u8> {
    serde_json::to_vec(paths).unwrap_or_default()
}

/// A random number that distinguishes calls.
fn random_number() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness all numbers are 0; the ledger entries still differ.
    let _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
