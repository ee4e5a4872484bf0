//! The fenced blocks of a guide.

use std::path::{Path, PathBuf};

/// One block: its info string and its content.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    words: Vec<String>,
    pub(super) text: String,
    /// `rpc.md:17`, so that a failure names its line.
    pub(super) place: String,
}

impl Fence {
    /// `rpc`, `http`, `event`, `json5` and so on.
    pub(super) fn kind(&self) -> &str {
        &self.words[0]
    }

    /// Whether the info string has the word after the kind.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words[1..].iter().any(|own| own == word)
    }

    /// The rest of the info string, as it is written.
    pub(super) fn arguments(&self) -> String {
        self.words[1..].join(" ")
    }

    /// The number of repetitions: `×20`.
    pub(super) fn times(&self) -> usize {
        self.words.iter().find_map(|word| word.strip_prefix('×')).map_or(1, |times| times.parse().unwrap())
    }

    /// The file of the home that the block is, if any: a name with a dot in it.
    pub(super) fn file(&self) -> Option<&str> {
        self.words[1..].iter().find(|word| word.contains('.') && !word.contains('"')).map(String::as_str)
    }
}

pub(super) fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

pub(super) fn guide(name: &str) -> String {
    std::fs::read_to_string(docs().join("guide").join(name)).unwrap()
}

/// The blocks of `docs/guide/NAME` that have a kind.
pub(super) fn fences(name: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    let mut open: Option<Fence> = None;
    for (at, line) in guide(name).lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let words = info.split_whitespace().map(str::to_owned).collect();
                open = Some(Fence { words, text: String::new(), place: format!("{name}:{}", at + 1) });
            }
            (Some(_), Some(_)) => fences.extend(open.take()),
            (None, Some(fence)) => {
                fence.text.push_str(line);
                fence.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block has no end");
    fences.retain(|fence| !fence.words.is_empty());
    fences
}

/// The rows of the tables, each as its cells.
pub(super) fn rows(name: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let cells = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(cells.split(" | ").map(|cell| cell.trim().to_owned()).collect())
    };
    guide(name).lines().filter_map(row).collect()
}
