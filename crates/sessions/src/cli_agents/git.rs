//! Git settings inside an agent's sandbox. They keep git from taking hidden files, which look empty, for emptied ones: without
//! them, `git commit -a` commits that.
//!
//! Files in a folder that is hidden as a whole look removed. No git setting prevents that.

use tribune_contract::Mount;

/// The paths of the system-wide git configuration and attributes inside the sandbox.
const CONFIG: &str = "/etc/tribune/gitconfig";
const ATTRIBUTES: &str = "/etc/tribune/gitattributes";

/// The environment variable that names the configuration.
pub(super) const VARIABLE: (&str, &str) = ("GIT_CONFIG_SYSTEM", CONFIG);

/// The clean filter: an empty file stands for the blob in git's index; a file with content was written in the sandbox.
const SETTINGS: &str = r#"[core]
	attributesFile = /etc/tribune/gitattributes
[filter "tribune-hidden"]
	clean = "if test -s %f; then cat; else git cat-file blob :%f 2>/dev/null || true; fi"
"#;

/// The mounts of the git files for these hidden patterns.
pub(super) fn mounts<'a>(hidden: impl Iterator<Item = &'a str>) -> [Mount; 2] {
    let text = |target: &str, text: String| Mount::Text { target: target.into(), text };
    [text(CONFIG, SETTINGS.to_owned()), text(ATTRIBUTES, attributes(hidden))]
}

/// The patterns as lines of gitattributes. Patterns that git would parse differently are left out.
fn attributes<'a>(hidden: impl Iterator<Item = &'a str>) -> String {
    let is_plain = |pattern: &&str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-*?/".contains(c);
        !pattern.is_empty() && pattern.chars().all(is_allowed)
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
