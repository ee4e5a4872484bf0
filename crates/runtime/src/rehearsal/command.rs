//! One line of a script, read as a command.

use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ScriptError, ScriptPosition, ScriptProblem, quoted};
use super::keyword::Keyword;
use super::limits::{
    DEFAULT_FLOOD_BYTES, MAX_FLOOD_BYTES, MAX_FLOOD_DELTAS, MAX_REPEATS, MAX_WAIT, MAX_WORD_BYTES,
};
use super::line::{LineWord, ScriptLine};
use super::script::{ExpectedResult, ScriptCall, ScriptStep};
use super::template::TextTemplate;
use crate::error::{ErrorKind, RuntimeError};
use crate::event::{StopReason, Usage};

/// The content of a line, before blocks are assembled.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScriptCommand {
    Step(ScriptStep),
    Call(ScriptCall),
    Together,
    Repeat { times: u32 },
    End,
}

/// The command of a line, and its place. Blank lines and comments have none.
pub(super) fn read(mut line: ScriptLine<'_>) -> Result<Option<(ScriptCommand, ScriptPosition)>, ScriptError> {
    let Some(word) = line.word() else { return Ok(None) };
    if word.text.starts_with('#') {
        return Ok(None);
    }
    let Some(keyword) = Keyword::parse(word.text) else {
        return Err(line.wrong(word.at, ScriptProblem::unknown("a command", word.text, Keyword::WORDS)));
    };
    let place = line.place(word.at);
    let mut arguments = CommandArguments { line, form: keyword.form() };
    let command = arguments.command(keyword)?;
    arguments.nothing_more()?;
    Ok(Some((command, place)))
}

/// The words after the name of a command.
struct CommandArguments<'a> {
    line: ScriptLine<'a>,
    form: &'static str,
}

impl<'a> CommandArguments<'a> {
    fn command(&mut self, keyword: Keyword) -> Result<ScriptCommand, ScriptError> {
        let step = match keyword {
            Keyword::Call => return Ok(ScriptCommand::Call(self.call()?)),
            Keyword::Arguments => return Ok(ScriptCommand::Call(self.streamed_call()?)),
            Keyword::Together => return Ok(ScriptCommand::Together),
            Keyword::Repeat => {
                return Ok(ScriptCommand::Repeat { times: self.number("how often", 1, MAX_REPEATS)? });
            }
            Keyword::End => return Ok(ScriptCommand::End),
            Keyword::Say => ScriptStep::Say(self.template("a text")?),
            Keyword::Think => ScriptStep::Think(self.template("a text")?),
            Keyword::Slowly => ScriptStep::Slowly { pause: self.time()?, text: self.template("a text")? },
            Keyword::Expect => ScriptStep::Expect { outcome: self.expected()?, line: self.line.number() },
            Keyword::Wait => ScriptStep::Wait(self.time()?),
            Keyword::Flood => self.flood()?,
            Keyword::Ask => ScriptStep::Ask(self.template("a question")?),
            Keyword::Usage => ScriptStep::Usage(Usage {
                input_tokens: self.number("the tokens that went in", 0, u32::MAX)?,
                output_tokens: self.number("the tokens that came out", 0, u32::MAX)?,
            }),
            Keyword::Stop => ScriptStep::Stop(self.stop_reason()?),
            Keyword::Fail => ScriptStep::Fail(RuntimeError::new(
                ErrorKind::from_code(self.code()?),
                self.text("a message")?.text,
            )),
            Keyword::Hang => ScriptStep::Hang,
            Keyword::Deaf => ScriptStep::Deaf,
            Keyword::Panic => ScriptStep::Panic(self.text("a text")?.text.to_owned()),
        };
        Ok(ScriptCommand::Step(step))
    }

    fn streamed_call(&mut self) -> Result<ScriptCall, ScriptError> {
        let mut json = self.line.clone();
        json.word();
        let written = json.rest().map_or("{}", |rest| rest.text);
        Ok(ScriptCall { streamed: Some(written.into()), ..self.call()? })
    }

