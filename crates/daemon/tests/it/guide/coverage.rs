//! Coverage: what the examples have shown so far.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::pattern::Names;

#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Methods that were answered with a result.
    pub(super) methods: BTreeSet<String>,
    /// Error codes that an example names.
    pub(super) codes: BTreeSet<String>,
    /// Every event that arrived.
    pub(super) events: Vec<Value>,
    /// Verb and path of successful HTTP requests.
    pub(super) requests: BTreeSet<(String, String)>,
    /// The values of the placeholders in HTTP requests.
    pub(super) names: Names,
}

impl Coverage {
    /// Records a frame that an example shows.
    pub(super) fn record_expected(
        &mut self,
        expected: &Value,
        frame: &Value,
        asked: &HashMap<String, String>,
    ) {
        if frame.get("result").is_some()
            && let Some(method) = asked.get(&frame["id"].to_string())
        {
            self.methods.insert(method.clone());
        }
        if let (Some(word), Some(_)) =
            (expected["error"]["data"]["code"].as_str(), expected["error"]["code"].as_i64())
        {
            self.codes.insert(word.to_owned());
        }
    }

    /// Records a frame that arrived, shown or not.
    pub(super) fn record_frame(&mut self, frame: &Value) {
        self.events.extend(frame["params"].get("event").cloned());
        self.events.extend(frame["result"]["events"].as_array().cloned().unwrap_or_default());
    }
}
