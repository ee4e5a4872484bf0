//! Hidden names, and autorun files of the host.

use std::path::Path;

use tribune_sandbox::Isolation::WorkspaceMasks;

use crate::probes::bait::{Bait, HUSH, taste};
use crate::probes::probe::{Outcome, Probe};

const GROUP: &str = "The workspace";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "hidden_file", "read a hidden file", &[WorkspaceMasks], hidden_file),
    Probe::new(
        GROUP,
        "hidden_by_other_name",
        "read a hidden file through a hard link",
        &[WorkspaceMasks],
        hidden_by_other_name,
    ),
    Probe::new(
        GROUP,
        "hidden_by_link",
        "read a hidden file through a symlink",
        &[WorkspaceMasks],
        hidden_by_link,
    ),
    Probe::new(
        GROUP,
        "hidden_by_hard_link",
        "create a hard link to a hidden file",
        &[WorkspaceMasks],
        hidden_by_hard_link,
    ),
    Probe::new(
        GROUP,
        "hidden_in_other_case",
        "read a hidden file whose name has another case",
        &[WorkspaceMasks],
        hidden_in_other_case,
    ),
    Probe::new(
        GROUP,
        "hidden_renamed",
        "rename a hidden file and read it",
        &[WorkspaceMasks],
        hidden_renamed,
    ),
    Probe::new(
        GROUP,
        "hidden_swapped",
        "swap a hidden file with another and read it",
        &[WorkspaceMasks],
        hidden_swapped,
    ),
    Probe::new(
        GROUP,
        "hidden_by_its_link",
        "read the target of a hidden symlink",
        &[WorkspaceMasks],
        hidden_by_its_link,
    ),
    Probe::new(
        GROUP,
        "hidden_link_removed",
        "remove or move a hidden symlink, so that its target is unknown",
        &[WorkspaceMasks],
        hidden_link_removed,
    ),
    Probe::new(GROUP, "hidden_folder", "read what is in a hidden folder", &[WorkspaceMasks], hidden_folder),
    Probe::new(
        GROUP,
        "hidden_folder_renamed",
        "rename a hidden folder and read what is in it",
        &[WorkspaceMasks],
        hidden_folder_renamed,
    ),
    Probe::new(GROUP, "plant_hook", "plant a git hook", &[WorkspaceMasks], plant_hook),
    Probe::new(GROUP, "change_hook", "change a git hook", &[WorkspaceMasks], change_hook),
    Probe::new(GROUP, "git_config", "change git's configuration", &[WorkspaceMasks], git_config),
    Probe::new(
        GROUP,
        "nested_git_config",
        "change the configuration of a nested repository",
        &[WorkspaceMasks],
        nested_git_config,
    ),
    Probe::new(
        GROUP,
        "git_folder_replaced",
        "replace the .git folder",
        &[WorkspaceMasks],
        git_folder_replaced,
    ),
    Probe::new(
        GROUP,
        "parent_replaced",
        "replace a folder that contains a repository",
        &[WorkspaceMasks],
        parent_replaced,
    ),
    Probe::new(GROUP, "envrc_replaced", "rename another file over .envrc", &[WorkspaceMasks], envrc_replaced),
    Probe::new(GROUP, "mcp_removed", "remove .mcp.json and create another", &[WorkspaceMasks], mcp_removed),
    Probe::new(GROUP, "editor_task", "plant a task for an editor", &[WorkspaceMasks], editor_task),
    Probe::new(GROUP, "git_file", "point a .git file at another repository", &[WorkspaceMasks], git_file),
    Probe::new(
        GROUP,
        "git_link_replaced",
        "replace a .git symlink by a folder",
        &[WorkspaceMasks],
        git_link_replaced,
    ),
    Probe::new(
        GROUP,
        "worktree_commondir",
        "point a worktree at another configuration",
        &[WorkspaceMasks],
        worktree_commondir,
    ),
    Probe::new(
        GROUP,
        "module_config",
        "change the configuration of a submodule",
        &[WorkspaceMasks],
        module_config,
    ),
    Probe::new(
        GROUP,
        "bare_config",
        "change the configuration of a repository without .git in its name",
        &[WorkspaceMasks],
        bare_config,
    ),
    Probe::new(
        GROUP,
        "dotfile_link_replaced",
        "replace a symlink that shells read",
        &[WorkspaceMasks],
        dotfile_link_replaced,
    ),
    Probe::new(
        GROUP,
        "dotfile_link_end",
        "change the target of a symlink that shells read",
        &[WorkspaceMasks],
        dotfile_link_end,
    ),
    Probe::new(
        GROUP,
        "hook_by_other_name",
        "change a git hook through a hard link",
        &[WorkspaceMasks],
        hook_by_other_name,
    ),
    Probe::new(
        GROUP,
        "envrc_by_other_name",
        "change .envrc through a hard link",
        &[WorkspaceMasks],
        envrc_by_other_name,
    ),
    home("other_home", "read the token of another home of Tribune", other_home),
    home("other_home_key", "read a key of another home of Tribune", other_home_key),
    home("other_home_renamed", "rename another home and read its token", other_home_renamed),
    home("other_home_by_other_name", "read its token through a hard link", other_home_by_other_name),
    home("shelf_home", "read the token of a home in a folder mounted read-only", shelf_home),
];

