//! Autorun files: files that programs of the host execute or load because of their name alone. An agent that writes one
//! gets code executed outside of its sandbox.
//!
//! [The list](crate::autorun_list) has no build scripts, tests or other files that a person runs on purpose, and no text
//! files that other agents read, such as `AGENTS.md`.

use std::path::{Component, Path};
use std::sync::LazyLock;

use crate::autorun_list::AUTORUN_PATHS;
use crate::pattern::{Pattern, PatternSet, fold_case};

/// Returns whether a write to this path of a workspace can execute code on the host.
///
/// Everything below a listed name counts, everything in `.git`, and every spelling that a case-insensitive file system
/// treats as the same. The path must not contain `.` or `..`.
#[must_use]
pub fn is_autorun_path(path: &str) -> bool {
    static PATTERNS: LazyLock<Vec<Pattern>> =
        LazyLock::new(|| AUTORUN_PATHS.iter().map(|trap| Pattern::new(trap)).collect());
    let path = fold_case(path);
    let is_in_git = path.split('/').any(|name| name == ".git");
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    is_in_git || ends.into_iter().any(|end| PATTERNS.iter().any(|trap| trap.matches_folded(&path[..end])))
}

/// Like [`is_autorun_path`] for a path in `folder`, which can itself be an autorun path or be inside one.
#[must_use]
pub fn is_autorun_path_in(folder: &Path, path: &str) -> bool {
    is_autorun_path(path)
        || autorun_prefix(folder).is_some_and(|names| is_autorun_path(&format!("{names}/{path}")))
}

/// Returns the part of a folder's own path that can turn its content into autorun files: everything from the first
/// component that starts with a dot, because settings folders do.
///
/// A project named like a listed file (`rust-toolchain`) is an ordinary project. So is a worktree that an agent keeps
/// in its settings folder (`.claude/worktrees/NAME`): matching starts again below it. Git's own `.git/worktrees` is not
/// such a place.
#[must_use]
pub fn autorun_prefix(folder: &Path) -> Option<String> {
    let names = folder.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    });
    let names: Vec<String> = names.map(|name| name.into_owned()).collect();
    let is_dotted = |name: &str| name.starts_with('.');
    let is_worktree = |pair: &[String]| match pair {
        [above, name] => is_dotted(above) && fold_case(above) != ".git" && name == "worktrees",
        _ => false,
    };
    let after_worktree = names.windows(2).rposition(is_worktree).map_or(0, |at| at + 2);
    let first = names.iter().skip(after_worktree).position(|name| is_dotted(name))?;
    Some(names[after_worktree + first..].join("/"))
}

/// Returns the autorun patterns as a set that is matched component by component, for callers that follow symlinks.
#[must_use]
pub fn autorun_patterns() -> &'static PatternSet {
    static PATTERNS: LazyLock<PatternSet> =
        LazyLock::new(|| PatternSet::new(&AUTORUN_PATHS.map(str::to_owned)));
    &PATTERNS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autorun_paths_match_in_every_spelling() {
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
            ".devcontainer.json",
            ".devcontainer/devcontainer.json",
            "lefthook.yml",
            ".lefthook-local.JSON",
            ".tool-versions",
            "Project.code-workspace",
            ".zed/tasks.json",
            ".lvimrc",
            "a/.dir-locals.el",
            ".dir-locals-2.el",
            ".exrc",
            ".nvimrc",
            ".nvim.lua",
            ".sl/config",
            ".hg/sharedpath",
            "rust-toolchain.toml",
            ".config/mise/conf.d/a.toml",
            "mise.local.toml",
            "a/.yarn/releases/yarn.cjs",
            "app/gradle/wrapper/gradle-wrapper.jar",
            "tools/bazel",
            ".autoenv.zsh",
            "hie.yaml",
            ".git/rebase-merge/git-rebase-todo",
            "a/.git/worktrees/one/rebase-apply/applying",
            ".git/modules/a/b/sequencer/opts",
            ".bsp/sbt.json",
            ".lintstagedrc.mjs",
            "lint-staged.config.cjs",
            ".lsp/config.edn",
            "pnpm-workspace.yaml",
            ".ssh/rc",
            ".config/systemd/user/a.service",
            ".config/nvim/init.lua",
            ".emacs.d/init.el",
            ".local/bin/ls",
        ] {
            assert!(is_autorun_path(trap), "{trap}");
        }
    }

    #[test]
    fn ordinary_paths_are_not_autorun_paths() {
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
            "mise.md",
            "promise.toml",
            "my-lefthook.yml",
            "tools/bazel.md",
            ".yarn/cache/a.zip",
            "gradle/libs.versions.toml",
            "code-workspace",
            ".sl/store/data",
            ".env",
            "rebase-merge/git-rebase-todo",
            "lsp/config.edn",
            ".config/notes",
            ".local/share/a",
            "bin/ls",
        ] {
            assert!(!is_autorun_path(plain), "{plain}");
        }
    }

    #[test]
    fn folder_inside_an_autorun_path_counts() {
        for (folder, path) in [
            ("/x/.vscode", "tasks.json"),
            ("/x/.VSCode/deep", "er/tasks.json"),
            ("/x/.git", "config"),
            ("/x/.git/hooks", "pre-commit"),
            ("/x/.git/worktrees/one", "commondir"),
            ("/x/.git/modules/a/b", "hooks/update"),
            ("/x/.cargo", "config.toml"),
            ("/home/me/.config", "fish/config.fish"),
            ("/home/me/.config/fish/functions", "ls.fish"),
            ("/x/.jj/repo", "config.toml"),
            ("/x/.claude/worktrees/one/.vscode", "tasks.json"),
            ("/x/plain", ".envrc"),
        ] {
            assert!(is_autorun_path_in(Path::new(folder), path), "{folder} {path}");
        }
        for (folder, path) in [
            ("/x/plain", "tasks.json"),
            ("/", "a"),
            ("/x/.cargo", "registry/a"),
            ("/home/me/.config", "notes.txt"),
            ("/src/rust-toolchain", "src/main.rs"),
            ("/src/tools/bazel", "BUILD"),
            ("/x/.claude/worktrees/one", "src/main.rs"),
            ("/home/me/.cursor/worktrees/repo/abc", "src/main.rs"),
            ("/home/me/.local/share/app", "a"),
            ("/tmp/.tmpAbC/project", "a"),
        ] {
            assert!(!is_autorun_path_in(Path::new(folder), path), "{folder} {path}");
        }
    }
}
