//! User, group, capabilities and keyring of the sandbox on the host: never root, and no keys of another session.

use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, getegid, geteuid, getgid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tribune_contract::{LaunchFailure, LaunchStage, UserIds};

use super::failure::{AtStage as _, failed};
use crate::sys;

/// Joins a new session keyring. Otherwise the keys of the user who started the daemon are inherited.
pub(super) fn join_new_keyring() -> Result<(), LaunchFailure> {
    match sys::join_new_session_keyring() {
        // A kernel without key management has no keys to inherit.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        done => done.at(
            LaunchStage::Keyring,
            "joining a new session keyring",
            "Raise kernel.keys.maxkeys, or end old sessions of this user",
        ),
    }
}

const REMEDY: &str = "Start Tribune as an ordinary user, or let it keep CAP_SETUID and CAP_SETGID";

/// Returns whether any of the three user ids is root's. With a saved one the process could become root again.
fn is_root() -> bool {
    sys::user_ids().contains(&0)
}

/// The user that root must switch to.
fn non_root_target(target: Option<UserIds>) -> Result<(Uid, Gid), LaunchFailure> {
    match target.filter(|ids| ids.uid != 0 && ids.gid != 0) {
        Some(ids) => Ok((Uid::from_raw(ids.uid), Gid::from_raw(ids.gid))),
        None => {
            Err(failed(LaunchStage::User, "the launcher is root and has no other user to switch to", REMEDY))
        }
    }
}

/// Root with the effective ids of another user, until [`Self::restore`]. What it creates meanwhile, above all
/// namespaces, belongs to that user.
#[derive(Debug)]
pub(super) struct TemporaryUser(());

impl TemporaryUser {
    /// Switches the effective ids. Returns `None` if this process is not root.
    pub(super) fn switch_to(target: Option<UserIds>) -> Result<Option<Self>, LaunchFailure> {
        if !is_root() {
            return Ok(None);
        }
        let (uid, gid) = non_root_target(target)?;
        rustix::thread::set_thread_groups(&[]).at(
            LaunchStage::User,
            "dropping supplementary groups",
            REMEDY,
        )?;
        let switched = rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT)
            .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, Uid::ROOT));
        switched.at(LaunchStage::User, format_args!("switching to user {}", uid.as_raw()), REMEDY)?;
        set_dumpable()?;
        Ok(Some(Self(())))
    }

    pub(super) fn restore(self) -> Result<(), LaunchFailure> {
        let (uid, gid) = (Uid::ROOT, Gid::ROOT);
        let ended = rustix::thread::set_thread_res_uid(uid, uid, uid)
            .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid));
        ended.at(LaunchStage::User, "switching back to root", REMEDY)
    }
}

/// Switches to another user for good if this process is root, and drops all capabilities.
pub(super) fn become_user(target: Option<UserIds>) -> Result<(), LaunchFailure> {
    if is_root() {
        let (uid, gid) = non_root_target(target)?;
        rustix::thread::set_thread_groups(&[]).at(
            LaunchStage::User,
            "dropping supplementary groups",
            REMEDY,
        )?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).at(
            LaunchStage::User,
            format_args!("switching to group {}", gid.as_raw()),
            REMEDY,
        )?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at(
            LaunchStage::User,
            format_args!("switching to user {}", uid.as_raw()),
            REMEDY,
        )?;
    }
    clear_capabilities().at(LaunchStage::User, "dropping capabilities", REMEDY)?;
    check_not_root()?;
    set_dumpable()
}

/// In a user namespace with one mapped user: sets all ids to that user, whatever they were.
pub(super) fn set_ids(inside: u32) -> Result<(), LaunchFailure> {
    let (uid, gid) = (Uid::from_raw(inside), Gid::from_raw(inside));
    rustix::thread::set_thread_res_gid(gid, gid, gid)
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .at(LaunchStage::User, "switching to the user of the sandbox", REMEDY)?;
    // Ids that are not mapped into this namespace, such as the host's root, appear as other numbers here.
    if sys::user_ids() != [inside; 3] || sys::group_ids() != [inside; 3] {
        return Err(failed(LaunchStage::User, "process 1 still has another user or group id", REMEDY));
    }
    set_dumpable()
}

fn check_not_root() -> Result<(), LaunchFailure> {
    let root = Uid::ROOT;
    let can_return = rustix::thread::set_thread_res_uid(root, root, root).is_ok();
    if can_return || is_root() {
        return Err(failed(LaunchStage::User, "the launcher is still root", REMEDY));
    }
    Ok(())
}

/// A change of user makes a process non-dumpable and its files in /proc unwritable, among them the id maps that are
/// written next.
fn set_dumpable() -> Result<(), LaunchFailure> {
    let opened = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    opened.at(LaunchStage::User, "making the process dumpable", REMEDY)
}

/// The host ids of a sandbox that this process launches.
pub(super) fn host_ids(target: Option<UserIds>) -> UserIds {
    let gid = if geteuid() == getuid() { getgid() } else { getegid() };
    let own = UserIds { uid: getuid().as_raw(), gid: gid.as_raw() };
    target.filter(|_| is_root()).unwrap_or(own)
}

pub(super) fn clear_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
}
