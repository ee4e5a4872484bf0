//! Where a session works: in the workspace of its agent, or in a folder of the operator's that it was given; and in further folders
//! of the operator's beside that.
//!
//! A path is in exactly one of them, by its words: one that begins with the name of a further folder is in that, any other in the
//! workspace. From there on everything is about that one folder: what is opened, hidden and asked, and what labels are called.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribune_contract::{MAX_ADDITIONAL_DIRECTORIES, is_system_path};
use tribune_runtime::AgentId;

use crate::exec::WORKSPACE;

/// What a box has of its own: nothing of the operator's is mounted in these.
const OF_BOXES: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", WORKSPACE];

/// Folders of a box that others would take the place of if they were mounted above them.
const IN_BOXES: [&str; 3] = ["/home/agent", "/tmp", "/var/tmp"];

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRoots {
    agent: AgentId,
    folder: Option<Arc<Path>>,
    additional_directories: Arc<[String]>,
}

/// A path with the one folder that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath<'p> {
    /// That folder alone.
    pub ground: WorkspaceRoots,
    /// From there.
    pub(crate) path: &'p str,
    /// Its name, if it is a further one.
    pub further: Option<Arc<str>>,
}

impl WorkspaceRoots {
    /// The folder, if there is one, is absolute and has no links in it.
    pub fn new(agent: AgentId, folder: Option<Arc<Path>>) -> Self {
        Self { agent, folder, additional_directories: Arc::default() }
    }

    /// The agent's own workspace.
    pub fn own(agent: AgentId) -> Self {
        Self::new(agent, None)
    }

    /// As the terms of a session have it.
    pub fn of_terms(agent: AgentId, workspace: Option<&str>, further: &[String]) -> Self {
        let folder = workspace.map(|folder| Path::new(folder).into());
        Self { agent, folder, additional_directories: further.into() }
    }

    /// The names of the further folders.
    pub fn further(&self) -> &[String] {
        &self.additional_directories
    }

    /// Each of the further folders by itself.
    pub(crate) fn additional_roots(&self) -> impl Iterator<Item = Self> {
        self.additional_directories
            .iter()
            .map(|name| Self::new(self.agent.clone(), Some(Path::new(name).into())))
    }

    /// Every folder by itself, the workspace first.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let workspace = Self { additional_directories: Arc::default(), ..self.clone() };
        std::iter::once(workspace).chain(self.additional_roots())
    }

    /// Which folder a path is in.
    pub fn locate<'p>(&self, path: &'p str) -> RootedPath<'p> {
        match beneath(&self.additional_directories, path) {
            Some((folder, path)) => RootedPath {
                ground: Self::new(self.agent.clone(), Some(Path::new(folder).into())),
                path,
                further: Some(folder.into()),
            },
            None => RootedPath {
                ground: Self { additional_directories: Arc::default(), ..self.clone() },
                path,
                further: None,
            },
        }
    }

    pub const fn agent(&self) -> &AgentId {
        &self.agent
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The folder by its name; names that are no text are refused when one is chosen.
    pub fn folder_name(&self) -> Option<&str> {
        self.folder()?.to_str()
    }

    /// Where it is on this machine.
    pub fn path(&self, home: &Path) -> PathBuf {
        match self.folder() {
            Some(folder) => folder.to_owned(),
            None => home.join("agents").join(self.agent.as_str()).join("workspace"),
        }
    }

    /// What the log calls it: the agent, or the folder, which begins with `/` as no agent does.
    pub fn name(&self) -> &str {
        self.folder_name().unwrap_or_else(|| self.agent.as_str())
    }

    /// What the log calls the folders in which something lies, as places where a program may have been at work. For what lies in
    /// an agent's workspace that is the workspace; a folder of the operator's may lie in others that agents worked in.
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

/// The further folder that a path begins with, and the rest of it. Only the folder's own name will do: whatever is written otherwise is in
/// none of them.
pub(crate) fn beneath<'f, 'p>(further: &'f [String], path: &'p str) -> Option<(&'f str, &'p str)> {
    further.iter().find_map(|folder| match path.strip_prefix(folder.as_str())?.trim_start_matches('/') {
        "" => Some((folder.as_str(), ".")),
        inner if path[folder.len()..].starts_with('/') => Some((folder.as_str(), inner)),
        _ => None,
    })
}

/// The one name of each further folder that a session may have beside its workspace, as [`given`] has it. One that is named twice is one.
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
        let is_boxes = is_system_path(&found)
            || OF_BOXES.iter().any(|own| found.starts_with(own))
            || IN_BOXES.iter().any(|own| Path::new(own).starts_with(&found));
        if is_boxes {
            return Err(format!(
                "`{what}` is where a sandbox has a system of its own, or above it: name a folder of your project"
            ));
        }
        if name.contains(|letter: char| letter.is_control() || letter == '`') {
            return Err(format!("`{what}` has a name that cannot be told on one line: rename it"));
        }
        if all.iter().any(|other| is_nested(Path::new(other), &found)) {
            return Err(format!("`{what}` is in another one of them, or holds it: leave out one of the two"));
        }
        all.push(name);
    }
    Ok(all)
}

