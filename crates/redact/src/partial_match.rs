//! Texts of which the end of another text may be the beginning.

/// Texts that are looked for.
#[derive(Default)]
pub(crate) struct Literals {
    sorted: Vec<Vec<u8>>,
    longest: usize,
}

impl Literals {
    pub(crate) fn new(texts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut sorted: Vec<Vec<u8>> = texts.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let longest = sorted.iter().map(Vec::len).max().unwrap_or(0);
        Self { sorted, longest }
    }

    /// From where on a text may yet turn out to end in one of them.
    pub(crate) fn begun(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        (from..bytes.len()).find(|at| self.any_goes_on(&bytes[*at..])).unwrap_or(bytes.len())
    }

    fn any_goes_on(&self, beginning: &[u8]) -> bool {
        // Whatever goes on with a text sorts right behind it.
        let next = self.sorted.partition_point(|text| text.as_slice() <= beginning);
        self.sorted.get(next).is_some_and(|text| text.starts_with(beginning))
    }
}
