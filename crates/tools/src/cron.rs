//! `cron`: an agent schedules a wake-up, once or repeatedly.

use std::io;

use jiff::Timestamp as Moment;
use serde_json::{Value, json};
use tribune_ledger::Timestamp;
use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, SessionKey, ToolSpec};

use super::input::Input;
use super::schedules::{Full, MAX_IN_ALL, MAX_PER_AGENT, Schedule, ScheduleFile, When};
use super::send_message::fresh_id;

pub(super) const NAME: &str = "cron";

/// Maximum bytes of the text that an agent wakes with.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// Maximum bytes of an id.
const MAX_ID_BYTES: usize = 64;

/// Maximum bytes of a pattern.
const MAX_PATTERN_BYTES: usize = 128;

/// Minimum seconds between two times: a schedule is not a loop.
const MIN_SECONDS: u64 = 60;

/// Maximum seconds between two times: one year.
const MAX_SECONDS: u64 = 366 * 24 * 3600;

/// The checked input of a call.
#[derive(Debug)]
pub(super) enum Scheduling {
    Add(NewSchedule),
    List,
    Remove(String),
}

/// A schedule to add.
#[derive(Debug)]
pub(super) struct NewSchedule {
    /// `None` to have one made up.
    id: Option<String>,
    when: When,
    text: String,
}

/// The owner of the schedules, and the current time.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub(super) agent: &'a AgentId,
    pub(super) session: Option<&'a SessionKey>,
    pub(super) now: Timestamp,
    /// Removes secrets from texts: the schedules are read by every later session.
    pub(super) redactor: &'a Redactor,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Have yourself woken later with a text. `add` needs `text` and one of `at`, `every` and `cron`; `list` \
             shows your schedules, `remove` takes one away. Times are UTC. At most {MAX_PER_AGENT} schedules."
        ),
        input_schema: json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["add", "list", "remove"] },
                "id": {
                    "type": "string",
                    "description": "Name of the schedule: letters, digits, `.`, `-` and `_`. For `add` one is made up if left out."
                },
                "at": { "type": "string", "description": "Once, such as `2027-01-31T09:00:00Z`." },
                "every": {
                    "type": "integer",
                    "minimum": MIN_SECONDS,
                    "maximum": MAX_SECONDS,
                    "description": "Every so many seconds."
                },
                "cron": { "type": "string", "description": "A pattern of five fields, such as `0 9 * * MON-FRI`." },
                "text": {
                    "type": "string",
                    "description": format!("What to be woken with, at most {MAX_TEXT_BYTES} bytes.")
                }
            },
            "required": ["action"],
            "additionalProperties": false
        }),
    }
}

impl Scheduling {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["action", "id", "at", "every", "cron", "text"])?;
        let id = |id: &str| if is_id(id) { Ok(id.to_owned()) } else { Err(bad_id(id)) };
        match input.word("action", &["add", "list", "remove"])? {
            "list" => {
                input.without(&["id", "at", "every", "cron", "text"], "for `list`").map(|()| Self::List)
            }
            "remove" => {
                input.without(&["at", "every", "cron", "text"], "for `remove`")?;
                id(input.text("id")?).map(Self::Remove)
            }
            _ => {
                let text = input.bounded_text("text", MAX_TEXT_BYTES)?;
                if text.trim().is_empty() {
                    return Err("`text` is empty: give the text to wake with".to_owned());
                }
                let id = input.optional_text("id")?.map(id).transpose()?;
                Ok(Self::Add(NewSchedule { id, when: when(&input)?, text: text.to_owned() }))
            }
        }
    }

    pub(super) fn run(self, asking: &Asking<'_>, file: &ScheduleFile, trail: &AccessLog) -> ToolAnswer {
        match self {
            Self::Add(new) => add(asking, file, new, trail),
            Self::List => {
                let mut listing = String::new();
                for schedule in file.now().map_err(failed)?.of(asking.agent) {
                    trail.read(Resource::Schedule(schedule.id.clone()))?;
                    let when = match &schedule.when {
                        When::At(_) => "once".to_owned(),
                        When::Every(seconds) => format!("every {seconds} s"),
                        When::Cron(pattern) => format!("`{pattern}`"),
                    };
                    let text = schedule.text.replace(char::is_control, " ");
                    listing.push_str(&format!("{}: {when}, next {}: {text}\n", schedule.id, schedule.next));
                }
                Ok(if listing.is_empty() { "[there are no schedules]".to_owned() } else { listing })
            }
            Self::Remove(id) => {
                trail.write(Resource::Schedule(id.clone()))?;
                file.change(|schedules| match schedules.remove(asking.agent, &id) {
                    true => Ok(format!("removed `{id}`")),
                    false => {
                        let sentence = format!("there is no schedule `{id}`: see `list` for the schedules");
                        Err(ToolError::new(ToolErrorCode::NotFound, sentence))
                    }
                })
                .map_err(failed)?
            }
        }
    }
}

