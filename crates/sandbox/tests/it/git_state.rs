//! What git executes when the operator continues what was interrupted.

use std::path::Path;
use std::process::{Command, Output};

use tribune_contract::{AUTORUN_PATHS, WorkspaceMount, WorkspaceSource};
use tribune_sandbox::workspace::{AutorunSnapshot, LandRefusal, Selection, land, quarantine};

use crate::support::{OverlayWorkspace, Test, run, shell};

pub(crate) const TESTS: &[Test] = &[
    ("continued_rebase_runs_nothing_of_a_sandbox", continued_rebase_runs_nothing_of_a_sandbox),
    ("rebase_made_by_a_sandbox_is_quarantined", rebase_made_by_a_sandbox_is_quarantined),
    ("rebase_state_does_not_land_unnamed", rebase_state_does_not_land_unnamed),
];

fn git(folder: &Path, words: &[&str]) -> Output {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    command.args(identity).args(words).current_dir(folder).env("HOME", folder);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_EDITOR", "true").output().unwrap()
}

/// A repository with one commit.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    assert!(git(folder.path(), &["init", "-q"]).status.success());
    assert!(git(folder.path(), &["commit", "-q", "--allow-empty", "-m", "one"]).status.success());
    folder
}

/// The state of an interrupted rebase, as lines for a shell in the repository.
const REBASE: &str = "mkdir -p .git/rebase-merge && git rev-parse HEAD > .git/rebase-merge/onto && \
    cp .git/rebase-merge/onto .git/rebase-merge/orig-head && echo refs/heads/main > .git/rebase-merge/head-name && \
    touch .git/rebase-merge/interactive && echo noop > .git/rebase-merge/git-rebase-todo";

/// What an attacker adds.
const COMMAND: &str = "echo 'exec touch ran-on-the-host' >> .git/rebase-merge/git-rebase-todo";

fn in_shell(folder: &Path, line: &str) {
    assert!(Command::new("/bin/sh").args(["-c", line]).current_dir(folder).status().unwrap().success());
}

fn in_sandbox(folder: &Path, line: &str) {
    let mut profile = shell(line);
    profile.cwd = "/workspace".into();
    profile.workspace = Some(WorkspaceMount {
        target: "/workspace".into(),
        source: WorkspaceSource::Direct { folder: folder.to_owned() },
        hide: Vec::new(),
        read_only: AUTORUN_PATHS.map(str::to_owned).into(),
    });
    run(&profile).unwrap();
}

/// Whether the operator's `git rebase --continue` runs the attacker's command.
fn continuing_runs_it(folder: &Path) -> bool {
    git(folder, &["rebase", "--continue"]);
    folder.join("ran-on-the-host").exists()
}

fn continued_rebase_runs_nothing_of_a_sandbox() {
    let control = repository();
    in_shell(control.path(), &format!("{REBASE} && {COMMAND}"));
    assert!(continuing_runs_it(control.path()), "git executes what the file says");

    let folder = repository();
    in_shell(folder.path(), REBASE);
    in_sandbox(
        folder.path(),
        &format!(
            "{COMMAND}; rm -rf .git/rebase-merge; mv .git/rebase-merge .git/gone; {REBASE}; {COMMAND}; true"
        ),
    );
    assert!(!continuing_runs_it(folder.path()));
}

fn rebase_made_by_a_sandbox_is_quarantined() {
    let folder = repository();
    let before = AutorunSnapshot::take(folder.path()).unwrap();
    in_sandbox(
        folder.path(),
        &format!("HOME=/tmp; git config --global safe.directory '*'; {REBASE} && {COMMAND}"),
    );
    assert!(folder.path().join(".git/rebase-merge/git-rebase-todo").exists(), "its name cannot be forbidden");
    let report = quarantine(folder.path(), &before).unwrap();
    assert_eq!(report.moved, [(".git/rebase-merge".into(), "quarantined-rebase-merge-1".to_owned())]);
    assert!(!continuing_runs_it(folder.path()));
}

fn rebase_state_does_not_land_unnamed() {
    let overlay = OverlayWorkspace::with(&[("a", "a")]);
    assert!(git(&overlay.lower(), &["init", "-q"]).status.success());
    let state = ".git/rebase-merge .git/rebase-apply .git/sequencer .git/worktrees/w/rebase-merge .git/modules/m/sequencer";
    let line = format!(
        "for name in {state}; do mkdir -p $name; echo x > $name/todo; done; echo x > .git/MERGE_MSG; echo b > a"
    );
    overlay.run(shell(&line)).ok();
    let report = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert!(report.not_landed.iter().all(|left| left.reason == LandRefusal::Autorun), "{report:?}");
    for name in state.split(' ').map(|name| format!("{name}/todo")).chain([".git/MERGE_MSG".to_owned()]) {
        assert!(report.not_landed.iter().any(|left| left.path == Path::new(&name)), "{name}: {report:?}");
        assert!(!overlay.lower().join(&name).exists());
    }
    assert_eq!(overlay.read("a"), "b\n");
}
