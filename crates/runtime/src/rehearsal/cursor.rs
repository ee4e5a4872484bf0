//! Where the playing of a script stands, and what comes next. Decides only: waiting, calling and sending are done by
//! whoever performs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{ARGUMENT_PIECE_BYTES, WORDS_PER_DELTA};
use super::script::{Call, Expected, Script, Step};
use super::template::{Known, Template};
use super::text::{pieces, word_groups};
use crate::event::{StopReason, Usage};
use crate::runtime::RuntimeError;
use crate::tool::{ToolCall, ToolOutcome};

/// A script being played. What is left of it after an `ask` waits as this too.
#[derive(Debug)]
pub(super) struct Cursor {
    script: Arc<Script>,
    /// The step that comes next.
    at: usize,
    /// The repeats it stands in, the innermost last.
    loops: Vec<Loop>,
    known: Known,
    failed: bool,
    /// What is left of the current step.
    queue: VecDeque<Beat>,
    /// What is left of the current step if it is a flood: too much for a queue.
    flood: Flood,
    /// Of this turn: calls made, and whether anything was said or thought.
    calls: u32,
    said: bool,
    thought: bool,
}

#[derive(Debug)]
struct Loop {
    left: u32,
    body: usize,
}

#[derive(Debug, Default)]
struct Flood {
    left: u32,
    text: String,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Beat {
    Text(String),
    Thought(String),
    Input {
        id: String,
        piece: String,
    },
    Usage(Usage),
    Pause(Duration),
    /// Make these at the same time and tell [`Cursor::outcomes`].
    Calls(Vec<ToolCall>),
    /// Wait for the cancel.
    Hang,
    /// Wait, and ignore the cancel.
    Deaf,
    Panic(String),
    /// A step that shows nothing.
    Silent,
    End(Ending),
}

/// How a turn ends.
#[derive(Debug)]
pub(super) enum Ending {
    Done(StopReason),
    /// The rest is played after the answer.
    Asked,
    Error {
        code: &'static str,
        message: String,
    },
    Fail(RuntimeError),
}

impl Cursor {
    /// At the beginning, in answer to this text.
    pub(super) fn new(script: Arc<Script>, input: String) -> Self {
        let mut known = Known::default();
        known.input(input);
        Self {
            script,
            at: 0,
            loops: Vec::new(),
            known,
            failed: false,
            queue: VecDeque::new(),
            flood: Flood::default(),
            calls: 0,
            said: false,
            thought: false,
        }
    }

    /// Goes on in a new turn, with the answer to what was asked.
    pub(super) fn answer(&mut self, text: String) {
        self.known.answer(text);
        (self.calls, self.said, self.thought) = (0, false, false);
    }

    /// What came of the last calls, in the order in which they are written.
    pub(super) fn outcomes(&mut self, outcomes: Vec<ToolOutcome>) {
        self.failed = outcomes.iter().any(|outcome| outcome.is_error);
        let contents: Vec<String> = outcomes.into_iter().map(|outcome| outcome.content).collect();
        self.known.result(contents.join("\n"));
    }

    pub(super) fn next(&mut self) -> Beat {
        if let Some(beat) = self.queue.pop_front() {
            return beat;
        }
        if self.flood.left > 0 {
            self.flood.left -= 1;
            return Beat::Text(self.flood.text.clone());
        }
        let script = Arc::clone(&self.script);
        let Some(step) = script.steps.get(self.at) else {
            return Beat::End(Ending::Done(StopReason::EndTurn));
        };
        self.at += 1;
        self.begin(step)
    }

    fn begin(&mut self, step: &Step) -> Beat {
        match step {
            Step::Say(text) => Beat::Text(self.new_line(text)),
            Step::Think(text) => {
                let text = text.fill(&self.known);
                Beat::Thought(on_new_line(&mut self.thought, text))
            }
            Step::Slowly { pause, text } => {
                let text = self.new_line(text);
                for (index, word) in word_groups(&text, 1).into_iter().enumerate() {
                    if index > 0 {
                        self.queue.push_back(Beat::Pause(*pause));
                    }
                    self.queue.push_back(Beat::Text(word.to_owned()));
                }
                Beat::Silent
            }
            Step::Recite(text) => {
                let groups = word_groups(text, WORDS_PER_DELTA);
                self.queue.extend(groups.into_iter().map(|group| Beat::Text(group.to_owned())));
                Beat::Silent
            }
            Step::Calls(calls) => self.begin_calls(calls),
            Step::Expect { outcome, line } => self.expect(*outcome, *line),
            Step::Wait(time) => Beat::Pause(*time),
            Step::Flood { deltas, bytes } => {
                self.said = true;
                self.flood = Flood { left: *deltas, text: "~".repeat(*bytes as usize) };
                Beat::Silent
            }
            Step::Repeat { times } => {
                self.loops.push(Loop { left: *times, body: self.at });
                Beat::Silent
            }
            Step::Again => self.again(),
            Step::Ask(question) => {
                self.queue.push_back(Beat::End(Ending::Asked));
                Beat::Text(self.new_line(question))
            }
            Step::Usage(usage) => Beat::Usage(*usage),
            Step::Stop(reason) => Beat::End(Ending::Done(*reason)),
            Step::Fail(error) => Beat::End(Ending::Fail(error.clone())),
            Step::Hang => Beat::Hang,
            Step::Deaf => Beat::Deaf,
            Step::Panic(text) => Beat::Panic(text.clone()),
            Step::Abort { code, message } => Beat::End(Ending::Error { code, message: message.clone() }),
        }
    }

    /// Streams the inputs that are to be streamed, then calls.
    fn begin_calls(&mut self, calls: &[Call]) -> Beat {
        let mut asked = Vec::with_capacity(calls.len());
        for call in calls {
            self.calls += 1;
            let id = format!("call-{}", self.calls);
            for piece in pieces(call.streamed.as_deref().unwrap_or_default(), ARGUMENT_PIECE_BYTES) {
                self.queue.push_back(Beat::Input { id: id.clone(), piece: piece.to_owned() });
            }
            asked.push(ToolCall { id, name: call.tool.to_string(), input: call.input.clone() });
        }
        self.queue.push_back(Beat::Calls(asked));
        Beat::Silent
    }

    fn expect(&self, outcome: Expected, line: usize) -> Beat {
        let otherwise = match (outcome, self.failed) {
            (Expected::Ok, false) | (Expected::Error, true) => return Beat::Silent,
            (Expected::Ok, true) => "the call to succeed, and it failed",
            (Expected::Error, false) => "the call to fail, and it succeeded",
        };
        let message = format!(
            "Line {line} of the script expected {otherwise}. Read the call's result, or remove the `expect`."
        );
        Beat::End(Ending::Error { code: "unexpected", message })
    }

    fn again(&mut self) -> Beat {
        if let Some(innermost) = self.loops.last_mut() {
            innermost.left = innermost.left.saturating_sub(1);
            if innermost.left > 0 {
                self.at = innermost.body;
            } else {
                self.loops.pop();
            }
        }
        Beat::Silent
    }

    fn new_line(&mut self, text: &Template) -> String {
        let text = text.fill(&self.known);
        on_new_line(&mut self.said, text)
    }
}

/// What is said after something else begins on a line of its own, and nothing ends in an empty line.
fn on_new_line(begun: &mut bool, text: String) -> String {
    if std::mem::replace(begun, true) { format!("\n{text}") } else { text }
}
