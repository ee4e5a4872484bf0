//! Builds the sandbox's root and moves into it. Runs as process 1, before anything else does.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountPropagationFlags, UnmountFlags};
use rustix::path::Arg;
use tribune_contract::{Failed, LaunchStage};

use super::failure::{AtStage as _, failed};
use super::mount;
use super::mount_plan::{MountKind, MountStep};
use super::mount_sources::{DetachedMount, MountSources};
use super::symlink_trace::HostView;
use crate::isolation::{Isolation, IsolationSet};

/// Bytes and names of the root itself, which holds mount points and small files.
const ROOT_BYTES: u64 = 4 * 1024 * 1024;
const ROOT_INODES: u64 = 4096;

/// Where the new root is attached until it becomes the root. Every system has it, and nothing below it is ever shown: what a
/// profile names is looked up when this lies over it already.
pub(super) const ATTACH_POINT: &str = "/sys";

/// What of `/proc` can be read and not written, as far as it is there.
const PROC_READ_ONLY: [&str; 7] = ["acpi", "bus", "fs", "irq", "scsi", "sys", "tty"];

/// What of `/proc` says something about the host, or does something to it.
const PROC_EMPTY: [&str; 14] = [
    "cmdline",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "locks",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];

/// What is covered cannot be changed, and gives nobody rights.
pub(super) const MASK_ATTRIBUTES: u64 =
    libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Where things wait until they are used, gone before anything runs.
const STAGING: &str = "/.staging";

const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";

/// A root under construction.
#[derive(Debug)]
pub(super) struct RootFs {
    fd: OwnedFd,
    /// File systems of its own, in which mount points may be made. Others are somebody else's.
    own_devices: BTreeSet<u64>,
    /// What is laid over things that shall not be seen.
    empty_file: OwnedFd,
    empty_folder: OwnedFd,
    /// The folder in which something was made last, because most things come several to a folder.
    last_parent: Option<(PathBuf, Rc<ParentDir>)>,
    /// The host, for links that lead there.
    host_view: HostView,
    /// For controls: the host's root, taken hold of before anything lies over it.
    host: Option<OwnedFd>,
    isolation: IsolationSet,
}

impl RootFs {
    /// An empty root, attached. From here on the host is no longer where it was, so its mounts are taken hold of before.
    pub(super) fn attach(isolation: &IsolationSet) -> Result<Self, Failed> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(|error| mount_denied(&error.into()))?;
        let limits = isolation.has(Isolation::TmpfsLimits).then_some((ROOT_BYTES, ROOT_INODES));
        let fd = mount::tmpfs(limits, 0o755, isolation).map_err(|error| mount_denied(&error.into()))?;
        let host = if isolation.has(Isolation::Root) {
            None
        } else {
            Some(mount::host_tree("/").at(LaunchStage::Mounts, "keeping the host", REMEDY)?)
        };
        let stone = rustix::fs::open(ATTACH_POINT, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at(
            LaunchStage::Mounts,
            "opening /sys",
            "Make a folder /sys on the host",
        )?;
        // Before something lies on it.
        let place = std::fs::canonicalize(ATTACH_POINT).unwrap_or_else(|_| ATTACH_POINT.into());
        mount::attach(&fd, &stone).at(LaunchStage::Mounts, "attaching the root", REMEDY)?;
        let (empty_file, empty_folder) =
            create_mask_sources(&fd).at(LaunchStage::Mounts, "making the masks", REMEDY)?;
        let device = rustix::fs::fstat(&fd).at(LaunchStage::Mounts, "reading the root", REMEDY)?.st_dev;
        Ok(Self {
            fd,
            own_devices: [device].into(),
            empty_file,
            empty_folder,
            last_parent: None,
            host_view: HostView::with_covered(place, stone),
            host,
            isolation: isolation.clone(),
        })
    }

    /// The host around it, as it is without this root.
    pub(super) const fn host_view(&self) -> &HostView {
        &self.host_view
    }

