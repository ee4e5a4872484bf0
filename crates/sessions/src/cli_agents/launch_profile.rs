//! The box that a profile becomes.

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

/// Where the workspace is inside.

/// Where the session's home folder is inside.
const HOME: &str = "/home/session";

/// Where the agent's program is inside.
const PROGRAM: &str = "/opt/agent";

/// Agents ask git how the workspace stands without asking anyone; a repository could name a program that git is to run for that.
const QUIET_GIT: [(&str, &str); 3] =
    [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.fsmonitor"), ("GIT_CONFIG_VALUE_0", "false")];

/// One start of an agent.
pub(super) struct LaunchSpec {
    pub(super) number: u64,
    pub(super) program: PathBuf,
    pub(super) room: AgentSessionDir,
    pub(super) house: Home,
    pub(super) ground: WorkspaceRoots,
    pub(super) model: Option<String>,
    pub(super) may_change: bool,
    pub(super) user: Option<u32>,
    /// Patterns of what no agent sees.
    pub(super) hide: Vec<String>,
    /// MCP servers that the house runs for the session.
    pub(super) servers: Vec<ServerEndpoint>,
}

impl LaunchSpec {
    /// The box, with everything that it needs in its place. Reads and writes the disk.
    pub(super) fn launch(
        &self,
        profile: &Profile,
        sockets: &SessionSockets,
        conversation: Option<String>,
    ) -> Result<LaunchProfile, String> {
        let node = match profiles::node(&self.program) {
            Ok(own) => Path::new(PROGRAM).join(own),
            Err(of_this_machine) => of_this_machine,
        };
        let surroundings = ProfileContext {
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
        let filled = profile.fill(&surroundings);
        let unusable = |error: std::io::Error| format!("its home folder cannot be prepared ({error})");
        let home = self.room.furnish(&filled.files, profile.keep()).map_err(unusable)?;
        let workspace = workspace_of(self.house.root(), &self.ground).map_err(|refused| refused.sentence)?;

        let name = format!("cli-{}-{}", std::process::id(), self.number);
        let session = SandboxName::new(name).map_err(|error| error.to_string())?;
        // Finds the program where the box has it, and says so if it has none.
        let mut launch = LaunchProfile::new(session, "/bin/sh");
        let words = ["-c", "exec \"$@\"", "tribune"].map(str::to_owned);
        launch.args = words.into_iter().chain(filled.command).collect();
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

    /// The law decides each call before it happens, so changes go to the folder at once; where it can allow none, none can.
    ///
    /// What others wrote there for programs of this kind is not seen: whoever wrote it would have them act unasked.
    fn workspace(&self, folder: PathBuf, hide: &[String]) -> WorkspaceMount {
        let (source, freeze) = match self.may_change {
            true => (WorkspaceSource::Direct { folder }, AUTORUN_PATHS.map(str::to_owned).into()),
            false => (WorkspaceSource::ReadOnly { folder }, Vec::new()),
        };
        WorkspaceMount {
            target: WORKSPACE.into(),
            source,
            hide: [hide, &self.hide].concat(),
            read_only: freeze,
        }
    }

    /// What programs of this machine obey in the workspace.
    pub(super) fn look(&self) -> Result<AutorunBaseline, String> {
        let folder = workspace_of(self.house.root(), &self.ground).map_err(|refused| refused.sentence)?;
        let standing = AutorunSnapshot::take(&folder).map_err(|error| error.to_string())?;
        Ok(AutorunBaseline { folder, standing })
    }

    /// The file at the root of the workspace that has words for agents, whatever it is. It is not opened.
    pub(super) fn instructions(&self, profile: &Profile) -> Option<String> {
        let workspace = workspace_of(self.house.root(), &self.ground).ok()?;
        let is_there = |name: &&String| std::fs::symlink_metadata(workspace.join(name)).is_ok();
        profile.instructions().iter().find(is_there).cloned()
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
        let house = std::fs::canonicalize(self.house.root()).unwrap_or_else(|_| self.house.root().to_owned());
        for folder in profile.folders().iter().map(PathBuf::from) {
            let found = std::fs::canonicalize(&folder)
                .map_err(|error| format!("its folder `{}` cannot be used ({error})", folder.display()))?;
            if found.starts_with(&house) || house.starts_with(&found) {
                let what = "holds Tribune's own home or is in it, and is shown to no agent: take it out of the profile";
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
    PortRelay { name: name.to_owned(), port, socket, token: None }
}
