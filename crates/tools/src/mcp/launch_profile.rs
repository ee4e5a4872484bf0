//! The sandbox of an MCP server: the session's workspace, the server's program, and nothing else of the host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tribune_contract::{
    AUTORUN_PATHS, LaunchProfile, Mount, PortRelay, RunsAs, SandboxName, WorkspaceMount, WorkspaceSource,
};
use tribune_egress::EgressLease;
use tribune_egress::proxy_env::{EGRESS_PORT, proxy_variables};
use tribune_records::exec::PATH;
use tribune_records::exec::WORKSPACE;

use super::server_spec::ServerSpec;

/// The folders of the host that every sandbox has.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Files that mark a folder as one program with its parts: of Node, of Python, and of an environment of either.
const PROGRAM_MARKERS: [&str; 4] = ["package.json", "pyproject.toml", "pyvenv.cfg", "lib/node_modules"];

/// How many levels above its file the folder of a program is searched.
const MAX_ABOVE: usize = 4;

/// Minimum number of path components, with the root, of a folder that is mounted. A shorter path may be a person's whole home:
/// `/home/ada` is never mounted.
const MIN_DEPTH: usize = 4;

/// Where a server starts.
pub(super) struct Site {
    pub(super) number: u64,
    /// The state folder of the instance.
    pub(super) home: PathBuf,
    pub(super) workspace: PathBuf,
    /// Whether the session may change the workspace at all.
    pub(super) may_change: bool,
    /// Patterns of names that agents do not see.
    pub(super) hide: Vec<String>,
    /// The number of bytes by which it may grow its workspace.
    pub(super) max_bytes: u64,
}

impl Site {
    /// Builds the profile of the sandbox. Looks the program up on the disk.
    pub(super) fn profile(
        &self,
        spec: &ServerSpec,
        egress: Option<&EgressLease>,
    ) -> Result<LaunchProfile, String> {
        let name = format!("mcp-{}-{}", std::process::id(), self.number);
        let session = SandboxName::new(name).map_err(|error| error.to_string())?;
        let program = self.find(spec)?;
        let mut mounts = Vec::new();
        self.show(&program, &mut mounts)?;
        for file in spec.args.iter().map(Path::new).filter(|path| path.is_absolute() && path.is_file()) {
            self.show(file, &mut mounts)?;
        }
        let mut profile = LaunchProfile::new(session, self.inside(&program.to_string_lossy()));
        profile.args = spec.args.iter().map(|arg| self.inside(arg)).collect();
        if let Some(egress) = egress {
            profile.env.extend(proxy_variables(&egress.allowlist));
            let (name, socket) = ("egress".to_owned(), egress.sockets.egress());
            profile.relays = vec![PortRelay { name, port: EGRESS_PORT, socket }];
            if let Some(user) = egress.user {
                profile.runs_as = RunsAs::User { uid: user, gid: user };
            }
        }
        // The sandbox has its own home folder, whatever the variable says.
        let given = spec.env.iter().filter(|(name, _)| name != "HOME");
        profile.env.extend(given.map(|(name, value)| (name.clone(), self.inside(value))));
        profile.cwd = WORKSPACE.into();
        profile.mounts = mounts;
        let folder = self.workspace.clone();
        let (source, freeze) = match self.may_change {
            true => (WorkspaceSource::Direct { folder }, AUTORUN_PATHS.map(str::to_owned).into()),
            false => (WorkspaceSource::ReadOnly { folder }, Vec::new()),
        };
        profile.workspace = Some(WorkspaceMount {
            target: WORKSPACE.into(),
            source,
            hide: self.hide.clone(),
            read_only: freeze,
        });
        profile.limits.file_bytes = profile.limits.file_bytes.min(self.max_bytes);
        Ok(profile)
    }

