//! A script that was read and found good.

use std::time::Duration;

use serde_json::Value;

use super::template::Template;
use crate::event::{StopReason, Usage};
use crate::runtime::RuntimeError;

/// Steps, one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Say(Template),
    Think(Template),
    Slowly {
        pause: Duration,
        text: Template,
    },
    /// Made at the same time. Never empty.
    Calls(Vec<Call>),
    Expect {
        outcome: Expected,
        line: usize,
    },
    Wait(Duration),
    Flood {
        deltas: u32,
        bytes: u32,
    },
    /// Everything up to its `Again` is done so often, once at least.
    Repeat {
        times: u32,
    },
    Again,
    Ask(Template),
    Usage(Usage),
    Stop(StopReason),
    Fail(RuntimeError),
    Hang,
    Deaf,
    Panic(String),
    /// A text in groups of words, nothing filled in. No command is read as this: it is how the backend itself speaks.
    Recite(String),
    /// An `error` event that ends the turn. No command is read as this either.
    Abort {
        code: &'static str,
        message: String,
    },
}

/// A call to make.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) tool: Box<str>,
    pub(super) input: Value,
    /// The input as it is written, if it is to be streamed before the call.
    pub(super) streamed: Option<Box<str>>,
}

/// What a call should have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Ok,
    Error,
}

impl Script {
    pub(super) fn of(step: Step) -> Self {
        Self { steps: vec![step] }
    }
}
