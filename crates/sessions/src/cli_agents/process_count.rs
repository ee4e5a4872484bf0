//! Counts the processes in an agent's sandbox, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tribune_cli_agents::ProcessCounter;

/// Counts the processes below the launcher of one sandbox.
pub(super) struct SandboxProcessCounter {
    launcher: u32,
}

/// The parent and start time of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Start time since boot.
    started: Duration,
}

impl SandboxProcessCounter {
    pub(super) const fn below(launcher: u32) -> Self {
        Self { launcher }
    }
}

impl ProcessCounter for SandboxProcessCounter {
    fn started_since(&self, instant: Instant) -> usize {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(
            u64::try_from(now.tv_sec).unwrap_or_default(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        );
        let since = whole_ticks(now.saturating_sub(instant.elapsed()));
        let all = processes();
        let mut family = BTreeSet::from([self.launcher]);
        // A process whose parent has ended is a child of the sandbox's own process 1, so it stays in this tree.
        loop {
            let before = family.len();
            let children = all.iter().filter(|(_, process)| family.contains(&process.parent));
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            family.extend(children);
            if family.len() == before {
                break;
            }
        }
        let is_new = |pid: &&u32| all.get(pid).is_some_and(|process| process.started >= since);
        family.iter().filter(|pid| **pid != self.launcher).filter(is_new).count()
    }
}

/// Rounds down to whole ticks, the unit of start times in `/proc`.
fn whole_ticks(time: Duration) -> Duration {
    let ticks = time.as_nanos() / TICK.as_nanos();
    after_ticks(u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// One clock tick of the Linux user interface (`USER_HZ` = 100 on every supported architecture).
const TICK: Duration = Duration::from_millis(10);

fn after_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(10))
}

/// All running processes, without zombies.
fn processes() -> BTreeMap<u32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let one = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, parse(&stat)?))
    };
    entries.flatten().filter_map(one).collect()
}

/// Parses a line of `/proc/PID/stat`. The program name may contain anything and ends at the last `)`.
fn parse(stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    // Field 22, `starttime`; the first two fields are before the bracket.
    let started: u64 = fields.nth(17)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then(|| Process { parent, started: after_ticks(started) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_parsed_with_any_program_name() {
        let line = |state: &str| {
            format!("17 (a ) 9 b) {state} 5 17 17 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 250 9 9 9\n")
        };
        assert_eq!(parse(&line("S")), Some(Process { parent: 5, started: after_ticks(250) }));
        assert_eq!(parse(&line("Z")), None);
        assert_eq!(parse("17 (x"), None);
    }

    #[test]
    fn started_since_counts_descendants() {
        let census = SandboxProcessCounter::below(std::process::id());
        let before = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "a process to be counted")]
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(census.started_since(before) >= 1);
        assert_eq!(SandboxProcessCounter::below(child.id()).started_since(before), 0, "it has no children");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
