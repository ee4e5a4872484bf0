//! Builds the root file system of the sandbox and pivots into it. Runs in process 1 before the program.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountPropagationFlags, UnmountFlags};
use rustix::path::Arg;
use tribune_contract::{LaunchFailure, LaunchStage};

use super::failure::{AtStage as _, failed};
use super::mount::{self, TmpfsLimits};
use super::mount_plan::{ATTACH_POINT, MountKind, MountStep};
use super::mount_sources::{DetachedMount, MountSources};
use super::symlink_trace::HostView;
use crate::isolation::{Isolation, IsolationSet};

/// Size and inodes of the root tmpfs, which contains mount points and small files.
const ROOT_BYTES: u64 = 4 * 1024 * 1024;
const ROOT_INODES: u64 = 4096;

/// Entries of `/proc` that are made read-only, if they exist.
const PROC_READ_ONLY: [&str; 7] = ["acpi", "bus", "fs", "irq", "scsi", "sys", "tty"];

/// Entries of `/proc` that reveal or change something of the host. They look empty.
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

/// Mount attributes of a mask: read-only, and no set-id programs or devices.
pub(super) const MASK_ATTRIBUTES: u64 =
    libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Where overlay layers are attached while the overlay is mounted. Removed before the program runs.
const STAGING: &str = "/.staging";

const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";

/// A root file system under construction.
#[derive(Debug)]
pub(super) struct RootFs {
    fd: OwnedFd,
    /// Device numbers of the sandbox's own file systems. Mount points are created only in these.
    own_devices: BTreeSet<u64>,
    /// The sources of masks.
    empty_file: OwnedFd,
    empty_folder: OwnedFd,
    /// The parent folder of the last mount, because several mounts often share one.
    last_parent: Option<(PathBuf, Rc<ParentDir>)>,
    /// The host's file system without this root, to resolve symlinks that lead there.
    host_view: HostView,
    /// For controls of tests: the host's root, cloned before anything is mounted over it.
    host: Option<OwnedFd>,
    isolation: IsolationSet,
}

impl RootFs {
    /// Creates an empty root and attaches it at [`ATTACH_POINT`]. That covers a folder of the host, so host sources are
    /// opened before.
    pub(super) fn attach(isolation: &IsolationSet) -> Result<Self, LaunchFailure> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(|error| mount_denied(&error.into()))?;
        let limits = isolation
            .has(Isolation::TmpfsLimits)
            .then_some(TmpfsLimits { bytes: ROOT_BYTES, inodes: ROOT_INODES });
        let fd = mount::new_tmpfs(limits, 0o755, isolation).map_err(|error| mount_denied(&error.into()))?;
        let host = if isolation.has(Isolation::Root) {
            None
        } else {
            Some(mount::clone_host_tree("/").at(LaunchStage::Mounts, "cloning the host's root", REMEDY)?)
        };
        let attach_point = rustix::fs::open(ATTACH_POINT, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at(
            LaunchStage::Mounts,
            "opening /sys",
            "Create a folder /sys on the host",
        )?;
        // Resolved before something is mounted over it.
        let place = std::fs::canonicalize(ATTACH_POINT).unwrap_or_else(|_| ATTACH_POINT.into());
        mount::attach(&fd, &attach_point).at(LaunchStage::Mounts, "attaching the root", REMEDY)?;
        let (empty_file, empty_folder) =
            create_mask_sources(&fd).at(LaunchStage::Mounts, "creating the masks", REMEDY)?;
        let device = rustix::fs::fstat(&fd).at(LaunchStage::Mounts, "reading the root", REMEDY)?.st_dev;
        Ok(Self {
            fd,
            own_devices: [device].into(),
            empty_file,
            empty_folder,
            last_parent: None,
            host_view: HostView::with_covered(place, attach_point),
            host,
            isolation: isolation.clone(),
        })
    }

    /// The host's file system as it is without this root.
    pub(super) const fn host_view(&self) -> &HostView {
        &self.host_view
    }

    /// Performs all steps.
    pub(super) fn mount_all(
        &mut self,
        steps: &[MountStep],
        sources: MountSources,
    ) -> Result<(), LaunchFailure> {
        for (step, trees) in steps.iter().zip(sources.into_steps()) {
            self.perform_step(step, trees)?;
        }
        Ok(())
    }

