//! What a conversation shows. The agent's text goes to standard output; everything about it to standard error. All of it
//! comes from elsewhere and is cleaned.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal as _};

use serde_json::{Value, json};
use tribune_agents::{SessionKey, StopReason};
use tribune_constitution::SPEND;

use crate::approvals::card;
use crate::error::CliError;
use crate::output::{Format, Output, Paint, clean, clean_text, excerpt, short_cid, sorted};

/// Characters of a call's input, of an error and of a denial that are shown.
const INPUT_CHARS: usize = 120;
const ERROR_CHARS: usize = 300;

pub(super) struct View<'a> {
    output: &'a mut Output,
    /// Standard output is where standard error is seen too, so neither may write into the other's line.
    on_screen: bool,
    /// Whose line is not ended yet.
    open: Option<Voice>,
    /// A line was ended for the voice; a line break that it begins with would be a second one.
    broken: HashSet<Voice>,
    turn: Turn,
}

/// Who is speaking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Voice {
    Answer,
    Reasoning,
}

/// What is known of the turn so far.
#[derive(Debug, Default)]
struct Turn {
    cid: Option<String>,
    first_seq: Option<u64>,
    input_tokens: u64,
    output_tokens: u64,
    /// Calls that wait for their result, by id.
    calls: HashMap<String, String>,
    /// Which call an entry of the log is about.
    entries: HashMap<String, String>,
    denied: HashSet<String>,
}

impl<'a> View<'a> {
    pub(super) fn new(output: &'a mut Output) -> Self {
        let on_screen = io::stdout().is_terminal();
        Self { output, on_screen, open: None, broken: HashSet::new(), turn: Turn::default() }
    }

    pub(super) const fn format(&self) -> Format {
        self.output.format()
    }

    pub(super) const fn output(&mut self) -> &mut Output {
        self.output
    }

    /// A new turn.
    pub(super) fn begin(&mut self) {
        self.turn = Turn::default();
        self.broken.clear();
    }

    /// Shows one event.
    pub(super) fn event(&mut self, event: &Value) -> Result<(), CliError> {
        match self.format() {
            Format::Json => self.output.result(|_| String::new(), event)?,
            Format::Text => {}
        }
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        match text("type") {
            "turn_started" => {
                self.turn.cid = event["turn"].as_str().map(str::to_owned);
                self.turn.first_seq = event["seq"].as_u64();
            }
            "text_delta" => self.speak(Voice::Answer, text("text"))?,
            "reasoning_delta" => self.speak(Voice::Reasoning, text("text"))?,
            "tool_call" => {
                let (id, name) = (text("id"), text("name"));
                self.turn.calls.insert(id.to_owned(), name.to_owned());
                let input = &event["input"];
                let about = match name == SPEND {
                    true => card::raises(input).join(", and "),
                    false => excerpt(&sorted(input).to_string(), INPUT_CHARS),
                };
                let line = format!("→ {} {about}", clean(name));
                self.line(|paint| paint.faint(&line));
            }
            "tool_result" => self.result(event),
            "usage_update" => {
                self.turn.input_tokens = event["input_tokens"].as_u64().unwrap_or(0);
                self.turn.output_tokens = event["output_tokens"].as_u64().unwrap_or(0);
            }
            "policy_gate" => self.judged(&event["entry"]),
            "approval_requested" => self.waits(text("id"), &event["entry"]["payload"]),
            "approval_decided" => self.decided(text("id"), text("state")),
            "mailbox_injected" => {
                let from =
                    excerpt(event["entry"]["payload"]["from"].as_str().unwrap_or_default(), INPUT_CHARS);
                self.line(|paint| paint.unsure(&format!("✉ from {from}")));
            }
            "ledger_append" => {
                let entry = &event["entry"];
                if let ("tool_call", Some(cid), Some(id)) = (
                    entry["quality"].as_str().unwrap_or_default(),
                    entry["cid"].as_str(),
                    entry["payload"]["call_id"].as_str(),
                ) {
                    self.turn.entries.insert(cid.to_owned(), id.to_owned());
                }
            }
            "notice" => {
                let line = format!("! {}", clean(text("message")));
                self.line(|paint| paint.unsure(&line));
            }
            "ungoverned" => {
                let line = format!("✗ UNGOVERNED {}: {}", clean(text("tool")), clean(text("what")));
                self.line(|paint| paint.bad(&line));
            }
            "error" => {
                let line = format!("✗ {}: {}", clean(text("code")), clean(text("message")));
                self.line(|paint| paint.bad(&line));
            }
            // The end has a line of its own; what else there may be is not for people.
            _ => {}
        }
        Ok(())
    }

