//! Parses a text as a script: every line as a command, and the blocks that they form.

use super::command::{ScriptCommand, read};
use super::error::{ScriptError, ScriptPosition, ScriptProblem};
use super::limits::{MAX_LINES, MAX_REPEAT_DEPTH, MAX_SCRIPT_BYTES, MAX_TOGETHER};
use super::line::ScriptLine;
use super::script::{Script, ScriptCall, ScriptStep};

/// Parses a script.
pub(super) fn parse(source: &str) -> Result<Script, ScriptError> {
    if source.len() > MAX_SCRIPT_BYTES {
        return Err(ScriptProblem::TooManyBytes.at(ScriptPosition { line: 1, column: 1 }));
    }
    let mut parser = ScriptParser::default();
    for (index, text) in source.lines().enumerate() {
        let number = index + 1;
        if number > MAX_LINES {
            return Err(ScriptProblem::TooManyLines.at(ScriptPosition { line: number, column: 1 }));
        }
        if let Some((command, place)) = read(ScriptLine::new(number, text))? {
            parser.take(command, place)?;
        }
    }
    parser.finish()
}

/// The parts that are parsed so far.
#[derive(Default)]
struct ScriptParser {
    steps: Vec<ScriptStep>,
    /// The blocks that are open, the innermost last, and where each began.
    open: Vec<(OpenBlock, ScriptPosition)>,
    called: bool,
}

enum OpenBlock {
    /// `body` is the index of its first step.
    Repeat {
        body: usize,
    },
    Together(Vec<ScriptCall>),
}

impl ScriptParser {
    fn take(&mut self, command: ScriptCommand, place: ScriptPosition) -> Result<(), ScriptError> {
        match (command, self.open.last_mut()) {
            (ScriptCommand::End, _) => return self.end(place),
            (ScriptCommand::Call(call), Some((OpenBlock::Together(calls), _))) => {
                if calls.len() == MAX_TOGETHER {
                    return Err(ScriptProblem::TooManyTogether.at(place));
                }
                calls.push(call);
            }
            (_, Some((OpenBlock::Together(_), _))) => return Err(ScriptProblem::NotInTogether.at(place)),
            (ScriptCommand::Call(call), _) => self.calls(vec![call]),
            (ScriptCommand::Together, _) => self.open.push((OpenBlock::Together(Vec::new()), place)),
            (ScriptCommand::Repeat { times }, _) => {
                if self.open.len() == MAX_REPEAT_DEPTH {
                    return Err(ScriptProblem::TooDeep.at(place));
                }
                self.steps.push(ScriptStep::Repeat { times });
                self.open.push((OpenBlock::Repeat { body: self.steps.len() }, place));
            }
            (ScriptCommand::Step(ScriptStep::Expect { .. }), _) if !self.called => {
                return Err(ScriptProblem::NothingCalled.at(place));
            }
            (ScriptCommand::Step(step), _) => self.steps.push(step),
        }
        Ok(())
    }

    fn end(&mut self, place: ScriptPosition) -> Result<(), ScriptError> {
        let (block, began) = self.open.pop().ok_or_else(|| ScriptProblem::StrayEnd.at(place))?;
        match block {
            OpenBlock::Repeat { body } if body < self.steps.len() => self.steps.push(ScriptStep::Again),
            OpenBlock::Together(calls) if !calls.is_empty() => self.calls(calls),
            OpenBlock::Repeat { .. } | OpenBlock::Together(_) => {
                return Err(ScriptProblem::EmptyBlock.at(began));
            }
        }
        Ok(())
    }

    fn calls(&mut self, calls: Vec<ScriptCall>) {
        self.called = true;
        self.steps.push(ScriptStep::Calls(calls));
    }

    fn finish(mut self) -> Result<Script, ScriptError> {
        match self.open.pop() {
            Some((_, began)) => Err(ScriptProblem::NoEnd.at(began)),
            None => Ok(Script { steps: self.steps }),
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
