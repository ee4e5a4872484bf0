//! Cgroups, one set per launch: version 2 if its controllers are available, otherwise version 1, otherwise none.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tribune_contract::{LimitedBy, ResourceLimits};

use super::instance::InstanceId;

/// How often the removal of a cgroup is tried, and the pause in between: the kernel has to reap its processes first.
const REMOVE_ATTEMPTS: u32 = 500;
const REMOVE_PAUSE: Duration = Duration::from_millis(4);

/// The period of the CPU quota in microseconds.
const CPU_PERIOD_US: u64 = 100_000;

static LAUNCHES: AtomicU32 = AtomicU32::new(0);

/// The cgroups of one launch. Dropping them kills what is left inside and removes them.
#[derive(Debug)]
pub(super) struct Cgroups {
    folders: Vec<PathBuf>,
    pub(super) limited_by: LimitedBy,
}

impl Cgroups {
    /// Creates the strongest kind of cgroup that the machine allows.
    pub(super) fn create(instance: &InstanceId, limits: &ResourceLimits) -> Self {
        let name = name(instance);
        let mounts = Hierarchies::cached();
        let v2 = mounts.unified.iter().flat_map(|place| place.ancestors());
        for parent in v2 {
            if let Ok(folder) = create_v2(&parent.join(&name), &parent, limits) {
                return Self { folders: vec![folder], limited_by: LimitedBy::CgroupV2 };
            }
        }
        if let Ok(folders) = create_v1(&mounts, &name, limits) {
            return Self { folders, limited_by: LimitedBy::CgroupV1 };
        }
        Self { folders: Vec::new(), limited_by: LimitedBy::Rlimits }
    }

    /// The files through which a process joins. For version 1 this is the one for single threads: the launcher has only
    /// one thread, and the kernel takes a global lock for the other file.
    pub(super) fn join_files(&self) -> Vec<PathBuf> {
        let door = match self.limited_by {
            LimitedBy::CgroupV1 => "tasks",
            LimitedBy::CgroupV2 | LimitedBy::Rlimits => "cgroup.procs",
        };
        self.folders.iter().map(|folder| folder.join(door)).collect()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for folder in &self.folders {
            remove(folder);
        }
    }
}

/// Kills everything in a cgroup and removes it. Returns whether it is gone.
pub(super) fn remove(folder: &Path) -> bool {
    for _ in 0..REMOVE_ATTEMPTS {
        match std::fs::remove_dir(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => {}
        }
        if std::fs::write(folder.join("cgroup.kill"), "1").is_err() {
            let members = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for member in members.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                // ESRCH: it has just exited.
                let _ = rustix::process::kill_process(member, Signal::KILL);
            }
        }
        std::thread::sleep(REMOVE_PAUSE);
    }
    false
}

/// The prefix of all cgroup names.
const PREFIX: &str = "tribune.";

/// A name that identifies the instance and the process that launched. Process ids are only meaningful in their pid
/// namespace, so that is included.
fn name(instance: &InstanceId) -> String {
    // Constant for the lifetime of the process.
    static OWN: OnceLock<(u64, u64)> = OnceLock::new();
    let pid = std::process::id();
    let launch = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let (namespace, start) = OWN.get_or_init(|| (pid_namespace(), start_time(pid).unwrap_or_default()));
    format!("{PREFIX}{}.{namespace}.{pid}.{start}.{launch}", instance.as_str())
}

/// The inode number of this process's pid namespace.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The kernel's flag for a process that is exiting.
const PF_EXITING: u64 = 4;

/// Returns when a process was started, which together with its id identifies it. Returns `None` for a zombie and for a
/// process that is exiting: neither does anything any more.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name, which can contain anything, ends with the last parenthesis. The state, the flags and the start
    // time follow.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let &[state, _, _, _, _, _, marks, ..] = fields.as_slice() else { return None };
    let is_exiting = marks.parse::<u64>().ok()? & PF_EXITING != 0;
    if is_exiting || matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Returns the cgroups of processes that are gone, of any instance: an instance that never starts again cannot clean
/// up.
pub(super) fn stale() -> Vec<PathBuf> {
    let here = pid_namespace();
    let mounts = Hierarchies::read(&own_cgroups());
    let places = mounts.unified.iter().chain(mounts.controllers.iter().map(|(_, place)| place));
    let folders = places.flat_map(|place| descendants(&place.mount));
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((_, rest)) = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('.')) else {
            return false;
        };
        let numbers: Vec<u64> = rest.split('.').map_while(|number| number.parse().ok()).collect();
        let &[namespace, pid, start, _] = numbers.as_slice() else { return false };
        namespace == here && u32::try_from(pid).ok().and_then(start_time) != Some(start)
    };
    folders.filter(is_stale).collect()
}

