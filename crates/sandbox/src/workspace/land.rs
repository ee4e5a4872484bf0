//! Lands the changes of a session in the workspace.
//!
//! Each file is written beside its target and then renamed into place, so that no reader sees half of it. What was
//! changed in the workspace since the session began is a conflict and stays untouched: both versions are kept, one in
//! the workspace and one in the overlay.

use std::path::Path;

use super::apply::Applier;
use super::change::Change;
use super::diff::diff;
use super::land_report::{LandRefusal, LandReport, NotLanded};
use super::node::Node;
use super::selection::Selection;
use super::{OverlayDirs, WorkspaceError, unwritable};

/// Lands changes. The failure of one does not stop the others, and landing can be repeated.
pub fn land(lower: &Path, layers: &OverlayDirs, selection: &Selection) -> Result<LandReport, WorkspaceError> {
    let changes = diff(lower, layers)?.changes;
    let mut applier = Applier::open(lower, layers, &changes)?;
    let mut landing = LandReport::default();
    // Removals come before what replaces them, folders before their content.
    for change in changes.iter().filter(|change| selection.includes(change, &changes)) {
        let path = change.path.clone();
        let result = match refusal(change, selection) {
            Some(why) => Err(why),
            None => applier.apply(change).unwrap_or_else(|error| Err(LandRefusal::Failed(error.to_string()))),
        };
        match result {
            Ok(()) => landing.landed.push(path),
            Err(why) => landing.not_landed.push(NotLanded { path, reason: why }),
        }
    }
    for (path, error) in applier.restore_folder_modes() {
        landing.not_landed.push(NotLanded { path, reason: LandRefusal::Failed(error.to_string()) });
    }
    applier.finish(layers).map_err(|error| unwritable(layers.folder(), error))?;
    Ok(landing)
}

/// Reasons not to land a change that do not depend on the workspace.
fn refusal(change: &Change, selection: &Selection) -> Option<LandRefusal> {
    if change.is_autorun && !selection.allows_autorun(&change.path) {
        return Some(LandRefusal::Autorun);
    }
    if change.is_escaping_symlink {
        return Some(LandRefusal::EscapingSymlink);
    }
    if change.is_inaccessible {
        return Some(LandRefusal::Inaccessible);
    }
    matches!(change.after, Some(Node::Other)).then_some(LandRefusal::UnsupportedType)
}
