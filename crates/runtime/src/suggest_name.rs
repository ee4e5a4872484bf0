//! The name that a mistyped word most likely stands for.

/// Bytes of a word that is compared; no name here is longer, and the cost grows with the square.
const MAX_WORD_BYTES: usize = 64;

/// The name with the fewest edits from `word`, if at most half of the longer one's letters change. The word is compared in
/// small letters. Names at the same distance: the first.
pub fn suggest_name<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    among
        .into_iter()
        .map(|name| {
            let allowed = (length.max(name.chars().count()) / 2).max(1);
            (strsim::osa_distance(&word, name), allowed, name)
        })
        .filter(|(edits, allowed, _)| edits <= allowed)
        .min_by_key(|(edits, _, _)| *edits)
        .map(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggest_name_finds_the_nearest_or_none() {
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
            assert_eq!(suggest_name(typed, words), meant, "{typed}");
        }
        assert_eq!(suggest_name(&"s".repeat(100_000), words), None);
    }
}
