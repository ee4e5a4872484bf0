//! The disk quota of a sandbox. No file system enforces one for an ordinary user, so the size of the overlay, or the growth of
//! the folder, is counted at intervals.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tribune_sandbox::workspace::{
    DirGrowth, DiskUsage, MAX_CHANGES, MAX_GROWTH, OverlayDirs, WorkspaceError,
};

/// Time between two checks of the free disk space.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after a count is this many times as long as the count, so that counting a large folder takes a small part of the
/// time. The pause is cut short when the disk loses more space than is left of the quota.
const PAUSE_FACTOR: u32 = 20;

/// How many counts in a row may fail. A program may close a folder for a short time; one that stays closed hides data.
const MAX_UNCOUNTED: u32 = 5;

/// The quota of one sandbox.
#[derive(Debug)]
pub struct Quota {
    /// `None` while a count runs.
    counted: Option<Counted>,
    most: u64,
    uncounted: u32,
    used: u64,
    /// The free space of the disk at the last count.
    room: Option<u64>,
    look: Instant,
    due: Instant,
    looking: Option<JoinHandle<Looked>>,
}

/// The data that is counted.
#[derive(Debug)]
enum Counted {
    Layer(OverlayDirs),
    Folders(Vec<DirGrowth>),
}

/// The result of a check.
#[derive(Debug)]
struct Looked {
    counted: Counted,
    room: Option<u64>,
    /// The result of a count, if there was one, and its duration.
    count: Option<(Result<Option<DiskUsage>, WorkspaceError>, Duration)>,
}

impl Quota {
    /// For changes in an overlay.
    #[must_use]
    pub fn of_layer(layers: &Path, most: u64) -> Self {
        Self::of(Counted::Layer(OverlayDirs::new(layers)), most)
    }

    /// For direct changes of a folder, from now on. What other programs write there meanwhile counts too.
    #[must_use]
    pub fn of_folder(folder: &Path, most: u64) -> Self {
        Self::of_folders([folder], most)
    }

    /// For several folders together.
    #[must_use]
    pub fn of_folders<'f>(folders: impl IntoIterator<Item = &'f Path>, most: u64) -> Self {
        Self::of(Counted::Folders(folders.into_iter().map(DirGrowth::start).collect()), most)
    }

    fn of(counted: Counted, most: u64) -> Self {
        let look = Instant::now() + PAUSE;
        Self {
            counted: Some(counted),
            most,
            uncounted: 0,
            used: 0,
            room: None,
            look,
            due: look,
            looking: None,
        }
    }

    /// Waits for the next check. Returns a sentence if the sandbox exceeds its quota. Cancel-safe.
    pub async fn exceeded(&mut self) -> Option<String> {
        if self.looking.is_none() {
            tokio::time::sleep_until(self.look).await;
            let Some(counted) = self.counted.take() else { return std::future::pending().await };
            let (is_due, room, left) =
                (Instant::now() >= self.due, self.room, self.most.saturating_sub(self.used));
            self.looking = Some(tokio::task::spawn_blocking(move || counted.look(is_due, room, left)));
        }
        let looked = self.looking.as_mut()?.await;
        self.looking = None;
        let Looked { counted, room, count } = looked.ok()?;
        self.counted = Some(counted);
        self.look = Instant::now() + PAUSE;
        let (count, took) = count?;
        self.room = room;
        self.due = Instant::now() + PAUSE.max(took * PAUSE_FACTOR);
        if let Ok(Some(usage)) = &count {
            self.used = usage.bytes;
        }
        if let Ok(None) = &count {
            // Too large to be counted, which does not change any more.
            self.counted = None;
        }
        self.judge(count)
    }

    fn judge(&mut self, count: Result<Option<DiskUsage>, WorkspaceError>) -> Option<String> {
        let (most_names, why) = match &self.counted {
            Some(Counted::Layer(_)) => (MAX_CHANGES, ", and no more can be landed"),
            Some(Counted::Folders(_)) | None => (MAX_GROWTH, ""),
        };
        match count {
            Ok(Some(DiskUsage { names, .. })) if names > most_names => Some(format!(
                "ended, because it created more than {most_names} files and folders in its project{why}: let it create them in /tmp, \
                 or discard some between two runs"
            )),
            Ok(Some(DiskUsage { bytes: used, .. })) if used > self.most => Some(format!(
                "ended, because its changes take {} on disk, and workspaces.maxBytes is {}: raise that in config.json5, or \
                 let it write less",
                bytes(used),
                bytes(self.most)
            )),
            Ok(_) => {
                self.uncounted = 0;
                None
            }
            Err(error) => {
                self.uncounted += 1;
                (self.uncounted >= MAX_UNCOUNTED).then(|| {
                    format!("ended, because the disk usage of its changes cannot be counted: {error}")
                })
            }
        }
    }
}

