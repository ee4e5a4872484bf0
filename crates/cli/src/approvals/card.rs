//! Prints one waiting call for the person who decides: exactly what would run, and why a person is asked. Text that an
//! agent influenced is made safe for the terminal.

use serde_json::Value;
use tribune_constitution::{LAND, SPEND};

use crate::output::{Paint, cell, clean, clean_exact, sorted};
use crate::times;

/// Lines of a text and characters of a line that are shown. The card says how much is left out.
const MAX_LINES: usize = 40;
const MAX_COLUMNS: usize = 400;

/// The subject of a call on one line: the command, the path, the address, the recipient.
pub(crate) fn what(approval: &Value) -> String {
    let action = &approval["action"];
    let input = &action["input"];
    if action.is_null() {
        return "(forgotten)".to_owned();
    }
    if approval["tool"] == SPEND {
        return raises(input).join(", and ");
    }
    if approval["tool"] == LAND {
        let traps = input["traps"].as_array().map_or(0, Vec::len);
        let autorun = if traps > 0 { format!(", {traps} of them autorun files") } else { String::new() };
        return format!("{} changes to {}{autorun}", input["changes"], cell(&input["folder"]));
    }
    let named = ["command", "path", "url", "host", "to", "recipient", "query", "name"];
    match named.iter().find_map(|name| input[name].as_str()) {
        Some(text) => clean(&clean_exact(text)),
        None => clean(&clean_exact(&sorted(input).to_string())),
    }
}

/// The limits that would be raised, and by how much.
pub(crate) fn raises(input: &Value) -> Vec<String> {
    let one = |one: &Value| {
        let tokens = one["tokens"].as_u64().map(|tokens| format!("{tokens} tokens"));
        let cost = one["cost"].as_str().map(|cost| format!("a cost of {}", clean(cost)));
        let more: Vec<String> = tokens.into_iter().chain(cost).collect();
        let of = match one["scope"].as_str() {
            Some("session") => "this session".to_owned(),
            Some("agent") => format!("{} on {}", cell(&one["name"]), cell(&one["day"])),
            _ => format!("everyone on {}", cell(&one["day"])),
        };
        format!("{} more for {of}", more.join(" and "))
    };
    input["raise"].as_array().into_iter().flatten().map(one).collect()
}

/// The taint labels of a session, in words.
pub(crate) fn context(trust: &str, private: bool) -> String {
    let trust = match trust {
        "owner" => "only its owner's words",
        "verified" => "verified sources",
        "community" => "community sources",
        _ => "untrusted",
    };
    let private = if private { "has read private data" } else { "has read nothing private" };
    format!("{trust}, {private}")
}

/// The card. New file content is shown as a diff against the file that it replaces.
pub(crate) fn text(approval: &Value, paint: Paint) -> String {
    let word = |name: &str| approval[name].as_str().unwrap_or_default();
    let mut card = CardText { paint, lines: Vec::new() };
    let state = match word("state") {
        "pending" => format!("expires in {}", times::time_left(word("expires_at"))),
        _ => decided(approval),
    };
    let head =
        format!("{}  {} by {}", cell(&approval["id"]), cell(&approval["tool"]), cell(&approval["agent_id"]));
    card.lines.push(format!(
        "{}  {}",
        paint.good(&head),
        paint.faint(&format!("{} old, {state}", times::age(word("created_at"))))
    ));
    card.action(approval);
    for (n, open) in approval["not_bound"].as_array().into_iter().flatten().enumerate() {
        let name = if n == 0 { "not bound" } else { "" };
        card.field(name, &paint.unsure(&clean_exact(open.as_str().unwrap_or_default())));
    }
    if let Some(words) = approval["text"].as_str() {
        card.block("sent as", words);
    }
    if let Some(word) = approval["came_of_it"].as_str() {
        card.field("result", &clean(word));
    }
    match approval["action"]["input"]["why"].as_str().filter(|_| word("tool") == SPEND) {
        Some(why) => card.field("why", &clean(why)),
        None => card.field("why", &clean(word("reason"))),
    }
    card.field("rules", &list(&approval["rules"]));
    card.field("risk", &cell(&approval["risk"]));
    card.field("context", &context(word("trust"), approval["private"] == true));
    for (n, step) in approval["trail"].as_array().into_iter().flatten().enumerate() {
        card.field(if n == 0 { "because" } else { "" }, &trail_step(step));
    }
    card.field("session", &cell(&approval["session_key"]));
    if let Some(before) = approval["instead_of"].as_str() {
        let changed = list(&approval["changed"]);
        card.field(
            "again",
            &paint.unsure(&format!("{} was allowed, but since then changed: {changed}", clean(before))),
        );
        if let Some(diff) = approval["diff"].as_str() {
            card.patch(diff);
        }
    }
    let needs = approval["needs"].as_u64().unwrap_or(1);
    if needs > 1 {
        let votes = list(&approval["votes"]);
        let agreed = if votes.is_empty() { "nobody yet".to_owned() } else { votes };
        card.field("needs", &format!("{needs} people; agreed: {agreed}"));
    }
    let roles = list(&approval["roles"]);
    if !roles.is_empty() {
        card.field("roles", &format!("one of {roles}"));
    }
    let patterns: Vec<String> = approval["patterns"].as_array().into_iter().flatten().map(cell).collect();
    for (n, pattern) in patterns.iter().enumerate() {
        let past = past(&approval["past"][n]);
        card.field(if n == 0 { "patterns" } else { "" }, &format!("{pattern}{}", paint.faint(&past)));
    }
    if let Some(words) = approval["draft"].as_str().filter(|_| word("state") == "pending") {
        card.field("draft", &format!("you may edit `{}` first: allow --edit", clean(words)));
    }
    card.field("digest", &cell(&approval["digest"]));
    card.lines.join("\n")
}

