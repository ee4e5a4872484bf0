//! Builds the sandbox launch profile of an agent from its agent profile.

use std::path::{Path, PathBuf};

use tribune_cli_agents::Profile;
use tribune_cli_agents::ServerEndpoint;
use tribune_cli_agents::profile::ProfileContext;
use tribune_contract::{
    AUTORUN_PATHS, LaunchProfile, Mount, PortRelay, RunsAs, SandboxName, WorkspaceMount, WorkspaceSource,
};
use tribune_egress::SessionSockets;
use tribune_egress::proxy_env::{EGRESS_PORT, MODEL_PORT, PLACEHOLDER, SERVERS_PORT, proxy_variables};
use tribune_records::exec::WORKSPACE;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_registry::profiles;
use tribune_sandbox::workspace::AutorunSnapshot;
use tribune_storage::home::Home;
use tribune_tools::workspace_of;

use super::session_dir::AgentSessionDir;
use super::{AutorunBaseline, git};

/// The session's home folder inside the sandbox.
const HOME: &str = "/home/session";

/// The agent's program inside the sandbox.
const PROGRAM: &str = "/opt/agent";

/// Turns off `core.fsmonitor`. Agents run `git status` without a permission request, and a repository can name a program there
/// that git runs.
const QUIET_GIT: [(&str, &str); 3] =
    [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.fsmonitor"), ("GIT_CONFIG_VALUE_0", "false")];

/// The inputs of one start of an agent.
pub(super) struct LaunchSpec {
    pub(super) number: u64,
    pub(super) program: PathBuf,
    pub(super) session_dir: AgentSessionDir,
    pub(super) home: Home,
    pub(super) ground: WorkspaceRoots,
    pub(super) model: Option<String>,
    pub(super) access: WorkspaceAccess,
    pub(super) user: Option<u32>,
    /// Patterns of files that are hidden from every agent.
    pub(super) hide: Vec<String>,
    /// MCP servers that the daemon runs for the session.
    pub(super) servers: Vec<ServerEndpoint>,
}

/// What an agent may do with its workspace by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkspaceAccess {
    /// The law can allow no call that reads or changes a file: the agent sees an empty folder.
    None,
    Read,
    Change,
}

