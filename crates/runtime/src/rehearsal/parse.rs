//! A text, read as a script: every line as a command, and the blocks they form.

use super::command::{Command, read};
use super::error::{Place, Problem, ScriptError};
use super::limits::{MAX_LINES, MAX_REPEAT_DEPTH, MAX_SCRIPT_BYTES, MAX_TOGETHER};
use super::line::Line;
use super::script::{Call, Script, Step};

/// Reads a script.
pub(super) fn parse(source: &str) -> Result<Script, ScriptError> {
    if source.len() > MAX_SCRIPT_BYTES {
        return Err(Problem::TooManyBytes.at(Place { line: 1, column: 1 }));
    }
    let mut parser = Parser::default();
    for (index, text) in source.lines().enumerate() {
        let number = index + 1;
        if number > MAX_LINES {
            return Err(Problem::TooManyLines.at(Place { line: number, column: 1 }));
        }
        if let Some((command, place)) = read(Line::new(number, text))? {
            parser.take(command, place)?;
        }
    }
    parser.finish()
}

/// What was read so far.
#[derive(Default)]
struct Parser {
    steps: Vec<Step>,
    /// The blocks that did not end yet, the innermost last, and where each began.
    open: Vec<(Block, Place)>,
    called: bool,
}

enum Block {
    /// `body` is the index of its first step.
    Repeat {
        body: usize,
    },
    Together(Vec<Call>),
}

impl Parser {
    fn take(&mut self, command: Command, place: Place) -> Result<(), ScriptError> {
        match (command, self.open.last_mut()) {
            (Command::End, _) => return self.end(place),
            (Command::Call(call), Some((Block::Together(calls), _))) => {
                if calls.len() == MAX_TOGETHER {
                    return Err(Problem::TooManyTogether.at(place));
                }
                calls.push(call);
            }
            (_, Some((Block::Together(_), _))) => return Err(Problem::NotInTogether.at(place)),
            (Command::Call(call), _) => self.calls(vec![call]),
            (Command::Together, _) => self.open.push((Block::Together(Vec::new()), place)),
            (Command::Repeat { times }, _) => {
                if self.open.len() == MAX_REPEAT_DEPTH {
                    return Err(Problem::TooDeep.at(place));
                }
                self.steps.push(Step::Repeat { times });
                self.open.push((Block::Repeat { body: self.steps.len() }, place));
            }
            (Command::Step(Step::Expect { .. }), _) if !self.called => {
                return Err(Problem::NothingCalled.at(place));
            }
            (Command::Step(step), _) => self.steps.push(step),
        }
        Ok(())
    }

    fn end(&mut self, place: Place) -> Result<(), ScriptError> {
        let (block, began) = self.open.pop().ok_or_else(|| Problem::StrayEnd.at(place))?;
        match block {
            Block::Repeat { body } if body < self.steps.len() => self.steps.push(Step::Again),
            Block::Together(calls) if !calls.is_empty() => self.calls(calls),
            Block::Repeat { .. } | Block::Together(_) => return Err(Problem::EmptyBlock.at(began)),
        }
        Ok(())
    }

    fn calls(&mut self, calls: Vec<Call>) {
        self.called = true;
        self.steps.push(Step::Calls(calls));
    }

    fn finish(mut self) -> Result<Script, ScriptError> {
        match self.open.pop() {
            Some((_, began)) => Err(Problem::NoEnd.at(began)),
            None => Ok(Script { steps: self.steps }),
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
