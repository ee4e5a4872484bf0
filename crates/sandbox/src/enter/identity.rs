//! Who the sandbox is on the host: never root, and with no keys of anyone's session.

use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, getegid, geteuid, getgid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tribune_contract::{Failed, LaunchStage};

use super::failure::{AtStage as _, failed};
use crate::sys;

/// Leaves the keyring of whoever started the daemon; a session's keys are inherited otherwise.
pub(super) fn join_new_keyring() -> Result<(), Failed> {
    match sys::join_new_session_keyring() {
        // A kernel without keys has none to inherit.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        done => done.at(
            LaunchStage::Keyring,
            "leaving the session keyring",
            "Raise kernel.keys.maxkeys, or end old sessions of this user",
        ),
    }
}

const REMEDY: &str = "Start Tribune as an ordinary user, or let it keep CAP_SETUID and CAP_SETGID";

/// Whether any of its ids is root's, the saved one too: it could become that again.
fn is_root() -> bool {
    sys::user_ids().contains(&0)
}

/// Whom root is to become.
fn non_root_target(target: Option<(u32, u32)>) -> Result<(Uid, Gid), Failed> {
    match target.filter(|(uid, gid)| *uid != 0 && *gid != 0) {
        Some((uid, gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
        None => {
            Err(failed(LaunchStage::User, "the launcher is root and has no other user to become", REMEDY))
        }
    }
}

/// RootFs that counts as somebody else for a moment: what it makes meanwhile, namespaces above all, is that user's.
#[derive(Debug)]
pub(super) struct TemporaryUser(());

impl TemporaryUser {
    /// Nothing if this is not root, which is who it is.
    pub(super) fn switch_to(target: Option<(u32, u32)>) -> Result<Option<Self>, Failed> {
        if !is_root() {
            return Ok(None);
        }
        let (uid, gid) = non_root_target(target)?;
        rustix::thread::set_thread_groups(&[]).at(LaunchStage::User, "leaving all groups", REMEDY)?;
        let switched = rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT)
            .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, Uid::ROOT));
        switched.at(
            LaunchStage::User,
            format_args!("making what belongs to user {}", uid.as_raw()),
            REMEDY,
        )?;
        set_dumpable()?;
        Ok(Some(Self(())))
    }

    pub(super) fn restore(self) -> Result<(), Failed> {
        let (uid, gid) = (Uid::ROOT, Gid::ROOT);
        let ended = rustix::thread::set_thread_res_uid(uid, uid, uid)
            .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid));
        ended.at(LaunchStage::User, "being root again", REMEDY)
    }
}

/// Becomes another user if this one is root, and gives up every capability.
pub(super) fn become_user(target: Option<(u32, u32)>) -> Result<(), Failed> {
    if is_root() {
        let (uid, gid) = non_root_target(target)?;
        rustix::thread::set_thread_groups(&[]).at(LaunchStage::User, "leaving all groups", REMEDY)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).at(
            LaunchStage::User,
            format_args!("becoming group {}", gid.as_raw()),
            REMEDY,
        )?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at(
            LaunchStage::User,
            format_args!("becoming user {}", uid.as_raw()),
            REMEDY,
        )?;
    }
    clear_capabilities().at(LaunchStage::User, "giving up capabilities", REMEDY)?;
    check_not_root()?;
    set_dumpable()
}

/// In a user namespace with one user: is that one for good, whatever it was before.
pub(super) fn set_ids(inside: u32) -> Result<(), Failed> {
    let (uid, gid) = (Uid::from_raw(inside), Gid::from_raw(inside));
    rustix::thread::set_thread_res_gid(gid, gid, gid)
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .at(LaunchStage::User, "leaving root behind", REMEDY)?;
    // Whoever is not of this namespace, as the host's root is not, has another number here.
    if sys::user_ids() != [inside; 3] || sys::group_ids() != [inside; 3] {
        return Err(failed(LaunchStage::User, "process 1 is somebody else too", REMEDY));
    }
    set_dumpable()
}

fn check_not_root() -> Result<(), Failed> {
    let root = Uid::ROOT;
    let can_return = rustix::thread::set_thread_res_uid(root, root, root).is_ok();
    if can_return || is_root() {
        return Err(failed(LaunchStage::User, "the launcher is still root", REMEDY));
    }
    Ok(())
}

/// A change of user makes a process unreadable, its maps included, which are about to be written.
fn set_dumpable() -> Result<(), Failed> {
    let opened = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    opened.at(LaunchStage::User, "opening the process to its own user", REMEDY)
}

/// Who a sandbox is that this process launches.
pub(super) fn host_ids(target: Option<(u32, u32)>) -> (u32, u32) {
    let own = (getuid().as_raw(), if geteuid() == getuid() { getgid() } else { getegid() }.as_raw());
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