    fn perform_step(&mut self, step: &MountStep, trees: Vec<DetachedMount>) -> Result<(), LaunchFailure> {
        let target = step.target.as_path();
        // The new mount covers the cached parent folder.
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
                self.mount_overlay(target, &lower, &layers)?;
            }
            MountKind::Tmpfs { bytes, inodes, mode } => {
                let limits = has_limits.then_some(TmpfsLimits { bytes: *bytes, inodes: *inodes });
                let mount = mount::new_tmpfs(limits, *mode, &self.isolation).at(
                    LaunchStage::Mounts,
                    doing,
                    REMEDY,
                )?;
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
            MountKind::Proc => self.mount_proc(target)?,
            MountKind::Pts => {
                let pts = mount::new_devpts().at(LaunchStage::Mounts, doing, REMEDY)?;
                self.attach_at(&pts, target, true)?;
            }
        }
        Ok(())
    }

    /// Mounts the workspace as an overlay. Overlayfs takes paths, so its layers are attached temporarily.
    fn mount_overlay(
        &mut self,
        target: &Path,
        lower: &DetachedMount,
        layers: &DetachedMount,
    ) -> Result<(), LaunchFailure> {
        let doing = "mounting the overlay of the workspace";
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

    fn mount_proc(&mut self, target: &Path) -> Result<(), LaunchFailure> {
        let doing = "mounting /proc";
        let point = self.mount_point(target, true)?;
        let mount = if self.isolation.has(Isolation::PidNamespace) {
            mount::new_proc(&self.isolation)
        } else {
            mount::clone_host_tree("/proc")
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
        let empty = self.read_only_empty_file().at(LaunchStage::Mounts, doing, REMEDY)?;
        for name in PROC_EMPTY {
            hide_by_name(&empty, &mount, name).at(
                LaunchStage::Mounts,
                format_args!("hiding /proc/{name}"),
                REMEDY,
            )?;
        }
        Ok(())
    }

    /// A read-only mount of the empty file. Its clones are read-only too.
    fn read_only_empty_file(&self) -> rustix::io::Result<OwnedFd> {
        let empty = mount::clone_tree(&self.empty_file)?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, &self.empty_file)?;
        Ok(empty)
    }

    /// Makes an existing entry read-only.
    pub(super) fn make_read_only(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let tree = mount::clone_tree(&found)?;
        mount::set_attributes(tree.as_fd(), true, MASK_ATTRIBUTES)?;
        mount::attach(&tree, &found)
    }

    /// Mounts the target of a symlink, or an empty file, over the symlink itself, so that it can be neither removed nor
    /// replaced.
    pub(super) fn cover_link(
        &self,
        folder: impl AsFd,
        link: impl Arg,
        end: Option<&Path>,
    ) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, link)? else { return Ok(()) };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind == FileType::Directory {
            // No longer a symlink.
            return Err(Errno::AGAIN);
        }
        let end = end.map(|end| mount::open_existing(&folder, end)).transpose()?.flatten();
        let cover = mount::clone_tree(end.as_ref().unwrap_or(&self.empty_file))?;
        mount::set_attributes(cover.as_fd(), true, MASK_ATTRIBUTES)?;
        mount::attach(&cover, &found)
    }

    /// Turns an entry into a mount of its own, so that it cannot be moved together with the masks below it.
    pub(super) fn pin_mount(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let tree = mount::clone_tree(&found)?;
        mount::attach(&tree, &found)
    }

    /// Mounts an empty file or folder over an existing entry.
    pub(super) fn hide(&self, folder: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
        let Some(found) = mount::open_existing(&folder, name)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&found)?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let empty = mount::clone_tree(if is_folder { &self.empty_folder } else { &self.empty_file })?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, &found)
    }

    /// Mounts an empty folder over an open folder.
    pub(super) fn hide_folder(&self, held: &OwnedFd) -> rustix::io::Result<()> {
        let empty = mount::clone_tree(&self.empty_folder)?;
        mount::set_attributes(empty.as_fd(), false, MASK_ATTRIBUTES)?;
        mount::attach(&empty, held)
    }

    /// Mounts `/dev/full` over `/dev/zero`. Both read as zeros, and only the second can be mapped as shared memory.
    pub(super) fn cover_zero_device(&self) -> rustix::io::Result<()> {
        let full = mount::clone_tree(&self.open("/dev/full".as_ref())?)?;
        mount::attach(&full, &self.open("/dev/zero".as_ref())?)
    }

    /// Opens a path inside without following symlinks.
    pub(super) fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve_in_root())
    }

    /// Makes this the root of the process, detaches the host's root, and makes the root tmpfs read-only.
    pub(super) fn enter(self) -> Result<(), LaunchFailure> {
        let doing = "pivoting into the root";
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

    /// For controls of tests: keeps the host's root reachable at `/host`.
    fn attach_host_root(&self, host: &OwnedFd) -> rustix::io::Result<()> {
        rustix::fs::mkdirat(&self.fd, "host", Mode::from_raw_mode(0o755))?;
        let point = rustix::fs::openat(&self.fd, "host", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mount::attach(host, &point)
    }

    fn record_own_device(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.own_devices.insert(rustix::fs::fstat(fd)?.st_dev);
        Ok(())
    }

    /// Attaches a mount at a path, which is created if needed.
    fn attach_at(&mut self, tree: &OwnedFd, target: &Path, is_folder: bool) -> Result<(), LaunchFailure> {
        let doing = format_args!("mounting on `{}`", target.display());
        let (parent, name) = self.parent(target)?;
        if parent.is_own && create_empty(&parent.fd, &name, is_folder).is_ok() {
            // The entry was just created and is not visible to other processes, so its name is safe to use.
            return mount::attach_by_name(tree, &parent.fd, &name).at(LaunchStage::Mounts, doing, REMEDY);
        }
        let point = self.mount_point(target, is_folder)?;
        mount::attach(tree, &point).at(LaunchStage::Mounts, doing, REMEDY)
    }

    /// Opens a mount point. Creates it if it is missing and its folder is on an own file system.
    fn mount_point(&mut self, target: &Path, is_folder: bool) -> Result<OwnedFd, LaunchFailure> {
        let (parent, name) = self.parent(target)?;
        let doing = format_args!("creating the mount point `{}`", target.display());
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

    /// Opens the parent folder of a path, creates missing folders where allowed, and returns the last component.
    fn parent(&mut self, target: &Path) -> Result<(Rc<ParentDir>, CString), LaunchFailure> {
        let doing = format_args!("creating the folders of `{}`", target.display());
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

    fn parent_dir(&self, fd: OwnedFd) -> Result<ParentDir, LaunchFailure> {
        let device = rustix::fs::fstat(&fd).at(LaunchStage::Mounts, "reading a folder", REMEDY)?.st_dev;
        Ok(ParentDir { fd, is_own: self.own_devices.contains(&device) })
    }
}

/// The folder in which a mount point is created.
#[derive(Debug)]
struct ParentDir {
    fd: OwnedFd,
    /// Whether it is on one of the sandbox's own file systems.
    is_own: bool,
}

impl ParentDir {
    fn check_own(&self, target: &Path) -> Result<(), LaunchFailure> {
        if self.is_own {
            return Ok(());
        }
        let cause = format!("`{}` does not exist in the folder mounted around it", target.display());
        Err(failed(LaunchStage::Mounts, cause, "Create it on the host first, or choose another mount point"))
    }
}

/// Makes an entry of a kernel file system read-only. Its name is stable, because no process can change it.
fn make_read_only_by_name(folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let Some(tree) = mount::clone_tree_by_name(folder, name)? else { return Ok(()) };
    mount::set_attributes(tree.as_fd(), true, MASK_ATTRIBUTES)?;
    mount::attach_by_name(&tree, folder, name)
}

/// Mounts a clone of `empty` over a file of a kernel file system, if it exists and could be opened inside.
fn hide_by_name(empty: &OwnedFd, folder: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let found = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    // INVARIANT: the sandbox knows one user, the one that builds it, and no capability reaches files of other users.
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

/// Creates an empty folder or file. It must not exist.
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

/// The error of the first mount, which fails where user namespaces have no capabilities.
fn mount_denied(error: &std::io::Error) -> LaunchFailure {
    failed(
        LaunchStage::Mounts,
        format!("the new user namespace may not mount anything ({error})"),
        "On Ubuntu, allow it with an AppArmor profile for tribune that has `userns,`, or with \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    )
}

/// Creates the empty file and the empty folder of the masks. They are inside the root because only attached mounts can
/// be cloned.
fn create_mask_sources(root: &OwnedFd) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let open = |name: &str| rustix::fs::openat(root, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    rustix::fs::mkdirat(root, "run", Mode::from_raw_mode(0o755))?;
    rustix::fs::mkdirat(root, "run/empty", Mode::from_raw_mode(0o555))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(root, "run/nothing", flags, Mode::from_raw_mode(0o444))?;
    Ok((open("run/nothing")?, open("run/empty")?))
}
