//! "Did you mean": the valid name nearest to a mistyped one, for error messages. Everything that suggests a name uses it,
//! from Cedar rules to the words of the command line. Pure; it knows no names itself.

/// Characters of a name that are compared. No name in our files is longer, and the cost grows with the square.
const MAX_NAME_CHARS: usize = 64;

/// Edits (insert, delete, replace) between a mistyped name and the one that is suggested.
const MAX_EDITS: usize = 2;

/// Characters that a name must share with a candidate from the beginning, where the ends differ.
const MIN_SHARED_CHARS: usize = 4;

/// The candidate within [`MAX_EDITS`] edits of `name`; or else one of which `name` is a prefix or the other way round; or
/// else one that shares at least two thirds of `name` from its beginning. ASCII case is ignored. Among equals the first
/// candidate wins.
///
/// Verdicts repeat the suggestion, and a recorded verdict is compared to the letter: the choice must not change.
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let name = fold(name)?;
    let chars = |text: &str| text.chars().count();
    let edits = |candidate: &&'a str| {
        let folded = fold(candidate)?;
        let edits = strsim::levenshtein(&name, &folded);
        // Two short names without a common character can be two edits apart, which says nothing.
        (edits <= MAX_EDITS && edits < chars(&name).max(chars(&folded))).then_some(edits)
    };
    let is_prefix = |candidate: &&&'a str| {
        fold(candidate).is_some_and(|folded| {
            chars(&name) >= 2 && (folded.starts_with(&name) || name.starts_with(&folded))
        })
    };
    let by_edits = candidates
        .iter()
        .filter_map(|candidate| Some((edits(candidate)?, *candidate)))
        .min_by_key(|(edits, _)| *edits);
    let shares_beginning = |candidate: &&&'a str| {
        let folded = fold(candidate).unwrap_or_default();
        let shared = name.chars().zip(folded.chars()).take_while(|(a, b)| a == b).count();
        shared >= MIN_SHARED_CHARS && shared * 3 >= chars(&name) * 2
    };
    by_edits
        .map(|(_, candidate)| candidate)
        .or_else(|| candidates.iter().find(is_prefix).copied())
        .or_else(|| candidates.iter().find(shares_beginning).copied())
}

/// "did you mean `x`? The names are a, b", or "the names are a, b" if none is near.
pub fn suggestion(name: &str, names: &[&str], what: &str) -> String {
    let meant =
        nearest(name, names).map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"));
    format!("{meant} {what} are {}", names.join(", "))
}

/// The name in ASCII lowercase; `None` if it is empty or longer than any valid name.
fn fold(name: &str) -> Option<String> {
    let folded: String = name.chars().take(MAX_NAME_CHARS + 1).map(|c| c.to_ascii_lowercase()).collect();
    (1..=MAX_NAME_CHARS).contains(&folded.chars().count()).then_some(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_and_shortened_names_are_found() {
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
    fn transposed_characters_are_found() {
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
            assert_eq!(nearest(typed, &words), meant, "{typed}");
        }
    }

    #[test]
    fn insertions_deletions_and_replacements_are_edits() {
        let of = |a: &str, b: &str| strsim::levenshtein(&fold(a).unwrap(), &fold(b).unwrap());
        assert_eq!(
            [of("kitten", "sitting"), of("read", "read"), of("read", "raed"), of("a", "abc")],
            [3, 0, 2, 2]
        );
    }
}
