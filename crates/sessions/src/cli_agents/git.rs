//! What git inside a box is told, so that it does not take what is hidden from an agent for emptied: `git commit -a` would write
//! that down.
//!
//! Files that are hidden in folders that are hidden whole look removed, which git cannot be told otherwise.

use tribune_contract::Mount;

/// Where git is told to look for what a machine's owner would set.
const CONFIG: &str = "/etc/tribune/gitconfig";
const ATTRIBUTES: &str = "/etc/tribune/gitattributes";

/// The variable that says so.
pub(super) const VARIABLE: (&str, &str) = ("GIT_CONFIG_SYSTEM", CONFIG);

/// A file that is empty here is what git has of it already. One that is not was written in the box.
const SETTINGS: &str = r#"[core]
	attributesFile = /etc/tribune/gitattributes
[filter "tribune-hidden"]
	clean = "if test -s %f; then cat; else git cat-file blob :%f 2>/dev/null || true; fi"
"#;

/// The files for git, where these patterns are hidden.
pub(super) fn mounts<'a>(hidden: impl Iterator<Item = &'a str>) -> [Mount; 2] {
    let text = |target: &str, text: String| Mount::Text { target: target.into(), text };
    [text(CONFIG, SETTINGS.to_owned()), text(ATTRIBUTES, attributes(hidden))]
}

/// The patterns as git writes them. What it would understand otherwise is left out.
fn attributes<'a>(hidden: impl Iterator<Item = &'a str>) -> String {
    let is_plain = |pattern: &&str| {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "._-*?/".contains(c);
        !pattern.is_empty() && pattern.chars().all(is_sign)
    };
    let lines = hidden.map(|pattern| pattern.trim_end_matches('/')).filter(is_plain);
    lines.map(|pattern| format!("{pattern} filter=tribune-hidden\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_patterns_become_attributes() {
        let hidden =
            ["AGENTS.md", ".claude/", "/docs/CLAUDE.md", "*.local.md", "a b", "!x", "#y", "", "\"q\""];
        assert_eq!(
            attributes(hidden.into_iter()),
            "AGENTS.md filter=tribune-hidden\n.claude filter=tribune-hidden\n/docs/CLAUDE.md filter=tribune-hidden\n\
             *.local.md filter=tribune-hidden\n"
        );
    }
}
