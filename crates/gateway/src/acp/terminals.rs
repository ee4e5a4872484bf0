//! Terminals that an ACP agent embeds in its tool calls. They belong to the daemon and clients do not have them, so their output
//! is shown as text when the command ends.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

/// Terminals that are remembered per turn. Agents seldom refer to older ones.
const MAX_KNOWN: usize = 64;

/// Bytes shown from the end of an output. The ledger has the complete result of the call.
const MAX_OUTPUT: usize = 64 << 10;

/// The text that is shown while a command runs.
const RUNNING_TEXT: &str = "(running; the output is shown when the command ends)";

/// The terminals of a turn.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    known: HashMap<String, Terminal>,
    /// Terminal ids, oldest first.
    names: VecDeque<String>,
}

#[derive(Debug)]
struct Terminal {
    /// Tribune's id of the call that runs in it.
    call: String,
    output: Option<String>,
    /// The call that shows it to the client, with the complete content of that call.
    shown_in: Option<(String, Vec<Value>)>,
}

impl Terminals {
    /// Registers a terminal that was given to the agent.
    pub(super) fn opened(&mut self, params: &Map<String, Value>) {
        let word = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some((name, call)) = word("terminalId").zip(word("callId")) else { return };
        if self.names.len() >= MAX_KNOWN
            && let Some(oldest) = self.names.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.names.push_back(name.clone());
        self.known.insert(name, Terminal { call, output: None, shown_in: None });
    }

    /// Replaces the terminals in a call's content with text. `id` is the client's id of the call.
    pub(super) fn put_into_words(&mut self, id: &str, said: &mut Map<String, Value>) {
        let Some(Value::Array(pieces)) = said.get_mut("content") else { return };
        let raw = pieces.clone();
        for piece in pieces {
            let Some(terminal) = name(piece).and_then(|name| self.known.get_mut(name)) else { continue };
            if terminal.output.is_none() {
                terminal.shown_in = Some((id.to_owned(), raw.clone()));
            }
            *piece = as_text(piece, terminal.output.as_deref());
        }
    }

    /// Stores the output of an ended call. Returns the call that shows its terminal, with the new content of that call.
    pub(super) fn over(&mut self, call: &str, content: &str) -> Option<(String, Vec<Value>)> {
        let terminal = self.known.values_mut().find(|terminal| terminal.call == call)?;
        let from = content.ceil_char_boundary(content.len().saturating_sub(MAX_OUTPUT));
        terminal.output = Some(content.get(from..).unwrap_or_default().to_owned());
        let (id, mut pieces) = terminal.shown_in.take()?;
        for piece in &mut pieces {
            if let Some(terminal) = name(piece).and_then(|name| self.known.get(name)) {
                *piece = as_text(piece, terminal.output.as_deref());
            }
        }
        Some((id, pieces))
    }
}

fn name(piece: &Value) -> Option<&str> {
    piece["terminalId"].as_str().filter(|_| piece["type"] == "terminal")
}

/// A piece of content with text in place of its terminal. Its other members are kept.
fn as_text(piece: &Value, output: Option<&str>) -> Value {
    let mut words = piece.clone();
    if let Some(words) = words.as_object_mut() {
        words.remove("terminalId");
        words.insert("type".to_owned(), "content".into());
        words.insert("content".to_owned(), json!({ "type": "text", "text": output.unwrap_or(RUNNING_TEXT) }));
    }
    words
}
