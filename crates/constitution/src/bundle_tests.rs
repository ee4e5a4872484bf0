use super::*;

const TOOLS: [&str; 4] = ["exec", "read", "search", "send_message"];
const CLERK: &str = "---\ntools: read\n---\nFile things.\n";

fn hash(text: &str, mandates: &[(&str, &str)]) -> ConstitutionHash {
    Constitution::new(text, mandates.iter().copied(), &TOOLS).unwrap().hash()
}

#[test]
fn the_default_law_is_valid() {
    let law = Constitution::built_in(&TOOLS).unwrap();
    assert_eq!(law.text(), DEFAULT_CONSTITUTION);
    assert_eq!(law.mandate("default").unwrap().tools(), ["read", "search", "send_message"]);
    assert_eq!((law.mandates().len(), law.mandate("clerk")), (1, None));
    assert_eq!(law.mandates()["default"].source, DEFAULT_MANDATE_TEXT);
    assert!(DEFAULT_CONSTITUTION.len() < 4096, "the constitution is one page");
}

#[test]
fn the_hash_is_what_the_format_says() {
    let canonical =
        r##"{"constitution":"Be \"kind\".\n","mandates":{"clerk":"---\ntools: read\n---\nFile things.\n"}}"##;
    let own = hash("Be \"kind\".\n", &[("clerk", CLERK)]);
    assert_eq!(own.as_bytes(), &Domain::Constitution.hash(&[canonical.as_bytes()]));
    let text = own.to_string();
    assert!(text.starts_with("b3:") && text.len() == 67);
    assert_eq!(text.parse(), Ok(own));
    assert_eq!(text.to_uppercase().parse::<ConstitutionHash>(), Err(NotAConstitutionHash));
    assert_eq!(serde_json::to_string(&own).unwrap(), format!("\"{text}\""));
    assert_eq!(serde_json::from_str::<ConstitutionHash>(&format!("\"{text}\"")).unwrap(), own);
}

#[test]
fn every_byte_counts() {
    let (text, mandates) = ("Be kind.\n", [("clerk", CLERK), ("default", DEFAULT_MANDATE_TEXT)]);
    let own = hash(text, &mandates);
    let mut seen = std::collections::BTreeSet::from([own]);
    for end in 1..text.len() {
        assert!(seen.insert(hash(&text[..end], &mandates)));
    }
    for at in 0..text.len() {
        let changed = format!("{}~{}", &text[..at], &text[at + 1..]);
        assert!(seen.insert(hash(&changed, &mandates)), "{changed}");
    }
    // Every byte of the mandate, from its prose on: before that a change is a refusal.
    for at in CLERK.find("File").unwrap()..CLERK.len() {
        let changed = format!("{}~{}", &CLERK[..at], &CLERK[at + 1..]);
        assert!(seen.insert(hash(text, &[("clerk", &changed), mandates[1]])), "{changed}");
    }
    // What the parser does not tell apart, the hash does.
    for same in ["---\ntools:  read\n---\nFile things.\n", "---\ntools: read,read\n---\nFile things.\n"] {
        assert!(seen.insert(hash(text, &[("clerk", same), mandates[1]])));
    }
    assert!(seen.insert(hash(text, &mandates[..1])));
    assert!(seen.insert(hash(text, &[("clerk2", CLERK), mandates[1]])));
    assert!(seen.insert(hash(text, &[])));
}

#[test]
fn the_order_does_not_count() {
    let mandates = [("b", CLERK), ("a", CLERK), ("default", DEFAULT_MANDATE_TEXT)];
    let [b, a, default] = mandates;
    assert_eq!(hash("Law", &mandates), hash("Law", &[default, b, a]));
    assert_eq!(hash("Law", &mandates), hash("Law", &[a, default, b]));
}

#[test]
fn bounds_are_held() {
    let refusal = |text: &str, mandates: Vec<(String, &str)>| {
        Constitution::new(text, mandates, &TOOLS).unwrap_err().to_string()
    };
    let largest = "x".repeat(MAX_CONSTITUTION_BYTES);
    assert!(Constitution::new(largest.as_str(), [("clerk", CLERK)], &TOOLS).is_ok());
    assert_eq!(
        refusal(&format!("{largest}x"), vec![]),
        "the constitution has 65537 bytes: shorten it to at most 65536"
    );
    assert_eq!(refusal(" \n", vec![]), "the constitution is empty: write down what holds for every agent");
    assert_eq!(
        refusal("Law\nconstitution_hash: b3:0\n", vec![]),
        "the constitution, line 2: a line beginning with `constitution_hash:` would pass for the end of the prompt: word it differently"
    );
    let many = |count: usize| (0..count).map(|i| (format!("m{i}"), CLERK)).collect::<Vec<_>>();
    assert!(Constitution::new("Law", many(MAX_MANDATES), &TOOLS).is_ok());
    assert_eq!(
        refusal("Law", many(MAX_MANDATES + 1)),
        "there are more than 64 mandates: merge or remove some"
    );
    assert_eq!(
        refusal("Law", vec![("a".to_owned(), CLERK), ("a".to_owned(), CLERK)]),
        "there are two mandates named `a`: rename or remove one"
    );
    assert_eq!(
        refusal("Law", vec![("clerk".to_owned(), "---\ntools: raed\n---\n")]),
        "the mandate `clerk`: line 2: unknown tool `raed`: did you mean `read`? The tools are exec, read, search, send_message"
    );
    let wide = refusal("Law", vec![("default".to_owned(), "---\ntools: exec\n---\n")]);
    assert!(wide.starts_with("the mandate `default`: the mandate `default` is for strangers"), "{wide}");
}
