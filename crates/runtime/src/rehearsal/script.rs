//! A parsed script.

use std::time::Duration;

use serde_json::Value;

use super::template::TextTemplate;
use crate::error::RuntimeError;
use crate::event::{StopReason, Usage};

/// Steps, one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Script {
    pub(super) steps: Vec<ScriptStep>,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScriptStep {
    Say(TextTemplate),
    Think(TextTemplate),
    Slowly {
        pause: Duration,
        text: TextTemplate,
    },
    /// Made concurrently. Never empty.
    Calls(Vec<ScriptCall>),
    Expect {
        outcome: ExpectedResult,
        line: usize,
    },
    Wait(Duration),
    Flood {
        deltas: u32,
        bytes: u32,
    },
    /// Repeats everything up to its `Again`, at least once.
    Repeat {
        times: u32,
    },
    Again,
    Ask(TextTemplate),
    Usage(Usage),
    Stop(StopReason),
    Fail(RuntimeError),
    Hang,
    Deaf,
    Panic(String),
    /// A text in groups of words, with nothing filled in. No command parses to this: the backend's own answers use it.
    Recite(String),
    /// An `error` event that ends the turn. No command parses to this either.
    Abort(RuntimeError),
}

/// A call to make.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptCall {
    pub(super) tool: Box<str>,
    pub(super) input: Value,
    /// The input as written, if it is streamed before the call.
    pub(super) streamed: Option<Box<str>>,
}

/// The expected result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedResult {
    Ok,
    Error,
}

impl Script {
    pub(super) fn of(step: ScriptStep) -> Self {
        Self { steps: vec![step] }
    }
}
