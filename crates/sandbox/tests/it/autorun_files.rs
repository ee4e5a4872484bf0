//! Changes that are disguised as harmless ones.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tribune_sandbox::workspace::{ChangeKind, LandRefusal, Selection, diff, land};

use crate::support::{OverlayWorkspace, Test, shell};

pub(crate) const TESTS: &[Test] = &[
    ("changed_mode_does_not_hide_changed_content", changed_mode_does_not_hide_changed_content),
    ("symlinks_that_leave_in_several_steps_do_not_land", symlinks_that_leave_in_several_steps_do_not_land),
    ("repositories_are_marked_whatever_their_name", repositories_are_marked_whatever_their_name),
    ("repository_completed_by_changes_is_marked", repository_completed_by_changes_is_marked),
    ("targets_of_autorun_symlinks_are_marked", targets_of_autorun_symlinks_are_marked),
    ("targets_of_new_autorun_symlinks_are_marked", targets_of_new_autorun_symlinks_are_marked),
    ("targets_of_git_configs_are_marked", targets_of_git_configs_are_marked),
    ("everything_in_dot_git_is_marked", everything_in_dot_git_is_marked),
    ("symlinks_that_begin_a_pattern_are_marked", symlinks_that_begin_a_pattern_are_marked),
    ("targets_of_existing_pattern_symlinks_are_marked", targets_of_existing_pattern_symlinks_are_marked),
    ("symlink_chains_are_followed", symlink_chains_are_followed),
    ("targets_with_some_changes_landed_are_marked", targets_with_some_changes_landed_are_marked),
    ("git_config_paths_follow_symlinks", git_config_paths_follow_symlinks),
    ("exceeding_the_budget_marks_everything", exceeding_the_budget_marks_everything),
    ("home_paths_in_git_configs_lead_into_the_workspace", home_paths_in_git_configs_lead_into_the_workspace),
    ("included_git_configs_use_the_work_tree", included_git_configs_use_the_work_tree),
    ("git_config_values_are_parsed_like_git", git_config_values_are_parsed_like_git),
];

/// The changed paths, and those of them that programs of the host would execute or load.
fn changed_and_autorun(overlay: &OverlayWorkspace) -> (Vec<String>, Vec<String>) {
    let changes = diff(&overlay.lower(), &overlay.layers).unwrap().changes;
    let path = |path: &PathBuf| path.display().to_string();
    let autorun =
        changes.iter().filter(|change| change.is_autorun).map(|change| path(&change.path)).collect();
    (changes.iter().map(|change| path(&change.path)).collect(), autorun)
}

fn left(overlay: &OverlayWorkspace) -> Vec<(String, LandRefusal)> {
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    done.not_landed.into_iter().map(|left| (left.path.display().to_string(), left.reason)).collect()
}

fn changed_mode_does_not_hide_changed_content() {
    let overlay = OverlayWorkspace::with(&[("both", "aaa\n"), ("mode", "aaa\n")]);
    overlay.run(shell("echo bbb > both; chmod 600 both; chmod 600 mode")).ok();
    let changes = diff(&overlay.lower(), &overlay.layers).unwrap().changes;
    let kinds: Vec<_> = changes.iter().map(|change| (change.path.to_str().unwrap(), change.kind())).collect();
    assert_eq!(kinds, [("both", ChangeKind::Changed), ("mode", ChangeKind::Mode)]);
}

fn symlinks_that_leave_in_several_steps_do_not_land() {
    let overlay = OverlayWorkspace::with(&[("inner/file", "a")]);
    std::fs::write(overlay.folder.path().join("outside"), "secret").unwrap();
    symlink(overlay.folder.path(), overlay.lower().join("mine")).unwrap();
    overlay
        .run(shell(
            "mkdir -p p/q; ln -s ../.. p/q/top; ln -s top/../outside p/q/out; ln -s inner/../../outside plain; \
             ln -s mine/outside through; ln -s ../../inner/file p/q/in; ln -s p/./q/top round",
        ))
        .ok();
    let leaves = ["p/q/out", "plain", "through"].map(|path| (path.to_owned(), LandRefusal::EscapingSymlink));
    assert_eq!(left(&overlay), leaves);
    for link in ["p/q/in", "p/q/top", "round"] {
        let end = overlay.lower().join(link).canonicalize().unwrap();
        assert!(end.starts_with(overlay.lower().canonicalize().unwrap()), "{link}");
    }
}

