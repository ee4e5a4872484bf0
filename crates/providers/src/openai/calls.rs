//! Which call a piece of a call belongs to.
//!
//! The standard way: the first piece of a call has `index`, `id` and a name, the further ones have its `index` and more
//! arguments. Servers also leave out the index, send every call with index 0, send no ids or all the same, repeat id and
//! name in every piece, or send a call whole. What tells calls apart, in this order:
//!
//! 1. an index that is new;
//! 2. an id or a name that differs from that of the call at the index;
//! 3. a name, where the call so far is whole (its arguments are a JSON object) or where there is neither index nor id;
//! 4. otherwise it is more of the call at the index, or of the last one.

use serde_json::Value;

use crate::arguments;
use crate::decode_error::Fault;
use crate::event::ModelEvent;
use crate::ids::CallIds;
use crate::limits::MAX_CALLS;

/// The calls of one answer.
#[derive(Debug)]
pub(super) struct Calls {
    ids: CallIds,
    calls: Vec<Call>,
    /// How many have been told of.
    begun: usize,
}

#[derive(Debug)]
struct Call {
    /// As the server sent them.
    index: Option<u64>,
    id: String,
    name: String,
    /// Its number among those that were told of; `None` until it has a name.
    begun: Option<usize>,
    arguments: String,
}

/// One piece of a call.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
    signature: Option<&'a str>,
}

impl Calls {
    pub(super) const fn new(ids: CallIds) -> Self {
        Self { ids, calls: Vec::new(), begun: 0 }
    }

    pub(super) fn any(&self) -> bool {
        self.begun > 0
    }

    pub(super) fn take(&mut self, piece: &Value, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let piece = Piece::of(piece);
        let at = match self.find(&piece) {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => {
                return Err(Fault::too_large("the number of calls", MAX_CALLS));
            }
            None => {
                let (index, id) = (piece.index, piece.id.to_owned());
                self.calls.push(Call {
                    index,
                    id,
                    name: String::new(),
                    begun: None,
                    arguments: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            piece.id.clone_into(&mut call.id);
        }
        call.arguments.push_str(&piece.arguments);
        let mut delta = piece.arguments;
        let index = match call.begun {
            Some(index) => index,
            None if piece.name.is_empty() => return Ok(()),
            None => {
                let index = self.begun;
                call.begun = Some(index);
                piece.name.clone_into(&mut call.name);
                // What came before the name is told with it.
                delta.clone_from(&call.arguments);
                self.begun += 1;
                let id = self.ids.claim(&call.id);
                out.push(ModelEvent::CallBegun { index, id, name: piece.name.to_owned() });
                index
            }
        };
        if !delta.is_empty() {
            out.push(ModelEvent::CallArguments { index, delta });
        }
        if let Some(signature) = piece.signature {
            out.push(ModelEvent::CallSignature { index, signature: signature.to_owned() });
        }
        Ok(())
    }

    /// Every call has a name by now.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        match self.calls.iter().all(|call| call.begun.is_some()) {
            true => Ok(()),
            false => Err(Fault::malformed("a call has no name")),
        }
    }

    /// Where the call is that the piece belongs to; `None` if it begins one.
    fn find(&self, piece: &Piece<'_>) -> Option<usize> {
        // Of several calls with one index, the last is the one that goes on.
        let at = match piece.index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index))?,
            None if !piece.id.is_empty() => self.calls.iter().rposition(|call| call.id == piece.id)?,
            None if !piece.name.is_empty() => return None,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = &self.calls[at];
        let differs = |new: &str, old: &str| !new.is_empty() && !old.is_empty() && new != old;
        let is_another = differs(piece.id, &call.id) || differs(piece.name, &call.name);
        // A server that repeats everything may end with a piece that adds nothing.
        let adds_nothing = piece.id == call.id && !piece.id.is_empty() && piece.arguments.is_empty();
        let is_next = !piece.name.is_empty() && !adds_nothing && arguments::is_object(&call.arguments);
        (!is_another && !is_next).then_some(at)
    }
}