/// One step of the label history: when the session read what, who wrote it, and the labels since then.
fn trail_step(step: &Value) -> String {
    let word = |name: &str| clean(step[name].as_str().unwrap_or_default());
    let at = word("at");
    let at = at.get(..19).map_or(at.as_str(), |at| at).replace('T', " ");
    let written =
        step["written"].as_str().map_or_else(String::new, |by| format!(", written by {}", clean(by)));
    let since = context(step["trust"].as_str().unwrap_or_default(), step["private"] == true);
    format!("{} at {at} UTC{written}; since then: {since}", word("what"))
}

/// How many earlier requests a pattern would have covered.
fn past(past: &Value) -> String {
    let count = |name: &str| past[name].as_u64().unwrap_or(0);
    match (count("asked"), count("denied")) {
        (0, _) => String::new(),
        (asked, 0) => format!("   would have covered {} of {asked} asked before", count("covered")),
        (asked, denied) => {
            format!(
                "   would have covered {} of {asked} asked before, {denied} of them denied",
                count("covered")
            )
        }
    }
}

fn decided(approval: &Value) -> String {
    let by = approval["decided_by"].as_str().map_or_else(String::new, |by| format!(" by {}", clean(by)));
    let words = approval["words"].as_str().map_or_else(String::new, |words| format!(": {}", clean(words)));
    format!("{}{by}{words}", cell(&approval["state"]))
}

fn list(value: &Value) -> String {
    let words: Vec<String> = value.as_array().into_iter().flatten().map(cell).collect();
    words.join(", ")
}

struct CardText {
    paint: Paint,
    lines: Vec<String>,
}

impl CardText {
    fn field(&mut self, name: &str, value: &str) {
        self.lines.push(format!("{} {value}", self.paint.faint(&format!("{name:<9}"))));
    }

    /// Every part of the action that affects what happens.
    fn action(&mut self, approval: &Value) {
        let action = &approval["action"];
        if action.is_null() {
            let gone = self.paint.unsure("the request was forgotten: it can only be allowed once, or denied");
            return self.field("action", &gone);
        }
        let input = &action["input"];
        if approval["tool"] == SPEND {
            for (n, raise) in raises(input).iter().enumerate() {
                self.field(if n == 0 { "allows" } else { "" }, raise);
            }
            return;
        }
        let (old, new) = (input["old"].as_str(), input["new"].as_str());
        let path = input["path"].as_str();
        for (name, value) in sorted(input).as_object().into_iter().flatten() {
            match (name.as_str(), value) {
                ("old" | "new", _) if old.is_some() && new.is_some() => {}
                // A command is never shortened: the person who allows it must have seen all of it.
                ("command", Value::String(command)) => self.whole("command", command),
                ("content", Value::String(content)) if path.is_some() => {
                    self.content(&approval["replaces"], content);
                }
                (name, Value::String(text)) => self.block(&clean(name), text),
                (name, other) => self.field(&clean(name), &clean_exact(&sorted(other).to_string())),
            }
        }
        if let (Some(old), Some(new)) = (old, new) {
            self.diff("change", old, new);
        }
        match (approval["folder"].as_str(), action["cwd"].as_str()) {
            (Some(folder), None | Some(".")) => self.field("folder", &clean(folder)),
            (Some(folder), Some(cwd)) => {
                self.field("folder", &format!("{} in {}", clean(cwd), clean(folder)))
            }
            (None, Some(cwd)) => self.field("folder", &clean(cwd)),
            (None, None) => {}
        }
        for (n, (file, hash)) in sorted(&action["files"]).as_object().into_iter().flatten().enumerate() {
            let hash: String = cell(hash).chars().take(15).collect();
            self.field(
                if n == 0 { "files" } else { "" },
                &format!("{} {}", clean(file), self.paint.faint(&hash)),
            );
        }
        if let Some(stamp) = action["tree"].as_str() {
            let is_stamp = stamp.len() == 64 && stamp.bytes().all(|byte| byte.is_ascii_hexdigit());
            let what = match is_stamp {
                true => "all files as they are now, by their times and sizes".to_owned(),
                false => self.paint.unsure(&format!("its files are not bound: {}", clean(stamp))),
            };
            self.field("workspace", &what);
        }
        let env = list(&action["env"]);
        if !env.is_empty() {
            self.field("variables", &env);
        }
    }