    /// Mounts everything.
    pub(super) fn build(&mut self, steps: &[MountStep], sources: MountSources) -> Result<(), Failed> {
        for (step, trees) in steps.iter().zip(sources.into_steps()) {
            self.step(step, trees)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &MountStep, trees: Vec<DetachedMount>) -> Result<(), Failed> {
        let target = step.target.as_path();
        // What is mounted here lies over what was opened below it.
        self.last_parent.take_if(|(folder, _)| folder.starts_with(target));
        let doing = format_args!("mounting on `{}`", target.display());
        let has_limits = self.isolation.has(Isolation::TmpfsLimits);
        match &step.kind {
            MountKind::Bind(_) => {
                for tree in trees {
                    self.attach_at(&tree.mount, target, tree.is_folder)?;
                }
            }
            MountKind::Overlay { .. } => {
                let [lower, layers] = <[DetachedMount; 2]>::try_from(trees).map_err(|_| {
                    failed(LaunchStage::Workspace, "a layer is missing", "Open the session again")
                })?;
                self.overlay(target, &lower, &layers)?;
            }
            MountKind::Tmpfs { bytes, inodes, mode } => {
                let limits = has_limits.then_some((*bytes, *inodes));
                let mount =
                    mount::tmpfs(limits, *mode, &self.isolation).at(LaunchStage::Mounts, doing, REMEDY)?;
                self.attach_at(&mount, target, true)?;
                self.record_own_device(mount.as_fd()).at(LaunchStage::Mounts, doing, REMEDY)?;
            }
            MountKind::Text(text) => {
                let (parent, name) = self.parent(target)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&parent.fd, &name, flags, Mode::from_raw_mode(0o444)).at(
                    LaunchStage::Mounts,
                    doing,
                    REMEDY,
                )?;
                std::io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes()).at(
                    LaunchStage::Mounts,
                    doing,
                    "Keep the texts of a profile under 4 MiB",
                )?;
            }
            MountKind::Symlink(to) => {
                let (parent, name) = self.parent(target)?;
                rustix::fs::symlinkat(to, &parent.fd, &name).at(LaunchStage::Mounts, doing, REMEDY)?;
            }
            MountKind::Proc => self.proc(target)?,
            MountKind::Pts => {
                let pts = mount::pts().at(LaunchStage::Mounts, doing, REMEDY)?;
                self.attach_at(&pts, target, true)?;
            }
        }
        Ok(())
    }

    /// The workspace as two layers. The kernel finds them by path, so they are attached for the moment.
    fn overlay(
        &mut self,
        target: &Path,
        lower: &DetachedMount,
        layers: &DetachedMount,
    ) -> Result<(), Failed> {
        let doing = "laying the workspace over its folder";
        let remedy = "Use Linux 5.11 or later and a file system with `user.*` attributes, or the workspace mode `direct`";
        let staged = Path::new(STAGING);
        for (name, tree) in [("lower", lower), ("layers", layers)] {
            let point = self.mount_point(&staged.join(name), true)?;
            mount::attach(&tree.mount, &point).at(LaunchStage::Workspace, doing, remedy)?;
        }
        let at = |path: &str| format!("{ATTACH_POINT}{STAGING}/{path}");
        let made = (|| {
            let fs = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_set_string(fs.as_fd(), "lowerdir", at("lower"))?;
            rustix::mount::fsconfig_set_string(fs.as_fd(), "upperdir", at("layers/upper"))?;
            rustix::mount::fsconfig_set_string(fs.as_fd(), "workdir", at("layers/work"))?;
            rustix::mount::fsconfig_set_flag(fs.as_fd(), "userxattr")?;
            rustix::mount::fsconfig_create(fs.as_fd())?;
            rustix::mount::fsmount(
                fs.as_fd(),
                FsMountFlags::FSMOUNT_CLOEXEC,
                mount::default_flags(&self.isolation),
            )
        })();
        let mount = made.at(LaunchStage::Workspace, doing, remedy)?;
        let point = self.mount_point(target, true)?;
        mount::attach(&mount, &point).at(LaunchStage::Workspace, doing, remedy)?;
        for name in ["lower", "layers"] {
            rustix::mount::unmount(at(name), UnmountFlags::DETACH).at(
                LaunchStage::Workspace,
                doing,
                remedy,
            )?;
            rustix::fs::unlinkat(&self.fd, format!(".{STAGING}/{name}"), AtFlags::REMOVEDIR).at(
                LaunchStage::Workspace,
                doing,
                remedy,
            )?;
        }
        rustix::fs::unlinkat(&self.fd, format!(".{STAGING}"), AtFlags::REMOVEDIR).at(
            LaunchStage::Workspace,
            doing,
            remedy,
        )
    }

    fn proc(&mut self, target: &Path) -> Result<(), Failed> {
        let doing = "mounting /proc";
        let point = self.mount_point(target, true)?;
        let mount = if self.isolation.has(Isolation::PidNamespace) {
            mount::proc(&self.isolation)
        } else {
            mount::host_tree("/proc")
        };
        let mount = mount.at(
            LaunchStage::Mounts,
            doing,
            "In a container, run it with an unmasked /proc (Docker: --security-opt systempaths=unconfined)",
        )?;
        mount::attach(&mount, &point).at(LaunchStage::Mounts, doing, REMEDY)?;
        if !self.isolation.has(Isolation::ProcMasks) {
            return Ok(());
        }
        for name in PROC_READ_ONLY {
            make_read_only_by_name(&mount, name).at(
                LaunchStage::Mounts,
                format_args!("protecting /proc/{name}"),
                REMEDY,
            )?;
        }
        let empty = self.unchangeable_empty_file().at(LaunchStage::Mounts, doing, REMEDY)?;
        for name in PROC_EMPTY {
            hide_by_name(&empty, &mount, name).at(
                LaunchStage::Mounts,
                format_args!("hiding /proc/{name}"),
                REMEDY,
            )?;
        }
        Ok(())
    }

    /// An empty file as a mount that nobody can change, and whose copies nobody can change either.
    fn unchangeable_empty_file(&self) -> rustix::io::Result<OwnedFd> {
        let empty = mount::clone_tree(&self.empty_file)?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, &self.empty_file)?;
        Ok(empty)
    }

    /// Makes something that is there read-only.
    pub(super) fn make_read_only(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let tree = mount::clone_tree(&found)?;
        mount::set_attributes(tree.as_fd(), true, MASK_ATTRIBUTES)?;
        mount::attach(&tree, &found)
    }

    /// Lays the file that a link leads to over the link, or an empty one: then the link is neither removed nor replaced.
    pub(super) fn cover_link(
        &self,
        folder: impl AsFd,
        link: impl Arg,
        end: Option<&Path>,
    ) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, link)? else { return Ok(()) };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind == FileType::Directory {
            // Not a link any more.
            return Err(Errno::AGAIN);
        }
        let end = end.map(|end| mount::open_existing(&folder, end)).transpose()?.flatten();
        let cover = mount::clone_tree(end.as_ref().unwrap_or(&self.empty_file))?;
        mount::set_attributes(cover.as_fd(), true, MASK_ATTRIBUTES)?;
        mount::attach(&cover, &found)
    }

    /// Makes something its own mount, so that it cannot be moved away together with what is protected below it.
    pub(super) fn pin_mount(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let tree = mount::clone_tree(&found)?;
        mount::attach(&tree, &found)
    }

    /// Lays an empty file or folder over something that is there.
    pub(super) fn hide(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&found)?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let empty = mount::clone_tree(if is_folder { &self.empty_folder } else { &self.empty_file })?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, &found)
    }

    /// Lays an empty folder over one that is held.
    pub(super) fn hide_folder(&self, held: &OwnedFd) -> rustix::io::Result<()> {
        let empty = mount::clone_tree(&self.empty_folder)?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, held)
    }

    /// Opens something inside, without following links.
    pub(super) fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve_in_root())
    }

    /// Makes this the root, lets go of the host's, and lets nobody write into it but where something was mounted.
    pub(super) fn enter(self) -> Result<(), Failed> {
        let doing = "moving into the root";
        if let Some(host) = &self.host {
            self.attach_host_root(host).at(LaunchStage::Mounts, doing, REMEDY)?;
        }
        rustix::process::fchdir(&self.fd).at(LaunchStage::Mounts, doing, REMEDY)?;
        rustix::process::pivot_root(".", ".").at(
            LaunchStage::Mounts,
            doing,
            "Start Tribune on a system whose root is a mounted file system and no initial RAM disk",
        )?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).at(LaunchStage::Mounts, doing, REMEDY)?;
        rustix::process::chdir("/").at(LaunchStage::Mounts, doing, REMEDY)?;
        if self.isolation.has(Isolation::ReadOnlyMounts) {
            mount::set_attributes(self.fd.as_fd(), false, libc::MOUNT_ATTR_RDONLY).at(
                LaunchStage::Mounts,
                "making the root read-only",
                REMEDY,
            )?;
        }
        Ok(())
    }

    /// For controls: the host's root stays reachable below `/host`.
    fn attach_host_root(&self, host: &OwnedFd) -> rustix::io::Result<()> {
        rustix::fs::mkdirat(&self.fd, "host", Mode::from_raw_mode(0o755))?;
        let point = rustix::fs::openat(&self.fd, "host", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mount::attach(host, &point)
    }

    fn record_own_device(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.own_devices.insert(rustix::fs::fstat(fd)?.st_dev);
        Ok(())
    }

    /// Puts a mount in its place, which is made if it is not there.
    fn attach_at(&mut self, tree: &OwnedFd, target: &Path, is_folder: bool) -> Result<(), Failed> {
        let doing = format_args!("mounting on `{}`", target.display());
        let (parent, name) = self.parent(target)?;
        if parent.is_own && create_empty(&parent.fd, &name, is_folder).is_ok() {
            // Nobody else has seen it yet, so the name is what was just made.
            return mount::attach_by_name(tree, &parent.fd, &name).at(LaunchStage::Mounts, doing, REMEDY);
        }
        let point = self.mount_point(target, is_folder)?;
        mount::attach(tree, &point).at(LaunchStage::Mounts, doing, REMEDY)
    }

    /// A place to mount something on. It is made if it is not there and the folder around it is ours.
    fn mount_point(&mut self, target: &Path, is_folder: bool) -> Result<OwnedFd, Failed> {
        let (parent, name) = self.parent(target)?;
        let doing = format_args!("making the mount point `{}`", target.display());
        let open = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat2(&parent.fd, &name, flags, Mode::empty(), resolve_in_root())
        };
        match open() {
            Err(Errno::NOENT) => {}
            opened => return opened.at(LaunchStage::Mounts, doing, REMEDY),
        }
        parent.check_own(target)?;
        create_empty(&parent.fd, &name, is_folder).and_then(|()| open()).at(
            LaunchStage::Mounts,
            doing,
            REMEDY,
        )
    }

    /// The folder around a path, made where it may be, and the last name.
    fn parent(&mut self, target: &Path) -> Result<(Rc<ParentDir>, CString), Failed> {
        let doing = format_args!("making the folders of `{}`", target.display());
        let around = target.parent().unwrap_or(target);
        if let (Some((folder, held)), Some(name)) = (&self.last_parent, target.file_name())
            && folder == around
            && let Ok(name) = CString::new(name.as_encoded_bytes())
        {
            return Ok((Rc::clone(held), name));
        }
        let root = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).at(LaunchStage::Mounts, doing, REMEDY)?;
        let mut folder = self.parent_dir(root)?;
        let mut names = target.components().filter_map(|part| match part {
            Component::Normal(name) => CString::new(name.as_encoded_bytes()).ok(),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        });
        let Some(mut name) = names.next() else {
            return Err(failed(
                LaunchStage::Mounts,
                "nothing can be mounted on `/`",
                "Choose a folder below it",
            ));
        };
        for next in names {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = || rustix::fs::openat2(&folder.fd, &name, flags, Mode::empty(), resolve_in_root());
            let opened = match open() {
                Err(Errno::NOENT) => {
                    folder.check_own(target)?;
                    create_empty(&folder.fd, &name, true).and_then(|()| open())
                }
                opened => opened,
            };
            folder = self.parent_dir(opened.at(LaunchStage::Mounts, doing, REMEDY)?)?;
            name = next;
        }
        let folder = Rc::new(folder);
        self.last_parent = Some((around.to_owned(), Rc::clone(&folder)));
        Ok((folder, name))
    }

    fn parent_dir(&self, fd: OwnedFd) -> Result<ParentDir, Failed> {
        let device = rustix::fs::fstat(&fd).at(LaunchStage::Mounts, "reading a folder", REMEDY)?.st_dev;
        Ok(ParentDir { fd, is_own: self.own_devices.contains(&device) })
    }
}

