//! Names in workspaces that the operator hides from agents (`workspaces.hide`). In a sandbox they appear empty; the tools refuse
//! them.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use tribune_contract::{LaunchFailure, Pattern};

/// The patterns of hidden names, as [`tribune_contract::WorkspaceMount`] describes them.
#[derive(Debug, Default)]
pub(super) struct HideRules {
    texts: Vec<String>,
    patterns: Vec<Pattern>,
}

impl HideRules {
    pub(super) fn new(texts: &[String]) -> Self {
        let patterns = texts.iter().map(|text| Pattern::new(text)).collect();
        Self { texts: texts.to_vec(), patterns }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a path of the workspace is hidden, or is inside something hidden.
    pub(super) fn covers(&self, path: &str) -> bool {
        let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.any(|end| self.patterns.iter().any(|pattern| pattern.matches(&path[..end])))
    }

    /// Like [`Self::covers`], for a path as the caller wrote it, before symbolic links are resolved.
    pub(super) fn covers_spoken(&self, path: &str) -> bool {
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                // Above the root it leaves the workspace, and is refused for that reason.
                ".." if parts.pop().is_none() => return false,
                ".." => {}
                part => parts.push(part),
            }
        }
        self.covers(&parts.join("/"))
    }

    /// The hidden paths in each folder of a session as they are now. Follows hidden links and hidden paths through links, also
    /// from one folder to another. Each folder comes with all of its names.
    pub(super) fn places(&self, folders: &[(&OwnedFd, &[&Path])]) -> Result<Vec<Places>, LaunchFailure> {
        let hidden = tribune_sandbox::hidden_in(folders, &self.texts)?;
        Ok(hidden.into_iter().map(Places).collect())
    }
}

/// Hidden paths of a workspace, without symbolic links.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeSet<PathBuf>);

impl Places {
    /// Whether a path is one of them or is inside one.
    pub(super) fn cover(&self, path: &str) -> bool {
        Path::new(path).ancestors().any(|place| self.0.contains(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_hidden_folders_are_hidden() {
        let hidden = HideRules::new(&[".env".to_owned(), "keys/private".to_owned(), "*.pem".to_owned()]);
        for path in [".env", "a/b/.ENV", "keys/private", "keys/private/a/b", "x/Host.PEM", ".env/x"] {
            assert!(hidden.covers(path), "{path}");
        }
        for path in ["", "env", ".envrc", "keys", "keys/public", "a/keys/private"] {
            assert!(!hidden.covers(path), "{path}");
        }
        assert!(!HideRules::default().covers(".env"));
    }
}