    /// The new content of a file, and what it replaces.
    fn content(&mut self, replaces: &Value, content: &str) {
        match (replaces["exists"].as_bool(), replaces["text"].as_str()) {
            (Some(true), Some(before)) => return self.diff("replaces", before, content),
            (Some(true), None) => {
                let hidden = "an existing file, which is not shown: it is large, or no text";
                let hidden = self.paint.unsure(hidden);
                self.field("replaces", &hidden);
            }
            (Some(false), _) => self.field("creates", "a new file"),
            (None, _) => {}
        }
        self.block("content", content);
    }

    /// A text without a length limit.
    fn whole(&mut self, name: &str, text: &str) {
        for (n, line) in clean_exact(text).lines().enumerate() {
            self.field(if n == 0 { name } else { "" }, line);
        }
    }

    /// A text: on the same line if it fits, otherwise below.
    fn block(&mut self, name: &str, text: &str) {
        match text.contains('\n') || text.chars().count() > MAX_COLUMNS {
            false => self.field(name, &clean_exact(text)),
            true => {
                let lines = text.lines().count();
                self.field(name, &format!("{} bytes, {}", text.len(), self::lines(lines)));
                self.bounded(text.lines().map(|line| format!("    {}", cut(line))), lines);
            }
        }
    }

    /// The removed and the added lines, without the common start and end.
    fn diff(&mut self, name: &str, before: &str, after: &str) {
        let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
        let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let (old_rest, new_rest) = (&old[head..], &new[head..]);
        let tail =
            old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
        let removed = &old_rest[..old_rest.len() - tail];
        let added = &new_rest[..new_rest.len() - tail];
        let at = format!("from line {}: {} out, {} in", head + 1, lines(removed.len()), lines(added.len()));
        self.field(name, &at);
        let paint = self.paint;
        self.bounded(removed.iter().map(|line| paint.bad(&format!("  - {}", cut(line)))), removed.len());
        self.bounded(added.iter().map(|line| paint.good(&format!("  + {}", cut(line)))), added.len());
    }

    /// A unified diff.
    fn patch(&mut self, diff: &str) {
        let paint = self.paint;
        let painted = |line: &str| match line.chars().next() {
            Some('+') => paint.good(&format!("  {}", cut(line))),
            Some('-') => paint.bad(&format!("  {}", cut(line))),
            _ => format!("  {}", cut(line)),
        };
        self.bounded(diff.lines().map(painted), diff.lines().count());
    }

    fn bounded(&mut self, lines: impl Iterator<Item = String>, all: usize) {
        self.lines.extend(lines.take(MAX_LINES));
        if all > MAX_LINES {
            let more = format!("    … and {} lines more, in: tribune approvals show --json", all - MAX_LINES);
            self.lines.push(self.paint.unsure(&more));
        }
    }
}

fn lines(count: usize) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

