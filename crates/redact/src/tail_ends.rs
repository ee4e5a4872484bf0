//! Finds where the tails of secrets end.

use crate::bytes::InputText;
use crate::pem;
use crate::secret::{Core, OpenTail, Secret, Tail};

/// Finds the ends of tails in linear time, however many start: it caches the last run of each class.
pub(crate) struct TailEnds<'a> {
    input: InputText<'a>,
    runs: [CachedRun; Tail::COUNT],
    pem: Option<EndLineSearch>,
}

/// A range of bytes of one class that was already measured.
#[derive(Clone, Copy)]
struct CachedRun {
    from: usize,
    to: usize,
}

/// The last search for the END line of a key.
struct EndLineSearch {
    from: usize,
    /// Start of the line found, or `usize::MAX`.
    line_start: usize,
    line_end: Option<usize>,
}

impl<'a> TailEnds<'a> {
    pub(crate) fn new(input: InputText<'a>) -> Self {
        let none = CachedRun { from: usize::MAX, to: usize::MAX };
        Self { input, runs: [none; Tail::COUNT], pem: None }
    }

    /// The whole secret that a core confirms.
    pub(crate) fn extend(&mut self, core: Core) -> Secret {
        let (end, open) = self.follow(OpenTail { tail: core.tail, from: core.end });
        Secret { start: core.start, end, kind: core.kind, open }
    }

    /// Where a tail ends, and what of it stays open.
    pub(crate) fn follow(&mut self, open: OpenTail) -> (usize, Option<OpenTail>) {
        let length = self.input.bytes.len();
        let (tail, from) = match open.tail {
            Tail::Pem => match self.pem_end(open.from) {
                Some(end) => (Tail::Token, end),
                None => {
                    let from = open.from.max(length.saturating_sub(pem::LONGEST_LINE));
                    return (length, Some(OpenTail { tail: Tail::Pem, from }));
                }
            },
            tail @ (Tail::Token | Tail::Dotted | Tail::Header | Tail::Value) => (tail, open.from),
        };
        let end = self.run_end(tail, from);
        (end, self.input.may_continue(end).then_some(OpenTail { tail, from: end }))
    }

    /// Where a run of the bytes of a tail ends.
    pub(crate) fn run_end(&mut self, tail: Tail, at: usize) -> usize {
        let CachedRun { from, to } = self.runs[tail as usize];
        if from <= at && at <= to {
            return to;
        }
        let length = self.input.bytes.len();
        let stop = if at < from { from.min(length) } else { length };
        let run = self.input.run(at, tail.class(), stop - at).len();
        let end = if at + run == from { to } else { at + run };
        self.runs[tail as usize] = CachedRun { from: at, to: end };
        end
    }

    fn pem_end(&mut self, at: usize) -> Option<usize> {
        if let Some(search) = &self.pem
            && search.from <= at
            && at <= search.line_start
        {
            return search.line_end;
        }
        let found = pem::end_line(self.input.bytes, at);
        let (line_start, line_end) = found.map_or((usize::MAX, None), |line| (line.start, Some(line.end)));
        self.pem = Some(EndLineSearch { from: at, line_start, line_end });
        line_end
    }
}
