//! The workspace roots of a session: the workspace of its agent or a folder of the operator, and the additional directories
//! of the operator.
//!
//! A path belongs to exactly one root, decided by its text: a path that begins with the name of an additional directory
//! belongs to that directory, any other path to the workspace. From there on only that root counts: for what is opened, hidden
//! and authorized, and for the names of labels.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribune_contract::{MAX_ADDITIONAL_DIRECTORIES, is_system_path};
use tribune_runtime::{AgentId, SessionTerms};

use crate::exec::WORKSPACE;

/// Folders that a sandbox provides itself: no folder of the operator is mounted in these.
const SANDBOX_SYSTEM: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", WORKSPACE];

/// Folders of a sandbox that a mount above them would hide.
const SANDBOX_WRITABLE: [&str; 3] = ["/home/agent", "/tmp", "/var/tmp"];

/// The folders in which a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRoots {
    agent: AgentId,
    folder: Option<Arc<Path>>,
    additional_directories: Arc<[String]>,
}

/// A path with the root that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath<'p> {
    /// That root alone.
    pub ground: WorkspaceRoots,
    /// The path relative to the root.
    pub(crate) path: &'p str,
    /// The name of the root, if it is an additional directory.
    pub additional_directory: Option<Arc<str>>,
}

impl WorkspaceRoots {
    /// Roots without additional directories. `folder`, if given, is absolute and contains no links.
    pub fn new(agent: AgentId, folder: Option<Arc<Path>>) -> Self {
        Self { agent, folder, additional_directories: Arc::default() }
    }

    /// The agent's own workspace alone.
    pub fn own(agent: AgentId) -> Self {
        Self::new(agent, None)
    }

    /// The roots from the terms of a session.
    pub fn of_terms(agent: AgentId, terms: &SessionTerms) -> Self {
        let folder = terms.workspace.as_ref().map(|folder| Path::new(folder).into());
        Self { agent, folder, additional_directories: terms.additional_directories.as_slice().into() }
    }

    /// The names of the additional directories.
    pub fn additional_directories(&self) -> &[String] {
        &self.additional_directories
    }

    /// Each additional directory as a root of its own.
    pub(crate) fn additional_roots(&self) -> impl Iterator<Item = Self> {
        self.additional_directories
            .iter()
            .map(|name| Self::new(self.agent.clone(), Some(Path::new(name).into())))
    }

    /// Every folder as a root of its own, the workspace first.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let workspace = Self { additional_directories: Arc::default(), ..self.clone() };
        std::iter::once(workspace).chain(self.additional_roots())
    }

    /// Finds the root that a path belongs to.
    pub fn locate<'p>(&self, path: &'p str) -> RootedPath<'p> {
        match beneath(&self.additional_directories, path) {
            Some((folder, path)) => RootedPath {
                ground: Self::new(self.agent.clone(), Some(Path::new(folder).into())),
                path,
                additional_directory: Some(folder.into()),
            },
            None => RootedPath {
                ground: Self { additional_directories: Arc::default(), ..self.clone() },
                path,
                additional_directory: None,
            },
        }
    }

    pub const fn agent(&self) -> &AgentId {
        &self.agent
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The name of the folder. Names that are not UTF-8 are refused when a folder is chosen.
    pub fn folder_name(&self) -> Option<&str> {
        self.folder()?.to_str()
    }

    /// The path of the workspace on this machine.
    pub fn path(&self, home: &Path) -> PathBuf {
        match self.folder() {
            Some(folder) => folder.to_owned(),
            None => home.join("agents").join(self.agent.as_str()).join("workspace"),
        }
    }

    /// The name of the workspace in the log: the agent, or the folder, which begins with `/` as no agent id does.
    pub fn name(&self) -> &str {
        self.folder_name().unwrap_or_else(|| self.agent.as_str())
    }

    /// The labels in the log of the folders that contain `path` and in which a program may have worked. For a path in an agent's
    /// workspace that is the workspace; a folder of the operator can be inside others in which agents worked.
    pub fn ancestor_labels(&self, path: &str) -> Vec<String> {
        match self.folder() {
            None if path.is_empty() => Vec::new(),
            None => vec![format!("workspace:{}", self.agent)],
            Some(folder) => {
                let inside = folder.join(path.trim_start_matches('/'));
                let inside = if path.is_empty() { folder } else { &inside };
                inside
                    .ancestors()
                    .skip(1)
                    .filter_map(Path::to_str)
                    .map(|name| format!("workspace:{name}"))
                    .collect()
            }
        }
    }
}

