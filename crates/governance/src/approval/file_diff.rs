//! The diff between the files of a call when it was approved and now.

use std::time::Duration;

use similar::TextDiff;
use tribune_records::approval::action::{ABSENT, Action};

/// Largest diff of all files together, in bytes. A person has to read it.
const MAX_BYTES: usize = 64 << 10;

/// Time limit of one comparison. After it the diff becomes coarser.
const COMPARING: Duration = Duration::from_millis(200);

/// A unified diff of the changed files; `None` if none changed.
pub fn difference(approved: &Action, now: &Action) -> Option<String> {
    let (before, after) = (&approved.files, &now.files);
    let paths = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
    let changed = paths.filter(|path| before.get(*path) != after.get(*path));
    let mut diff: String = changed.map(|path| diff_file(approved, now, path)).collect();
    if diff.len() > MAX_BYTES {
        let rest = diff.len() - MAX_BYTES;
        diff.truncate(diff.floor_char_boundary(MAX_BYTES));
        diff.push_str(&format!("\n… and {rest} bytes more\n"));
    }
    (!diff.is_empty()).then_some(diff)
}

fn diff_file(approved: &Action, now: &Action, path: &str) -> String {
    let (head, foot) = (format!("{path}, as approved"), format!("{path}, now"));
    match (text(approved, path), text(now, path)) {
        (Some(before), Some(after)) => {
            let diff = TextDiff::configure().timeout(COMPARING).diff_lines(before, after);
            diff.unified_diff().context_radius(3).header(&head, &foot).to_string()
        }
        _ => format!("--- {head}\n+++ {foot}\n(not shown: it is large, or no text)\n"),
    }
}

/// The recorded text of a file; empty for a missing file, `None` if the text was not recorded.
fn text<'a>(action: &'a Action, path: &str) -> Option<&'a str> {
    match action.files.get(path).map(String::as_str) {
        None | Some(ABSENT) => Some(""),
        Some(_) => action.texts.get(path).map(String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tribune_constitution::labels::Labels;

    use super::*;
    use tribune_records::approval::action::Files;
    use tribune_records::approval::call_roots::CallRoots;

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

    fn with(path: &str, hash: &str, text: Option<&str>) -> Action {
        let mut action = action();
        action.files = [(path.to_owned(), hash.to_owned())].into();
        action.texts = text.map(|text| (path.to_owned(), text.to_owned())).into_iter().collect();
        action
    }

    #[test]
    fn l8_what_changed_is_shown_as_a_diff() {
        let approved = with("a.sh", "1", Some("one\ntwo\n"));
        assert_eq!(difference(&approved, &approved), None);
        let head = "--- a.sh, as approved\n+++ a.sh, now\n";
        for (now, diff) in [
            (with("a.sh", "2", Some("one\n2\n")), "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"),
            (with("a.sh", ABSENT, None), "@@ -1,2 +0,0 @@\n-one\n-two\n"),
            (with("a.sh", "2", None), "(not shown: it is large, or no text)\n"),
        ] {
            assert_eq!(difference(&approved, &now), Some(format!("{head}{diff}")));
        }
        let long = with("a.sh", "2", Some(&"ü\n".repeat(MAX_BYTES)));
        let diff = difference(&approved, &long).unwrap();
        assert!(diff.len() < MAX_BYTES + 64 && diff.ends_with("bytes more\n"), "{}", diff.len());
    }
}