/// A folder in which something is made.
#[derive(Debug)]
struct ParentDir {
    fd: OwnedFd,
    /// Whether it is in a file system of the sandbox's own.
    is_own: bool,
}

impl ParentDir {
    fn check_own(&self, target: &Path) -> Result<(), Failed> {
        if self.is_own {
            return Ok(());
        }
        let cause = format!("`{}` does not exist in the folder mounted around it", target.display());
        Err(failed(LaunchStage::Mounts, cause, "Make it on the host first, or mount it elsewhere"))
    }
}

/// Makes something of a file system that is the kernel's own read-only. It is known by its name, which nobody else can change.
fn make_read_only_by_name(folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let Some(tree) = mount::clone_tree_by_name(folder, name)? else { return Ok(()) };
    mount::set_attributes(tree.as_fd(), true, MASK_ATTRIBUTES)?;
    mount::attach_by_name(&tree, folder, name)
}

/// Lays a copy of `empty` over a file of the kernel's own, if it is there and can be opened in the sandbox.
fn hide_by_name(empty: &OwnedFd, folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let found = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    // INVARIANT: one user is known in the sandbox, the one who builds it, and no right reaches past what belongs to others.
    let is_closed = found.st_uid != rustix::process::getuid().as_raw() && found.st_mode & 0o077 == 0;
    if is_closed {
        return Ok(());
    }
    let empty = mount::clone_tree(empty)?;
    match mount::attach_by_name(&empty, folder, name) {
        Err(Errno::NOENT) => Ok(()),
        put => put,
    }
}

