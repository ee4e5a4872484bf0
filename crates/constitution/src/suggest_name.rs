//! Which word was meant: the nearest of the valid ones, for error messages.

/// Characters of a word that are compared; no name in our files is longer, and the cost grows with the square.
const MAX_WORD_CHARS: usize = 64;

/// Typing errors that still let the meant word be guessed.
const MAX_DISTANCE: usize = 2;

/// Letters at the beginning that let a word be known that ends otherwise.
const MIN_BEGINNING: usize = 4;

/// The candidate within two edits of `word`, or else one that begins with it or that it begins with, or with which it shares
/// most of its letters from the beginning on. Case does not count. Of equally near candidates the first wins.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = folded(word)?;
    let near = |candidate: &&'a str| {
        let folded = folded(candidate)?;
        let distance = distance(&word, &folded);
        // Words that share no letter can be two edits apart when they are short; that says nothing.
        (distance <= MAX_DISTANCE && distance < word.len().max(folded.len())).then_some(distance)
    };
    let prefix = |candidate: &&&'a str| {
        let folded = folded(candidate);
        folded
            .is_some_and(|folded| word.len() >= 2 && (folded.starts_with(&word) || word.starts_with(&folded)))
    };
    let by_edits = candidates
        .iter()
        .filter_map(|candidate| Some((near(candidate)?, *candidate)))
        .min_by_key(|(d, _)| *d);
    let begins_alike = |candidate: &&&'a str| {
        let folded = folded(candidate).unwrap_or_default();
        let shared = word.iter().zip(&folded).take_while(|(a, b)| a == b).count();
        shared >= MIN_BEGINNING && shared * 3 >= word.len() * 2
    };
    by_edits
        .map(|(_, candidate)| candidate)
        .or_else(|| candidates.iter().find(prefix).copied())
        .or_else(|| candidates.iter().find(begins_alike).copied())
}

fn folded(word: &str) -> Option<Vec<char>> {
    let chars: Vec<char> = word.chars().take(MAX_WORD_CHARS + 1).map(|c| c.to_ascii_lowercase()).collect();
    (!chars.is_empty() && chars.len() <= MAX_WORD_CHARS).then_some(chars)
}

/// Insertions, deletions and replacements that make one word the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_and_beginnings_are_found() {
        let names = ["address", "hosts", "origins", "maxConnections", "maxMessageBytes", "idleSeconds"];
        for (word, meant) in [
            ("adress", Some("address")),
            ("Address", Some("address")),
            ("host", Some("hosts")),
            ("max_connections", Some("maxConnections")),
            ("maxcon", Some("maxConnections")),
            ("addressOfGateway", Some("address")),
            ("idle", Some("idleSeconds")),
            ("idleSecs", Some("idleSeconds")),
            ("maxMsgs", None),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &names), meant, "{word}");
        }
        assert_eq!(nearest("xy", &["ab"]), None);
        assert_eq!(nearest(&"a".repeat(1 << 20), &names), None);
        assert_eq!(nearest("read", &[]), None);
    }

    #[test]
    fn the_distance_counts_edits() {
        let of = |a: &str, b: &str| distance(&folded(a).unwrap(), &folded(b).unwrap());
        assert_eq!(
            [of("kitten", "sitting"), of("read", "read"), of("read", "raed"), of("a", "abc")],
            [3, 0, 2, 2]
        );
    }
}