    /// Says a piece of text, which may be any part of a line.
    fn speak(&mut self, voice: Voice, text: &str) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        if self.open.is_some_and(|open| open != voice) {
            self.end_line();
        }
        let text = match self.broken.remove(&voice) {
            true => text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text),
            false => text,
        };
        let text = clean_text(text);
        let begins = self.open.is_none();
        match voice {
            Voice::Answer => self.output.stream(&text)?,
            Voice::Reasoning => {
                let mark = if begins { "… " } else { "" };
                self.output.murmur(|paint| paint.faint(&format!("{mark}{text}")));
            }
        }
        let ends = text.ends_with('\n') || (text.is_empty() && begins);
        self.open = (!ends).then_some(voice);
        Ok(())
    }

    fn result(&mut self, event: &Value) {
        let id = event["id"].as_str().unwrap_or_default();
        let several = self.turn.calls.len() > 1;
        let name = self.turn.calls.remove(id).unwrap_or_default();
        // The denial was shown already.
        if self.turn.denied.contains(id) {
            return;
        }
        let content = event["content"].as_str().unwrap_or_default();
        let of = if several { format!("{} ", clean(&name)) } else { String::new() };
        if event["is_error"] == true {
            let line = format!("← {of}error: {}", excerpt(content, ERROR_CHARS));
            self.line(|paint| paint.unsure(&line));
        } else {
            let line = format!("← {of}{} bytes", content.len());
            self.line(|paint| paint.faint(&line));
        }
    }

    /// A verdict. Those about the list of tools belong to no call, and most are no news.
    fn judged(&mut self, entry: &Value) {
        let verdict = &entry["payload"];
        if verdict["decision"] != "deny" || verdict["input_hash"].is_null() {
            return;
        }
        let of = entry["parents"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for call in of.filter_map(|cid| self.turn.entries.get(cid)) {
            self.turn.denied.insert(call.clone());
        }
        let text = |name: &str| excerpt(verdict[name].as_str().unwrap_or_default(), ERROR_CHARS);
        let line = format!("✗ {} denied ({}): {}", text("tool"), rules(verdict), text("reason"));
        self.line(|paint| paint.bad(&line));
    }

    /// A call waits for a person.
    fn waits(&mut self, id: &str, asked: &Value) {
        let text = |name: &str| excerpt(asked[name].as_str().unwrap_or_default(), ERROR_CHARS);
        let id = clean(id);
        let back = match asked["instead_of"].as_str() {
            Some(before) => {
                let changed = words(&asked["changed"]);
                format!("\n  it comes back: {} was allowed, but since then changed: {changed}", clean(before))
            }
            None => String::new(),
        };
        let line = format!(
            "⏸ {} waits for approval {id} ({}): {}{back}\n  allow it here with /approve {id}, or elsewhere with: tribune approvals allow {id}",
            text("tool"),
            rules(asked),
            text("reason")
        );
        self.line(|paint| paint.unsure(&line));
    }

    /// A call of the turn before waits for a person, and what was just said with it.
    pub(super) fn queued_behind(&mut self, row: &Value, (allow, deny): (&str, &str)) {
        let text = |name: &str| excerpt(row[name].as_str().unwrap_or_default(), ERROR_CHARS);
        let (id, tool) = (text("id"), text("tool"));
        let line = format!(
            "⏸ the turn before waits for approval {id} ({tool}): {}\n  this message comes after it; decide with: {allow}, or: {deny}",
            text("reason"),
        );
        self.line(|paint| paint.unsure(&line));
    }

    /// What waited is decided.
    fn decided(&mut self, id: &str, state: &str) {
        let line = format!("approval {}: {}", clean(id), clean(state));
        self.line(|paint| {
            if state == "allowed" {
                paint.good(&format!("✓ {line}"))
            } else {
                paint.bad(&format!("✗ {line}"))
            }
        });
    }

    /// The turn is over.
    pub(super) fn ended(
        &mut self,
        key: &SessionKey,
        stop_reason: StopReason,
        last_seq: u64,
    ) -> Result<(), CliError> {
        let Turn { cid, first_seq, input_tokens, output_tokens, .. } = std::mem::take(&mut self.turn);
        let result = json!({
            "type": "result", "session_key": key, "turn": cid, "first_seq": first_seq, "last_seq": last_seq,
            "stop_reason": stop_reason.as_str(),
            "usage": { "input_tokens": input_tokens, "output_tokens": output_tokens },
        });
        match self.format() {
            Format::Json => self.output.result(|_| String::new(), &result)?,
            Format::Text => {
                let turn = short_cid(cid.as_deref().unwrap_or_default());
                let line = format!(
                    "— {} · {input_tokens} in, {output_tokens} out · turn {turn}",
                    stop_reason.as_str()
                );
                self.line(|paint| paint.faint(&line));
                if let Some(why) = cut_short(stop_reason) {
                    self.note(why);
                }
            }
        }
        Ok(())
    }

    /// Says something that is not the agent's, and no reason to begin a new line in an answer that is piped on.
    pub(super) fn note(&mut self, text: &str) {
        if self.on_screen || self.open == Some(Voice::Reasoning) {
            self.end_line();
        }
        self.output.murmur(|paint| format!("{}\n", paint.faint(text)));
    }

    /// Says that something went wrong, and that it goes on.
    pub(super) fn failed(&mut self, what: &str) {
        let line = format!("error: {}", clean(what));
        self.line(|paint| paint.bad(&line));
    }

    /// Writes to standard error as it is.
    pub(super) fn murmur(&mut self, text: &str) {
        self.end_line();
        self.output.murmur(|paint| paint.faint(text));
    }

    fn line(&mut self, text: impl FnOnce(Paint) -> String) {
        self.end_line();
        self.output.murmur(|paint| format!("{}\n", text(paint)));
    }

    /// Ends the line that is open, if one is.
    pub(super) fn end_line(&mut self) {
        match self.open.take() {
            None => {}
            Some(Voice::Answer) => {
                // If the answer cannot be written, its next part says so.
                let _ = self.output.stream("\n");
                self.broken.insert(Voice::Answer);
            }
            Some(Voice::Reasoning) => {
                self.output.murmur(|_| "\n".to_owned());
                self.broken.insert(Voice::Reasoning);
            }
        }
    }
}

/// The rules that spoke, on one line.
pub(crate) fn rules(verdict: &Value) -> String {
    words(&verdict["rules"])
}

fn words(list: &Value) -> String {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    excerpt(&words.collect::<Vec<_>>().join(", "), ERROR_CHARS)
}

/// What a person should know of an answer that ended otherwise than by itself.
const fn cut_short(stop_reason: StopReason) -> Option<&'static str> {
    match stop_reason {
        StopReason::MaxTokens => Some(
            "the answer ended where the model's output does: say \"go on\", or declare the model with a larger maxOutputTokens",
        ),
        StopReason::Refusal => {
            Some("the model refused to answer: say it in other words, or ask another model")
        }
        StopReason::EndTurn | StopReason::Cancelled | StopReason::Error | StopReason::Interrupted => None,
    }
}
