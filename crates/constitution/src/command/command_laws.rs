//! Properties of every command line.

use proptest::prelude::*;

use super::*;

fn covered(grant: &str, command: &str) -> bool {
    let grants = [CommandGrant::parse(grant).unwrap()];
    parse(command).is_ok_and(|parsed| covers_all(&grants, &parsed))
}

/// Words and metacharacters, so that random texts get past the first word.
fn shellish() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z]{1,3}",
        "[ \\t\\n;&|<>(){}$`'\"\\\\*?~#!=\\[\\]-]",
        proptest::sample::select(vec![
            " ",
            " ",
            "$(",
            "${",
            "$((",
            "))",
            "<<EOF\n",
            "\nEOF\n",
            "if ",
            "; then ",
            "; fi",
            "for x in ",
            "; do ",
            "; done",
            "case x in ",
            ";;",
            " esac",
            "[[ ",
            " ]]",
            "<(",
            "2>&1",
            ">/dev/null",
            "&&",
            "||",
            "x=",
            "$'",
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsing_never_panics(text in any::<String>(), shellish in shellish()) {
        for text in [text, shellish] {
            if let Ok(parsed) = parse(&text) {
                programs(&parsed);
                for suggested in suggest_grants(&parsed) {
                    let grant = CommandGrant::parse(&suggested).unwrap();
                    prop_assert!(grant.covers(&parsed), "{suggested:?} ⇥ {text:?}");
                }
            }
            let _ = CommandGrant::parse(&text);
        }
    }

    #[test]
    fn a_normalized_line_stays_the_same(text in shellish()) {
        if let Ok(parsed) = parse(&text) {
            let again = parse(parsed.line()).unwrap();
            prop_assert_eq!(again.line(), parsed.line());
            prop_assert_eq!(again.is_plain(), parsed.is_plain());
        }
    }

    #[test]
    fn an_exact_grant_covers_equal_lines_only(one in shellish(), other in shellish()) {
        if let (Ok(one), Ok(other)) = (parse(&one), parse(&other)) {
            prop_assert!(CommandGrant::exact(&one).covers(&one));
            prop_assert_eq!(CommandGrant::exact(&one).covers(&other), one.line() == other.line());
        }
    }

    #[test]
    fn nothing_is_appended_to_a_granted_line(
        meta in proptest::sample::select(vec![";", "&&", "||", "|", "&", "\n", "\r", "$(", "`", ">", "<", "(", "|&", "<<<", "; ;", "\\\n;"]),
        tail in "[a-z$(){}`'\"<>&|;* -]{0,12}",
    ) {
        let line = format!("git status {meta} x{tail}");
        prop_assert!(!covered("git status", &line), "{}", line);
    }

    #[test]
    fn a_wildcard_never_stands_for_an_option_or_an_expansion(word in "[ -~]{1,8}") {
        if let Ok(parsed) = parse(&format!("ls {word}"))
            && covered("ls **", parsed.line())
        {
            let words = &parsed.commands()[0].words;
            prop_assert!(words.iter().skip(1).all(|word| word.literal && !word.text.starts_with(['-', '/', '~'])));
            prop_assert!(!word.contains(['$', '`', '&', '<', '(', '\n']) || word.contains("2>&1"), "{}", word);
        }
    }
}