fn add(
    asking: &Asking<'_>,
    file: &ScheduleFile,
    NewSchedule { id, when, text }: NewSchedule,
    trail: &AccessLog,
) -> ToolAnswer {
    let id = match id {
        Some(id) if asking.redactor.contains_secret(&id) => {
            let sentence = "the id looks like a secret, which is not kept: choose another id";
            return Err(ToolError::new(ToolErrorCode::InvalidInput, sentence));
        }
        Some(id) => id,
        None => fresh_id()?[..8].to_owned(),
    };
    // Times in the ledger have one text form; schedules use the same.
    let now: Moment =
        asking.now.to_string().parse().map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
    let next = when.after(now).ok_or_else(|| {
        let sentence = "this time never comes: choose one in the future";
        ToolError::new(ToolErrorCode::InvalidInput, sentence)
    })?;
    trail.write(Resource::Schedule(id.clone()))?;
    let text = asking.redactor.redact(&text).into_owned();
    file.change(|schedules| {
        let schedule = Schedule {
            id: id.clone(),
            agent: asking.agent.clone(),
            session: asking.session.cloned(),
            text,
            when,
            next,
        };
        schedules.add(schedule).map_err(|full| {
            let (code, sentence) = match full {
                Full::Id => {
                    (ToolErrorCode::Conflict, format!("there is a schedule `{id}` already: remove it first"))
                }
                Full::Agent => (
                    ToolErrorCode::TooLarge,
                    format!("there are {MAX_PER_AGENT} schedules already: remove one first"),
                ),
                Full::Instance => (
                    ToolErrorCode::TooLarge,
                    format!(
                        "this instance has {MAX_IN_ALL} schedules, which is the limit: tell the operator"
                    ),
                ),
            };
            ToolError::new(code, sentence)
        })
    })
    .map_err(failed)??;
    Ok(format!("scheduled `{id}`, next {next}"))
}

fn when(input: &Input<'_>) -> Result<When, String> {
    let at = input.optional_text("at")?;
    let every = input.optional_number("every")?;
    let cron = input.optional_bounded_text("cron", MAX_PATTERN_BYTES)?;
    match (at, every, cron) {
        (Some(at), None, None) => at
            .parse()
            .map(When::At)
            .map_err(|_| format!("`at` is a time such as `2027-01-31T09:00:00Z`, not `{}`", shown(at))),
        (None, Some(every), None) => u32::try_from(every)
            .ok()
            .filter(|_| (MIN_SECONDS..=MAX_SECONDS).contains(&every))
            .map(When::Every)
            .ok_or_else(|| {
                format!("`every` is a number of seconds from {MIN_SECONDS} to {MAX_SECONDS}, not {every}")
            }),
        (None, None, Some(cron)) => {
            let when = When::Cron(cron.to_owned());
            match when.after(Moment::UNIX_EPOCH) {
                Some(_) => Ok(when),
                None => Err(format!(
                    "`cron` is a pattern of five fields such as `0 9 * * MON-FRI`, not `{}`",
                    shown(cron)
                )),
            }
        }
        _ => Err("`add` takes one of `at`, `every` and `cron`: say when".to_owned()),
    }
}

fn is_id(id: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(word)
}

fn bad_id(id: &str) -> String {
    format!("`id` is at most {MAX_ID_BYTES} letters, digits, `.`, `-` and `_`, not `{}`", shown(id))
}

fn failed(error: io::Error) -> ToolError {
    let kind = error.kind();
    ToolError::new(
        ToolErrorCode::Failed,
        format!("the schedules cannot be used at the moment ({kind}): tell the operator"),
    )
}
