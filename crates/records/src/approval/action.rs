//! The exact action that a person approves, and nothing else. It is computed again when the call is about to start; if any
//! part differs, the call returns to the inbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::labels::Labels;
use tribune_ledger::Cid;
use tribune_ledger::cid::Domain;
use tribune_ledger::jcs::{self, JcsError};

use super::call_roots::CallRoots;

/// Files by their paths, in the workspace or absolute, each with the hash of its content, or with the content.
pub type Files = BTreeMap<String, String>;

/// A stamp of all files of a session's folders. It is another one when any of them was changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct TreeStamp {
    pub digest: String,
    /// A value for each file, to tell which ones were changed. Not kept: empty when the action is read again, or when there
    /// are too many files.
    pub entries: Arc<Vec<(String, u64)>>,
}

impl TreeStamp {
    /// Says why there is no stamp.
    pub fn unbound(why: String) -> Self {
        Self { digest: why, entries: Arc::default() }
    }

    /// The files whose value is not the same, and whether that is known.
    fn changed<'a>(&'a self, now: &'a Self) -> Option<Vec<&'a str>> {
        if self.entries.is_empty() || now.entries.is_empty() {
            return None;
        }
        let of = |stamp: &'a Self| -> BTreeMap<&'a str, u64> {
            stamp.entries.iter().map(|(name, value)| (name.as_str(), *value)).collect()
        };
        let (before, after) = (of(self), of(now));
        let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
        Some(names.filter(|name| before.get(*name) != after.get(*name)).copied().collect())
    }
}

impl PartialEq for TreeStamp {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for TreeStamp {}

impl From<String> for TreeStamp {
    fn from(digest: String) -> Self {
        Self::unbound(digest)
    }
}

impl From<TreeStamp> for String {
    fn from(stamp: TreeStamp) -> Self {
        stamp.digest
    }
}

/// Stands for the hash of a file that does not exist or cannot be read.
pub const ABSENT: &str = "absent";

/// Changed files that are named.
const MAX_CHANGED: usize = 20;

/// A call with everything that determines its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    pub tool: String,
    /// Hash of the tool's description and schema, as the agent saw them.
    pub schema: String,
    pub input: Value,
    /// The files that the outcome depends on, with the hash of their content: the program, its scripts, what is
    /// replaced.
    pub files: Files,
    /// What decides what a command runs and is not among the files, in words for the person who decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_bound: Vec<String>,
    /// All files of the session's folders, for a command that may run or load any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeStamp>,
    pub cwd: Option<String>,
    /// Names of the program's environment variables.
    pub env: Vec<String>,
    /// Hash of the constitution in force.
    pub constitution: String,
    pub labels: Labels,
    /// The contents of the files that are text and not too long, for an approver who decides again after a change. Only the
    /// hashes above are part of the digest.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub texts: Files,
    #[serde(flatten)]
    pub roots: CallRoots,
}

impl Action {
    /// The digest that identifies exactly this action.
    pub fn digest(&self) -> Result<String, JcsError> {
        let value = serde_json::to_value(self.without_texts()).unwrap_or(Value::Null);
        let canonical = jcs::to_vec(&value)?;
        Ok(Cid::from_bytes(Domain::Action.hash(&[&canonical])).to_string())
    }

    /// The action without the contents of its files.
    pub fn without_texts(&self) -> Self {
        Self { texts: Files::new(), ..self.clone() }
    }

    /// The parts that differ in `now`, in words for an approval card.
    pub fn changed(&self, now: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        let mut part = |is_same: bool, name: &str| {
            if !is_same {
                changed.push(name.to_owned());
            }
        };
        part(self.tool == now.tool, "tool");
        part(self.schema == now.schema, "the tool's description");
        part(self.input == now.input, "arguments");
        part(self.cwd == now.cwd, "folder");
        part(self.roots.workspace == now.roots.workspace, "workspace");
        let is_same = self.roots.additional_directories == now.roots.additional_directories;
        part(is_same, "further folders");
        part(self.env == now.env, "environment");
        part(self.constitution == now.constitution, "constitution");
        part(self.labels == now.labels, "what the session has read");
        let paths = self.files.keys().chain(now.files.keys().filter(|path| !self.files.contains_key(*path)));
        for path in paths {
            part(self.files.get(path) == now.files.get(path), &format!("file {path}"));
        }
        part(self.not_bound == now.not_bound, "what is not bound");
        if self.tree != now.tree {
            self.add_changed_tree(now, &mut changed);
        }
        changed
    }

