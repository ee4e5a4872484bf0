//! The word somebody probably meant.

/// Bytes of a word that is compared; no name here is longer, and the cost grows with the square.
const MAX_WORD_BYTES: usize = 64;

/// The word that takes the fewest changes, if it takes few.
pub(crate) fn nearest<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let word: Vec<char> = word.to_lowercase().chars().collect();
    among
        .into_iter()
        .map(|other| {
            let other_chars: Vec<char> = other.chars().collect();
            let allowed = (word.len().max(other_chars.len()) / 2).max(1);
            (distance(&word, &other_chars), allowed, other)
        })
        .filter(|(changes, allowed, _)| changes <= allowed)
        .min_by_key(|(changes, _, _)| *changes)
        .map(|(_, _, other)| other)
}

/// Letters to add, drop, replace or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_or_nothing() {
        let words = ["say", "slowly", "repeat", "ask"];
        for (typed, meant) in [
            ("sya", Some("say")),
            ("SAY", Some("say")),
            ("slwoly", Some("slowly")),
            ("repaet", Some("repeat")),
            ("ask", Some("ask")),
            ("zzzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, words), meant, "{typed}");
        }
        assert_eq!(nearest(&"s".repeat(100_000), words), None);
    }
}