impl<'a> Piece<'a> {
    fn of(piece: &'a Value) -> Self {
        let text = |pointer: &str| piece.pointer(pointer).and_then(Value::as_str);
        let arguments = match piece.pointer("/function/arguments") {
            Some(Value::String(text)) => text.clone(),
            // Some send the object itself.
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        Self {
            index: piece.get("index").and_then(Value::as_u64),
            id: text("/id").unwrap_or_default(),
            name: text("/function/name").unwrap_or_default(),
            arguments,
            signature: text("/extra_content/google/thought_signature").filter(|text| !text.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::Answer;
    use crate::message::AssistantPart;

    /// The calls that pieces add up to, each as id, name and arguments.
    fn calls(pieces: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = Calls::new(CallIds::default());
        let mut events = Vec::new();
        for piece in pieces {
            calls.take(piece, &mut events).unwrap();
        }
        calls.finish().unwrap();
        let mut answer = Answer::default();
        events.iter().for_each(|event| answer.take(event));
        let told = answer.parts.into_iter().map(|part| match part {
            AssistantPart::ToolUse { id, name, arguments, .. } => (id, name, arguments),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    fn told(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        calls
            .iter()
            .map(|(id, name, arguments)| ((*id).into(), (*name).into(), (*arguments).into()))
            .collect()
    }

    #[test]
    fn the_standard_way() {
        let pieces = [
            json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "read", "arguments": "" } }),
            json!({ "index": 0, "function": { "arguments": "{\"x\"" } }),
            json!({ "index": 1, "id": "b", "function": { "name": "list", "arguments": "" } }),
            json!({ "index": 1, "function": { "arguments": "{}" } }),
            json!({ "index": 0, "function": { "arguments": ":1}" } }),
        ];
        assert_eq!(calls(&pieces), told(&[("a", "read", "{\"x\":1}"), ("b", "list", "{}")]));
    }

    #[test]
    fn whole_calls_without_ids_or_with_one_index() {
        let whole = |index: Value, id: Value| json!({ "index": index, "id": id, "function": { "name": "read", "arguments": "{\"x\":1}" } });
        let wanted = told(&[("call_0", "read", "{\"x\":1}"), ("call_1", "read", "{\"x\":1}")]);
        assert_eq!(calls(&[whole(json!(0), json!("")), whole(json!(0), json!(""))]), wanted);
        assert_eq!(calls(&[whole(Value::Null, Value::Null), whole(Value::Null, Value::Null)]), wanted);
        let same = told(&[("x", "read", "{\"x\":1}"), ("call_0", "read", "{\"x\":1}")]);
        assert_eq!(calls(&[whole(json!(0), json!("x")), whole(json!(0), json!("x"))]), same);
        assert_eq!(calls(&[whole(Value::Null, json!("x")), whole(Value::Null, json!("x"))]), same);
        let apart = told(&[("x", "read", "{\"x\":1}"), ("y", "read", "{\"x\":1}")]);
        assert_eq!(calls(&[whole(json!(0), json!("x")), whole(json!(0), json!("y"))]), apart);
    }

    #[test]
    fn id_and_name_repeated_in_every_piece() {
        let piece = |arguments: &str| json!({ "index": 0, "id": "a", "function": { "name": "read", "arguments": arguments } });
        assert_eq!(
            calls(&[piece("{\"x\""), piece(":1"), piece("}"), piece("")]),
            told(&[("a", "read", "{\"x\":1}")])
        );
    }

    #[test]
    fn a_name_that_comes_late_and_arguments_as_an_object() {
        let pieces = [
            json!({ "index": 0, "id": "a" }),
            json!({ "index": 0, "function": { "arguments": "{\"x\"" } }),
            json!({ "index": 0, "function": { "name": "read", "arguments": ":1}" } }),
            json!({ "index": 1, "id": "b", "function": { "name": "list", "arguments": { "y": 2 } } }),
        ];
        assert_eq!(calls(&pieces), told(&[("a", "read", "{\"x\":1}"), ("b", "list", "{\"y\":2}")]));
    }

    #[test]
    fn pieces_without_index_go_to_the_last_call() {
        let pieces = [
            json!({ "id": "a", "function": { "name": "read", "arguments": "" } }),
            json!({ "function": { "arguments": "{\"x\":1}" } }),
            json!({ "id": "b", "function": { "name": "read", "arguments": "" } }),
            json!({ "function": { "arguments": "{}" } }),
        ];
        assert_eq!(calls(&pieces), told(&[("a", "read", "{\"x\":1}"), ("b", "read", "{}")]));
    }

    #[test]
    fn a_call_without_a_name_is_malformed() {
        let mut calls = Calls::new(CallIds::default());
        calls.take(&json!({ "index": 0, "function": { "arguments": "{}" } }), &mut Vec::new()).unwrap();
        assert!(matches!(calls.finish(), Err(Fault::Malformed(_))));
    }
}