impl Counted {
    /// Checks, and counts if it is time or if the disk lost more space than is left.
    fn look(mut self, is_due: bool, before: Option<u64>, left: u64) -> Looked {
        let room_of = |folder: &Path| {
            rustix::fs::statvfs(folder).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
        };
        // Folders may be on several disks, so the loss of all of them together decides.
        let room = match &self {
            Self::Layer(layers) => room_of(layers.folder()),
            Self::Folders(all) => all
                .iter()
                .map(|growth| room_of(growth.folder()))
                .try_fold(0_u64, |sum, room| Some(sum.saturating_add(room?))),
        };
        let lost = before.zip(room).map_or(0, |(before, now)| before.saturating_sub(now));
        let count = (is_due || lost > left).then(|| {
            let began = Instant::now();
            let count = match &mut self {
                Self::Layer(layers) => layers.usage().map(Some),
                Self::Folders(all) => counted(all),
            };
            (count, began.elapsed())
        });
        Looked { counted: self, room, count }
    }
}

/// The growth of all folders together. Drops a folder that has more names than are counted; `None` if no folder is left.
fn counted(all: &mut Vec<DirGrowth>) -> Result<Option<DiskUsage>, WorkspaceError> {
    let (mut sum, mut failed) = (DiskUsage { bytes: 0, names: 0 }, None);
    all.retain_mut(|growth| match growth.count() {
        Ok(Some(DiskUsage { bytes, names })) => {
            sum = DiskUsage { bytes: sum.bytes.saturating_add(bytes), names: sum.names + names };
            true
        }
        Ok(None) => false,
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok((!all.is_empty()).then_some(sum)),
    }
}

/// Formats bytes for people.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 10 * 1024 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_or_lasting_uncountable_usage_ends_a_run() {
        let mut quota = Quota::of_layer(Path::new("/none"), 1000);
        let hidden = || {
            Err(WorkspaceError::Unreadable {
                path: "x".into(),
                error: std::io::ErrorKind::PermissionDenied.into(),
            })
        };
        let used = |bytes| Ok(Some(DiskUsage { bytes, names: 1 }));
        assert_eq!(quota.judge(used(1000)), None);
        assert_eq!(quota.judge(Ok(Some(DiskUsage { bytes: 1, names: MAX_CHANGES }))), None);
        let many = quota.judge(Ok(Some(DiskUsage { bytes: 1, names: MAX_CHANGES + 1 })));
        assert!(many.unwrap().contains("more than 200000 files"));
        assert!(quota.judge(used(1001)).unwrap().contains("workspaces.maxBytes is 1000 B"));
        for _ in 1..MAX_UNCOUNTED {
            assert_eq!(quota.judge(hidden()), None);
        }
        assert_eq!(quota.judge(used(0)), None, "it was only for a short time");
        for _ in 1..MAX_UNCOUNTED {
            assert_eq!(quota.judge(hidden()), None);
        }
        assert!(quota.judge(hidden()).unwrap().contains("cannot be counted"));
    }
    #[test]
    fn a_loss_of_disk_space_triggers_an_early_count() {
        let folder = tempfile::tempdir().unwrap();
        let look = |is_due, before, left| {
            Counted::Folders(vec![DirGrowth::start(folder.path())]).look(is_due, before, left).count.is_some()
        };
        assert!(look(true, None, 1));
        assert!(!look(false, None, 1), "nothing is known to be lost");
        assert!(look(false, Some(u64::MAX), 1));
        assert!(!look(false, Some(0), 1));
    }

    #[test]
    fn sizes_are_short() {
        for (size, text) in [
            (0, "0 B"),
            (9000, "9000 B"),
            (20_480, "20 KiB"),
            (4 << 30, "4096 MiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }
}
