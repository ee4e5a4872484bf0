//! Whether the arguments of a call are the owner's: each value, and each key that is no parameter's name, stands as such in
//! the owner's own words.
//!
//! Untrusted text can make an agent call a tool, but it cannot make the owner have written the argument. So that it
//! cannot borrow parts of the owner's text either, only whole tokens, whole lines and quoted phrases count: never a part
//! of a word, a number inside a date, a word of ordinary prose, or a character that only looks the same. Numbers and
//! dates count by their value, all else byte for byte. An argument that is an instruction (a command, a task) must be set
//! apart: "note the date" does not run `date`. What stands in a prohibition is no wish, an empty value is nobody's, and a
//! call with an effect uses up the words that it relies on.

mod parameter_names;
mod prohibition;
mod statement;
mod typed;

use std::ops::Range;

use serde_json::Value;

use self::parameter_names::is_parameter_name;
use self::statement::{Scalar, Statement, overlap};
use self::typed::Decimal;

/// Values of one call that are looked up. An owner states few.
const MAX_SCALARS: usize = 256;

/// How a tool uses its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentUse {
    /// As names of things: files, hosts, people.
    Names,
    /// As instructions: a command, a task for another agent, an order to the daemon or to a device.
    Instructions,
}

/// Whether a call uses up the words of the owner that it relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordsUse {
    /// It only reads: the same words may name it again.
    Reusable,
    /// It has an effect: one statement is for one call.
    Once,
}

/// A text of the owner, and the parts of it that other calls have used up.
#[derive(Debug, Clone, Copy)]
pub struct OwnerText<'a> {
    pub text: &'a str,
    pub used: &'a [Range<usize>],
}

/// A part of the owner's words: the index of the text, and the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSpan {
    pub text: usize,
    pub range: Range<usize>,
}

