//! Changes of sandboxed runs that wait to be landed: the operator lists, lands and discards them.

use std::path::{Component, Path as FsPath, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tribune_governance::turn::DenialCode;
use tribune_sessions::run::RunError;
use tribune_tools::workspaces::{Wish, Workspace, WorkspacesError};
use utoipa::ToSchema;

use super::Answer;
use crate::api::Api;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::views::{DiffView, LandingView};

/// Paths that can be named at once.
const MAX_PATHS: usize = 1_000;

/// `workspace.diff`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceDiff {
    /// The id of the run.
    pub(crate) id: String,
    /// Only these paths, and everything beneath them. If empty, all.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// Include the diffs of text files.
    #[serde(default = "yes")]
    pub(crate) texts: bool,
}

const fn yes() -> bool {
    true
}

/// Which changes to land.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LandBody {
    /// These paths, and everything beneath them. Autorun files, which programs on this machine execute or load by name, land
    /// only if they are named here themselves.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// All changes, instead of `paths`.
    #[serde(default)]
    pub(crate) all: bool,
    /// Also land autorun files without naming each.
    #[serde(default)]
    pub(crate) traps: bool,
}

/// `workspace.land`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceLand {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) all: bool,
    #[serde(default)]
    pub(crate) traps: bool,
}

/// Which changes to discard.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardBody {
    /// These paths, and everything beneath them. If empty, all changes.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
}

/// `workspace.discard`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceDiscard {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
}

/// A workspace with changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct WorkspaceInfo {
    pub(crate) id: String,
    /// The folder that the changes were made for.
    pub(crate) folder: String,
    /// The program that made them, without its arguments.
    pub(crate) program: String,
    pub(crate) session_key: String,
    pub(crate) began_at: String,
    /// Whether the program still runs.
    pub(crate) running: bool,
    pub(crate) changes: u64,
    /// How many of the changes are autorun files.
    pub(crate) traps: u64,
    pub(crate) bytes: u64,
    /// Why the changes cannot be listed, if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
}

/// All workspaces with changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct WorkspaceList {
    pub(crate) workspaces: Vec<WorkspaceInfo>,
}

/// How many changes were discarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Discarded {
    pub(crate) discarded: u64,
}

impl From<WorkspacesError> for ApiError {
    fn from(error: WorkspacesError) -> Self {
        let code = match &error {
            WorkspacesError::Name(_) | WorkspacesError::NoChange(..) => "invalid_params",
            WorkspacesError::Unknown(_) => "not_found",
            WorkspacesError::Taken(_)
            | WorkspacesError::Running(_)
            | WorkspacesError::TooLarge { .. }
            | WorkspacesError::Changes(_) => "conflict",
            WorkspacesError::File { .. } => "storage",
        };
        match error {
            WorkspacesError::Unknown(_) => Self::new(
                code,
                "there are no changes under this name: `tribune workspace list` shows all changes",
            ),
            other => Self::new(code, other.to_string()),
        }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let code = match error {
            RunError::Workspace(error) => return error.into(),
            RunError::Session(error) => return error.into(),
            RunError::Store(error) => return error.into(),
            RunError::Input(_) => "invalid_params",
            RunError::Frozen => "frozen",
            RunError::Sandbox(_) | RunError::Busy(_) => "conflict",
            RunError::Sockets(_) => "storage",
            RunError::Barred(DenialCode::Storage, _) => "storage",
            RunError::Barred(DenialCode::NoSession, _) => "not_found",
            RunError::Barred(DenialCode::Internal, _) => "internal",
            RunError::Barred(
                DenialCode::Denied
                | DenialCode::Undecided
                | DenialCode::CannotAsk
                | DenialCode::TooManyWaiting,
                _,
            ) => "forbidden",
            RunError::Leaving => "draining",
        };
        Self::new(code, error.to_string())
    }
}