    /// The files that were changed beside those that are named already.
    fn add_changed_tree(&self, now: &Self, changed: &mut Vec<String>) {
        let names = self.tree.as_ref().zip(now.tree.as_ref()).and_then(|(tree, now)| tree.changed(now));
        let Some(mut names) = names else {
            return changed.push("files of the workspace".to_owned());
        };
        let is_named = |name: &&str| !self.files.contains_key(*name) && !now.files.contains_key(*name);
        names.retain(is_named);
        changed.extend(names.iter().take(MAX_CHANGED).map(|name| format!("file {name}")));
        if names.len() > MAX_CHANGED {
            changed.push(format!("{} more files", names.len() - MAX_CHANGED));
        }
        if changed.is_empty() {
            // The same content was written again.
            changed.push("files of the workspace".to_owned());
        }
    }
}

/// A short id for an approval: eight letters and digits that are not easily confused.
pub fn approval_id(call: &Cid, attempt: u32) -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let hash = Domain::Approval.hash(&[call.as_bytes(), &attempt.to_be_bytes()]);
    hash.iter().take(8).map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn action() -> Action {
        Action {
            tool: "exec".into(),
            schema: "b3:1".into(),
            input: json!({"command": "sh deploy.sh"}),
            files: [("deploy.sh".to_owned(), "b3:2".to_owned())].into(),
            cwd: Some(".".into()),
            env: vec!["HOME".into(), "PATH".into()],
            constitution: "b3:3".into(),
            labels: Labels::FRESH,
            not_bound: Vec::new(),
            tree: None,
            texts: Files::new(),
            roots: CallRoots::default(),
        }
    }

    #[test]
    fn l8_every_part_is_in_the_digest_and_named_when_it_changes() {
        let approved = action();
        let digest = approved.digest().unwrap();
        assert_eq!(digest, action().digest().unwrap());
        assert_eq!(approved.changed(&action()), Vec::<String>::new());
        let mut shown = action();
        shown.texts.insert("deploy.sh".into(), "echo".into());
        assert_eq!((shown.digest().unwrap(), approved.changed(&shown)), (digest.clone(), Vec::new()));
        type Edit = fn(&mut Action);
        let edits: [(Edit, &str); 13] = [
            (|action| action.tool = "write".into(), "tool"),
            (|action| action.schema = "b3:9".into(), "the tool's description"),
            (|action| action.input = json!({"command": "sh deploy.sh "}), "arguments"),
            (|action| drop(action.files.insert("deploy.sh".into(), "b3:9".into())), "file deploy.sh"),
            (|action| drop(action.files.insert("lib.sh".into(), "b3:9".into())), "file lib.sh"),
            (|action| action.not_bound.push("words".into()), "what is not bound"),
            (|action| action.tree = Some("b3:9".to_owned().into()), "files of the workspace"),
            (|action| action.cwd = None, "folder"),
            (|action| action.roots.workspace = Some("/srv/project".into()), "workspace"),
            (|action| action.roots.additional_directories.push("/srv/lib".into()), "further folders"),
            (|action| action.env.push("LD_PRELOAD".into()), "environment"),
            (|action| action.constitution = "b3:9".into(), "constitution"),
            (|action| action.labels.private = true, "what the session has read"),
        ];
        for (edit, name) in edits {
            let mut now = action();
            edit(&mut now);
            assert_ne!(now.digest().unwrap(), digest, "{name}");
            assert_eq!(approved.changed(&now), [name]);
        }
    }

    #[test]
    fn ids_are_short_and_distinct() {
        let (one, two) = (Cid::from_bytes([1; 32]), Cid::from_bytes([2; 32]));
        let ids = [approval_id(&one, 0), approval_id(&one, 1), approval_id(&two, 0)];
        assert!(ids.iter().all(|id| id.len() == 8 && id.is_ascii()));
        assert!(ids[0] != ids[1] && ids[0] != ids[2]);
        assert_eq!(ids[0], approval_id(&one, 0));
    }
}
