//! What a conversation prints. The agent's text goes to standard output, everything else to standard error. All of it
//! is untrusted and is made safe for the terminal.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal as _};

use serde_json::{Value, json};
use tribune_constitution::SPEND;
use tribune_runtime::{SessionKey, StopReason};

use crate::approvals::card;
use crate::error::CliError;
use crate::law::rules;
use crate::output::{Format, Output, Paint, clean, clean_text, excerpt, short_cid, sorted};

/// Characters of a call's input, and of an error or a denial, that are shown.
const INPUT_CHARS: usize = 120;
const ERROR_CHARS: usize = 300;

/// The commands that decide a call.
pub(super) struct DecisionCommands {
    pub(super) allow: String,
    pub(super) deny: String,
}

pub(super) struct ChatView<'a> {
    output: &'a mut Output,
    /// Standard output is a terminal, which standard error shares, so neither may write into the other's line.
    on_screen: bool,
    /// The output whose line is not ended yet.
    open: Option<OutputKind>,
    /// Outputs whose line was ended here; a line break at the start of their next text is dropped.
    broken: HashSet<OutputKind>,
    turn: TurnView,
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OutputKind {
    Answer,
    Reasoning,
}

/// The state of the turn so far.
#[derive(Debug, Default)]
struct TurnView {
    cid: Option<String>,
    first_seq: Option<u64>,
    input_tokens: u64,
    output_tokens: u64,
    /// The tools of calls without a result yet, by call id.
    calls: HashMap<String, String>,
    /// The call of each ledger entry.
    entries: HashMap<String, String>,
    denied: HashSet<String>,
}

impl<'a> ChatView<'a> {
    pub(super) fn new(output: &'a mut Output) -> Self {
        let on_screen = io::stdout().is_terminal();
        Self { output, on_screen, open: None, broken: HashSet::new(), turn: TurnView::default() }
    }

    pub(super) const fn format(&self) -> Format {
        self.output.format()
    }

    pub(super) const fn output(&mut self) -> &mut Output {
        self.output
    }

    /// Resets the state for a new turn.
    pub(super) fn begin_turn(&mut self) {
        self.turn = TurnView::default();
        self.broken.clear();
    }