/// Maximum number of cgroups examined in one hierarchy.
const MAX_CGROUPS: usize = 50_000;

/// Returns all cgroups of a hierarchy. The process that created one may have been elsewhere in it than this one is.
fn descendants(mount: &Path) -> Vec<PathBuf> {
    let mut found = vec![mount.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).filter(|_| found.len() < MAX_CGROUPS) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let inner: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
        found.extend(inner);
        next += 1;
    }
    found
}

fn create_v2(folder: &Path, parent: &Path, limits: &ResourceLimits) -> io::Result<PathBuf> {
    let controllers = std::fs::read_to_string(parent.join("cgroup.subtree_control"))?;
    let has = |wanted: &str| controllers.split_whitespace().any(|name| name == wanted);
    if !has("memory") || !has("pids") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let quota = u64::from(limits.cpu_percent) * CPU_PERIOD_US / 100;
    create_cgroup(folder, |set| {
        set("memory.max", limits.memory_bytes.to_string())?;
        set("pids.max", limits.processes.to_string())?;
        // Not every kernel has these files.
        let _ = set("memory.swap.max", "0".to_owned());
        let _ = set("memory.oom.group", "1".to_owned());
        if has("cpu") {
            set("cpu.max", format!("{quota} {CPU_PERIOD_US}"))?;
        }
        Ok(())
    })
}

