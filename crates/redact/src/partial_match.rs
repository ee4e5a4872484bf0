//! Finds where the end of a text may be the start of a literal.

/// A set of literals to search for.
#[derive(Default)]
pub(crate) struct LiteralSet {
    sorted: Vec<Vec<u8>>,
    longest: usize,
}

impl LiteralSet {
    pub(crate) fn new(literals: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut sorted: Vec<Vec<u8>> = literals.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let longest = sorted.iter().map(Vec::len).max().unwrap_or(0);
        Self { sorted, longest }
    }

    /// Where the longest suffix of a text starts that is a proper prefix of a literal; the length of the text if there
    /// is none.
    pub(crate) fn partial_start(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        (from..bytes.len()).find(|at| self.has_extension(&bytes[*at..])).unwrap_or(bytes.len())
    }

    fn has_extension(&self, prefix: &[u8]) -> bool {
        // A literal that extends the prefix sorts directly after it.
        let next = self.sorted.partition_point(|literal| literal.as_slice() <= prefix);
        self.sorted.get(next).is_some_and(|literal| literal.starts_with(prefix))
    }
}
