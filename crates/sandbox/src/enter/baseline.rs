//! The smallest thing that could be called a sandbox, as the baseline of the measurements: the same namespaces, and a
//! tmpfs root with `/usr` in it. No limits, no separate user, no Landlock, no seccomp. Only the measurements use it.

use std::convert::Infallible;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::process::WaitOptions;

use super::{mount, mount_sources};
use crate::isolation::IsolationSet;
use crate::sys::{self, CloneResult};

/// Runs a program without arguments from a host folder that is mounted at `target`, and waits for it. The calling process
/// must have one thread.
pub fn run_baseline(folder: &Path, target: &str, program: &str, output: PipeWriter) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    match sys::clone_process(namespaces.cast_unsigned().into())? {
        CloneResult::Child => {
            let failure = rustix::stdio::dup2_stdout(&output)
                .map_err(Into::into)
                .and_then(|()| become_program(folder, target, program, user, group));
            sys::exit_now(failure.map_or(1, |never| match never {}));
        }
        CloneResult::Parent { child, .. } => {
            let ended = rustix::process::waitpid(Some(child), WaitOptions::empty())?;
            if ended.is_none_or(|(_, status)| status.exit_status() != Some(0)) {
                return Err(io::Error::other("the program did not run"));
            }
            Ok(())
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it becomes the program")]
fn become_program(
    folder: &Path,
    target: &str,
    program: &str,
    user: u32,
    group: u32,
) -> io::Result<Infallible> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    mount_sources::write_map("/proc/self/uid_map", user, user)?;
    mount_sources::write_map("/proc/self/gid_map", group, group)?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let usr = mount::clone_tree(&open("/usr".as_ref())?)?;
    let folder = mount::clone_tree(&open(folder)?)?;
    let root = mount::new_tmpfs(None, 0o755, &IsolationSet::default())?;
    mount::attach(&root, &open("/tmp".as_ref())?)?;
    for (name, tree) in [("usr", usr), (target.trim_start_matches('/'), folder)] {
        rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(0o755))?;
        mount::attach_by_name(&tree, &root, name)?;
    }
    for name in ["bin", "lib", "lib64"] {
        rustix::fs::symlinkat(format!("usr/{name}"), &root, name)?;
    }
    rustix::process::fchdir(root.as_fd())?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    Err(std::process::Command::new(program).env_clear().exec())
}
