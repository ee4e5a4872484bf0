//! The position in a script that is played, and the next step. It only decides: the player waits, calls and sends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{ARGUMENT_PIECE_BYTES, WORDS_PER_DELTA};
use super::script::{ExpectedResult, Script, ScriptCall, ScriptStep};
use super::template::{TemplateValues, TextTemplate};
use super::text::{pieces, word_groups};
use crate::error::{ErrorKind, RuntimeError};
use crate::event::{StopReason, Usage};
use crate::tool::{ToolCall, ToolOutcome};

/// A script that is played. What follows an `ask` waits as this too.
#[derive(Debug)]
pub(super) struct Cursor {
    script: Arc<Script>,
    /// The index of the next step.
    at: usize,
    /// The open repeats, the innermost last.
    loops: Vec<OpenRepeat>,
    known: TemplateValues,
    failed: bool,
    /// What remains of the current step.
    queue: VecDeque<PlayerAction>,
    /// What remains of the current step if it is a flood: too much for a queue.
    flood: OpenFlood,
    /// Of this turn: calls made, and whether any text or thought was sent.
    calls: u32,
    said: bool,
    thought: bool,
}

#[derive(Debug)]
struct OpenRepeat {
    left: u32,
    body: usize,
}

#[derive(Debug, Default)]
struct OpenFlood {
    left: u32,
    text: String,
}

/// What the player does next.
#[derive(Debug)]
pub(super) enum PlayerAction {
    Text(String),
    Thought(String),
    Input {
        id: String,
        piece: String,
    },
    Usage(Usage),
    Pause(Duration),
    /// Make these calls concurrently, and pass their results to [`Cursor::outcomes`].
    Calls(Vec<ToolCall>),
    /// Wait for the cancel.
    Hang,
    /// Wait, and ignore the cancel.
    Deaf,
    Panic(String),
    /// A step that sends nothing.
    Silent,
    End(TurnEnding),
}

/// How a turn ends.
#[derive(Debug)]
pub(super) enum TurnEnding {
    Done(StopReason),
    /// A question was asked: the rest is played after the answer.
    Asked,
    /// With an `error` event.
    Error(RuntimeError),
    Fail(RuntimeError),
}

impl Cursor {
    /// At the beginning, started by the text `input`.
    pub(super) fn new(script: Arc<Script>, input: String) -> Self {
        let mut known = TemplateValues::default();
        known.input(input);
        Self {
            script,
            at: 0,
            loops: Vec::new(),
            known,
            failed: false,
            queue: VecDeque::new(),
            flood: OpenFlood::default(),
            calls: 0,
            said: false,
            thought: false,
        }
    }

    /// Goes on in a new turn, with the answer to the question.
    pub(super) fn answer(&mut self, text: String) {
        self.known.answer(text);
        (self.calls, self.said, self.thought) = (0, false, false);
    }

    /// Takes the results of the last calls, in the order of the script.
    pub(super) fn outcomes(&mut self, outcomes: Vec<ToolOutcome>) {
        self.failed = outcomes.iter().any(|outcome| outcome.is_error);
        let contents: Vec<String> = outcomes.into_iter().map(|outcome| outcome.content).collect();
        self.known.result(contents.join("\n"));
    }

    pub(super) fn next(&mut self) -> PlayerAction {
        if let Some(beat) = self.queue.pop_front() {
            return beat;
        }
        if self.flood.left > 0 {
            self.flood.left -= 1;
            return PlayerAction::Text(self.flood.text.clone());
        }
        let script = Arc::clone(&self.script);
        let Some(step) = script.steps.get(self.at) else {
            return PlayerAction::End(TurnEnding::Done(StopReason::EndTurn));
        };
        self.at += 1;
        self.begin(step)
    }

