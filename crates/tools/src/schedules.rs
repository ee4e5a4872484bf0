//! Schedules: when agents wake and with which text. Stored in `data/schedules.jsonl`, one schedule per line; the file is
//! replaced as a whole.
//!
//! [`Schedules`] is the pure part: what is due at a given time, and what the next time is. It does not wake agents. All times
//! are UTC. A schedule that was missed while the daemon was down is due once, not as often as it was missed.

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp as Moment};
use serde::{Deserialize, Serialize};
use tribune_runtime::{AgentId, SessionKey};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

/// Maximum number of schedules of one agent.
pub(super) const MAX_PER_AGENT: usize = 32;

/// Maximum number of schedules of all agents.
pub(super) const MAX_IN_ALL: usize = 1024;

/// Maximum bytes of the file, more than all schedules can have.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// When a schedule is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum When {
    /// Once.
    At(Moment),
    /// Every so many seconds, counted from when it was created.
    Every(u32),
    /// Whenever this pattern of five fields matches.
    Cron(String),
}

/// One schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schedule {
    /// Unique among the agent's schedules.
    pub id: String,
    pub agent: AgentId,
    /// The session that created it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    pub text: String,
    pub when: When,
    /// When it is due next.
    pub next: Moment,
}

/// A schedule that is due.
pub type Due = Schedule;

/// All schedules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedules(Vec<Schedule>);

/// Why a schedule was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The agent has as many schedules as it may.
    Agent,
    /// This instance has as many schedules as it may.
    Instance,
    /// The agent has a schedule of this id.
    Id,
}

impl When {
    /// The first time after `now`, if there is one.
    pub fn after(&self, now: Moment) -> Option<Moment> {
        match self {
            Self::At(at) => Some(*at).filter(|at| *at > now),
            Self::Every(seconds) => now.checked_add(SignedDuration::from_secs((*seconds).into())).ok(),
            Self::Cron(pattern) => {
                let next = pattern_of(pattern)?.find_next_occurrence(&now.to_zoned(TimeZone::UTC), false);
                next.ok().map(|next| next.timestamp())
            }
        }
    }
}

/// Parses a pattern of five fields.
fn pattern_of(text: &str) -> Option<Cron> {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build().parse(text).ok()
}

impl Schedules {
    /// The schedules that are due at `now`, the longest waiting first.
    pub fn due(&self, now: Moment) -> Vec<Due> {
        let mut due: Vec<Due> = self.0.iter().filter(|schedule| schedule.next <= now).cloned().collect();
        due.sort_by(|a, b| (a.next, &a.agent, &a.id).cmp(&(b.next, &b.agent, &b.id)));
        due
    }

    /// Marks the schedules that were `due` at `now` as run: each gets its next time, or is removed if it has none.
    pub fn settle(&mut self, due: &[Due], now: Moment) {
        self.0.retain_mut(|schedule| {
            if !due.contains(schedule) {
                return true;
            }
            let next = match schedule.when {
                // Keeps the phase from the creation, however late the schedule ran.
                When::Every(seconds) => {
                    let (seconds, late) =
                        (i64::from(seconds.max(1)), now.as_second() - schedule.next.as_second());
                    let steps = late.max(0) / seconds + 1;
                    schedule.next.checked_add(SignedDuration::from_secs(steps * seconds)).ok()
                }
                When::At(_) => None,
                When::Cron(_) => schedule.when.after(now),
            };
            match next {
                Some(next) => {
                    schedule.next = next;
                    true
                }
                None => false,
            }
        });
    }

    pub fn add(&mut self, schedule: Schedule) -> Result<(), Full> {
        if self.of(&schedule.agent).any(|other| other.id == schedule.id) {
            return Err(Full::Id);
        }
        if self.of(&schedule.agent).count() >= MAX_PER_AGENT {
            return Err(Full::Agent);
        }
        if self.0.len() >= MAX_IN_ALL {
            return Err(Full::Instance);
        }
        self.0.push(schedule);
        Ok(())
    }

    /// Removes a schedule. Returns whether it existed.
    pub fn remove(&mut self, agent: &AgentId, id: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|schedule| schedule.agent != *agent || schedule.id != id);
        self.0.len() < before
    }

    /// The schedules of an agent, in the order of their creation.
    pub fn of(&self, agent: &AgentId) -> impl Iterator<Item = &Schedule> {
        self.0.iter().filter(move |schedule| schedule.agent == *agent)
    }
}

/// The schedules in their file. The file is opened on first use.
#[derive(Debug)]
pub struct ScheduleFile {
    path: PathBuf,
    /// `None` until the file was read.
    read: Mutex<Option<Schedules>>,
}

