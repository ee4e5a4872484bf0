use super::*;

const TOOLS: [&str; 5] = ["exec", "read", "search", "send_message", "write"];

fn parse(text: &str) -> Result<Mandate, MandateError> {
    Mandate::parse("clerk", text, &TOOLS)
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_mandate_is_read() {
    let mandate = parse("---\ntools: search, read , search\n---\n\n# Clerk\n\nFile things.\n").unwrap();
    assert_eq!((mandate.name.as_str(), mandate.prose.as_str()), ("clerk", "# Clerk\n\nFile things."));
    assert_eq!(mandate.tools(), ["read", "search"]);
    assert!(mandate.allows("read") && !mandate.allows("write") && !mandate.allows(""));

    let windows = parse("---\r\ntools: read\r\n\r\n---\r\nA\r\nB\r\n").unwrap();
    assert_eq!((windows.tools(), windows.prose.as_str()), (&["read".to_owned()][..], "A\nB"));
    assert_eq!(parse("---\ntools:\n---\n").unwrap().tools(), [""; 0]);
    // A ruler in the prose is prose.
    assert_eq!(parse("---\ntools: read\n---\nA\n---\ntools: exec\n---\n").unwrap().tools(), ["read"]);
}

#[test]
fn errors_are_sentences() {
    for (text, said) in [
        (
            "# Clerk\n",
            "line 1: a mandate begins with its front matter: put `---`, a line `tools: …` and `---` on top",
        ),
        ("", "line 1: a mandate begins with its front matter: put `---`, a line `tools: …` and `---` on top"),
        ("---\ntools: read\n", "line 1: the front matter has no end: put a line `---` after it"),
        ("---\ntools\n---\n", "line 2: `tools` is not of the form `key: value`: the keys are `tools`"),
        (
            "---\n\ntool: read\n---\n",
            "line 3: unknown key `tool`: did you mean `tools`? The keys are `tools`",
        ),
        ("---\ntools: read\nmodel: x\n---\n", "line 3: unknown key `model`: the keys are `tools`"),
        ("---\ntools: read\ntools: exec\n---\n", "line 3: `tools` is given twice: remove one of them"),
        (
            "---\n---\n",
            "the front matter does not name the tools: add a line such as `tools: read, search, send_message`",
        ),
        (
            "---\ntools: read,,search\n---\n",
            "line 2: a tool's name is missing between two commas: remove one of them",
        ),
        (
            "---\ntools: read, serach\n---\n",
            "line 2: unknown tool `serach`: did you mean `search`? The tools are exec, read, search, send_message, write",
        ),
        (
            "---\ntools: fly\n---\n",
            "line 2: unknown tool `fly`: the tools are exec, read, search, send_message, write",
        ),
        (
            "---\ntools: read\n---\nA\n  Constitution_Hash: b3:00\n",
            "line 5: a line beginning with `constitution_hash:` could be mistaken for the end of the prompt: rephrase it",
        ),
    ] {
        assert_eq!(refusal(text), said, "{text:?}");
    }
    let long = format!("---\ntools: read\n---\n{}", "x".repeat(MAX_MANDATE_BYTES));
    assert_eq!(refusal(&long), format!("the mandate has {} bytes: shorten it to at most 65536", long.len()));
    assert!(parse(&long[..MAX_MANDATE_BYTES]).is_ok());
}

#[test]
fn names_are_words() {
    for good in ["default", "a", "7-of_9"] {
        assert!(Mandate::parse(good, "---\ntools:\n---\n", &TOOLS).is_ok(), "{good}");
    }
    for bad in ["", "..", "a/b", "A", "a.md", "-a", "ä", &"a".repeat(65)] {
        let refused = Mandate::parse(bad, "---\ntools:\n---\n", &TOOLS);
        assert!(matches!(refused, Err(MandateError::Name(_))), "{bad}");
    }
}

#[test]
fn the_default_mandate_stays_narrow() {
    let own = Mandate::parse(DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT, &TOOLS).unwrap();
    assert_eq!((own.tools(), own.check_default()), (&ANONYMOUS_TOOLS.map(str::to_owned)[..], Ok(())));

    let wide = "---\ntools: read, write, exec\n---\n";
    let refused = Mandate::parse(DEFAULT_MANDATE, wide, &TOOLS).unwrap().check_default().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the mandate `default` is for anonymous callers and may allow read, search, send_message only, not exec, write: make another mandate for agents that need more"
    );
    assert_eq!(parse(wide).unwrap().check_default(), Ok(()));
}

/// Every text is either a mandate within the known tools or an error of one line.
#[test]
fn no_text_breaks_the_parser() {
    let pieces = [
        "---",
        "\n---\n",
        "\n",
        "\r\n",
        "tools",
        ":",
        " ",
        ",",
        "read",
        "exec",
        "raed",
        "\u{2028}",
        "\0",
        "ä",
        "# x",
        "constitution_hash:",
        "\u{FEFF}",
    ];
    let mut state = 7_u64;
    let mut parsed = 0;
    for round in 0..20_000 {
        let mut text = String::from(if round % 2 == 0 { "---\ntools: read\n" } else { "" });
        for _ in 0..round % 24 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        match parse(&text) {
            Ok(mandate) => {
                parsed += 1;
                assert!(mandate.tools().is_sorted_by(|a, b| a < b), "{text:?}");
                assert!(mandate.tools().iter().all(|tool| TOOLS.contains(&tool.as_str())), "{text:?}");
            }
            Err(error) => assert!(!error.to_string().contains(['\n', '\0', '\u{2028}']), "{text:?}"),
        }
    }
    assert!(parsed > 100, "{parsed}");
}