/// The parts of the owner's words that the arguments stand in, one for each value; `None` if they are not the owner's.
pub fn owner_spans(
    arguments: &Value,
    taken_as: ArgumentUse,
    words_use: WordsUse,
    texts: &[OwnerText<'_>],
) -> Option<Vec<OwnerSpan>> {
    let mut scalars = Vec::new();
    if texts.is_empty() || !collect(arguments, &mut scalars) || scalars.is_empty() {
        return None;
    }
    // Most calls of an agent hold something that nobody said: that is found without taking the texts apart.
    if !scalars.iter().all(|scalar| texts.iter().any(|own| scalar.could_stand_in(own.text))) {
        return None;
    }
    let statements: Vec<Statement<'_>> = texts.iter().map(|own| Statement::new(own.text)).collect();
    let mut found = Vec::with_capacity(scalars.len());
    for scalar in &scalars {
        let spans = statements.iter().enumerate().flat_map(|(text, statement)| {
            statement.find(scalar, taken_as).into_iter().map(move |range| OwnerSpan { text, range })
        });
        let mut spans: Vec<OwnerSpan> = spans.collect();
        if words_use == WordsUse::Once {
            spans.retain(|span| !texts[span.text].used.iter().any(|used| overlap(used, &span.range)));
        }
        if spans.is_empty() {
            return None;
        }
        found.push(spans);
    }
    match words_use {
        WordsUse::Reusable => found.into_iter().map(|spans| spans.into_iter().next()).collect(),
        WordsUse::Once => assign(found),
    }
}

/// A span of its own for each value. Those with the least choice choose first.
fn assign(mut choices: Vec<Vec<OwnerSpan>>) -> Option<Vec<OwnerSpan>> {
    choices.sort_by_key(Vec::len);
    let mut taken: Vec<OwnerSpan> = Vec::with_capacity(choices.len());
    for choice in choices {
        let is_free = |span: &OwnerSpan| {
            !taken.iter().any(|other| other.text == span.text && overlap(&other.range, &span.range))
        };
        let free = choice.into_iter().find(is_free)?;
        taken.push(free);
    }
    Some(taken)
}

/// Collects the values and keys that someone chose. Fails if one of them is empty, or if there are too many.
fn collect<'v>(value: &'v Value, scalars: &mut Vec<Scalar<'v>>) -> bool {
    match value {
        Value::Null => return false,
        Value::Bool(flag) => scalars.push(Scalar::Bool(*flag)),
        Value::Number(number) => match Decimal::parse(&number.to_string()) {
            Some(number) => scalars.push(Scalar::Number(number)),
            None => return false,
        },
        Value::String(text) if text.trim().is_empty() => return false,
        Value::String(text) => scalars.push(Scalar::Text(text)),
        Value::Array(items) => {
            return !items.is_empty() && items.iter().all(|item| collect(item, scalars));
        }
        Value::Object(members) => {
            return !members.is_empty()
                && members.iter().all(|(key, member)| {
                    let is_own = !is_parameter_name(key);
                    let has_key = !key.trim().is_empty();
                    if is_own {
                        scalars.push(Scalar::Text(key));
                    }
                    has_key && collect(member, scalars)
                });
        }
    }
    scalars.len() <= MAX_SCALARS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_from_owner(value: &Value, taken_as: ArgumentUse, texts: &[&str]) -> bool {
        let texts: Vec<OwnerText<'_>> = texts.iter().map(|text| OwnerText { text, used: &[] }).collect();
        owner_spans(value, taken_as, WordsUse::Reusable, &texts).is_some()
    }

    fn owns(text: &str, value: Value) -> bool {
        is_from_owner(&value, ArgumentUse::Names, &[text])
    }

    #[test]
    fn an_instruction_is_the_owners_only_if_it_is_set_apart() {
        let orders = |text: &str, command: &str| {
            is_from_owner(&json!({"command": command}), ArgumentUse::Instructions, &[text])
        };
        for text in ["run `make`", "make", "do this:\n  make\nthanks", "```\nmake\n```", "run \"make\" now"] {
            assert!(orders(text, "make"), "{text:?}");
        }
        for text in ["please make the page shorter", "run make", "make: it is a verb", "make, then"] {
            assert!(!orders(text, "make"), "{text:?}");
        }
        // To mention a script is not to ask for its execution.
        assert!(!orders("what does ./build.sh do?", "./build.sh"));
        assert!(orders("run `./build.sh`", "./build.sh"));
    }

    #[test]
    fn whole_values_are_the_owners() {
        for (text, value) in [
            ("read notes.txt please", json!("notes.txt")),
            ("read `notes.txt`.", json!({"path": "notes.txt"})),
            ("Read notes.txt.", json!("notes.txt")),
            ("fetch (https://a.example/b)", json!("https://a.example/b")),
            ("say \"hello there, Bob\" to him", json!("hello there, Bob")),
            ("run this:\ncargo test --all\nthanks", json!("cargo test --all")),
            ("```sh\nls -l\npwd\n```", json!("ls -l\npwd")),
            ("open file `13` now", json!(13)),
            ("set it to \"on\"", json!("on")),
            ("copy a.txt1 to b.txt2", json!({"from": "a.txt1", "to": "b.txt2"})),
            ("I'm in Paris: book 'Le Marais', near d'Orsay", json!("d'Orsay")),
            ("I'm in Paris, book 'Le Marais' for the boys' trip", json!({"name": "Le Marais"})),
            (
                "I\u{2019}m there: \u{2018}L\u{2019}Atelier d\u{2019}Or\u{2019}",
                json!("L\u{2019}Atelier d\u{2019}Or"),
            ),
            ("pay `50.0`", json!(50)),
            ("pay `50`", json!(50.0)),
            ("pay \"1,250.50\"", json!({"amount": 1250.5})),
            // A date with its year is a name of one day.
            ("it was 2024-06-13", json!("2024-06-13")),
            ("from June 13, 2024 on", json!({"date": "2024-06-13"})),
            ("make bob@x.example a `writer`", json!({"permissions": {"bob@x.example": "writer"}})),
            ("with `true`", json!(true)),
        ] {
            assert!(owns(text, value.clone()), "{text:?} {value}");
        }
        assert!(is_from_owner(
            &json!(["one.txt", "two.txt"]),
            ArgumentUse::Names,
            &["one.txt", "and two.txt"]
        ));
    }

    #[test]
    fn parts_and_look_alikes_are_not() {
        for (text, value) in [
            ("see you on June 13", json!(13)),
            ("see you on June 13", json!("13")),
            ("it was 2024-06-13", json!("2024")),
            ("it was June 13", json!("2024-06-13")),
            ("version `1.10`", json!("1.1")),
            ("account `0049`", json!("49")),
            ("pay `50`", json!(500)),
            ("pay 50 to them", json!(50)),
            ("read notes.txt", json!("notes")),
            ("read notes.txt", json!("otes.txt")),
            ("read my-notes.txt", json!("notes.txt")),
            ("read a/notes.txt", json!("notes.txt")),
            ("read notes.txt.bak", json!("notes.txt")),
            ("pay Bob", json!("Bob")),
            ("write to Carol about it", json!("about")),
            ("please make the page shorter, and note the date", json!("date")),
            ("mail apple.com", json!("\u{430}pple.com")),
            ("mail apple.com", json!("apple\u{200B}.com")),
            ("mail apple.com", json!("Apple.com")),
            ("don't tell, can't do", json!("t tell, can")),
            ("\"a\" or \"b\"", json!(" or ")),
            ("rm old.txt and new.txt", json!("old.txt and new.txt")),
            ("anything", json!({})),
            ("anything", json!([])),
            ("anything", json!(null)),
            ("anything", json!("")),
            ("   ", json!("  ")),
            ("anything", json!(true)),
            ("only one.txt", json!(["one.txt", "two.txt"])),
            ("make it `writer`", json!({"permissions": {"evil@attacker.example": "writer"}})),
            ("put notes.txt there", json!({"fields": {"the secret": "notes.txt"}})),
            ("read notes.txt", json!({"path": "notes.txt", "mode": null})),
            ("read notes.txt", json!({"path": "notes.txt", "tags": []})),
            ("read notes.txt", json!({"path": "notes.txt", "options": {}})),
            ("read notes.txt", json!(["notes.txt", " "])),
            ("mail notes.txt, but never to evil@x.example", json!("evil@x.example")),
            ("I'm here, and you're there: 'x", json!("m here, and you")),
        ] {
            assert!(!owns(text, value.clone()), "{text:?} {value}");
        }
        assert!(!is_from_owner(&json!("notes.txt"), ArgumentUse::Names, &[]));
        // Two texts do not combine to one value.
        assert!(!is_from_owner(&json!("one two"), ArgumentUse::Names, &["one", "two"]));
    }

    #[test]
    fn words_are_used_up_by_a_call_with_an_effect() {
        let text = "pay `50.0` to DE89370400440532013000";
        let pay = json!({"to": "DE89370400440532013000", "amount": 50});
        let spans = |arguments: &Value, words_use, used: &[Range<usize>]| {
            owner_spans(arguments, ArgumentUse::Names, words_use, &[OwnerText { text, used }])
        };
        let first = spans(&pay, WordsUse::Once, &[]).unwrap();
        let used: Vec<Range<usize>> = first.into_iter().map(|span| span.range).collect();
        assert_eq!(spans(&pay, WordsUse::Once, &used), None);
        assert!(spans(&pay, WordsUse::Reusable, &used).is_some());
        // One call with five of them needs five statements as well.
        assert_eq!(spans(&json!({"items": [pay, pay]}), WordsUse::Once, &[]), None);
        // Neither order nor another key makes it another statement.
        let other = json!({"amount": 50.0, "to": "DE89370400440532013000"});
        assert_eq!(spans(&other, WordsUse::Once, &used), None);
    }
}