fn repositories_are_marked_whatever_their_name() {
    let overlay =
        OverlayWorkspace::with(&[("mirror/HEAD", "x"), ("mirror/objects/x", "x"), ("plain/HEAD", "x")]);
    overlay
        .run(shell(
            "mkdir -p evil/objects evil/refs; echo 'ref: refs/heads/main' > evil/HEAD; echo evil > evil/config; \
             echo evil > mirror/config; echo b > plain/HEAD",
        ))
        .ok();
    let (all, autorun) = changed_and_autorun(&overlay);
    let expected = ["evil", "evil/HEAD", "evil/config", "evil/objects", "evil/refs", "mirror/config"];
    assert_eq!(autorun, expected);
    assert_eq!(all.len(), autorun.len() + 1);
    assert_eq!(left(&overlay), expected.map(|path| (path.to_owned(), LandRefusal::Autorun)));
}

fn repository_completed_by_changes_is_marked() {
    let overlay = OverlayWorkspace::with(&[("x/HEAD", "x"), ("x/config", "evil")]);
    overlay.run(shell("mkdir x/objects")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["x/objects"]);
    let overlay = OverlayWorkspace::with(&[("x/HEAD", "x"), ("x/objects/x", "x")]);
    overlay.run(shell("rm x/HEAD; echo evil > x/config")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["x/HEAD", "x/config"], "the other half may not be landed");
}

fn targets_of_autorun_symlinks_are_marked() {
    let overlay = OverlayWorkspace::with(&[
        ("real.sh", "a"),
        ("scripts/pc", "a"),
        ("conf/tasks.json", "a"),
        ("plain", "a"),
    ]);
    for (to, link) in [
        ("mid", ".envrc"),
        ("real.sh", "mid"),
        ("../../scripts/pc", ".git/hooks/pre-commit"),
        ("conf", ".vscode"),
        ("not-yet", ".mcp.json"),
    ] {
        let link = overlay.lower().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(to, link).unwrap();
    }
    overlay
        .run(shell(
            "for file in real.sh scripts/pc conf/tasks.json conf/new plain not-yet; do echo evil > $file; done; \
             rm mid; echo evil > mid",
        ))
        .ok();
    assert_eq!(
        changed_and_autorun(&overlay).1,
        ["conf/new", "conf/tasks.json", "mid", "not-yet", "real.sh", "scripts/pc"]
    );
}

fn targets_of_new_autorun_symlinks_are_marked() {
    let overlay = OverlayWorkspace::with(&[("dir/x", "a")]);
    symlink("dir/x", overlay.lower().join(".envrc")).unwrap();
    overlay
        .run(shell("rm -r dir; mkdir other; echo evil > other/x; ln -s other dir; ln -s s.sh .profile; echo evil > s.sh"))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".profile", "dir", "other/x", "s.sh"]);
}

fn targets_of_git_configs_are_marked() {
    let config = "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../team.cfg\n";
    let team = "[core]\n\tfsmonitor = tools/watch.sh\n";
    let overlay = OverlayWorkspace::with(&[
        (".git/config", config),
        ("team.cfg", team),
        ("tools/x", "a"),
        ("src/a", "a"),
    ]);
    overlay
        .run(shell(
            "mkdir .githooks; echo evil > .githooks/pre-commit; echo evil > tools/watch.sh; echo b > tools/x; echo b > src/a",
        ))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".githooks", ".githooks/pre-commit", "tools/watch.sh"]);

    // Also what a new configuration would point to.
    let overlay = OverlayWorkspace::with(&[(".git/HEAD", "x"), ("src/a", "a")]);
    overlay
        .run(shell("printf '[core]\\nhooksPath=src\\n' > .git/config; echo b > src/a; echo b > plain"))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".git/config", "src/a"]);
}