impl LaunchSpec {
    /// Builds the launch profile and prepares the home folder. Reads and writes the disk.
    pub(super) fn launch(
        &self,
        profile: &Profile,
        sockets: &SessionSockets,
        conversation: Option<String>,
    ) -> Result<LaunchProfile, String> {
        let node = match profiles::node(&self.program) {
            Ok(bundled) => Path::new(PROGRAM).join(bundled),
            Err(system) => system,
        };
        let context = ProfileContext {
            arch: profiles::ARCH.to_owned(),
            conversation,
            home: HOME.to_owned(),
            workspace: WORKSPACE.to_owned(),
            program: PROGRAM.to_owned(),
            node: node.to_string_lossy().into_owned(),
            model: self.model.clone().unwrap_or_default(),
            model_url: format!("http://127.0.0.1:{MODEL_PORT}"),
            placeholder_key: PLACEHOLDER.to_owned(),
            servers: self.servers.clone(),
        };
        let filled = profile.fill(&context);
        let unusable = |error: std::io::Error| format!("its home folder cannot be prepared ({error})");
        let home = self.session_dir.prepare_home(&filled.files, profile.keep()).map_err(unusable)?;
        let workspace = match self.access {
            WorkspaceAccess::None => self.session_dir.empty_workspace().map_err(unusable)?,
            WorkspaceAccess::Read | WorkspaceAccess::Change => {
                workspace_of(self.home.root(), &self.ground).map_err(|refused| refused.sentence)?
            }
        };

        let name = format!("cli-{}-{}", std::process::id(), self.number);
        let session = SandboxName::new(name).map_err(|error| error.to_string())?;
        // The shell finds the program in the sandbox, and reports if it is missing.
        let mut launch = LaunchProfile::new(session, "/bin/sh");
        let shell_args = ["-c", "exec \"$@\"", "tribune"].map(str::to_owned);
        launch.args = shell_args.into_iter().chain(filled.command).collect();
        launch.env.extend(proxy_variables(&[]));
        launch.env.extend(QUIET_GIT.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let (name, value) = git::VARIABLE;
        launch.env.insert(name.to_owned(), value.to_owned());
        launch.env.extend(filled.environment);
        launch.env.insert("HOME".to_owned(), HOME.to_owned());
        launch.cwd = WORKSPACE.into();
        launch.workspace = Some(self.workspace(workspace, profile.hide()));
        launch.mounts = self.mounts(profile, &home)?;
        for (path, text) in filled.system {
            launch.mounts.push(Mount::Text { target: Path::new("/etc").join(path), text });
        }
        launch.mounts.extend(git::mounts(profile.hide().iter().chain(&self.hide).map(String::as_str)));
        launch.relays = vec![relay("egress", EGRESS_PORT, sockets.egress())];
        if profile.model().is_some() {
            launch.relays.push(relay("model", MODEL_PORT, sockets.model()));
        }
        if !self.servers.is_empty() {
            launch.relays.push(relay("servers", SERVERS_PORT, sockets.servers()));
        }
        if let Some(user) = self.user {
            launch.runs_as = RunsAs::User { uid: user, gid: user };
        }
        Ok(launch)
    }

    /// The mount of the workspace. The law decides each call before it is executed, so changes go to the folder directly; where
    /// the law can allow no change, the mount is read-only, and where it can allow no call about files, it is empty: an agent can
    /// send what it sees to its model without a call.
    ///
    /// Instruction files for agents of this kind are hidden, because their author could make the agent act without a request.
    fn workspace(&self, folder: PathBuf, hide: &[String]) -> WorkspaceMount {
        let (source, freeze) = match self.access {
            WorkspaceAccess::Change => {
                (WorkspaceSource::Direct { folder }, AUTORUN_PATHS.map(str::to_owned).into())
            }
            WorkspaceAccess::Read | WorkspaceAccess::None => {
                (WorkspaceSource::ReadOnly { folder }, Vec::new())
            }
        };
        WorkspaceMount {
            target: WORKSPACE.into(),
            source,
            hide: [hide, &self.hide].concat(),
            read_only: freeze,
        }
    }

    /// Takes the baseline of the autorun files in the workspace.
    pub(super) fn look(&self) -> Result<AutorunBaseline, String> {
        let folder = workspace_of(self.home.root(), &self.ground).map_err(|refused| refused.sentence)?;
        let snapshot = AutorunSnapshot::take(&folder).map_err(|error| error.to_string())?;
        Ok(AutorunBaseline { folder, standing: snapshot })
    }

    /// The name of the instruction file at the root of the workspace, of whatever type. It is not opened.
    pub(super) fn instructions(&self, profile: &Profile) -> Option<String> {
        if self.access == WorkspaceAccess::None {
            return None;
        }
        let workspace = workspace_of(self.home.root(), &self.ground).ok()?;
        let exists = |name: &&String| std::fs::symlink_metadata(workspace.join(name)).is_ok();
        profile.instructions().iter().find(exists).cloned()
    }

    fn mounts(&self, profile: &Profile, home: &Path) -> Result<Vec<Mount>, String> {
        let mut mounts = vec![Mount::ReadWrite { source: home.to_owned(), target: HOME.into() }];
        if profile.install().is_some() {
            mounts.push(Mount::ReadOnly {
                source: self.program.clone(),
                target: PROGRAM.into(),
                hide: Vec::new(),
            });
        }
        let state = std::fs::canonicalize(self.home.root()).unwrap_or_else(|_| self.home.root().to_owned());
        for folder in profile.folders().iter().map(PathBuf::from) {
            let found = std::fs::canonicalize(&folder)
                .map_err(|error| format!("its folder `{}` cannot be used ({error})", folder.display()))?;
            if found.starts_with(&state) || state.starts_with(&found) {
                let what = "contains Tribune's state folder or is in it, and is shown to no agent: remove it from the profile";
                return Err(format!("`{}` {what}", folder.display()));
            }
            if !mounts.iter().any(|mount| mount.target() == folder) && !folder.starts_with("/usr") {
                mounts.push(Mount::ReadOnly { source: found, target: folder, hide: Vec::new() });
            }
        }
        Ok(mounts)
    }
}

fn relay(name: &str, port: u16, socket: PathBuf) -> PortRelay {
    PortRelay { name: name.to_owned(), port, socket }
}
