//! Who the sandbox is on the host: never root, and with no keys of anyone's session.

use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, getegid, geteuid, getgid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tribune_contract::{Failed, Stage};

use super::failure::{At as _, failed};
use crate::sys;

/// Leaves the keyring of whoever started the daemon; a session's keys are inherited otherwise.
pub(super) fn fresh_keyring() -> Result<(), Failed> {
    match sys::new_session_keyring() {
        // A kernel without keys has none to inherit.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        done => done.at(
            Stage::Keyring,
            "leaving the session keyring",
            "Raise kernel.keys.maxkeys, or end old sessions of this user",
        ),
    }
}

/// Becomes another user if this one is root, and gives up every capability. Returns who it is from now on.
pub(super) fn become_user(target: Option<(u32, u32)>) -> Result<(Uid, Gid), Failed> {
    const REMEDY: &str = "Start Tribune as an ordinary user, or let it keep CAP_SETUID and CAP_SETGID";
    if geteuid().is_root() || getuid().is_root() {
        let Some((uid, gid)) = target.filter(|(uid, gid)| *uid != 0 && *gid != 0) else {
            return Err(failed(Stage::User, "the launcher is root and has no other user to become", REMEDY));
        };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).at(Stage::User, "leaving all groups", REMEDY)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).at(
            Stage::User,
            format_args!("becoming group {}", gid.as_raw()),
            REMEDY,
        )?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at(
            Stage::User,
            format_args!("becoming user {}", uid.as_raw()),
            REMEDY,
        )?;
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).at(Stage::User, "giving up capabilities", REMEDY)?;
    let root = Uid::ROOT;
    let can_return = rustix::thread::set_thread_res_uid(root, root, root).is_ok();
    if can_return || geteuid().is_root() || getuid().is_root() {
        return Err(failed(Stage::User, "the launcher is still root", REMEDY));
    }
    // A change of user makes a process unreadable, its maps included, which are about to be written.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).at(
        Stage::User,
        "opening the process to its own user",
        REMEDY,
    )?;
    Ok((getuid(), if geteuid() == getuid() { getgid() } else { getegid() }))
}
