//! The list of autorun files. `docs/autorun-files.md` says how a name gets on it; a test keeps both the same.

/// Names that programs of one kind execute or load.
#[derive(Debug, Clone, Copy)]
pub struct AutorunGroup {
    pub programs: &'static str,
    /// Where it is written that these programs do.
    pub known_from: &'static str,
    pub names: &'static [&'static str],
}

/// The autorun files, in the order of the documentation.
pub const AUTORUN_GROUPS: [AutorunGroup; 14] = [
    AutorunGroup {
        programs: "git, except for what its configuration points to",
        known_from: "githooks(5), git-config(1), gitrepository-layout(5), gitmodules(5); git-rebase(1), git-am(1) and git-cherry-pick(1): the state that `--continue` goes on with has commands (`exec`), strategies and options",
        names: &[
            "**/.git/hooks",
            "**/.git/config",
            "**/.git/config.worktree",
            "**/.git/commondir",
            "**/.git/modules/**/hooks",
            "**/.git/modules/**/config",
            "**/.git/worktrees/**/config.worktree",
            "**/.git/worktrees/**/commondir",
            "**/.git/worktrees/**/gitdir",
            "**/.git/rebase-merge",
            "**/.git/rebase-apply",
            "**/.git/sequencer",
            "**/.git/modules/**/rebase-merge",
            "**/.git/modules/**/rebase-apply",
            "**/.git/modules/**/sequencer",
            "**/.git/worktrees/**/rebase-merge",
            "**/.git/worktrees/**/rebase-apply",
            "**/.git/worktrees/**/sequencer",
            ".gitmodules",
            ".gitconfig",
        ],
    },
    AutorunGroup {
        programs: "Mercurial, Sapling, Jujutsu, Pijul, Darcs",
        known_from: "hgrc(5) ([hooks], [alias]), `sl help config`, `jj help -k config`, `pijul` and `darcs` manuals: hooks and external tools in the repository's settings",
        names: &[
            "**/.hg/hgrc",
            "**/.hg/hgrc-not-shared",
            "**/.hg/sharedpath",
            "**/.sl/config",
            "**/.sl/sharedpath",
            "**/.jj/repo/config.toml",
            "**/.jj/workspace-config.toml",
            "**/.pijul/config",
            "**/_darcs/prefs/defaults",
        ],
    },
    AutorunGroup {
        programs: "repository hooks: husky, pre-commit, prek, lefthook, overcommit, rusty-hook, lint-staged, CaptainHook, and common values of `core.hooksPath`",
        known_from: "each tool's manual: what it lists is run by the git hooks that the tool installed",
        names: &[
            ".husky",
            ".pre-commit-config.yaml",
            ".pre-commit-config.yml",
            "prek.toml",
            "lefthook*.yml",
            ".lefthook*.yml",
            "lefthook*.yaml",
            ".lefthook*.yaml",
            "lefthook*.toml",
            ".lefthook*.toml",
            "lefthook*.json",
            ".lefthook*.json",
            ".overcommit.yml",
            ".git-hooks",
            ".githooks",
            ".rusty-hook.toml",
            ".lintstagedrc*",
            "lint-staged.config.*",
            "captainhook.json",
            ".simple-git-hooks.*",
            "simple-git-hooks.*",
        ],
    },
    AutorunGroup {
        programs: "executed by shells when a folder is entered: direnv, autoenv, shadowenv, mise, asdf, proto, RVM, rbenv-vars, Flox",
        known_from: "each tool's manual: its shell hook reads the file at `cd` or at the next prompt",
        names: &[
            ".envrc",
            ".direnv",
            ".autoenv*",
            ".shadowenv.d",
            "mise.toml",
            ".mise.toml",
            "mise.*.toml",
            ".mise.*.toml",
            ".mise",
            "**/mise/config.toml",
            "**/.config/mise",
            "**/.config/mise.toml",
            "**/.config/mise.*.toml",
            ".rtx.toml",
            ".tool-versions",
            ".prototools",
            ".rvmrc",
            ".rbenv-vars",
            ".flox",
        ],
    },
    AutorunGroup {
        programs: "startup files of shells, terminals and sessions, if the folder is a home",
        known_from: "bash(1), zsh(1), tcsh(1), ksh(1), fish(1), tmux(1), screen(1), readline(3), Xsession(5), environment.d(5)",
        names: &[
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
            "**/.config/fish",
            ".tmux.conf",
            ".screenrc",
            ".inputrc",
            ".xinitrc",
            ".xprofile",
            ".xsession",
            ".xsessionrc",
            ".pam_environment",
            "**/.config/tmux",
            "**/.config/environment.d",
        ],
    },
    AutorunGroup {
        programs: "programs of a home that others start: ssh, git, systemd, desktop sessions, database shells, what is first on the `PATH`",
        known_from: "ssh_config(5) (`ProxyCommand`), sshd(8) (`.ssh/rc`), git-config(1) (`$XDG_CONFIG_HOME/git`), systemd.unit(5), the Desktop Application Autostart Specification, psql(1), sqlite3(1), file-hierarchy(7)",
        names: &[
            ".ssh",
            "**/.config/git",
            "**/.config/systemd",
            "**/.config/autostart",
            ".psqlrc",
            ".sqliterc",
            "**/.local/bin",
        ],
    },
    AutorunGroup {
        programs: "VS Code and derivatives, development containers, Visual Studio",
        known_from: "the editors' manuals: tasks with `runOn`, settings with paths of programs, `postCreateCommand`",
        names: &[".vscode", "*.code-workspace", ".devcontainer", ".devcontainer.json", ".theia", ".vs"],
    },
    AutorunGroup {
        programs: "other editors: JetBrains, Fleet, Zed, Helix, Sublime Text, Kate, Nova, Eclipse",
        known_from: "the editors' manuals: run configurations, startup tasks, build systems, paths of language servers, external builders",
        names: &[
            ".idea",
            ".fleet",
            ".zed",
            ".helix",
            "*.sublime-project",
            ".kateproject",
            ".nova",
            ".project",
            ".factorypath",
        ],
    },
    AutorunGroup {
        programs: "Vim, Neovim and their plugins",
        known_from: "`:help exrc`, `:help nvim-config`; neoconf.nvim, nlsp-settings.nvim, lazy.nvim and YouCompleteMe: the settings name the server's program",
        names: &[
            ".vimrc",
            "_vimrc",
            ".gvimrc",
            "_gvimrc",
            ".exrc",
            "_exrc",
            ".nvimrc",
            ".nvim.lua",
            ".lvimrc",
            ".local.vimrc",
            ".lazy.lua",
            ".vim",
            ".ycm_extra_conf.py",
            ".neoconf.json",
            ".nlsp-settings",
            "**/.config/nvim",
        ],
    },
    AutorunGroup {
        programs: "Emacs",
        known_from: "the Emacs manual, \"Per-Directory Local Variables\" and \"The Emacs Initialization File\"",
        names: &[".dir-locals.el", ".dir-locals-2.el", ".emacs*", "**/.config/emacs"],
    },
    AutorunGroup {
        programs: "language servers and build servers that execute what a folder configures",
        known_from: "each server's manual; the Build Server Protocol (`argv` of the connection file)",
        names: &[
            "hie.yaml",
            ".merlin",
            ".luarc.json",
            ".luarc.jsonc",
            ".sourcekit-lsp",
            "rust-analyzer.toml",
            ".rust-analyzer.toml",
            ".bsp",
            "buildServer.json",
            "**/.lsp/config.edn",
        ],
    },
    AutorunGroup {
        programs: "debuggers and language REPLs",
        known_from: "gdb(1), lldb(1), pdb, perldebug(1), rdbg(1), byebug, irb(1), pry, IEx, erl(1), GHCi, ocaml(1), octave(1), PsySH; `?Startup` of R (`.RData` holds functions that the session then calls)",
        names: &[
            ".gdbinit",
            ".gdbearlyinit",
            ".lldbinit",
            ".lldbinit-*",
            ".pdbrc",
            ".pdbrc.py",
            ".perldb",
            ".rdbgrc",
            ".rdbgrc.rb",
            ".irbrc",
            ".pryrc",
            ".iex.exs",
            ".erlang",
            ".ghci",
            ".ocamlinit",
            ".octaverc",
            ".Rprofile",
            ".Renviron",
            ".RData",
            ".psysh.php",
            ".byebugrc",
        ],
    },
    AutorunGroup {
        programs: "package managers and build tools that read the folder's settings on every call: npm, Yarn, pnpm, Bun, Cargo, rustup, Bundler, Maven, Gradle's wrapper, sbt, Bazel, Buck, Lean, Ansible, ripgrep, .NET, latexmk, PDM, opam",
        known_from: "each tool's manual: the file names a program, a plugin, a toolchain or a registry, and commands that only look (`--version`, `list`) load it",
        names: &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            "**/.yarn/releases",
            "**/.yarn/plugins",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            "bunfig.toml",
            ".bunfig.toml",
            "**/.cargo/config",
            "**/.cargo/config.toml",
            "rust-toolchain",
            "rust-toolchain.toml",
            "**/.bundle/config",
            ".mvn",
            "**/gradle/wrapper",
            ".sbtopts",
            ".jvmopts",
            ".bazelrc",
            ".bazelversion",
            "**/tools/bazel",
            ".buckconfig",
            "lean-toolchain",
            "ansible.cfg",
            ".ripgreprc",
            "pnpm-workspace.yaml",
            "global.json",
            ".latexmkrc",
            "latexmkrc",
            ".pdm-python",
            "_opam",
        ],
    },
    AutorunGroup {
        programs: "agents and their tools",
        known_from: "each agent's manual: hooks, MCP servers, commands and permissions of the project",
        names: &[
            ".mcp.json",
            ".claude",
            ".codex",
            ".gemini",
            ".qwen",
            ".cursor",
            ".windsurf",
            ".opencode",
            "opencode.json",
            "opencode.jsonc",
            ".continue",
            ".roo",
            ".kiro",
            ".amazonq",
            ".junie",
            ".factory",
            ".augment",
            "crush.json",
            ".crush.json",
            ".aider.conf.yml",
            ".kilocode",
            ".trae",
            ".pi",
            ".amp",
            ".clinerules",
            ".openhands",
        ],
    },
];