impl Api {
    pub(crate) async fn workspaces(&self, who: &Principal) -> Answer<WorkspaceList> {
        who.operator()?;
        let workspaces = self.runs.workspaces.clone();
        let all = blocking(move || Ok(workspaces.all()?.iter().map(info).collect::<Vec<_>>())).await?;
        let is_listed = |info: &WorkspaceInfo| info.changes > 0 || info.running || info.fault.is_some();
        Ok(WorkspaceList { workspaces: all.into_iter().filter(is_listed).collect() })
    }

    pub(crate) async fn workspace_diff(&self, who: &Principal, asked: WorkspaceDiff) -> Answer<DiffView> {
        who.operator()?;
        let paths = inner_paths(&asked.paths)?;
        let workspaces = self.runs.workspaces.clone();
        let shown = blocking(move || workspaces.find(&asked.id)?.show(&paths, asked.texts)).await?;
        Ok(DiffView::from(shown))
    }

    /// Lands changes. A landing that has started is completed even if the caller disconnects.
    pub(crate) async fn workspace_land(&self, who: &Principal, asked: WorkspaceLand) -> Answer<LandingView> {
        who.operator()?;
        self.takes_work()?;
        let WorkspaceLand { id, paths, all, traps } = asked;
        if all != paths.is_empty() {
            return Err(ApiError::params("say which: `paths`, or `all`"));
        }
        let wish = Wish { paths: inner_paths(&paths)?, traps };
        let (mut answer, landed) = oneshot::channel();
        let runs = Arc::clone(&self.runs);
        self.sessions.governance().background().spawn(async move {
            let result = runs.land(&id, wish, answer.closed()).await;
            // It fails only if the caller has disconnected; the ledger has the result.
            let _ = answer.send(result);
        });
        let stopping = |_| ApiError::new("internal", "the daemon is stopping");
        Ok(LandingView::from(landed.await.map_err(stopping)??))
    }

    pub(crate) async fn workspace_discard(
        &self,
        who: &Principal,
        asked: WorkspaceDiscard,
    ) -> Answer<Discarded> {
        who.operator()?;
        self.takes_work()?;
        let paths = inner_paths(&asked.paths)?;
        Ok(Discarded { discarded: self.runs.discard(&asked.id, paths).await? })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspacesError> + Send + 'static,
) -> Answer<T> {
    let result = tokio::task::spawn_blocking(work).await;
    Ok(result.map_err(|_| ApiError::new("internal", "the daemon is stopping"))??)
}

fn info(workspace: &Workspace) -> WorkspaceInfo {
    let label = &workspace.label;
    let (diff, fault) = match workspace.diff() {
        Ok(diff) => (diff, None),
        Err(error) => (Default::default(), Some(error.to_string())),
    };
    WorkspaceInfo {
        id: label.id.clone(),
        folder: label.folder.display().to_string(),
        program: label.program.clone(),
        session_key: label.session.clone(),
        began_at: label.began.clone(),
        running: workspace.is_running(),
        changes: diff.changes.len() as u64,
        traps: diff.changes.iter().filter(|change| change.is_autorun).count() as u64,
        bytes: diff.bytes,
        fault,
    }
}

/// Validates paths relative to the root of a workspace: none may leave it.
fn inner_paths(paths: &[String]) -> Answer<Vec<PathBuf>> {
    if paths.len() > MAX_PATHS {
        return Err(ApiError::params(format!("at most {MAX_PATHS} paths can be named at once")));
    }
    let inner = |path: &String| {
        let is_inner = !path.is_empty()
            && !path.contains('\0')
            && FsPath::new(path)
                .components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let plain: PathBuf =
            FsPath::new(path).components().filter(|part| *part != Component::CurDir).collect();
        if is_inner && !plain.as_os_str().is_empty() {
            return Ok(plain);
        }
        Err(ApiError::params("a path must lead from the root of the workspace to something in it"))
    };
    paths.iter().map(inner).collect()
}