fn create_v1(mounts: &Hierarchies, name: &str, limits: &ResourceLimits) -> io::Result<Vec<PathBuf>> {
    let place = |wanted: &str| {
        let found =
            mounts.controllers.iter().find(|(controllers, _)| controllers.iter().any(|c| c == wanted));
        found.map(|(_, place)| place.path_of_self().join(name)).ok_or(io::ErrorKind::Unsupported)
    };
    let quota = u64::from(limits.cpu_percent) * CPU_PERIOD_US / 100;
    let mut folders = Vec::new();
    let all = (|| {
        folders.push(create_cgroup(&place("pids")?, |set| set("pids.max", limits.processes.to_string()))?);
        folders.push(create_cgroup(&place("memory")?, |set| {
            set("memory.limit_in_bytes", limits.memory_bytes.to_string())?;
            // Only if the kernel accounts swap.
            let _ = set("memory.memsw.limit_in_bytes", limits.memory_bytes.to_string());
            Ok(())
        })?);
        folders.push(create_cgroup(&place("cpu")?, |set| {
            set("cpu.cfs_period_us", CPU_PERIOD_US.to_string())?;
            set("cpu.cfs_quota_us", quota.to_string())
        })?);
        Ok(())
    })();
    if all.is_err() {
        folders.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
    all.map(|()| folders)
}

/// Creates a cgroup and configures it, or leaves none.
fn create_cgroup(
    folder: &Path,
    set_up: impl FnOnce(&dyn Fn(&str, String) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<PathBuf> {
    match std::fs::create_dir(folder) {
        // Controllers that share a hierarchy share the cgroup.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let set = |file: &str, value: String| std::fs::write(folder.join(file), value);
    if let Err(error) = set_up(&set) {
        let _ = std::fs::remove_dir(folder);
        return Err(error);
    }
    Ok(folder.to_owned())
}

fn own_cgroups() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The cgroup of this process in every mounted hierarchy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hierarchies {
    unified: Option<HierarchyPath>,
    controllers: Vec<(Vec<String>, HierarchyPath)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HierarchyPath {
    mount: PathBuf,
    /// Relative to the mount.
    path: PathBuf,
}

impl HierarchyPath {
    fn path_of_self(&self) -> PathBuf {
        self.mount.join(&self.path)
    }

    /// This cgroup and its ancestors: controllers may be delegated here or further up.
    fn ancestors(&self) -> Vec<PathBuf> {
        self.path.ancestors().map(|path| self.mount.join(path)).collect()
    }
}

/// How long the mount list is cached. It is long, and commands come in bursts.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// The last result, with the time and this process's own cgroups at that time.
static CACHE: Mutex<Option<CachedHierarchies>> = Mutex::new(None);

struct CachedHierarchies {
    read_at: Instant,
    own_cgroups: String,
    found: Hierarchies,
}

impl Hierarchies {
    /// Returns the cached result if it is recent and this process has not been moved since.
    fn cached() -> Self {
        let own = own_cgroups();
        let mut last = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(last) if last.own_cgroups == own && last.read_at.elapsed() < CACHE_TTL => last.found.clone(),
            _ => {
                let found = Self::read(&own);
                *last = Some(CachedHierarchies {
                    read_at: Instant::now(),
                    own_cgroups: own,
                    found: found.clone(),
                });
                found
            }
        }
    }

    fn read(own: &str) -> Self {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), own)
    }

    fn parse(mounts: &str, own: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let (Some(root), Some(mount), Some(kind)) = (left.get(3), left.get(4), right.first()) else {
                continue;
            };
            let options: Vec<String> = right.get(2).unwrap_or(&"").split(',').map(str::to_owned).collect();
            let place = |path: &str| {
                let path = Path::new(path);
                let path = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
                HierarchyPath { mount: mount.into(), path: path.to_owned() }
            };
            // Each line: number, controllers, path.
            let mut lines = own.lines().filter_map(|line| {
                let mut parts = line.splitn(3, ':');
                parts.next()?;
                Some((parts.next()?, parts.next()?))
            });
            match *kind {
                "cgroup2" => {
                    found.unified = lines.find(|(names, _)| names.is_empty()).map(|(_, path)| place(path));
                }
                "cgroup" => {
                    let own = lines.find(|(names, _)| {
                        !names.is_empty() && names.split(',').all(|name| options.iter().any(|o| o == name))
                    });
                    found.controllers.extend(
                        own.map(|(names, path)| (names.split(',').map(str::to_owned).collect(), place(path))),
                    );
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions_are_found() {
        let mounts = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 /pod /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 24 0:29 / /proc rw - proc proc rw
";
        let own = "4:memory:/user/a\n3:cpu,cpuacct:/\n0::/pod/b\n";
        let found = Hierarchies::parse(mounts, own);
        let place = |mount: &str, path: &str| HierarchyPath { mount: mount.into(), path: path.into() };
        assert_eq!(
            found,
            Hierarchies {
                unified: Some(place("/sys/fs/cgroup/unified", "b")),
                controllers: vec![
                    (vec!["memory".to_owned()], place("/sys/fs/cgroup/memory", "user/a")),
                    (vec!["cpu".to_owned(), "cpuacct".to_owned()], place("/sys/fs/cgroup/cpu,cpuacct", "")),
                ],
            }
        );
    }

    /// The probes test the effect in the kernel, if version 2 has these controllers; this test needs none.
    #[test]
    fn version_2_limits_are_written_to_their_files() {
        let parent = tempfile::tempdir().unwrap();
        let handed_down = |controllers: &str| {
            std::fs::write(parent.path().join("cgroup.subtree_control"), controllers).unwrap();
        };
        let limits = ResourceLimits {
            memory_bytes: 1 << 20,
            processes: 7,
            cpu_percent: 150,
            ..ResourceLimits::default()
        };
        for too_little in ["", "hugetlb", "cpu memory", "pids"] {
            handed_down(too_little);
            assert!(create_v2(&parent.path().join("child"), parent.path(), &limits).is_err(), "{too_little}");
            assert!(!parent.path().join("child").exists(), "{too_little}");
        }
        handed_down("cpu memory pids");
        let made = create_v2(&parent.path().join("child"), parent.path(), &limits).unwrap();
        let read = |file: &str| std::fs::read_to_string(made.join(file)).unwrap();
        assert_eq!(
            ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"].map(read),
            ["1048576", "0", "1", "7", "150000 100000"].map(str::to_owned)
        );
    }

    /// Joining and killing need no controller, so this test uses a real cgroup if it runs as root and version 2 is
    /// mounted.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it is what the cgroup holds")]
    fn dropping_a_version_2_cgroup_kills_its_processes() {
        let Some(place) = Hierarchies::read(&own_cgroups()).unified else {
            return eprintln!("no cgroup2 is mounted");
        };
        let folder = place.path_of_self().join(format!("tribune-test-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&folder) {
            return eprintln!("no cgroup can be made in {}: {error}", place.path_of_self().display());
        }
        let mut sleeper = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let cgroups = Cgroups { folders: vec![folder.clone()], limited_by: LimitedBy::CgroupV2 };
        assert_eq!(cgroups.join_files(), [folder.join("cgroup.procs")]);
        std::fs::write(&cgroups.join_files()[0], sleeper.id().to_string()).unwrap();
        assert!(folder.join("cgroup.kill").exists(), "Linux 5.14 has it");
        drop(cgroups);
        assert!(!folder.exists());
        let ended = std::os::unix::process::ExitStatusExt::signal(&sleeper.wait().unwrap());
        assert_eq!(ended, Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn start_time_identifies_a_running_process() {
        assert!(start_time(std::process::id()).is_some_and(|start| start > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
    /// A process can stay a zombie for any time until its parent reaps it.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "it is about a process that ends at once, and not about what it does"
    )]
    fn start_time_is_none_for_a_zombie() {
        use rustix::process::{WaitId, WaitIdOptions};
        assert!(start_time(std::process::id()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert!(Path::new(&format!("/proc/{}/stat", child.id())).exists());
        assert_eq!(start_time(child.id()), None);
        child.wait().unwrap();
    }
}
