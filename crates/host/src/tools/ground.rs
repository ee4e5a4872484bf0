//! Where a session works: in the workspace of its agent, or in a folder of the operator's that it was given.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribune_agents::AgentId;

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    agent: AgentId,
    folder: Option<Arc<Path>>,
}

impl Ground {
    /// The folder, if there is one, is absolute and has no links in it.
    pub const fn new(agent: AgentId, folder: Option<Arc<Path>>) -> Self {
        Self { agent, folder }
    }

    /// The agent's own workspace.
    pub const fn own(agent: AgentId) -> Self {
        Self { agent, folder: None }
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
    pub fn around(&self, path: &str) -> Vec<String> {
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

/// The one name of a folder of the operator's that a session may work in: one that is there, and has nothing to do with the
/// house's own. `what` is what the caller calls it.
pub(crate) fn given(what: &str, folder: &str, home: &Path) -> Result<PathBuf, String> {
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
        let own = Ground::own(agent.clone());
        assert_eq!((own.name(), own.around("a/b")), ("main", vec!["workspace:main".to_owned()]));
        assert_eq!(own.path(Path::new("/home")), Path::new("/home/agents/main/workspace"));
        let folder = Ground::new(agent, Some(Path::new("/srv/project").into()));
        assert_eq!(folder.name(), "/srv/project");
        assert_eq!(folder.path(Path::new("/home")), Path::new("/srv/project"));
        let around = ["workspace:/srv/project/a", "workspace:/srv/project", "workspace:/srv", "workspace:/"];
        assert_eq!(folder.around("a/b"), around);
        assert_eq!(folder.around(""), around[2..], "what is around the folder itself");
    }
}
