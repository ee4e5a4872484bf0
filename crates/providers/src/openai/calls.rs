//! Assembles tool calls from streamed deltas: decides to which call a delta belongs.
//!
//! In the standard form, the first delta of a call has `index`, `id` and a name, and later ones have the `index` and
//! more arguments. Some servers omit the index, send every call with index 0, send no ids or equal ones, repeat id and
//! name in every delta, or send a complete call in one delta. A delta starts a new call if, in this order:
//!
//! 1. its index is new;
//! 2. its id or name differs from that of the call with its index;
//! 3. it has a name, and the call so far is complete (its arguments are a JSON object), or it has neither index nor id.
//!
//! Otherwise it continues the call with its index, or the last call.

use serde_json::Value;

use crate::arguments;
use crate::decode_error::DecodeError;
use crate::event::ModelEvent;
use crate::ids::CallIds;
use crate::limits::MAX_CALLS;

/// The tool calls of one response.
#[derive(Debug)]
pub(super) struct ToolCallAssembler {
    ids: CallIds,
    calls: Vec<PartialCall>,
    /// Number of calls that were emitted.
    emitted: usize,
}

#[derive(Debug)]
struct PartialCall {
    /// Index and id as the server sent them.
    index: Option<u64>,
    id: String,
    name: String,
    /// Its number among the emitted calls; `None` until it has a name.
    emitted: Option<usize>,
    arguments: String,
}

/// One delta of a call.
struct CallDelta<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
    signature: Option<&'a str>,
}

impl ToolCallAssembler {
    pub(super) const fn new(ids: CallIds) -> Self {
        Self { ids, calls: Vec::new(), emitted: 0 }
    }

    /// Whether a call was emitted.
    pub(super) fn any(&self) -> bool {
        self.emitted > 0
    }

    /// Applies one delta and emits its events.
    pub(super) fn apply(&mut self, delta: &Value, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let delta = CallDelta::parse(delta);
        let at = match self.find(&delta) {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => {
                return Err(DecodeError::too_large("the number of calls", MAX_CALLS));
            }
            None => {
                let (index, id) = (delta.index, delta.id.to_owned());
                self.calls.push(PartialCall {
                    index,
                    id,
                    name: String::new(),
                    emitted: None,
                    arguments: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            delta.id.clone_into(&mut call.id);
        }
        call.arguments.push_str(&delta.arguments);
        let mut arguments = delta.arguments;
        let index = match call.emitted {
            Some(index) => index,
            None if delta.name.is_empty() => return Ok(()),
            None => {
                let index = self.emitted;
                call.emitted = Some(index);
                delta.name.clone_into(&mut call.name);
                // Arguments that arrived before the name are emitted with it.
                arguments.clone_from(&call.arguments);
                self.emitted += 1;
                let id = self.ids.claim(&call.id);
                out.push(ModelEvent::CallStarted { index, id, name: delta.name.to_owned() });
                index
            }
        };
        if !arguments.is_empty() {
            out.push(ModelEvent::CallArguments { index, delta: arguments });
        }
        if let Some(signature) = delta.signature {
            out.push(ModelEvent::CallSignature { index, signature: signature.to_owned() });
        }
        Ok(())
    }

    /// Fails if a call has no name.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        match self.calls.iter().all(|call| call.emitted.is_some()) {
            true => Ok(()),
            false => Err(DecodeError::malformed("a call has no name")),
        }
    }

    /// The position of the call that the delta continues; `None` if it starts a new one.
    fn find(&self, delta: &CallDelta<'_>) -> Option<usize> {
        // If several calls have the same index, the delta continues the last one.
        let at = match delta.index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index))?,
            None if !delta.id.is_empty() => self.calls.iter().rposition(|call| call.id == delta.id)?,
            None if !delta.name.is_empty() => return None,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = &self.calls[at];
        let differs = |new: &str, old: &str| !new.is_empty() && !old.is_empty() && new != old;
        let is_another = differs(delta.id, &call.id) || differs(delta.name, &call.name);
        // A server that repeats id and name may end with a delta that adds nothing.
        let adds_nothing = delta.id == call.id && !delta.id.is_empty() && delta.arguments.is_empty();
        let is_next = !delta.name.is_empty() && !adds_nothing && arguments::is_object(&call.arguments);
        (!is_another && !is_next).then_some(at)
    }
}