/// The additional directory that a path begins with, and the rest of the path. Only the exact name of the directory counts: a
/// path in another spelling is in none of them.
pub(crate) fn beneath<'f, 'p>(
    additional_directories: &'f [String],
    path: &'p str,
) -> Option<(&'f str, &'p str)> {
    additional_directories.iter().find_map(|folder| {
        match path.strip_prefix(folder.as_str())?.trim_start_matches('/') {
            "" => Some((folder.as_str(), ".")),
            inner if path[folder.len()..].starts_with('/') => Some((folder.as_str(), inner)),
            _ => None,
        }
    })
}

/// Validates the additional directories of a session and returns their canonical names, as [`validate_root`] does.
/// Duplicates are merged.
pub fn validate_additional_directories(
    what: &str,
    folders: &[&str],
    home: &Path,
) -> Result<Vec<String>, String> {
    if folders.len() > MAX_ADDITIONAL_DIRECTORIES {
        return Err(format!(
            "`{what}` has {} folders, and a session has at most {MAX_ADDITIONAL_DIRECTORIES}: leave some out",
            folders.len()
        ));
    }
    let mut all: Vec<String> = Vec::new();
    for (index, folder) in folders.iter().enumerate() {
        let what = format!("{what}[{index}]");
        let found = validate_root(&what, folder, home)?;
        let name = found.to_string_lossy().into_owned();
        if all.contains(&name) {
            continue;
        }
        let is_sandbox_own = is_system_path(&found)
            || SANDBOX_SYSTEM.iter().any(|own| found.starts_with(own))
            || SANDBOX_WRITABLE.iter().any(|own| Path::new(own).starts_with(&found));
        if is_sandbox_own {
            return Err(format!(
                "`{what}` is where a sandbox has a system of its own, or above it: name a folder of your project"
            ));
        }
        if name.contains(|c: char| c.is_control() || c == '`') {
            return Err(format!("`{what}` has a name that cannot be shown on one line: rename it"));
        }
        if all.iter().any(|other| is_nested(Path::new(other), &found)) {
            return Err(format!(
                "`{what}` is in another one of the folders, or holds it: leave out one of the two"
            ));
        }
        all.push(name);
    }
    Ok(all)
}

/// The additional directories of a session that works in `workspace`. The workspace itself is left out; a directory inside it
/// or around it is refused.
pub fn exclude_nested(
    what: &str,
    workspace: &Path,
    mut additional_directories: Vec<String>,
) -> Result<Vec<String>, String> {
    additional_directories.retain(|folder| Path::new(folder) != workspace);
    match additional_directories.iter().find(|folder| is_nested(Path::new(folder), workspace)) {
        Some(folder) => Err(format!(
            "`{what}`: `{folder}` is in the session's own folder, or holds it: leave it out, or choose another `cwd`"
        )),
        None => Ok(additional_directories),
    }
}

