//! Prints changes for a person. File names and contents are untrusted, so they are made safe for the terminal.

use serde_json::Value;

use crate::output::{Paint, clean, clean_exact, clean_text, count};

pub(super) fn text(diff: &Value, paint: Paint) -> String {
    let changes: Vec<&Value> = diff["changes"].as_array().into_iter().flatten().collect();
    if changes.is_empty() {
        return "no changes".to_owned();
    }
    let mut lines: Vec<String> = changes.iter().map(|change| change_text(change, paint)).collect();
    let number = changes.len() as u64 + diff["more"].as_u64().unwrap_or(0);
    let traps = diff["traps"].as_u64().unwrap_or(0);
    let mut sum = format!(
        "{} to {}",
        count(number, "change", "changes"),
        clean(diff["folder"].as_str().unwrap_or_default())
    );
    if diff["more"].as_u64().unwrap_or(0) > 0 {
        sum.push_str(&format!(", of which {} are shown: name paths to see others", changes.len()));
    }
    lines.push(paint.faint(&sum));
    if traps > 0 {
        let them = count(traps, "autorun file", "autorun files");
        lines.push(paint.bad(&format!("! {them}: read before you land, and name each, or add --traps")));
    }
    if diff["running"] == true {
        lines.push(paint.unsure("it is still running: these are its changes so far"));
    }
    lines.join("\n")
}

/// One change: a line, and below it the diff.
fn change_text(change: &Value, paint: Paint) -> String {
    let code = match change["kind"].as_str() {
        Some("added") => "A",
        Some("removed") => "D",
        _ => "M",
    };
    let is_trap = change["trap"] == true;
    let mark = if is_trap { "!" } else { " " };
    let path = name(change["path"].as_str().unwrap_or_default());
    let line = format!("{mark}{code} {path}{}", about(change));
    let head = match code {
        _ if is_trap => paint.bad(&line),
        "A" => paint.good(&line),
        "D" => paint.bad(&line),
        _ => paint.unsure(&line),
    };
    match change["patch"].as_str() {
        Some(patch) => format!("{head}\n{}", patch_text(patch, paint)),
        None => head,
    }
}

/// A name for a person who decides about it: on one line, with invisible characters escaped.
pub(super) fn name(name: &str) -> String {
    clean(&clean_exact(name))
}

/// The name of a file type.
fn thing(kind: &str) -> &str {
    match kind {
        "other" => "pipe, socket or device",
        kind => kind,
    }
}

/// A short description of a change.
fn about(change: &Value) -> String {
    let (before, after) = (&change["before"], &change["after"]);
    let mut words = Vec::new();
    match (before["type"].as_str(), after["type"].as_str()) {
        (Some(old), Some(new)) if old != new => {
            words.push(format!("a {} instead of a {}", thing(new), thing(old)));
        }
        (None, Some(kind @ ("folder" | "other"))) => words.push(format!("a {}", thing(kind))),
        (Some("folder"), None) => words.push("a folder, with everything in it".to_owned()),
        (Some("other"), None) => words.push(format!("a {}", thing("other"))),
        _ => {}
    }
    let arrow = |name: &str| match (before[name].as_str(), after[name].as_str()) {
        (Some(old), Some(new)) if old != new => Some(format!("{} → {}", self::name(old), self::name(new))),
        (None, Some(new)) => Some(self::name(new)),
        _ => None,
    };
    if let Some(mode) = arrow("mode") {
        words.push(format!("mode {mode}"));
    }
    if let Some(to) = arrow("to") {
        words.push(format!("link to {to}"));
    }
    if let Some(unseen) = change["unseen"].as_str() {
        let size = |node: &Value| node["bytes"].as_u64().map(super::bytes);
        let sizes: Vec<String> = [size(before), size(after)].into_iter().flatten().collect();
        let why = std::iter::once(clean(unseen)).chain((!sizes.is_empty()).then(|| sizes.join(" → ")));
        words.push(why.collect::<Vec<_>>().join(", "));
    }
    if change["leaves"] == true {
        words.push("points out of the folder: does not land".to_owned());
    }
    if change["set_id"] == true {
        words.push("set-id bits: do not land".to_owned());
    }
    if change["trap"] == true {
        words.push("autorun file: programs of this machine run it".to_owned());
    }
    if words.is_empty() { String::new() } else { format!("  ({})", words.join("; ")) }
}

fn patch_text(patch: &str, paint: Paint) -> String {
    let line = |line: &str| {
        let shown = clean_text(&clean_exact(line));
        match line.as_bytes().first() {
            Some(b'+') => paint.good(&shown),
            Some(b'-') => paint.bad(&shown),
            Some(b'@') => paint.faint(&shown),
            _ => shown,
        }
    };
    patch.lines().map(|text| format!("    {}", line(text))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn diff_shows_what_matters_and_is_safe_for_the_terminal() {
        let diff = json!({
            "folder": "/p", "running": false, "more": 0, "traps": 1, "changes": [
                { "path": "a\u{1b}[2J", "kind": "changed", "before": { "type": "file", "mode": "644", "bytes": 2 },
                  "after": { "type": "file", "mode": "755", "bytes": 2 }, "patch": "@@ -1 +1 @@\n-a\n+b\u{202e}\n" },
                { "path": ".envrc", "kind": "added", "before": null, "after": { "type": "file", "mode": "644", "bytes": 1 }, "trap": true, "set_id": true },
                { "path": "l", "kind": "added", "before": null, "after": { "type": "link", "to": "/etc/passwd" }, "leaves": true },
                { "path": "d", "kind": "removed", "before": { "type": "folder", "mode": "755" }, "after": null },
                { "path": "b", "kind": "changed", "before": { "type": "file", "mode": "644", "bytes": 1 },
                  "after": { "type": "file", "mode": "644", "bytes": 20480 }, "unseen": "binary" },
            ]
        });
        let shown = text(&diff, Paint::OFF);
        let expected = " M a\\u{1b}[2J  (mode 644 → 755)\n    @@ -1 +1 @@\n    -a\n    +b\\u{202e}\n\
                        !A .envrc  (mode 644; set-id bits: do not land; autorun file: programs of this machine run it)\n\
                        \u{20}A l  (link to /etc/passwd; points out of the folder: does not land)\n\
                        \u{20}D d  (a folder, with everything in it)\n\
                        \u{20}M b  (binary, 1 B → 20 KiB)\n\
                        5 changes to /p\n\
                        ! 1 autorun file: read before you land, and name each, or add --traps";
        assert_eq!(shown, expected);
    }
}
