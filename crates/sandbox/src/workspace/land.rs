//! Takes the changes of a session over into the workspace.
//!
//! Each file is written beside its place and then moved there in one step, so that nobody sees half of one. What somebody
//! else changed since the session began is not touched: both versions stay, theirs in the workspace and the session's in its
//! layer.

use std::path::{Path, PathBuf};

use super::apply::Applier;
use super::diff::{Change, diff};
use super::node::Node;
use super::{Layers, WorkspaceError, unwritable};

/// Which changes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All but traps.
    All,
    /// All, traps too.
    Everything,
    /// These, and what is in them. A trap is landed only if it is named itself.
    Paths(Vec<PathBuf>),
    /// These, and what is in them, traps too.
    PathsWithTraps(Vec<PathBuf>),
}

/// What result of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Landing {
    pub landed: Vec<PathBuf>,
    pub unlanded: Vec<Unlanded>,
}

/// A change that was left where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlanded {
    pub path: PathBuf,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("it was changed in the workspace since the session began: merge both versions by hand")]
    Conflict,
    #[error("programs of this machine would obey it: name it by itself if you have read it")]
    Trap,
    #[error("it is a link to somewhere outside: make it yourself if you want it")]
    LinkLeaves,
    #[error("it is no file, folder or link")]
    NoFile,
    #[error("the folder around it was not landed")]
    NoFolder,
    #[error("nobody can look into it: discard it, or open the folder in the layer")]
    Closed,
    /// In a sentence.
    #[error("{0}")]
    Failed(String),
}

/// Lands changes. What goes wrong with one of them is told, and the others land all the same; landing again goes on.
pub fn land(lower: &Path, layers: &Layers, selection: &Selection) -> Result<Landing, WorkspaceError> {
    let changes = diff(lower, layers)?.changes;
    let mut applier = Applier::open(lower, layers, &changes)?;
    let mut landing = Landing::default();
    // What is removed or replaced goes before what comes in its place; folders come before what is in them.
    for change in changes.iter().filter(|change| selection.includes(change, &changes)) {
        let path = change.path.clone();
        let result = match refusal(change, selection) {
            Some(why) => Err(why),
            None => applier.apply(change).unwrap_or_else(|error| Err(Why::Failed(error.to_string()))),
        };
        match result {
            Ok(()) => landing.landed.push(path),
            Err(why) => landing.unlanded.push(Unlanded { path, why }),
        }
    }
    for (path, error) in applier.restore_folder_modes() {
        landing.unlanded.push(Unlanded { path, why: Why::Failed(error.to_string()) });
    }
    applier.finish(layers).map_err(|error| unwritable(layers.folder(), error))?;
    Ok(landing)
}

impl Selection {
    fn includes(&self, change: &Change, all: &[Change]) -> bool {
        match self {
            Self::All | Self::Everything => true,
            Self::Paths(paths) | Self::PathsWithTraps(paths) => paths.iter().any(|path| {
                // New folders around what was named come along.
                let is_around =
                    || matches!(change.after, Some(Node::Folder { .. })) && change.before.is_none();
                change.path.starts_with(path)
                    || (path.starts_with(&change.path)
                        && is_around()
                        && all.iter().any(|other| other.path.starts_with(path)))
            }),
        }
    }

    fn names(&self, path: &Path) -> bool {
        match self {
            Self::All => false,
            Self::Everything | Self::PathsWithTraps(_) => true,
            Self::Paths(paths) => paths.iter().any(|named| named == path),
        }
    }
}

/// What is not landed whatever the workspace says.
fn refusal(change: &Change, selection: &Selection) -> Option<Why> {
    if change.is_trap && !selection.names(&change.path) {
        return Some(Why::Trap);
    }
    if change.leaves {
        return Some(Why::LinkLeaves);
    }
    if change.is_closed {
        return Some(Why::Closed);
    }
    matches!(change.after, Some(Node::Other)).then_some(Why::NoFile)
}
