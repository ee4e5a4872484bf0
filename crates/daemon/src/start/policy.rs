//! Stage `policy`: loads the law, the pending approvals and the hooks, makes the folders, and builds the gate. The gate knows no
//! agents yet; stage `gate` adds them.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use tribune_governance::approval::Inbox;
use tribune_governance::gate::hooks::{HookSandbox, Hooks};
use tribune_governance::gate::{ApproverAvailability, Gate};
use tribune_governance::models::Env;
use tribune_governance::policy_files;
use tribune_providers::RequestTimeouts;
use tribune_tools::HostTools;

use super::StartContext;
use super::secrets::Secrets;
use crate::start_error::StartError;
use crate::state_folder;

/// The loaded policy.
#[derive(Debug)]
pub(crate) struct LoadedPolicy {
    /// Without the agents of the roster.
    pub(crate) gate: Gate,
    pub(crate) secrets: Secrets,
    /// Runs the background tasks of governance and of the inbox.
    pub(crate) background: TaskTracker,
}

/// Loads the policy. `env` and `timeouts` are for the providers, whose keys the gate redacts.
pub(crate) fn load(
    context: StartContext<'_>,
    env: Option<Env>,
    timeouts: RequestTimeouts,
) -> Result<LoadedPolicy, StartError> {
    let StartContext { home, config, storage } = context;
    let background = TaskTracker::new();
    let law = Arc::new(policy_files::load(home.root(), &tribune_tools::NAMES)?);
    policy_files::keep(home.root(), &law)?;
    let inbox = Inbox::load(storage.clone(), background.clone())?;
    let hook_sandbox = HookSandbox::new(home.root(), config.sandbox);
    let hooks = Hooks::new(config.hooks.clone(), hook_sandbox, background.clone());
    state_folder::make_folders(home)?;
    let secrets = Secrets::load(home, config, env, timeouts)?;
    let gate = Gate::new(law, inbox, ApproverAvailability::Someone, storage.clone())?
        .with_tools(HostTools::specs())
        .with_hooks(hooks)
        .with_redactor(Arc::clone(&secrets.redactor));
    Ok(LoadedPolicy { gate, secrets, background })
}
