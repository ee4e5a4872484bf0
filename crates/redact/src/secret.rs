//! A secret in a text: where it begins, what it is called, and how far it goes.
//!
//! A secret is sure after its core, which is of bounded length; its tail goes on as far as its characters do. That is
//! what lets a stream take out a secret of any length without keeping it.

use crate::bytes::{Class, View};
use crate::pem;

/// What a secret goes on with, once it is sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Token,
    Dotted,
    Header,
    Value,
    /// Everything up to the last line of a private key, which may never come.
    Pem,
}

const TAILS: usize = 5;

impl Tail {
    fn class(self) -> Class {
        match self {
            Self::Token | Self::Pem => Class::TOKEN,
            Self::Dotted => Class::DOTTED,
            Self::Header => Class::HEADER,
            Self::Value => Class::VALUE,
        }
    }
}

/// A secret that is sure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core {
    pub(crate) start: usize,
    /// The tail begins here.
    pub(crate) end: usize,
    pub(crate) kind: &'static str,
    pub(crate) tail: Tail,
}

/// A secret with its tail, as far as the text is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: &'static str,
    /// The tail that the text that follows may go on with.
    pub(crate) open: Option<Open>,
}

/// A tail that reached the end of what is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) tail: Tail,
    /// Where to go on looking for its end.
    pub(crate) from: usize,
}

/// Finds where tails end, in linear time however many begin: what was run through once is remembered.
pub(crate) struct Ends<'a> {
    view: View<'a>,
    runs: [(usize, usize); TAILS],
    /// From where the last line of a key was looked for, where it begins, and where it ends.
    pem: Option<(usize, usize, Option<usize>)>,
}

impl<'a> Ends<'a> {
    pub(crate) fn new(view: View<'a>) -> Self {
        Self { view, runs: [(usize::MAX, usize::MAX); TAILS], pem: None }
    }

    pub(crate) fn secret(&mut self, core: Core) -> Secret {
        let (end, open) = self.follow(Open { tail: core.tail, from: core.end });
        Secret { start: core.start, end, kind: core.kind, open }
    }

    /// How far a tail goes, and what is left open of it.
    pub(crate) fn follow(&mut self, open: Open) -> (usize, Option<Open>) {
        let length = self.view.bytes.len();
        let (tail, from) = match open.tail {
            Tail::Pem => match self.pem_end(open.from) {
                Some(end) => (Tail::Token, end),
                None => {
                    let from = open.from.max(length.saturating_sub(pem::LONGEST_LINE));
                    return (length, Some(Open { tail: Tail::Pem, from }));
                }
            },
            tail @ (Tail::Token | Tail::Dotted | Tail::Header | Tail::Value) => (tail, open.from),
        };
        let end = self.run_end(tail, from);
        (end, self.view.goes_on(end).then_some(Open { tail, from: end }))
    }

    /// Where a run of a tail's characters ends.
    pub(crate) fn run_end(&mut self, tail: Tail, at: usize) -> usize {
        let (from, to) = self.runs[tail as usize];
        if from <= at && at <= to {
            return to;
        }
        let class = tail.class();
        let stop = if at < from { from.min(self.view.bytes.len()) } else { self.view.bytes.len() };
        let length = self.view.run(at, class, stop - at).len();
        let end = if at + length == from { to } else { at + length };
        self.runs[tail as usize] = (at, end);
        end
    }

    fn pem_end(&mut self, at: usize) -> Option<usize> {
        if let Some((from, begins, end)) = self.pem
            && from <= at
            && at <= begins
        {
            return end;
        }
        let found = pem::last_line(self.view.bytes, at);
        let (begins, end) = found.map_or((usize::MAX, None), |line| (line.start, Some(line.end)));
        self.pem = Some((at, begins, end));
        end
    }
}