    fn begin(&mut self, step: &ScriptStep) -> PlayerAction {
        match step {
            ScriptStep::Say(text) => PlayerAction::Text(self.new_line(text)),
            ScriptStep::Think(text) => {
                let text = text.fill(&self.known);
                PlayerAction::Thought(on_new_line(&mut self.thought, text))
            }
            ScriptStep::Slowly { pause, text } => {
                let text = self.new_line(text);
                for (index, word) in word_groups(&text, 1).into_iter().enumerate() {
                    if index > 0 {
                        self.queue.push_back(PlayerAction::Pause(*pause));
                    }
                    self.queue.push_back(PlayerAction::Text(word.to_owned()));
                }
                PlayerAction::Silent
            }
            ScriptStep::Recite(text) => {
                let groups = word_groups(text, WORDS_PER_DELTA);
                self.queue.extend(groups.into_iter().map(|group| PlayerAction::Text(group.to_owned())));
                PlayerAction::Silent
            }
            ScriptStep::Calls(calls) => self.begin_calls(calls),
            ScriptStep::Expect { outcome, line } => self.expect(*outcome, *line),
            ScriptStep::Wait(time) => PlayerAction::Pause(*time),
            ScriptStep::Flood { deltas, bytes } => {
                self.said = true;
                self.flood = OpenFlood { left: *deltas, text: "~".repeat(*bytes as usize) };
                PlayerAction::Silent
            }
            ScriptStep::Repeat { times } => {
                self.loops.push(OpenRepeat { left: *times, body: self.at });
                PlayerAction::Silent
            }
            ScriptStep::Again => self.again(),
            ScriptStep::Ask(question) => {
                self.queue.push_back(PlayerAction::End(TurnEnding::Asked));
                PlayerAction::Text(self.new_line(question))
            }
            ScriptStep::Usage(usage) => PlayerAction::Usage(*usage),
            ScriptStep::Stop(reason) => PlayerAction::End(TurnEnding::Done(*reason)),
            ScriptStep::Fail(error) => PlayerAction::End(TurnEnding::Fail(error.clone())),
            ScriptStep::Hang => PlayerAction::Hang,
            ScriptStep::Deaf => PlayerAction::Deaf,
            ScriptStep::Panic(text) => PlayerAction::Panic(text.clone()),
            ScriptStep::Abort(error) => PlayerAction::End(TurnEnding::Error(error.clone())),
        }
    }

    /// Streams the inputs that are to be streamed, then calls.
    fn begin_calls(&mut self, calls: &[ScriptCall]) -> PlayerAction {
        let mut asked = Vec::with_capacity(calls.len());
        for call in calls {
            self.calls += 1;
            let id = format!("call-{}", self.calls);
            for piece in pieces(call.streamed.as_deref().unwrap_or_default(), ARGUMENT_PIECE_BYTES) {
                self.queue.push_back(PlayerAction::Input { id: id.clone(), piece: piece.to_owned() });
            }
            asked.push(ToolCall { id, name: call.tool.to_string(), input: call.input.clone() });
        }
        self.queue.push_back(PlayerAction::Calls(asked));
        PlayerAction::Silent
    }

    fn expect(&self, outcome: ExpectedResult, line: usize) -> PlayerAction {
        let otherwise = match (outcome, self.failed) {
            (ExpectedResult::Ok, false) | (ExpectedResult::Error, true) => return PlayerAction::Silent,
            (ExpectedResult::Ok, true) => "the call to succeed, and it failed",
            (ExpectedResult::Error, false) => "the call to fail, and it succeeded",
        };
        let message = format!(
            "Line {line} of the script expected {otherwise}. Read the call's result, or remove the `expect`."
        );
        PlayerAction::End(TurnEnding::Error(RuntimeError::new(ErrorKind::Unexpected, message)))
    }

    fn again(&mut self) -> PlayerAction {
        if let Some(innermost) = self.loops.last_mut() {
            innermost.left = innermost.left.saturating_sub(1);
            if innermost.left > 0 {
                self.at = innermost.body;
            } else {
                self.loops.pop();
            }
        }
        PlayerAction::Silent
    }

    fn new_line(&mut self, text: &TextTemplate) -> String {
        let text = text.fill(&self.known);
        on_new_line(&mut self.said, text)
    }
}

/// Text that follows other output begins on a line of its own, and the output does not end in an empty line.
fn on_new_line(begun: &mut bool, text: String) -> String {
    if std::mem::replace(begun, true) { format!("\n{text}") } else { text }
}