    /// Finds the program on the host.
    fn find(&self, spec: &ServerSpec) -> Result<PathBuf, String> {
        let is_program = |path: &Path| {
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let command = Path::new(&spec.command);
        if spec.command.contains('/') {
            if !command.is_absolute() {
                return Err("its `command` is neither a name nor an absolute path".to_owned());
            }
            let missing =
                "its program does not exist or cannot run: check `command` in the editor's settings";
            return if is_program(command) { Ok(command.to_owned()) } else { Err(missing.to_owned()) };
        }
        let path = spec.variable("PATH").unwrap_or(PATH);
        let places = path.split(':').map(Path::new).filter(|place| place.is_absolute());
        places.map(|place| place.join(command)).find(|found| is_program(found)).ok_or_else(|| {
            format!(
                "its program is not found in {}: give the absolute path as `command` in the editor's settings",
                if spec.variable("PATH").is_some() { "the `PATH` that came with it" } else { PATH }
            )
        })
    }

    /// Maps a path of the host to its path in the sandbox.
    fn inside(&self, text: &str) -> String {
        let workspace = self.workspace.to_string_lossy();
        match text.strip_prefix(&*workspace) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{WORKSPACE}{rest}"),
            Some(_) | None => text.to_owned(),
        }
    }

    /// Mounts a file of a program with what belongs to it, and its target if it is a symbolic link.
    fn show(&self, file: &Path, mounts: &mut Vec<Mount>) -> Result<(), String> {
        let behind = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        for file in [file, &behind] {
            if file.starts_with(&self.workspace) || SYSTEM.iter().any(|own| file.starts_with(own)) {
                continue;
            }
            let target = self.shown(file)?;
            let source = target.canonicalize().map_err(|_| "its program cannot be read".to_owned())?;
            if !mounts.iter().any(|mount| mount.target() == target) {
                mounts.push(Mount::ReadOnly { source, target, hide: self.hide.clone() });
            }
        }
        Ok(())
    }

