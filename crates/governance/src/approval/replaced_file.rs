//! The file that a call replaces and the folder it is in, as an approver sees them on every surface. Both are made from the
//! inputs of the digest, so that what is shown is what is approved. Does not read the disk.

use std::path::Path;

use tribune_records::approval::action::{ABSENT, Action};
use tribune_records::approval::record::{CallRunner, Requested};
use tribune_records::workspace_roots::WorkspaceRoots;

/// The file at the path of a call, as it was when the approval was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedFile {
    /// The path as the call names it.
    pub path: String,
    pub content: ReplacedContent,
}

/// What a file contained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplacedContent {
    /// There was no such file: the call creates it.
    Absent,
    Text(String),
    /// The file is large, or no text. Its hash is in the digest all the same.
    NotShown,
}

impl ReplacedContent {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::NotShown => None,
        }
    }
}

/// The file that the call would replace. `None` if it writes no file by its path, or its files are not known here.
pub fn replaced_file(action: &Action) -> Option<ReplacedFile> {
    let path = action.input["path"].as_str()?;
    let content = match action.files.get(path)?.as_str() {
        ABSENT => ReplacedContent::Absent,
        _ => action.texts.get(path).cloned().map_or(ReplacedContent::NotShown, ReplacedContent::Text),
    };
    Some(ReplacedFile { path: path.to_owned(), content })
}

/// The folder on this machine to which the paths of a requested call belong. `None` if it names no path, or if its caller
/// executes it in a folder of its own.
pub fn folder_of(home: &Path, requested: &Requested, action: &Action) -> Option<String> {
    if action.roots.workspace.is_some() {
        return action.roots.workspace.clone();
    }
    let has_paths = action.cwd.is_some() || action.input["path"].is_string();
    if !has_paths || requested.runner == CallRunner::Caller {
        return None;
    }
    let own = WorkspaceRoots::own(requested.agent.parse().ok()?);
    Some(own.path(home).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tribune_constitution::labels::Labels;
    use tribune_records::approval::action::Files;
    use tribune_records::approval::call_roots::CallRoots;

    use super::*;

    fn action(hash: Option<&str>, text: Option<&str>) -> Action {
        let file = |value: Option<&str>| -> Files {
            value.map(|value| ("a.txt".to_owned(), value.to_owned())).into_iter().collect()
        };
        Action {
            tool: "write".into(),
            schema: "b3:1".into(),
            input: json!({ "path": "a.txt", "content": "new" }),
            files: file(hash),
            cwd: None,
            env: Vec::new(),
            constitution: "b3:3".into(),
            labels: Labels::FRESH,
            texts: file(text),
            not_bound: Vec::new(),
            tree: None,
            roots: CallRoots::default(),
        }
    }

    #[test]
    fn l8_replaced_file_is_what_the_digest_was_made_of() {
        let content = |hash, text| replaced_file(&action(hash, text)).map(|file| file.content);
        assert_eq!(content(Some(ABSENT), None), Some(ReplacedContent::Absent));
        assert_eq!(content(Some("b3:1"), Some("old")), Some(ReplacedContent::Text("old".to_owned())));
        assert_eq!(content(Some("b3:1"), None), Some(ReplacedContent::NotShown));
        assert_eq!(content(None, None), None, "the files of the call are not known here");
    }
}