impl ScheduleFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: Mutex::default() }
    }

    /// The current schedules.
    pub fn now(&self) -> io::Result<Schedules> {
        let mut held = self.held();
        self.fresh(&mut held).cloned()
    }

    /// Changes the schedules. The change is durable when this returns. An error changes nothing.
    pub fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Schedules) -> Result<T, E>,
    ) -> io::Result<Result<T, E>> {
        let mut held = self.held();
        let mut schedules = self.fresh(&mut held)?.clone();
        let changed = match change(&mut schedules) {
            Ok(changed) => changed,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut lines = Vec::new();
        for schedule in &schedules.0 {
            serde_json::to_writer(&mut lines, schedule).map_err(io::Error::from)?;
            lines.push(b'\n');
        }
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        files::replace(&self.path, &lines, Secrecy::Owner)?;
        *held = Some(schedules);
        Ok(Ok(changed))
    }

    fn fresh<'a>(&self, held: &'a mut Option<Schedules>) -> io::Result<&'a Schedules> {
        let read = match held.take() {
            Some(read) => read,
            None => self.load()?,
        };
        Ok(held.insert(read))
    }

    /// Reads the file. An invalid line is an error, so that it is not lost when the file is replaced.
    fn load(&self) -> io::Result<Schedules> {
        let file = match File::open(&self.path) {
            Ok(file) => BufReader::new(file.take(MAX_FILE_BYTES)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Schedules::default()),
            Err(error) => return Err(error),
        };
        let parsed = |line: io::Result<String>| Ok(serde_json::from_str(&line?)?);
        file.lines().map(parsed).collect::<io::Result<_>>().map(Schedules)
    }

    /// A thread that panicked left the schedules as they were.
    fn held(&self) -> MutexGuard<'_, Option<Schedules>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Moment {
        format!("2026-11-15T{text}Z").parse().unwrap()
    }

    fn schedule(id: &str, when: When, now: Moment) -> Schedule {
        let next = when.after(now).unwrap();
        let agent = "main".parse().unwrap();
        Schedule { id: id.to_owned(), agent, session: None, text: "wake".to_owned(), when, next }
    }

    fn ids(due: &[Due]) -> Vec<&str> {
        due.iter().map(|due| due.id.as_str()).collect()
    }

    #[test]
    fn a_missed_schedule_is_due_once() {
        let start = moment("12:00:30");
        let mut schedules = Schedules::default();
        schedules.add(schedule("once", When::At(moment("12:03:00")), start)).unwrap();
        schedules.add(schedule("minute", When::Every(60), start)).unwrap();
        schedules.add(schedule("hourly", When::Cron("0 * * * *".to_owned()), start)).unwrap();
        assert!(schedules.due(start).is_empty());
        let now = moment("12:01:30");
        let due = schedules.due(now);
        assert_eq!(ids(&due), ["minute"]);
        schedules.settle(&due, now);
        assert!(schedules.due(now).is_empty());
        // The daemon was down for hours.
        let late = moment("15:10:45");
        let due = schedules.due(late);
        assert_eq!(ids(&due), ["minute", "once", "hourly"]);
        schedules.settle(&due, late);
        assert!(schedules.due(late).is_empty());
        let left: Vec<_> = schedules.0.iter().map(|left| (left.id.as_str(), left.next)).collect();
        assert_eq!(left, [("minute", moment("15:11:30")), ("hourly", moment("16:00:00"))]);
    }

    #[test]
    fn patterns_have_five_fields_and_a_next_time() {
        let now = moment("12:00:00");
        let next = |pattern: &str| When::Cron(pattern.to_owned()).after(now);
        assert_eq!(next("* * * * *"), Some(moment("12:01:00")));
        assert_eq!(next("30 6 * * MON"), Some("2026-11-16T06:30:00Z".parse().unwrap()));
        for bad in ["", "x", "* * * *", "0 * * * * *", "61 * * * *", "0 0 31 2 *"] {
            assert_eq!(next(bad), None, "{bad}");
        }
        assert_eq!(When::At(now).after(now), None);
    }

    #[test]
    fn the_number_of_schedules_is_bounded() {
        let now = moment("12:00:00");
        let mut schedules = Schedules::default();
        for n in 0..MAX_PER_AGENT {
            schedules.add(schedule(&n.to_string(), When::Every(60), now)).unwrap();
        }
        assert_eq!(schedules.add(schedule("0", When::Every(60), now)), Err(Full::Id));
        assert_eq!(schedules.add(schedule("more", When::Every(60), now)), Err(Full::Agent));
        assert!(
            schedules.remove(&"main".parse().unwrap(), "0")
                && !schedules.remove(&"main".parse().unwrap(), "0")
        );
        assert!(!schedules.remove(&"scout".parse().unwrap(), "1"));
        schedules.add(schedule("more", When::Every(60), now)).unwrap();
    }

    #[test]
    fn the_file_is_reread_and_an_invalid_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedules.jsonl");
        let now = moment("12:00:00");
        let add = |file: &ScheduleFile, id: &str| {
            file.change(|all| {
                all.add(schedule(id, When::Every(60), now)).map_err(|_| io::Error::other("full"))
            })
            .flatten()
        };
        add(&ScheduleFile::new(&path), "a").unwrap();
        let again = ScheduleFile::new(&path);
        add(&again, "b").unwrap();
        assert!(add(&again, "a").is_err());
        assert_eq!(ids(&ScheduleFile::new(&path).now().unwrap().0), ["a", "b"]);
        std::fs::write(&path, "{}\n").unwrap();
        assert!(add(&ScheduleFile::new(&path), "c").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    }
}
