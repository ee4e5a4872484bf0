use tribune_ledger::cid::Domain;

use super::*;
use crate::hash::InvalidConstitutionHash;
use crate::mandate::DEFAULT_MANDATE_TEXT;
use crate::texts::DEFAULT_CONSTITUTION;

const TOOLS: [&str; 2] = ["read", "teleport"];
const CLERK: &str = "---\ntools: read\n---\nFile things.\n";

fn texts(text: &str, mandates: &[(&str, &str)]) -> LawTexts {
    let mandates = mandates.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
    LawTexts { constitution: text.to_owned(), mandates: mandates.collect(), ..LawTexts::built_in() }
}

fn hash(text: &str, mandates: &[(&str, &str)]) -> ConstitutionHash {
    Constitution::new(texts(text, mandates), &TOOLS).unwrap().hash()
}

#[test]
fn the_default_law_is_valid() {
    let law = Constitution::built_in(&TOOLS).unwrap();
    assert_eq!(law.text(), DEFAULT_CONSTITUTION);
    assert_eq!(law.mandate("default").unwrap().tools(), ["read", "search", "send_message"]);
    assert_eq!((law.mandates().len(), law.mandate("clerk")), (2, None));
    assert_eq!(law.mandate("run").unwrap().tools(), ["egress"]);
    assert_eq!(law.texts().mandates["default"], DEFAULT_MANDATE_TEXT);
    assert_eq!((law.manifests().len(), law.settings()), (20, &Settings::default()));
    assert!(DEFAULT_CONSTITUTION.len() < 4096, "the constitution is one page");
}

#[test]
fn the_hash_has_the_specified_format() {
    let canonical = r##"{"constitution":"Be \"kind\".\n","kernel":5,"law":null,"mandates":{"clerk":"---\ntools: read\n---\nFile things.\n"},"manifests":{},"policies":{}}"##;
    let own = hash("Be \"kind\".\n", &[("clerk", CLERK)]);
    assert_eq!(own.as_bytes(), &Domain::Constitution.hash(&[canonical.as_bytes()]));
    let text = own.to_string();
    assert!(text.starts_with("b3:") && text.len() == 67);
    assert_eq!(text.parse(), Ok(own));
    assert_eq!(text.to_uppercase().parse::<ConstitutionHash>(), Err(InvalidConstitutionHash));
    assert_eq!(serde_json::to_string(&own).unwrap(), format!("\"{text}\""));
    assert_eq!(serde_json::from_str::<ConstitutionHash>(&format!("\"{text}\"")).unwrap(), own);
}

#[test]
fn every_byte_counts() {
    let (text, mandates) = ("Be kind.\n", [("clerk", CLERK), ("default", DEFAULT_MANDATE_TEXT)]);
    let own = hash(text, &mandates);
    let mut seen = BTreeSet::from([own]);
    for end in 1..text.len() {
        assert!(seen.insert(hash(&text[..end], &mandates)));
    }
    for at in 0..text.len() {
        let changed = format!("{}~{}", &text[..at], &text[at + 1..]);
        assert!(seen.insert(hash(&changed, &mandates)), "{changed}");
    }
    // Every byte of the mandate's prose; a change before that is an error.
    for at in CLERK.find("File").unwrap()..CLERK.len() {
        let changed = format!("{}~{}", &CLERK[..at], &CLERK[at + 1..]);
        assert!(seen.insert(hash(text, &[("clerk", &changed), mandates[1]])), "{changed}");
    }
    // The parser ignores these differences, the hash does not.
    for same in ["---\ntools:  read\n---\nFile things.\n", "---\ntools: read,read\n---\nFile things.\n"] {
        assert!(seen.insert(hash(text, &[("clerk", same), mandates[1]])));
    }
    assert!(seen.insert(hash(text, &mandates[..1])));
    assert!(seen.insert(hash(text, &[("clerk2", CLERK), mandates[1]])));
    assert!(seen.insert(hash(text, &[])));
    let with = |change: fn(&mut LawTexts)| {
        let mut own = texts(text, &mandates);
        change(&mut own);
        Constitution::new(own, &TOOLS).unwrap().hash()
    };
    assert!(seen.insert(with(|own| own.law = Some("{}".to_owned()))));
    assert!(seen.insert(with(|own| own.law = Some("{ }".to_owned()))));
    assert!(seen.insert(with(|own| {
        own.policies.insert("a.cedar".to_owned(), "// nothing".to_owned());
    })));
    assert!(seen.insert(with(|own| {
        let read = serde_json::to_string(&ToolManifest::built_in("read").unwrap()).unwrap();
        own.manifests.insert("read".to_owned(), read);
    })));
}