    /// What to mount for a file: the program that it is part of, its folder, or the file alone.
    fn shown(&self, file: &Path) -> Result<PathBuf, String> {
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let home = self.home.canonicalize().unwrap_or_else(|_| self.home.clone());
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        if real.starts_with(&home)
            || tribune_contract::is_system_path(&real)
            || tribune_contract::tribune_home_around(&real, exists).is_some()
        {
            let what =
                "its program lies in a home of Tribune or in the running system, which sandboxes cannot see";
            return Err(what.to_owned());
        }
        // Hidden names of the workspace, and the state folder, must not become visible by another path.
        let fits = |folder: &Path| {
            let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
            let holds = |other: &Path| other.starts_with(&real);
            real.components().count() >= MIN_DEPTH && !holds(&home) && !holds(&self.workspace)
        };
        let above = || file.ancestors().skip(1).take(MAX_ABOVE).take_while(|folder| fits(folder));
        let is_marked = |folder: &&Path| PROGRAM_MARKERS.iter().any(|mark| folder.join(mark).exists());
        // Mount what was installed together.
        let installed = file.ancestors().skip(1).take_while(|folder| fits(folder));
        let installed =
            installed.filter(|folder| folder.file_name().is_some_and(|name| name == "node_modules")).last();
        let found = installed.or_else(|| above().find(is_marked)).or_else(|| above().next());
        Ok(found.unwrap_or(file).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A host with a state folder, a project and programs.
    struct Machine {
        folder: TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { folder: tempfile::tempdir().unwrap() };
            for file in [
                "home/keys/key",
                "project/.env",
                "project/tools/server.py",
                "node/package.json",
                "node/build/index.js",
                "all/node_modules/one/node_modules/two/index.js",
                "all/node_modules/one/node_modules/two/package.json",
                "venv/pyvenv.cfg",
                "venv/bin/python",
                "plain/bin/server",
            ] {
                let path = machine.at(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, "").unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            machine
        }

        fn at(&self, name: &str) -> PathBuf {
            // Deep enough not to be a person's home.
            self.folder.path().canonicalize().unwrap().join("a/b").join(name)
        }

        fn site(&self) -> Site {
            Site {
                number: 1,
                home: self.at("home"),
                workspace: self.at("project"),
                may_change: true,
                hide: vec![".env".to_owned()],
                max_bytes: 1 << 20,
            }
        }

        fn profile(&self, command: &str, args: &[String]) -> Result<LaunchProfile, String> {
            let path = self.at("plain/bin").to_string_lossy().into_owned();
            let env = json!([
                { "name": "PATH", "value": path }, { "name": "HOME", "value": "/root" },
                { "name": "ROOT", "value": self.at("project/sub") }, { "name": "NEAR", "value": format!("{}2", self.at("project").display()) },
            ]);
            let sent = json!({ "name": "x", "command": command, "args": args, "env": env });
            let profile = self.site().profile(&ServerSpec::read(&sent).unwrap(), None);
            if let Ok(profile) = &profile {
                profile.check().unwrap();
            }
            profile
        }

        fn text(&self, name: &str) -> String {
            self.at(name).to_str().unwrap().to_owned()
        }
    }

    fn targets(profile: &LaunchProfile) -> Vec<&Path> {
        assert!(profile.mounts.iter().all(|mount| matches!(mount, Mount::ReadOnly { .. })));
        profile.mounts.iter().map(Mount::target).collect()
    }

    #[test]
    fn a_program_is_mounted_with_its_parts_and_nothing_else() {
        let machine = Machine::new();
        let script = machine.text("node/build/index.js");
        let profile = machine.profile("/bin/sh", &[script.clone(), "plain".to_owned()]).unwrap();
        assert_eq!(targets(&profile), [machine.at("node")]);
        assert_eq!((profile.program.as_path(), &profile.args[0]), (Path::new("/bin/sh"), &script));
        let installed = machine.text("all/node_modules/one/node_modules/two/index.js");
        assert_eq!(
            targets(&machine.profile("/bin/sh", &[installed]).unwrap()),
            [machine.at("all/node_modules")]
        );
        let python = machine.text("venv/bin/python");
        assert_eq!(targets(&machine.profile(&python, &[]).unwrap()), [machine.at("venv")]);
        let found = machine.profile("server", &[]).unwrap();
        assert_eq!(found.program, machine.at("plain/bin/server"));
        assert_eq!(targets(&found), [machine.at("plain/bin")]);
    }

    #[test]
    fn l7_the_workspace_is_mounted_once_at_its_usual_path() {
        let machine = Machine::new();
        let args =
            [machine.text("project/tools/server.py"), machine.text("project"), machine.text("project2")];
        let profile = machine.profile("/bin/sh", &args).unwrap();
        assert_eq!(profile.args[..2], ["/workspace/tools/server.py", "/workspace"]);
        assert_eq!(profile.args[2], args[2]);
        assert!(targets(&profile).is_empty());
        let env = &profile.env;
        assert_eq!((env["ROOT"].as_str(), env["HOME"].as_str()), ("/workspace/sub", "/home/agent"));
        assert!(env["NEAR"].ends_with("project2"));
        // A folder that contains the project, or the state folder, is not mounted for a file in it.
        std::fs::write(machine.at("loose.py"), "").unwrap();
        let profile = machine.profile("/bin/sh", &[machine.text("loose.py")]).unwrap();
        assert_eq!(targets(&profile), [machine.at("loose.py")]);
        let workspace = profile.workspace.unwrap();
        assert_eq!((workspace.hide, workspace.read_only.is_empty()), (vec![".env".to_owned()], false));
        let kept = Site { may_change: false, ..machine.site() };
        let spec = ServerSpec::read(&json!({ "name": "x", "command": "/bin/sh" })).unwrap();
        let source = kept.profile(&spec, None).unwrap().workspace.unwrap().source;
        assert!(matches!(source, WorkspaceSource::ReadOnly { .. }));
    }

    #[test]
    fn l7_no_path_leads_into_the_state_folder() {
        let machine = Machine::new();
        std::os::unix::fs::symlink(machine.at("home/keys"), machine.at("plain/keys")).unwrap();
        std::os::unix::fs::symlink(machine.at("home/keys/key"), machine.at("plain/bin/linked")).unwrap();
        for file in ["home/keys/key", "plain/keys/key", "plain/bin/linked"] {
            let refused = machine.profile("/bin/sh", &[machine.text(file)]).unwrap_err();
            assert!(refused.contains("a home of Tribune"), "{file}: {refused}");
            let refused = machine.profile(&machine.text(file), &[]).unwrap_err();
            assert!(refused.contains("a home of Tribune"), "{file}: {refused}");
        }
    }

    #[test]
    fn a_missing_program_is_reported() {
        let machine = Machine::new();
        for (command, why) in [
            ("bin/server", "neither a name nor an absolute path"),
            ("/nowhere/server", "does not exist"),
            ("/usr", "does not exist"),
            ("sh", "not found in the `PATH` that came with it"),
        ] {
            let refused = machine.profile(command, &[]).unwrap_err();
            assert!(refused.contains(why), "{command}: {refused}");
        }
    }
}