/// A line, cut at the bound with a note.
fn cut(line: &str) -> String {
    let shown: String = line.chars().take(MAX_COLUMNS).collect();
    let rest = line.chars().count().saturating_sub(MAX_COLUMNS);
    let more = if rest > 0 { format!(" … and {rest} characters more") } else { String::new() };
    format!("{}{more}", clean_exact(&shown))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Paint;

    fn card(input: Value) -> String {
        let approval = json!({
            "id": "0a1b2c3d", "state": "pending", "tool": "exec", "agent_id": "main", "risk": "critical",
            "session_key": "agent:main:cli:local:dm:ada", "reason": "it can \u{1b}[2Jnot be taken back",
            "rules": ["effect.side_effect"], "trust": "untrusted", "private": true, "needs": 2, "votes": ["ada"],
            "roles": [], "created_at": "", "expires_at": "", "digest": "b3:00", "instead_of": "9z9z9z9z",
            "not_bound": ["words of `sh` that are known only when the line \u{1b}[2Jruns"],
            "changed": ["file deploy.sh"], "diff": "@@ -1 +1 @@\n-make\n+curl \u{1b}[2J\n", "patterns": ["git push"],
            "action": { "input": input, "cwd": ".", "files": { "deploy.sh": "b3:11" }, "env": ["PATH"],
                "tree": "0".repeat(64) },
        });
        text(&approval, Paint::OFF)
    }

    #[test]
    fn l8_card_compares_with_the_file_that_the_daemon_names() {
        let card = |replaces: Value| {
            let approval = json!({
                "tool": "write", "folder": "/srv/project", "replaces": replaces,
                "action": { "input": { "path": "a.txt", "content": "one\n2\n" }, "cwd": null },
            });
            text(&approval, Paint::OFF)
        };
        let shown = card(json!({ "path": "a.txt", "exists": true, "text": "one\ntwo\n" }));
        assert!(shown.contains("replaces  from line 2: 1 line out, 1 line in\n  - two\n  + 2\n"), "{shown}");
        assert!(shown.contains("folder    /srv/project\n"), "{shown}");
        let shown = card(json!({ "path": "a.txt", "exists": true }));
        assert!(shown.contains("replaces  an existing file, which is not shown"), "{shown}");
        assert!(card(json!({ "path": "a.txt", "exists": false })).contains("creates   a new file\n"));
    }

    #[test]
    fn card_shows_exactly_what_would_run_and_why() {
        let text = card(json!({ "command": "git push\u{202e}\u{200b} --force" }));
        for line in [
            "command   git push\\u{202e}\\u{200b} --force",
            "why       it can \\u{1b}[2Jnot be taken back",
            "rules     effect.side_effect",
            "context   untrusted, has read private data",
            "again     9z9z9z9z was allowed, but since then changed: file deploy.sh\n  @@ -1 +1 @@\n  -make\n  +curl \\u{1b}[2J\n",
            "needs     2 people; agreed: ada",
            "patterns  git push",
            "folder    .",
            "files     deploy.sh b3:11",
            "workspace all files as they are now, by their times and sizes",
            "not bound words of `sh` that are known only when the line \\u{1b}[2Jruns",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn budget_increase_is_described_in_words() {
        let approval = json!({
            "id": "0a1b2c3d", "state": "pending", "tool": "spend", "agent_id": "main", "reason": "a side effect",
            "rules": ["effect.side_effect"], "trust": "owner", "created_at": "", "expires_at": "",
            "action": { "input": { "why": "the next request would go beyond the limit", "raise": [
                { "scope": "session", "name": "agent:main:cli:local:dm:op", "tokens": 60_000 },
                { "scope": "agent", "name": "main", "day": "2030-01-01", "cost": "5.00", "tokens": 7 },
                { "scope": "day", "name": "", "day": "2030-01-01", "cost": "0.10" },
            ] } },
        });
        assert_eq!(
            what(&approval),
            "60000 tokens more for this session, and 7 tokens and a cost of 5.00 more for main on 2030-01-01, and a cost of 0.10 \
             more for everyone on 2030-01-01"
        );
        let text = text(&approval, Paint::OFF);
        assert!(text.contains("allows    60000 tokens more for this session\n"), "{text}");
        assert!(text.contains("why       the next request would go beyond the limit\n"), "{text}");
        assert_eq!(text.matches("why ").count(), 1, "{text}");
        assert!(!text.contains('{') && !text.contains("scope"), "{text}");
    }

    #[test]
    fn long_texts_are_bounded_and_edits_are_shown_as_diffs() {
        let text = card(json!({ "path": "a", "content": "line\n".repeat(1_000) }));
        assert!(text.contains("… and 960 lines more") && text.lines().count() < 80, "{text}");
        let text = card(json!({ "path": "a", "old": "one\ntwo\nthree", "new": "one\n2\nthree" }));
        assert!(text.contains("change    from line 2: 1 line out, 1 line in\n  - two\n  + 2\n"), "{text}");
        let text = card(json!({ "text": "x".repeat(1_000) }));
        assert!(text.contains("… and 600 characters more"), "{text}");
    }
}
