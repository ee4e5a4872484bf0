//! The state with which git continues an interrupted rebase, `am` or cherry-pick: it holds commands, strategies and options
//! that git executes when the operator continues.

use tribune_sandbox::Isolation::WorkspaceMasks;

use crate::probes::attacks::workspace_masks::{plant, replace};
use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};

const GROUP: &str = "State of git";

pub(crate) const PROBES: &[Probe] = &[
    probe("rebase_todo", "add a command to an interrupted rebase", |bait| {
        plant(bait, ".git/rebase-merge/git-rebase-todo")
    }),
    probe("rebase_strategy", "name a strategy for an interrupted rebase", |bait| {
        plant(bait, ".git/rebase-merge/strategy")
    }),
    probe("rebase_replaced", "replace the state of an interrupted rebase", |bait| {
        replace(bait, ".git/rebase-merge", "git-rebase-todo")
    }),
    probe("am_options", "change the options of an interrupted `git am`", |bait| {
        plant(bait, ".git/rebase-apply/apply-opt")
    }),
    probe("sequencer_options", "change the options of an interrupted cherry-pick", |bait| {
        plant(bait, ".git/sequencer/opts")
    }),
    probe("module_rebase", "add a command to a rebase of a submodule", |bait| {
        plant(bait, ".git/modules/lib/rebase-merge/git-rebase-todo")
    }),
    probe("worktree_rebase", "add a command to a rebase of a worktree", |bait| {
        plant(bait, ".git/worktrees/tree/rebase-merge/git-rebase-todo")
    }),
    probe("bare_rebase", "add a command to a rebase of a repository without .git in its name", |bait| {
        plant(bait, "bare/rebase-merge/git-rebase-todo")
    }),
];

const fn probe(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[WorkspaceMasks], act)
}