    fn call(&mut self) -> Result<ScriptCall, ScriptError> {
        let tool = self.word("the name of a tool")?;
        if tool.text.len() > MAX_WORD_BYTES {
            return Err(self.line.wrong(tool.at, ScriptProblem::LongTool));
        }
        let input = match self.line.rest() {
            None => Value::Object(Map::new()),
            Some(json) => serde_json::from_str(json.text).map_err(|error| {
                let at = json.at + error.column().saturating_sub(1);
                self.line.wrong(at, ScriptProblem::Json(without_place(&error)))
            })?,
        };
        Ok(ScriptCall { tool: tool.text.into(), input, streamed: None })
    }

    fn flood(&mut self) -> Result<ScriptStep, ScriptError> {
        let deltas = self.number("how many deltas", 1, MAX_FLOOD_DELTAS)?;
        let bytes = match self.line.word() {
            Some(word) => self.between(word, 1, MAX_FLOOD_BYTES)?,
            None => DEFAULT_FLOOD_BYTES,
        };
        Ok(ScriptStep::Flood { deltas, bytes })
    }

    fn expected(&mut self) -> Result<ExpectedResult, ScriptError> {
        const WORDS: &[&str] = &["ok", "error"];
        let word = self.word("`ok` or `error`")?;
        match word.text {
            "ok" => Ok(ExpectedResult::Ok),
            "error" => Ok(ExpectedResult::Error),
            other => Err(self.line.wrong(word.at, ScriptProblem::unknown("an outcome", other, WORDS))),
        }
    }

    fn stop_reason(&mut self) -> Result<StopReason, ScriptError> {
        // The other reasons are not a model's to give.
        const WORDS: &[&str] = &["end_turn", "max_tokens", "refusal"];
        let word = self.word("a reason")?;
        StopReason::parse(word.text)
            .filter(|reason| WORDS.contains(&reason.as_str()))
            .ok_or_else(|| self.line.wrong(word.at, ScriptProblem::unknown("a reason", word.text, WORDS)))
    }

    fn code(&mut self) -> Result<&'a str, ScriptError> {
        let word = self.word("a code")?;
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if word.text.len() <= MAX_WORD_BYTES && word.text.bytes().all(fits) {
            Ok(word.text)
        } else {
            Err(self.line.wrong(word.at, ScriptProblem::NotACode(quoted(word.text))))
        }
    }

    fn time(&mut self) -> Result<Duration, ScriptError> {
        let word = self.word("a time")?;
        duration(word.text)
            .filter(|time| *time <= MAX_WAIT)
            .ok_or_else(|| self.line.wrong(word.at, ScriptProblem::NotATime(quoted(word.text))))
    }

    fn number(&mut self, what: &'static str, least: u32, most: u32) -> Result<u32, ScriptError> {
        let word = self.word(what)?;
        self.between(word, least, most)
    }

    fn between(&self, word: LineWord<'_>, least: u32, most: u32) -> Result<u32, ScriptError> {
        digits(word.text)
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                self.line.wrong(word.at, ScriptProblem::NotBetween { word: quoted(word.text), least, most })
            })
    }

    fn template(&mut self, what: &'static str) -> Result<TextTemplate, ScriptError> {
        Ok(TextTemplate::parse(self.text(what)?.text))
    }

    fn text(&mut self, what: &'static str) -> Result<LineWord<'a>, ScriptError> {
        self.line.rest().ok_or_else(|| self.missing(what))
    }

    fn word(&mut self, what: &'static str) -> Result<LineWord<'a>, ScriptError> {
        self.line.word().ok_or_else(|| self.missing(what))
    }

    fn missing(&self, what: &'static str) -> ScriptError {
        self.line.wrong_at_end(ScriptProblem::Missing { what, form: self.form })
    }

    fn nothing_more(&mut self) -> Result<(), ScriptError> {
        match self.line.rest() {
            None => Ok(()),
            Some(rest) => Err(self.line.wrong(rest.at, ScriptProblem::Extra { form: self.form })),
        }
    }
}

fn duration(word: &str) -> Option<Duration> {
    // `ms` also ends in `s`, so it is tried first.
    if let Some(number) = word.strip_suffix("ms") {
        return digits(number).map(Duration::from_millis);
    }
    word.strip_suffix('s').and_then(digits).map(Duration::from_secs)
}

/// A number in digits alone: `u64::from_str` would take a sign too.
fn digits(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// The message of the JSON reader without its position, which counts from the beginning of the JSON.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
}