fn everything_in_dot_git_is_marked() {
    let overlay = OverlayWorkspace::with(&[(".git/HEAD", "x")]);
    overlay
        .run(shell(
            "mkdir .git/rebase-merge; echo 'exec evil' > .git/rebase-merge/git-rebase-todo; echo b > f",
        ))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".git/rebase-merge", ".git/rebase-merge/git-rebase-todo"]);
}

fn symlinks_that_begin_a_pattern_are_marked() {
    for (make, expected) in [
        (
            "mkdir c; ln -s c .cargo; echo evil > c/config.toml; echo b > c/plain",
            &[".cargo", "c/config.toml"][..],
        ),
        (
            "mkdir -p cfg/fish; ln -s cfg .config; echo evil > cfg/fish/config.fish",
            &[".config", "cfg/fish", "cfg/fish/config.fish"],
        ),
        ("mkdir h; ln -s h .HG; echo evil > h/hgrc", &[".HG", "h/hgrc"]),
        (
            "mkdir -p a y/releases; ln -s ../y a/.yarn; echo evil > y/releases/yarn.cjs",
            &["a/.yarn", "y/releases", "y/releases/yarn.cjs"],
        ),
        // Everything is inside the target of such a symlink, but only the rest of the pattern matches.
        ("ln -s . .cargo; echo evil > config.toml; echo b > plain", &[".cargo", "config.toml"]),
        // The rest of a pattern can contain symlinks too.
        (
            "mkdir j r; ln -s j .jj; ln -s ../r j/repo; echo evil > r/config.toml; echo b > r/plain",
            &[".jj", "j/repo", "r/config.toml"],
        ),
        ("mkdir c; ln -s c .cargo; ln -s ../x c/config; echo evil > x", &[".cargo", "c/config", "x"]),
    ] {
        let overlay = OverlayWorkspace::with(&[]);
        overlay.run(shell(make)).ok();
        assert_eq!(changed_and_autorun(&overlay).1, expected, "{make}");
        let traps: Vec<_> = expected.iter().map(|path| ((*path).to_owned(), LandRefusal::Autorun)).collect();
        assert_eq!(left(&overlay), traps, "{make}");
    }
}

/// The symlink is in the folder already, because a user landed or created it.
fn targets_of_existing_pattern_symlinks_are_marked() {
    let overlay = OverlayWorkspace::with(&[("b5/plain", "a")]);
    symlink("b5", overlay.lower().join(".bundle")).unwrap();
    overlay.run(shell("echo evil > b5/config; echo b > b5/plain")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["b5/config"]);

    let overlay = OverlayWorkspace::with(&[("c/plain", "a")]);
    symlink("c", overlay.lower().join(".cargo")).unwrap();
    overlay.run(shell("rm -r c; mkdir d; ln -s d c; echo evil > d/config.toml; echo b > d/plain")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["c", "d/config.toml"], "what it leads to was replaced");

    let overlay = OverlayWorkspace::with(&[("c/plain", "a")]);
    symlink("c", overlay.lower().join(".cargo")).unwrap();
    overlay.run(shell("rm .cargo; mkdir .cargo; echo b > .cargo/plain")).ok();
    assert!(changed_and_autorun(&overlay).1.contains(&".cargo".to_owned()), "it was replaced itself");
}

fn symlink_chains_are_followed() {
    let overlay = OverlayWorkspace::with(&[("plain", "a")]);
    overlay
        .run(shell(
            "mkdir -p deep/c; ln -s m .cargo; ln -s n/c m; ln -s deep n; echo evil > deep/c/config.toml; \
             echo b > deep/c/plain; ln -s circle .hg; ln -s .hg circle",
        ))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".cargo", ".hg", "circle", "deep/c/config.toml", "m", "n"]);
}

/// Autorun files do not land with the rest, so a symlink can lead where it would lead neither with all changes nor with
/// none.
fn targets_with_some_changes_landed_are_marked() {
    let overlay = OverlayWorkspace::with(&[("a/c/plain", "a"), ("e/x", "a")]);
    symlink("a/c", overlay.lower().join(".cargo")).unwrap();
    symlink("e/x", overlay.lower().join(".envrc")).unwrap();
    overlay
        .run(shell(
            "rm .cargo .envrc; rm -r a e; mkdir -p b/c f; ln -s b a; ln -s f e; echo evil > b/c/config.toml; echo evil > f/x",
        ))
        .ok();
    assert_eq!(changed_and_autorun(&overlay).1, [".cargo", ".envrc", "a", "b/c/config.toml", "e", "f/x"]);
}