/// Whether two folders are the same, or one is inside the other.
pub fn is_nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Validates a folder of the operator in which a session is to work and returns its canonical path. The folder must exist,
/// and must neither contain Tribune's home nor be inside it. `what` is the caller's name for it.
pub fn validate_root(what: &str, folder: &str, home: &Path) -> Result<PathBuf, String> {
    let path = Path::new(folder);
    if !path.is_absolute() {
        return Err(format!("`{what}` is not absolute: send the whole path"));
    }
    let found = std::fs::canonicalize(path)
        .map_err(|error| format!("`{what}` cannot be used ({error}): name a folder that exists"))?;
    if !found.is_dir() {
        return Err(format!("`{what}` is not a folder: name one"));
    }
    if found.to_str().is_none() {
        return Err(format!("`{what}` is not UTF-8: name another folder"));
    }
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    if found.starts_with(&home) || home.starts_with(&found) {
        return Err(format!(
            "`{what}` holds Tribune's own home or is in it, where no agent works: name a folder of your project"
        ));
    }
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    if let Some(other) = tribune_contract::tribune_home_around(&found, exists) {
        let other = other.display();
        return Err(format!(
            "`{what}` is a home of Tribune or in one (`{other}`): name a folder of your project"
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use tribune_runtime::SessionMode;

    use super::*;

    #[test]
    fn names_distinguish_folders_of_agents_and_of_operators() {
        let agent: AgentId = "main".parse().unwrap();
        let own = WorkspaceRoots::own(agent.clone());
        assert_eq!((own.name(), own.ancestor_labels("a/b")), ("main", vec!["workspace:main".to_owned()]));
        assert_eq!(own.path(Path::new("/home")), Path::new("/home/agents/main/workspace"));
        let folder = WorkspaceRoots::new(agent, Some(Path::new("/srv/project").into()));
        assert_eq!(folder.name(), "/srv/project");
        assert_eq!(folder.path(Path::new("/home")), Path::new("/srv/project"));
        let ancestor_labels =
            ["workspace:/srv/project/a", "workspace:/srv/project", "workspace:/srv", "workspace:/"];
        assert_eq!(folder.ancestor_labels("a/b"), ancestor_labels);
        assert_eq!(folder.ancestor_labels(""), ancestor_labels[2..], "the ancestors of the folder itself");
    }

    #[test]
    fn a_path_belongs_to_exactly_one_root() {
        let terms = SessionTerms {
            workspace: Some("/srv/app".to_owned()),
            additional_directories: vec!["/srv/lib".to_owned(), "/srv/library".to_owned()],
            ..SessionTerms::new("native", SessionMode::Domain, "default")
        };
        let ground = WorkspaceRoots::of_terms("main".parse().unwrap(), &terms);
        for (path, folder, inner) in [
            ("/srv/lib", "/srv/lib", "."),
            ("/srv/lib/", "/srv/lib", "."),
            ("/srv/lib//a/b/", "/srv/lib", "a/b/"),
            ("/srv/library/a", "/srv/library", "a"),
            // The kernel refuses the relative part of these, and the policy sees that it leads outside.
            ("/srv/lib/../app/a", "/srv/lib", "../app/a"),
            ("/srv/lib/../library/a", "/srv/lib", "../library/a"),
            ("/srv/libr/a", "/srv/app", "/srv/libr/a"),
            ("/srv//lib/a", "/srv/app", "/srv//lib/a"),
            ("/srv/./lib/a", "/srv/app", "/srv/./lib/a"),
            ("/srv/app/a", "/srv/app", "/srv/app/a"),
            ("../lib/a", "/srv/app", "../lib/a"),
            ("srv/lib/a", "/srv/app", "srv/lib/a"),
            ("", "/srv/app", ""),
        ] {
            let spot = ground.locate(path);
            assert_eq!((spot.ground.name(), spot.path), (folder, inner), "{path}");
            assert_eq!(spot.additional_directory.is_some(), folder != "/srv/app", "{path}");
            assert!(spot.ground.additional_directories().is_empty(), "{path}");
        }
    }

    #[test]
    fn additional_directories_are_validated_and_must_not_nest() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["home/keys", "app/inner", "lib/inner", "other", "odd`name"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        for (to, link) in [("lib", "to-lib"), ("home", "to-home")] {
            std::os::unix::fs::symlink(root.join(to), root.join(link)).unwrap();
        }
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let ask = |folders: &[&str]| {
            let folders: Vec<String> = folders
                .iter()
                .map(|name| if name.starts_with('/') { (*name).to_owned() } else { at(name) })
                .collect();
            let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
            validate_additional_directories("dirs", &folders, &root.join("home"))
        };
        assert_eq!(ask(&["lib", "other", "lib/", "to-lib"]), Ok(vec![at("lib"), at("other")]));
        for (folders, why) in [
            (&["other", "missing"][..], "`dirs[1]` cannot be used"),
            (&["file"], "not a folder"),
            (&["home"], "Tribune's own home"),
            (&["home/keys"], "Tribune's own home"),
            (&["to-home"], "Tribune's own home"),
            (&["/"], "Tribune's own home"),
            (&["lib", "lib/inner"], "in another one"),
            (&["lib/inner", "to-lib"], "in another one"),
            (&["/usr/share"], "a system of its own"),
            (&["/var"], "a system of its own"),
            (&["/dev"], "a system of its own"),
            (&["odd`name"], "on one line"),
            (&["lib"; MAX_ADDITIONAL_DIRECTORIES + 1], "at most 8"),
        ] {
            let refused = ask(folders).unwrap_err();
            assert!(refused.contains(why), "{folders:?}: {refused}");
        }
        assert!(
            validate_additional_directories("dirs", &["lib"], &root).unwrap_err().contains("not absolute")
        );
        let directories = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<_>>();
        assert_eq!(
            exclude_nested("dirs", &root.join("app"), directories(&["lib", "app"])),
            Ok(directories(&["lib"]))
        );
        for (workspace, folder) in [("app", "app/inner"), ("lib/inner", "lib")] {
            let refused = exclude_nested("dirs", &root.join(workspace), directories(&[folder])).unwrap_err();
            assert!(refused.contains("session's own folder"), "{refused}");
        }
    }
}