const fn home(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[WorkspaceMasks], act)
}

fn other_home(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("other-home/run/token"), HUSH)
}

fn other_home_key(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("other-home/keys/ledger.key"), HUSH)
}

fn other_home_renamed(bait: &Bait) -> Outcome {
    let _ = std::fs::rename(bait.workspace.join("other-home"), bait.workspace.join("renamed"));
    says(&bait.workspace.join("renamed/run/token"), HUSH)
}

fn other_home_by_other_name(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("token"), HUSH)
}

fn shelf_home(bait: &Bait) -> Outcome {
    says(&bait.shelf.join("other-home/run/token"), HUSH)
}

fn says(path: &Path, wanted: &str) -> Outcome {
    let text = taste(path);
    Outcome::when(text.as_ref().is_ok_and(|text| text == wanted), format!("{text:?}"))
}

fn hidden_file(bait: &Bait) -> Outcome {
    says(&bait.workspace.join(".env"), HUSH)
}

fn hidden_by_other_name(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("notes"), HUSH)
}

fn hidden_by_link(bait: &Bait) -> Outcome {
    let link = bait.workspace.join("link");
    std::os::unix::fs::symlink(".env", &link).unwrap();
    says(&link, HUSH)
}

fn hidden_by_hard_link(bait: &Bait) -> Outcome {
    let link = bait.workspace.join("sub/hard");
    let _ = std::fs::hard_link(bait.workspace.join(".env"), &link);
    says(&link, HUSH)
}

fn hidden_in_other_case(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("Host.PEM"), HUSH)
}

fn hidden_renamed(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("renamed");
    let _ = std::fs::rename(bait.workspace.join(".env"), &to);
    says(&to, HUSH)
}

fn hidden_swapped(bait: &Bait) -> Outcome {
    let (hidden, plain) = (bait.workspace.join(".env"), bait.workspace.join("plain"));
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let _ = rustix::fs::renameat_with(rustix::fs::CWD, &hidden, rustix::fs::CWD, &plain, flags);
    says(&plain, HUSH)
}

fn hidden_by_its_link(bait: &Bait) -> Outcome {
    match says(&bait.workspace.join("kept/token"), HUSH) {
        Outcome::Shut(_) => says(&bait.workspace.join("sub/token.pem"), HUSH),
        open => open,
    }
}

fn hidden_link_removed(bait: &Bait) -> Outcome {
    let (link, other) = (bait.workspace.join("sub/token.pem"), bait.workspace.join("sub/other"));
    let is_moved = std::fs::rename(&link, &other).is_ok();
    let is_replaced = std::fs::write(&other, "").and_then(|()| std::fs::rename(&other, &link)).is_ok();
    let is_removed = std::fs::remove_file(&link).is_ok();
    // Checks the effect, not the results of the calls.
    let is_there = std::fs::read_link(&link).is_ok();
    Outcome::when(!is_there, format!("moved {is_moved}, replaced {is_replaced}, removed {is_removed}"))
}