#[test]
fn rights_are_the_intersection_of_mandates() {
    let mandates = [
        ("a", "---\ntools: read, write, exec\n---\n"),
        ("b", "---\ntools: exec, read, cron\n---\n"),
        ("c", CLERK),
    ];
    let law = Constitution::new(texts("Law", &mandates), &TOOLS).unwrap();
    assert_eq!(law.mandate_tools(&["a"]), ["exec", "read", "write"]);
    assert_eq!(law.mandate_tools(&["a", "b"]), ["exec", "read"]);
    assert_eq!(law.mandate_tools(&["a", "b", "c"]), ["read"]);
    assert_eq!((law.mandate_tools(&["a", "missing"]), law.mandate_tools(&[""; 0])), (vec![], vec![]));
}

#[test]
fn bounds_are_held() {
    let refusal = |texts: LawTexts| Constitution::new(texts, &TOOLS).unwrap_err().to_string();
    let largest = "x".repeat(MAX_CONSTITUTION_BYTES);
    assert!(Constitution::new(texts(&largest, &[("clerk", CLERK)]), &TOOLS).is_ok());
    assert_eq!(
        refusal(texts(&format!("{largest}x"), &[])),
        "the constitution has 65537 bytes: shorten it to at most 65536"
    );
    assert_eq!(
        refusal(texts(" \n", &[])),
        "the constitution is empty: write down what holds for every agent"
    );
    assert_eq!(
        refusal(texts("Law\nconstitution_hash: b3:0\n", &[])),
        "the constitution, line 2: a line beginning with `constitution_hash:` could be mistaken for the end of the prompt: rephrase it"
    );
    let many = |count: usize| {
        let mandates = (0..count).map(|i| (format!("m{i}"), CLERK.to_owned())).collect();
        LawTexts { mandates, ..LawTexts::built_in() }
    };
    assert!(Constitution::new(many(MAX_MANDATES), &TOOLS).is_ok());
    assert_eq!(refusal(many(MAX_MANDATES + 1)), "there are more than 64 mandates: merge or remove some");
    let raed = refusal(texts("Law", &[("clerk", "---\ntools: raed\n---\n")]));
    assert!(
        raed.starts_with("the mandate `clerk`: line 2: unknown tool `raed`: did you mean `read`?"),
        "{raed}"
    );
    assert!(raed.contains("teleport"), "the program's own tools are known: {raed}");
    let wide = refusal(texts("Law", &[("default", "---\ntools: exec\n---\n")]));
    assert!(
        wide.starts_with("the mandate `default`: the mandate `default` is for anonymous callers"),
        "{wide}"
    );
    let law = refusal(LawTexts { law: Some("{ mdoe: 1 }".to_owned()), ..LawTexts::built_in() });
    assert!(law.starts_with("policy/law.json5:1:3: unknown key `mdoe`: did you mean `mode`?"), "{law}");
}

#[test]
fn a_law_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    shared(&Constitution::built_in(&TOOLS).unwrap());
}

#[test]
fn a_mandate_may_name_any_tool_if_the_law_allows_it_by_default() {
    let texts = |law: &str| {
        let mut texts = LawTexts { law: Some(law.to_owned()), ..LawTexts::built_in() };
        texts.mandates.insert("dev".to_owned(), "---\ntools: read, note_add\n---\n".to_owned());
        texts
    };
    for law in ["{}", "{ defaultAllow: false }", "{ defaultAllow: true, mode: \"what\" }"] {
        let refused = Constitution::new(texts(law), &["read"]).unwrap_err().to_string();
        assert!(refused.contains("unknown tool `note_add`"), "{law}: {refused}");
    }
    let law =
        Constitution::new(texts("{ defaultAllow: true, overrides: { note_add: \"audit\" } }"), &["read"]);
    assert!(law.unwrap().mandate("dev").unwrap().allows("note_add"));
    // What cannot be the name of a tool is still a mistake.
    let mut odd = texts("{ defaultAllow: true }");
    odd.mandates.insert("odd".to_owned(), "---\ntools: read, note add\n---\n".to_owned());
    assert!(Constitution::new(odd, &["read"]).unwrap_err().to_string().contains("unknown tool `note add`"));
}
