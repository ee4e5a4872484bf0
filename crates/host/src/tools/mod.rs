//! The tools that the host itself runs for agents: the three an agent may have without any sandbox, because none of them
//! can do more than look at the agent's own folder and write a letter.
//!
//! Whether an agent may make a call was decided before it comes here. What is left is to do exactly what the call says and
//! nothing beside it: every path is opened by the kernel beneath the workspace ([`workspace`]), every answer and every wait
//! is bounded, and an error is a sentence for the model that names nothing outside the workspace.

mod done;
mod input;
mod read;
mod search;
mod send_message;
mod workspace;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tribune_agents::{AgentId, ToolCall, ToolOutcome, ToolSpec};

use crate::clock::Clock;
use crate::gate::Admission;
use crate::registry::Mailbox;
pub use done::{Done, Resource, Touched};
use read::Read;
use search::Search;
use send_message::SendMessage;
use workspace::Workspace;

/// The tools, by name.
pub const NAMES: [&str; 3] = [read::NAME, search::NAME, send_message::NAME];

/// How long a call may take. A search of everything it may read takes a second or two; the rest is a slow disk.
pub const WALL_TIME: Duration = Duration::from_secs(30);

/// Bytes of an answer: about what a model can still make use of.
pub const RESULT_BYTES: usize = 256 * 1024;

/// Whether an agent is in the roster.
pub type KnownAgent = Arc<dyn Fn(&AgentId) -> bool + Send + Sync>;

/// What came of a call: the answer, or a sentence about why there is none.
type Answer = Result<String, String>;

/// Runs the tools.
#[derive(Clone)]
pub struct HostTools {
    home: PathBuf,
    mailbox: Arc<Mailbox>,
    clock: Arc<dyn Clock>,
    known: KnownAgent,
}

/// A call whose input was checked.
enum Request {
    Read(Read),
    Search(Search),
    SendMessage(SendMessage),
}

impl HostTools {
    /// The workspaces are `agents/<id>/workspace/` in `home_root`.
    pub fn new(home_root: PathBuf, mailbox: Arc<Mailbox>, clock: Arc<dyn Clock>, known: KnownAgent) -> Self {
        Self { home: home_root, mailbox, clock, known }
    }

    /// What agents are told of the tools, in the order of [`NAMES`].
    pub fn specs() -> Vec<ToolSpec> {
        vec![read::spec(), search::spec(), send_message::spec()]
    }

    /// Does what `agent` asks for. When the returned future is dropped, a search stops; a letter may be sent all the same.
    pub async fn run(&self, admission: Admission) -> Done {
        let request = match Request::new(admission.call()) {
            Ok(request) => request,
            Err(sentence) => return Done::failed(&sentence),
        };
        let tools = self.clone();
        let agent = admission.session().agent().clone();
        let outcome = within(WALL_TIME, move |stop| match request {
            Request::Read(read) => read.run(&Workspace::open(&tools.home, &agent)?),
            Request::Search(search) => search.run(&Workspace::open(&tools.home, &agent)?, stop),
            Request::SendMessage(message) => {
                message.run(&agent, &tools.mailbox, tools.clock.now(), &*tools.known)
            }
        })
        .await;
        Done { outcome, code: None, touched: Vec::new() }
    }

    /// What the outcome of a call depends on beside its input.
    pub fn surroundings(&self, _agent: &AgentId, _call: &ToolCall) -> Surroundings {
        Surroundings::default()
    }
}

/// What the outcome of a call depends on beside its input.
#[derive(Debug, Default)]
pub struct Surroundings {
    pub files: std::collections::BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub env: Vec<String>,
}

impl fmt::Debug for HostTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTools").field("home", &self.home).finish_non_exhaustive()
    }
}

impl Request {
    fn new(call: &ToolCall) -> Result<Self, String> {
        match call.name.as_str() {
            read::NAME => Read::new(&call.input).map(Self::Read),
            search::NAME => Search::new(&call.input).map(Self::Search),
            send_message::NAME => SendMessage::new(&call.input).map(Self::SendMessage),
            other => Err(format!("there is no tool `{}`: the tools are {}", shown(other), NAMES.join(", "))),
        }
    }
}

/// Does blocking work on a thread of its own, and tells it to stop when nobody waits for it any more.
async fn within(
    limit: Duration,
    work: impl FnOnce(&CancellationToken) -> Answer + Send + 'static,
) -> ToolOutcome {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let work = tokio::task::spawn_blocking(move || work(&stop));
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(Ok(answer))) => ToolOutcome::good(bounded(answer)),
        Ok(Ok(Err(sentence))) => ToolOutcome::error(bounded(sentence)),
        Ok(Err(_)) => {
            ToolOutcome::error("the tool broke off because of a fault in the host: try another way")
        }
        Err(_) => ToolOutcome::error(format!(
            "the tool took longer than {} s and was given up, though it may still come to its end: ask for less",
            limit.as_secs()
        )),
    }
}

/// The text, cut to [`RESULT_BYTES`] with a mark if it is longer.
fn bounded(mut text: String) -> String {
    const MARK: &str = "\n[cut: the answer was longer]";
    if text.len() > RESULT_BYTES {
        text.truncate(text.floor_char_boundary(RESULT_BYTES - MARK.len()));
        text.push_str(MARK);
    }
    text
}

/// A text from a call as a sentence shows it: short.
fn shown(text: &str) -> String {
    const CHARS: usize = 200;
    match text.char_indices().nth(CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specs_have_the_names() {
        let specs = HostTools::specs();
        assert_eq!(specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), NAMES);
        for spec in specs {
            assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
            assert_eq!(spec.input_schema["additionalProperties"], false, "{}", spec.name);
        }
    }

    #[test]
    fn a_long_answer_is_cut_at_a_character() {
        assert_eq!(bounded("short".to_owned()), "short");
        let cut = bounded("ä".repeat(RESULT_BYTES));
        assert!(cut.len() <= RESULT_BYTES && cut.ends_with("ä\n[cut: the answer was longer]"));
    }

    #[tokio::test]
    async fn work_that_takes_too_long_is_given_up_and_told_to_stop() {
        let (tell, told) = std::sync::mpsc::channel();
        let outcome = within(Duration::from_millis(20), move |stop| {
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            tell.send(()).unwrap();
            Ok(String::new())
        })
        .await;
        assert!(outcome.is_error && outcome.content.contains("took longer"), "{outcome:?}");
        told.recv().unwrap();
    }

    #[tokio::test]
    async fn a_fault_in_a_tool_is_an_answer() {
        let outcome = within(WALL_TIME, |_| panic!("on purpose")).await;
        assert!(outcome.is_error && outcome.content.contains("fault in the host"), "{outcome:?}");
    }
}