fn git_config_paths_follow_symlinks() {
    let config = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../cfg/team\n";
    let overlay = || {
        let overlay =
            OverlayWorkspace::with(&[(".git/config", config), ("t2/hooks/x", "a"), ("real/team", "")]);
        symlink("t2", overlay.lower().join("tools")).unwrap();
        symlink("real", overlay.lower().join("cfg")).unwrap();
        overlay
    };
    let existing = overlay();
    existing.run(shell("echo evil > t2/hooks/pre-commit; echo b > t2/plain")).ok();
    assert_eq!(changed_and_autorun(&existing).1, ["t2/hooks/pre-commit"]);

    let replaced = overlay();
    replaced.run(shell("rm tools; mkdir -p ev/hooks; ln -s ev tools; echo evil > ev/hooks/pre-commit")).ok();
    assert_eq!(changed_and_autorun(&replaced).1, ["ev/hooks", "ev/hooks/pre-commit", "tools"]);

    let included = overlay();
    included
        .run(shell("printf '[core]\\nfsmonitor = w.sh\\n' > real/team; echo evil > w.sh; echo b > plain"))
        .ok();
    assert_eq!(changed_and_autorun(&included).1, ["real/team", "w.sh"]);
}

fn git_config_values_are_parsed_like_git() {
    for config in [
        "[core]\n\thooksPath = my hooks\n",
        "[core]\n\thooksPath = \"my hooks\" ; mine\n",
        "[core]\n\thooksPath = my\" \"hooks # mine\n",
        "[core]\n# a comment does not go on \\\n\thooksPath = my \\\nhooks\n",
        "[x \"a]b\"] y = z\n[core] hooksPath = my hooks\n",
    ] {
        let overlay = OverlayWorkspace::with(&[(".git/config", config), ("my hooks/x", "a")]);
        overlay.run(shell("echo evil > 'my hooks/pre-commit'; echo b > plain")).ok();
        assert_eq!(changed_and_autorun(&overlay).1, ["my hooks/pre-commit"], "{config}");
    }
}

/// The folder is called `lower`; it is not known in whose home it is.
fn home_paths_in_git_configs_lead_into_the_workspace() {
    for to in ["~/lower/h", "~/work/lower/h", "~me/lower/h", "/another/name/of/lower/h"] {
        let config = format!("[core]\n\thooksPath = {to}\n");
        let overlay = OverlayWorkspace::with(&[(".git/config", &config), ("h/x", "a")]);
        overlay.run(shell("echo evil > h/pre-commit; echo b > plain")).ok();
        assert_eq!(changed_and_autorun(&overlay).1, ["h/pre-commit"], "{to}");
    }
}

fn included_git_configs_use_the_work_tree() {
    let files = [
        (".git/config", "[include]\n\tpath = ../a/b/c/first\n"),
        ("a/b/c/first", "[include]\n\tpath = second\n"),
        ("a/b/c/second", "[core]\n\thooksPath = tools/hooks\n"),
        ("tools/hooks/x", "a"),
    ];
    let overlay = OverlayWorkspace::with(&files);
    overlay.run(shell("echo evil > tools/hooks/pre-commit; echo b > tools/plain")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["tools/hooks/pre-commit"]);
}

/// An agent that creates repositories until the real configuration exceeds the budget gets everything marked.
fn exceeding_the_budget_marks_everything() {
    let words: Vec<String> = (0..20_000).map(|number| format!("w{number}")).collect();
    let many = format!("[alias]\n\tx = !{}\n", words.join(" "));
    let files =
        [(".git/config", "[core]\n\thooksPath = h\n"), ("h/x", "a"), ("!/HEAD", "x"), ("!/objects/x", "x")];
    let overlay = OverlayWorkspace::with(&[&files[..], &[("!/config", &many)]].concat());
    overlay.run(shell("echo evil > h/pre-commit; echo b > plain")).ok();
    assert_eq!(changed_and_autorun(&overlay).1, ["h/pre-commit", "plain"]);
}
