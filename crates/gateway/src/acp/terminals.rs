//! Terminals that an agent behind us shows in its calls. They are the house's, and no client has them: what was written there is
//! shown as text instead, when the command is over.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

/// Terminals of a turn whose outputs are known here. An agent seldom tells of older ones.
const MAX_KNOWN: usize = 64;

/// Bytes of an output that are shown, its end: the call's result in the record has the rest.
const MAX_OUTPUT: usize = 64 << 10;

/// What is shown while a command runs.
const RUNS: &str = "(it runs; what it wrote is shown when it is over)";

/// The terminals of a turn.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    known: HashMap<String, Terminal>,
    /// Their names, oldest first.
    names: VecDeque<String>,
}

#[derive(Debug)]
struct Terminal {
    /// The house's id of the call that runs in it.
    call: String,
    output: Option<String>,
    /// The call that a client sees it in, and everything that is shown there.
    shown_in: Option<(String, Vec<Value>)>,
}

impl Terminals {
    /// An agent was given one.
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

    /// Puts what an agent shows of a call into what a client can show. `id` is what the client knows the call by.
    pub(super) fn put_into_words(&mut self, id: &str, said: &mut Map<String, Value>) {
        let Some(Value::Array(pieces)) = said.get_mut("content") else { return };
        let raw = pieces.clone();
        for piece in pieces {
            let Some(terminal) = name(piece).and_then(|name| self.known.get_mut(name)) else { continue };
            if terminal.output.is_none() {
                terminal.shown_in = Some((id.to_owned(), raw.clone()));
            }
            *piece = in_words(piece, terminal.output.as_deref());
        }
    }

    /// A call is over. Returns the call that a client sees its terminal in, with all that is shown there now.
    pub(super) fn over(&mut self, call: &str, content: &str) -> Option<(String, Vec<Value>)> {
        let terminal = self.known.values_mut().find(|terminal| terminal.call == call)?;
        let from = content.ceil_char_boundary(content.len().saturating_sub(MAX_OUTPUT));
        terminal.output = Some(content.get(from..).unwrap_or_default().to_owned());
        let (id, mut pieces) = terminal.shown_in.take()?;
        for piece in &mut pieces {
            if let Some(terminal) = name(piece).and_then(|name| self.known.get(name)) {
                *piece = in_words(piece, terminal.output.as_deref());
            }
        }
        Some((id, pieces))
    }
}

fn name(piece: &Value) -> Option<&str> {
    piece["terminalId"].as_str().filter(|_| piece["type"] == "terminal")
}

/// A piece of content with a text in place of a terminal, and with whatever else stood beside that.
fn in_words(piece: &Value, output: Option<&str>) -> Value {
    let mut words = piece.clone();
    if let Some(words) = words.as_object_mut() {
        words.remove("terminalId");
        words.insert("type".to_owned(), "content".into());
        words.insert("content".to_owned(), json!({ "type": "text", "text": output.unwrap_or(RUNS) }));
    }
    words
}
