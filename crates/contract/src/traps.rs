//! Names that programs of the host obey when they find them in a folder: whoever writes one has code run on the host.
//!
//! Build scripts, tests and whatever else a person starts by name are not here: they run because somebody runs them. Nor are
//! texts that other agents read, such as `AGENTS.md`.

use std::sync::LazyLock;

use crate::pattern::{Pattern, fold};

/// Patterns of such names, of what is in a repository of git as far as a name tells.
pub const HOST_TRAPS: [&str; 62] = [
    "**/.git/hooks",
    "**/.git/config",
    "**/.git/config.worktree",
    "**/.git/commondir",
    "**/.git/modules/**/hooks",
    "**/.git/modules/**/config",
    "**/.git/worktrees/**/config.worktree",
    "**/.git/worktrees/**/commondir",
    "**/.git/worktrees/**/gitdir",
    "**/.hg/hgrc",
    "**/.jj/repo/config.toml",
    ".gitmodules",
    ".gitconfig",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".cshrc",
    ".tcshrc",
    ".kshrc",
    ".login",
    ".logout",
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".gdbinit",
    ".lldbinit",
    ".ripgreprc",
    ".Rprofile",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    ".pnpmfile.cjs",
    "mise.toml",
    ".mise.toml",
    ".pre-commit-config.yaml",
    ".mcp.json",
    ".vscode",
    ".devcontainer",
    ".idea",
    ".claude",
    ".codex",
    ".gemini",
    ".cursor",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".husky",
    "**/.cargo/config",
    "**/.cargo/config.toml",
];

/// Whether writing this path of a workspace could have code run on the host. The path has no `.` and `..`; everything below
/// such a name counts, everything of git's own, and all spellings that some file system takes for the same.
#[must_use]
pub fn is_host_trap(path: &str) -> bool {
    static TRAPS: LazyLock<Vec<Pattern>> =
        LazyLock::new(|| HOST_TRAPS.iter().map(|trap| Pattern::new(trap)).collect());
    let path = fold(path);
    let is_gits = path.split('/').any(|name| name == ".git");
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    is_gits || ends.into_iter().any(|end| TRAPS.iter().any(|trap| trap.matches_folded(&path[..end])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_obey_is_known_in_every_spelling() {
        for trap in [
            ".envrc",
            "a/b/.EnvRC",
            ".vscode/tasks.json",
            "x/.VSCODE/deep/er",
            ".git",
            "sub/.GIT/info/attributes",
            "a/.git/modules/lib/config",
            "a/.cargo/config.toml",
            ".cargo/config",
            ".hu\u{17f}ky/pre-commit",
            "opencode.json",
            ".opencode/plugin/x.ts",
            "lib/.hg/hgrc",
            ".jj/repo/config.toml",
            ".RProfile",
            "app/.npmrc",
            ".yarnrc",
            ".pnp.cjs",
            "tools/mise.toml",
            ".mise.toml",
            ".pre-commit-config.yaml",
            ".vimrc",
            ".zlogout",
            ".cshrc",
            ".tcshrc",
            ".kshrc",
            ".login",
        ] {
            assert!(is_host_trap(trap), "{trap}");
        }
        for plain in [
            "",
            "a",
            "envrc",
            "a/.envrc.md",
            "git/config",
            ".gitignore",
            ".github/workflows/ci.yml",
            "cargo/config",
            "hgrc",
            ".hg/store/data",
            "repo/config.toml",
            "npmrc",
        ] {
            assert!(!is_host_trap(plain), "{plain}");
        }
    }
}
