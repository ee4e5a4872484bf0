//! How much a run may write: what its layer takes on disk is counted now and then. No file system does that for an ordinary user.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tribune_sandbox::workspace::{Layers, MAX_CHANGES, Usage, WorkspaceError};

use crate::workspace::bytes;

/// Between two counts, at least.
const PAUSE: Duration = Duration::from_secs(1);

/// How much longer than a count the pause after it is, so that counting a large layer takes a small part of the time.
const RESTRAINT: u32 = 20;

/// Counts in a row that may fail. A folder that its owner closed for a moment is no crime; one that stays closed hides things.
const MAX_UNCOUNTED: u32 = 5;

/// The quota of one run.
pub(super) struct Quota {
    layers: Layers,
    most: u64,
    uncounted: u32,
    next: Instant,
    counting: Option<JoinHandle<Counted>>,
}

/// What a count came to, and how long it took.
type Counted = (Result<Usage, WorkspaceError>, Duration);

impl Quota {
    pub(super) fn of(layers: &Path, most: u64) -> Self {
        Self { layers: Layers::new(layers), most, uncounted: 0, next: Instant::now() + PAUSE, counting: None }
    }

    /// Waits for the next count; a sentence if the run is to be ended. Whoever stops waiting can wait again.
    pub(super) async fn exceeded(&mut self) -> Option<String> {
        if self.counting.is_none() {
            tokio::time::sleep_until(self.next).await;
        }
        let layers = &self.layers;
        let counting = self.counting.get_or_insert_with(|| {
            let layers = layers.clone();
            tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                (layers.usage(), began.elapsed())
            })
        });
        let counted = counting.await;
        self.counting = None;
        let (counted, took) = counted.ok()?;
        self.next = Instant::now() + PAUSE.max(took * RESTRAINT);
        self.judge(counted)
    }

    fn judge(&mut self, counted: Result<Usage, WorkspaceError>) -> Option<String> {
        match counted {
            Ok(Usage { names, .. }) if names > MAX_CHANGES => Some(format!(
                "ended, because it made more than {MAX_CHANGES} files and folders in its project, and no more can be landed: \
                 let it make them in /tmp, or discard some between two runs"
            )),
            Ok(Usage { bytes: used, .. }) if used > self.most => Some(format!(
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
                    format!("ended, because nobody can count what its changes take on disk: {error}")
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_or_hidden_for_long_ends_a_run() {
        let mut quota = Quota::of(Path::new("/none"), 1000);
        let hidden = || {
            Err(WorkspaceError::Unreadable {
                path: "x".into(),
                error: std::io::ErrorKind::PermissionDenied.into(),
            })
        };
        let used = |bytes| Ok(Usage { bytes, names: 1 });
        assert_eq!(quota.judge(used(1000)), None);
        assert_eq!(quota.judge(Ok(Usage { bytes: 1, names: MAX_CHANGES })), None);
        let many = quota.judge(Ok(Usage { bytes: 1, names: MAX_CHANGES + 1 }));
        assert!(many.unwrap().contains("more than 200000 files"));
        assert!(quota.judge(used(1001)).unwrap().contains("workspaces.maxBytes is 1000 B"));
        for _ in 1..MAX_UNCOUNTED {
            assert_eq!(quota.judge(hidden()), None);
        }
        assert_eq!(quota.judge(used(0)), None, "it was only for a moment");
        for _ in 1..MAX_UNCOUNTED {
            assert_eq!(quota.judge(hidden()), None);
        }
        assert!(quota.judge(hidden()).unwrap().contains("nobody can count"));
    }
}
