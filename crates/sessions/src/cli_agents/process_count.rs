//! Who runs in an agent's box, as this machine tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tribune_cli_agents::ProcessCounter;

/// The processes below the launcher of one box.
pub(super) struct BoxCensus {
    launcher: u32,
}

/// A process, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Since the machine was started.
    began: Duration,
}

impl BoxCensus {
    pub(super) const fn below(launcher: u32) -> Self {
        Self { launcher }
    }
}

impl ProcessCounter for BoxCensus {
    fn started_since(&self, moment: Instant) -> usize {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(
            u64::try_from(now.tv_sec).unwrap_or_default(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        );
        let since = whole_ticks(now.saturating_sub(moment.elapsed()));
        let all = processes();
        let mut family = BTreeSet::from([self.launcher]);
        // A process in a box whose parent ended is the child of the box's own process 1.
        loop {
            let before = family.len();
            let children = all.iter().filter(|(_, process)| family.contains(&process.parent));
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            family.extend(children);
            if family.len() == before {
                break;
            }
        }
        let is_new = |pid: &&u32| all.get(pid).is_some_and(|process| process.began >= since);
        family.iter().filter(|pid| **pid != self.launcher).filter(is_new).count()
    }
}

/// The kernel tells when a process began in ticks.
fn whole_ticks(time: Duration) -> Duration {
    let ticks = time.as_nanos() / TICK.as_nanos();
    after_ticks(u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// A tick of what Linux tells programs, on every machine that Tribune runs on.
const TICK: Duration = Duration::from_millis(10);

fn after_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(10))
}

/// Everything that runs. What has ended and nobody has buried does not.
fn processes() -> BTreeMap<u32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let one = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, parse(&stat)?))
    };
    entries.flatten().filter_map(one).collect()
}

/// A line of `/proc/PID/stat`. The name of the program, which may be anything, ends with the last bracket.
fn parse(stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    // The twenty-second, of which the first two are before the bracket.
    let began: u64 = fields.nth(17)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then(|| Process { parent, began: after_ticks(began) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_program_is_called() {
        let line = |state: &str| {
            format!("17 (a ) 9 b) {state} 5 17 17 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 250 9 9 9\n")
        };
        assert_eq!(parse(&line("S")), Some(Process { parent: 5, began: after_ticks(250) }));
        assert_eq!(parse(&line("Z")), None);
        assert_eq!(parse("17 (x"), None);
    }

    #[test]
    fn what_was_started_since_is_counted_with_its_children() {
        let census = BoxCensus::below(std::process::id());
        let before = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "a process to be counted")]
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(census.started_since(before) >= 1);
        assert_eq!(BoxCensus::below(child.id()).started_since(before), 0, "it has none");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