/// Makes an empty folder or file, which must not be there.
fn create_empty(folder: &OwnedFd, name: &CString, is_folder: bool) -> rustix::io::Result<()> {
    if is_folder {
        rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o755))
    } else {
        rustix::fs::mknodat(folder, name, FileType::RegularFile, Mode::from_raw_mode(0o444), 0)
    }
}

const fn resolve_in_root() -> ResolveFlags {
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS)
}

/// The first mount is what fails where user namespaces are given out without their rights.
fn mount_denied(error: &std::io::Error) -> Failed {
    failed(
        LaunchStage::Mounts,
        format!("the new user namespace may not mount anything ({error})"),
        "On Ubuntu, allow it with an AppArmor profile for tribune that has `userns,`, or with \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    )
}

/// An empty file and an empty folder, in the root itself because only what is attached can be mounted once more.
fn create_mask_sources(root: &OwnedFd) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let open = |name: &str| rustix::fs::openat(root, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    rustix::fs::mkdirat(root, "run", Mode::from_raw_mode(0o755))?;
    rustix::fs::mkdirat(root, "run/empty", Mode::from_raw_mode(0o555))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(root, "run/nothing", flags, Mode::from_raw_mode(0o444))?;
    Ok((open("run/nothing")?, open("run/empty")?))
}