impl<'a> CallDelta<'a> {
    fn parse(delta: &'a Value) -> Self {
        let text = |pointer: &str| delta.pointer(pointer).and_then(Value::as_str);
        let arguments = match delta.pointer("/function/arguments") {
            Some(Value::String(text)) => text.clone(),
            // Some servers send the object itself.
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        Self {
            index: delta.get("index").and_then(Value::as_u64),
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
    use crate::answer::ModelResponse;
    use crate::message::AssistantPart;

    /// Applies deltas and returns the calls, each as id, name and arguments.
    fn assembled(deltas: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = ToolCallAssembler::new(CallIds::default());
        let mut events = Vec::new();
        for delta in deltas {
            calls.apply(delta, &mut events).unwrap();
        }
        calls.finish().unwrap();
        let mut answer = ModelResponse::default();
        events.iter().for_each(|event| answer.apply(event));
        let calls = answer.parts.into_iter().map(|part| match part {
            AssistantPart::ToolUse { id, name, arguments, .. } => (id, name, arguments),
            other => panic!("{other:?}"),
        });
        calls.collect()
    }

    fn expected(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        calls
            .iter()
            .map(|(id, name, arguments)| ((*id).into(), (*name).into(), (*arguments).into()))
            .collect()
    }

    #[test]
    fn interleaved_deltas_in_standard_form() {
        let deltas = [
            json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "read", "arguments": "" } }),
            json!({ "index": 0, "function": { "arguments": "{\"x\"" } }),
            json!({ "index": 1, "id": "b", "function": { "name": "list", "arguments": "" } }),
            json!({ "index": 1, "function": { "arguments": "{}" } }),
            json!({ "index": 0, "function": { "arguments": ":1}" } }),
        ];
        assert_eq!(assembled(&deltas), expected(&[("a", "read", "{\"x\":1}"), ("b", "list", "{}")]));
    }

    #[test]
    fn complete_calls_without_ids_or_with_equal_indexes() {
        let whole = |index: Value, id: Value| json!({ "index": index, "id": id, "function": { "name": "read", "arguments": "{\"x\":1}" } });
        let renumbered = expected(&[("call_0", "read", "{\"x\":1}"), ("call_1", "read", "{\"x\":1}")]);
        assert_eq!(assembled(&[whole(json!(0), json!("")), whole(json!(0), json!(""))]), renumbered);
        assert_eq!(
            assembled(&[whole(Value::Null, Value::Null), whole(Value::Null, Value::Null)]),
            renumbered
        );
        let same = expected(&[("x", "read", "{\"x\":1}"), ("call_0", "read", "{\"x\":1}")]);
        assert_eq!(assembled(&[whole(json!(0), json!("x")), whole(json!(0), json!("x"))]), same);
        assert_eq!(assembled(&[whole(Value::Null, json!("x")), whole(Value::Null, json!("x"))]), same);
        let apart = expected(&[("x", "read", "{\"x\":1}"), ("y", "read", "{\"x\":1}")]);
        assert_eq!(assembled(&[whole(json!(0), json!("x")), whole(json!(0), json!("y"))]), apart);
    }

    #[test]
    fn id_and_name_repeated_in_every_delta() {
        let delta = |arguments: &str| json!({ "index": 0, "id": "a", "function": { "name": "read", "arguments": arguments } });
        assert_eq!(
            assembled(&[delta("{\"x\""), delta(":1"), delta("}"), delta("")]),
            expected(&[("a", "read", "{\"x\":1}")])
        );
    }

    #[test]
    fn late_name_and_arguments_as_an_object() {
        let deltas = [
            json!({ "index": 0, "id": "a" }),
            json!({ "index": 0, "function": { "arguments": "{\"x\"" } }),
            json!({ "index": 0, "function": { "name": "read", "arguments": ":1}" } }),
            json!({ "index": 1, "id": "b", "function": { "name": "list", "arguments": { "y": 2 } } }),
        ];
        assert_eq!(assembled(&deltas), expected(&[("a", "read", "{\"x\":1}"), ("b", "list", "{\"y\":2}")]));
    }

    #[test]
    fn deltas_without_index_continue_the_last_call() {
        let deltas = [
            json!({ "id": "a", "function": { "name": "read", "arguments": "" } }),
            json!({ "function": { "arguments": "{\"x\":1}" } }),
            json!({ "id": "b", "function": { "name": "read", "arguments": "" } }),
            json!({ "function": { "arguments": "{}" } }),
        ];
        assert_eq!(assembled(&deltas), expected(&[("a", "read", "{\"x\":1}"), ("b", "read", "{}")]));
    }

    #[test]
    fn call_without_a_name_is_malformed() {
        let mut calls = ToolCallAssembler::new(CallIds::default());
        calls.apply(&json!({ "index": 0, "function": { "arguments": "{}" } }), &mut Vec::new()).unwrap();
        assert!(matches!(calls.finish(), Err(DecodeError::Malformed(_))));
    }
}