/// The further folders of a session that works in `workspace`. The workspace itself is none of them.
pub fn exclude_nested(what: &str, workspace: &Path, mut further: Vec<String>) -> Result<Vec<String>, String> {
    further.retain(|folder| Path::new(folder) != workspace);
    match further.iter().find(|folder| is_nested(Path::new(folder), workspace)) {
        Some(folder) => Err(format!(
            "`{what}`: `{folder}` is in the session's own folder, or holds it: leave it out, or choose another `cwd`"
        )),
        None => Ok(further),
    }
}

/// Whether one of two folders is the other, or is in it.
pub fn is_nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The one name of a folder of the operator's that a session may work in: one that is there, and has nothing to do with the
/// house's own. `what` is what the caller calls it.
pub fn validate_root(what: &str, folder: &str, home: &Path) -> Result<PathBuf, String> {
    let path = Path::new(folder);
    if !path.is_absolute() {
        return Err(format!("`{what}` is not absolute: send the whole path"));
    }
    let found = std::fs::canonicalize(path)
        .map_err(|error| format!("`{what}` cannot be used ({error}): name a folder that is there"))?;
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
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_folders_of_agents_and_of_operators_apart() {
        let agent: AgentId = "main".parse().unwrap();
        let own = WorkspaceRoots::own(agent.clone());
        assert_eq!((own.name(), own.ancestor_labels("a/b")), ("main", vec!["workspace:main".to_owned()]));
        assert_eq!(own.path(Path::new("/home")), Path::new("/home/agents/main/workspace"));
        let folder = WorkspaceRoots::new(agent, Some(Path::new("/srv/project").into()));
        assert_eq!(folder.name(), "/srv/project");
        assert_eq!(folder.path(Path::new("/home")), Path::new("/srv/project"));
        let around = ["workspace:/srv/project/a", "workspace:/srv/project", "workspace:/srv", "workspace:/"];
        assert_eq!(folder.ancestor_labels("a/b"), around);
        assert_eq!(folder.ancestor_labels(""), around[2..], "what is around the folder itself");
    }

    #[test]
    fn a_path_is_in_exactly_one_folder() {
        let further = ["/srv/lib".to_owned(), "/srv/library".to_owned()];
        let ground = WorkspaceRoots::of_terms("main".parse().unwrap(), Some("/srv/app"), &further);
        for (path, folder, inner) in [
            ("/srv/lib", "/srv/lib", "."),
            ("/srv/lib/", "/srv/lib", "."),
            ("/srv/lib//a/b/", "/srv/lib", "a/b/"),
            ("/srv/library/a", "/srv/library", "a"),
            // The kernel refuses the rest of these, and the law is told that they lead out.
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
            assert_eq!(spot.further.is_some(), folder != "/srv/app", "{path}");
            assert!(spot.ground.further().is_empty(), "{path}");
        }
    }

    #[test]
    fn further_folders_are_checked_like_the_first_and_apart_from_each_other() {
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
        let further = |names: &[&str]| names.iter().map(|name| at(name)).collect::<Vec<_>>();
        assert_eq!(
            exclude_nested("dirs", &root.join("app"), further(&["lib", "app"])),
            Ok(further(&["lib"]))
        );
        for (workspace, folder) in [("app", "app/inner"), ("lib/inner", "lib")] {
            let refused = exclude_nested("dirs", &root.join(workspace), further(&[folder])).unwrap_err();
            assert!(refused.contains("session's own folder"), "{refused}");
        }
    }
}