/// Patterns of autorun files. A git repository is covered as far as names alone identify it.
pub const AUTORUN_PATHS: [&str; count()] = {
    let mut paths = [""; count()];
    let (mut group, mut at) = (0, 0);
    while group < AUTORUN_GROUPS.len() {
        let mut name = 0;
        while name < AUTORUN_GROUPS[group].names.len() {
            paths[at] = AUTORUN_GROUPS[group].names[name];
            (name, at) = (name + 1, at + 1);
        }
        group += 1;
    }
    paths
};

const fn count() -> usize {
    let (mut group, mut count) = (0, 0);
    while group < AUTORUN_GROUPS.len() {
        count += AUTORUN_GROUPS[group].names.len();
        group += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation page lists exactly these groups.
    #[test]
    fn documentation_page_lists_every_pattern() {
        let page = include_str!("../../../docs/autorun-files.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let expected = AUTORUN_GROUPS.map(|group| {
            let names: Vec<String> = group.names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {} | {} | {} |", group.programs, names.join(" "), group.known_from)
        });
        assert_eq!(rows, expected);
    }

    #[test]
    fn every_pattern_is_listed_once() {
        let unique: std::collections::BTreeSet<&str> = AUTORUN_PATHS.into();
        assert_eq!(unique.len(), AUTORUN_PATHS.len());
    }
}