    /// Prints one event.
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
            "text_delta" => self.print_text(OutputKind::Answer, text("text"))?,
            "reasoning_delta" => self.print_text(OutputKind::Reasoning, text("text"))?,
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
            "tool_result" => self.print_result(event),
            "usage_update" => {
                self.turn.input_tokens = event["input_tokens"].as_u64().unwrap_or(0);
                self.turn.output_tokens = event["output_tokens"].as_u64().unwrap_or(0);
            }
            "policy_gate" => self.print_verdict(&event["entry"]),
            "approval_requested" => self.print_waiting(text("id"), &event["entry"]["payload"]),
            "approval_decided" => self.print_decided(text("id"), text("state")),
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
            // `done` is printed by `turn_ended`; other events are for programs.
            _ => {}
        }
        Ok(())
    }

    /// Prints a piece of text, which need not end at a line break.
    fn print_text(&mut self, kind: OutputKind, text: &str) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        if self.open.is_some_and(|open| open != kind) {
            self.end_line();
        }
        let text = match self.broken.remove(&kind) {
            true => text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text),
            false => text,
        };
        let text = clean_text(text);
        let begins = self.open.is_none();
        match kind {
            OutputKind::Answer => self.output.stream(&text)?,
            OutputKind::Reasoning => {
                let mark = if begins { "… " } else { "" };
                self.output.notice_part(|paint| paint.faint(&format!("{mark}{text}")));
            }
        }
        let ends = text.ends_with('\n') || (text.is_empty() && begins);
        self.open = (!ends).then_some(kind);
        Ok(())
    }

    fn print_result(&mut self, event: &Value) {
        let id = event["id"].as_str().unwrap_or_default();
        let several = self.turn.calls.len() > 1;
        let name = self.turn.calls.remove(id).unwrap_or_default();
        // The denial was already printed.
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

    /// Prints a denial. Verdicts without an input hash are about the list of tools and belong to no call.
    fn print_verdict(&mut self, entry: &Value) {
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

    /// Prints that a call waits for a person.
    fn print_waiting(&mut self, id: &str, asked: &Value) {
        let text = |name: &str| excerpt(asked[name].as_str().unwrap_or_default(), ERROR_CHARS);
        let id = clean(id);
        let back = match asked["instead_of"].as_str() {
            Some(before) => {
                let changed = words(&asked["changed"]);
                format!(
                    "\n  it waits again: {} was allowed, but since then this changed: {changed}",
                    clean(before)
                )
            }
            None => String::new(),
        };
        let open = words(&asked["not_bound"]);
        let open = if open.is_empty() { open } else { format!("\n  not bound: {open}") };
        let line = format!(
            "⏸ {} waits for approval {id} ({}): {}{open}{back}\n  allow it here with /approve {id}, or elsewhere with: tribune approvals allow {id}",
            text("tool"),
            rules(asked),
            text("reason")
        );
        self.line(|paint| paint.unsure(&line));
    }

    /// Prints a call of the running turn that the new message waits for.
    pub(super) fn queued_behind(&mut self, row: &Value, commands: &DecisionCommands) {
        let text = |name: &str| excerpt(row[name].as_str().unwrap_or_default(), ERROR_CHARS);
        let (id, tool) = (text("id"), text("tool"));
        let DecisionCommands { allow, deny } = commands;
        let line = format!(
            "⏸ the previous turn waits for approval {id} ({tool}): {}\n  this message is queued; decide with: {allow}, or: {deny}",
            text("reason"),
        );
        self.line(|paint| paint.unsure(&line));
    }

    /// Prints a decision.
    fn print_decided(&mut self, id: &str, state: &str) {
        let line = format!("approval {}: {}", clean(id), clean(state));
        self.line(|paint| {
            if state == "allowed" {
                paint.good(&format!("✓ {line}"))
            } else {
                paint.bad(&format!("✗ {line}"))
            }
        });
    }

    /// Prints the end of the turn.
    pub(super) fn turn_ended(
        &mut self,
        key: &SessionKey,
        stop_reason: StopReason,
        last_seq: u64,
    ) -> Result<(), CliError> {
        let TurnView { cid, first_seq, input_tokens, output_tokens, .. } = std::mem::take(&mut self.turn);
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
                if let Some(why) = stop_advice(stop_reason) {
                    self.note(why);
                }
            }
        }
        Ok(())
    }

    /// Prints a notice. Does not end a line of the answer if the answer is piped.
    pub(super) fn note(&mut self, text: &str) {
        if self.on_screen || self.open == Some(OutputKind::Reasoning) {
            self.end_line();
        }
        self.output.notice_part(|paint| format!("{}\n", paint.faint(text)));
    }

    /// Prints an error that does not end the conversation.
    pub(super) fn failed(&mut self, what: &str) {
        let line = format!("error: {}", clean(what));
        self.line(|paint| paint.bad(&line));
    }

    /// Writes text to standard error unchanged.
    pub(super) fn print_raw(&mut self, text: &str) {
        self.end_line();
        self.output.notice_part(|paint| paint.faint(text));
    }

    fn line(&mut self, text: impl FnOnce(Paint) -> String) {
        self.end_line();
        self.output.notice_part(|paint| format!("{}\n", text(paint)));
    }

    /// Ends the open line, if there is one.
    pub(super) fn end_line(&mut self) {
        match self.open.take() {
            None => {}
            Some(OutputKind::Answer) => {
                // If the answer cannot be written, its next part returns the error.
                let _ = self.output.stream("\n");
                self.broken.insert(OutputKind::Answer);
            }
            Some(OutputKind::Reasoning) => {
                self.output.notice_part(|_| "\n".to_owned());
                self.broken.insert(OutputKind::Reasoning);
            }
        }
    }
}

fn words(list: &Value) -> String {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    excerpt(&words.collect::<Vec<_>>().join(", "), ERROR_CHARS)
}

/// Advice for an answer that did not end normally.
const fn stop_advice(stop_reason: StopReason) -> Option<&'static str> {
    match stop_reason {
        StopReason::MaxTokens => Some(
            "the answer reached the model's output limit: say \"go on\", or declare the model with a larger maxOutputTokens",
        ),
        StopReason::Refusal => {
            Some("the model refused to answer: rephrase the message, or use another model")
        }
        StopReason::EndTurn | StopReason::Cancelled | StopReason::Error | StopReason::Interrupted => None,
    }
}