fn hidden_folder(bait: &Bait) -> Outcome {
    says(&bait.workspace.join("secrets/key"), HUSH)
}

fn hidden_folder_renamed(bait: &Bait) -> Outcome {
    let _ = std::fs::rename(bait.workspace.join("secrets"), bait.workspace.join("renamed"));
    says(&bait.workspace.join("renamed/key"), HUSH)
}

/// Writes a file and checks whether it was written.
pub(super) fn plant(bait: &Bait, path: &str) -> Outcome {
    let path = bait.workspace.join(path);
    let _ = std::fs::write(&path, HUSH);
    says(&path, HUSH)
}

fn plant_hook(bait: &Bait) -> Outcome {
    plant(bait, ".git/hooks/post-checkout")
}

fn change_hook(bait: &Bait) -> Outcome {
    plant(bait, ".git/hooks/pre-commit")
}

fn git_config(bait: &Bait) -> Outcome {
    plant(bait, ".git/config")
}

fn nested_git_config(bait: &Bait) -> Outcome {
    plant(bait, "sub/.git/config")
}

fn editor_task(bait: &Bait) -> Outcome {
    plant(bait, ".vscode/tasks.json")
}

/// Moves a folder away and creates another with the same name.
pub(super) fn replace(bait: &Bait, folder: &str, file: &str) -> Outcome {
    let path = bait.workspace.join(folder);
    let _ = std::fs::rename(&path, bait.workspace.join("away"));
    let file = path.join(file);
    let _ = std::fs::create_dir_all(file.parent().unwrap());
    let _ = std::fs::write(&file, HUSH);
    says(&file, HUSH)
}

fn git_folder_replaced(bait: &Bait) -> Outcome {
    replace(bait, ".git", "config")
}

fn parent_replaced(bait: &Bait) -> Outcome {
    replace(bait, "sub", ".git/config")
}

fn envrc_replaced(bait: &Bait) -> Outcome {
    let new = bait.workspace.join("new");
    std::fs::write(&new, HUSH).unwrap();
    let _ = std::fs::rename(&new, bait.workspace.join(".envrc"));
    says(&bait.workspace.join(".envrc"), HUSH)
}

fn mcp_removed(bait: &Bait) -> Outcome {
    let path = bait.workspace.join(".mcp.json");
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::write(&path, HUSH);
    says(&path, HUSH)
}

/// Writes one name and checks whether another one shows it.
fn plant_by(bait: &Bait, name: &str, seen: &str) -> Outcome {
    let _ = std::fs::write(bait.workspace.join(name), HUSH);
    says(&bait.workspace.join(seen), HUSH)
}

/// Removes an entry and creates a file in its place.
fn put_in_place(bait: &Bait, name: &str) -> Outcome {
    let path = bait.workspace.join(name);
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::write(&path, HUSH);
    let is_file = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
    let text = taste(&path);
    Outcome::when(is_file && text.as_ref().is_ok_and(|text| text == HUSH), format!("{text:?}"))
}

fn git_file(bait: &Bait) -> Outcome {
    put_in_place(bait, "tree/.git")
}

fn git_link_replaced(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("linked/.git");
    let _ = std::fs::remove_file(&path);
    let made = std::fs::create_dir(&path);
    Outcome::of(made)
}

fn worktree_commondir(bait: &Bait) -> Outcome {
    put_in_place(bait, "trees/tree/commondir")
}

fn module_config(bait: &Bait) -> Outcome {
    plant(bait, ".git/modules/lib/config")
}

fn bare_config(bait: &Bait) -> Outcome {
    plant(bait, "bare/config")
}

fn dotfile_link_replaced(bait: &Bait) -> Outcome {
    put_in_place(bait, ".bashrc")
}

fn dotfile_link_end(bait: &Bait) -> Outcome {
    plant_by(bait, "shell-rc", ".bashrc")
}

fn hook_by_other_name(bait: &Bait) -> Outcome {
    plant_by(bait, "a-hook", ".git/hooks/pre-commit")
}

fn envrc_by_other_name(bait: &Bait) -> Outcome {
    plant_by(bait, "an-envrc", ".envrc")
}
