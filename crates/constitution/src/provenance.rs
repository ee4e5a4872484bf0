//! Whether an argument is the owner's: its whole value appears as such in the owner's own words.
//!
//! Untrusted text can make an agent call a tool, but it cannot make the owner have written the argument. So that it
//! cannot borrow parts of the owner's text either, only whole tokens, whole lines and quoted phrases count, byte
//! for byte: never a part of a word, a number inside a date, a word of ordinary prose, or a character that only
//! looks the same. An argument that is an instruction (a command, a task) must be set apart: "note the date" does
//! not run `date`.

use serde_json::Value;

/// Characters below which a word is too common to prove anything.
const MIN_CHARS: usize = 4;

/// How a tool uses its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentUse {
    /// As names of things: files, hosts, people.
    Names,
    /// As instructions: a command, a task for another agent, an order to the daemon or to a device.
    Instructions,
}

/// Whether every value in `value` appears in one of the owner's texts. False if there is no value at all.
pub fn is_from_owner(value: &Value, taken_as: ArgumentUse, owner_texts: &[&str]) -> bool {
    let mut leaves = 0_usize;
    all_owned(value, taken_as, owner_texts, &mut leaves) && leaves > 0
}

fn all_owned(value: &Value, taken_as: ArgumentUse, texts: &[&str], leaves: &mut usize) -> bool {
    let mut leaf = |text: &str, plain: bool| {
        *leaves += 1;
        stands(text, plain, taken_as, texts)
    };
    match value {
        // Nothing that anyone could have chosen.
        Value::Null => true,
        Value::Bool(flag) => leaf(if *flag { "true" } else { "false" }, true),
        Value::Number(number) => leaf(&number.to_string(), true),
        Value::String(text) => {
            let number = text.chars().all(|c| c.is_numeric() || "+-.,:/eE".contains(c));
            leaf(text, number || text.chars().count() < MIN_CHARS)
        }
        Value::Array(items) => items.iter().all(|item| all_owned(item, taken_as, texts, leaves)),
        Value::Object(members) => members.values().all(|member| all_owned(member, taken_as, texts, leaves)),
    }
}

/// Whether `value` appears in a text; a `plain` one only alone between quotes or backticks.
fn stands(value: &str, plain: bool, taken_as: ArgumentUse, texts: &[&str]) -> bool {
    if value.trim().is_empty() {
        return false;
    }
    texts.iter().any(|text| {
        if is_quoted(value, text) {
            return true;
        }
        if plain {
            return false;
        }
        text.trim() == value
            || text.lines().any(|line| line.trim() == value)
            || is_fenced(value, text)
            || (taken_as == ArgumentUse::Names && !is_prose(value) && is_token(value, text))
    })
}

/// Whether a value could be one or several words of any sentence: nothing shows that it is a name.
fn is_prose(value: &str) -> bool {
    value.contains(char::is_whitespace) || value.chars().all(char::is_alphabetic)
}

/// Whether `bounded` accepts an occurrence of `value`; it gets the text before and after it.
fn occurs(value: &str, text: &str, bounded: impl Fn(&str, &str) -> bool) -> bool {
    text.match_indices(value).any(|(at, _)| bounded(&text[..at], &text[at + value.len()..]))
}

/// A whole token: between whitespace, quotes and brackets, followed by at most one punctuation mark.
fn is_token(value: &str, text: &str) -> bool {
    occurs(value, text, |before, after| {
        let begins = before.chars().next_back().is_none_or(delimits);
        let rest = after.strip_prefix(['.', ',', ';', ':', '!', '?']).unwrap_or(after);
        begins
            && (after.chars().next().is_none_or(delimits)
                || rest.chars().next().is_none_or(char::is_whitespace))
    })
}

/// Alone between a pair of quotes or backticks on one line. The opening mark must not end a word.
fn is_quoted(value: &str, text: &str) -> bool {
    const PAIRS: [(char, char); 6] = [
        ('"', '"'),
        ('\'', '\''),
        ('`', '`'),
        ('\u{201C}', '\u{201D}'),
        ('\u{2018}', '\u{2019}'),
        ('\u{AB}', '\u{BB}'),
    ];
    if value.contains('\n') {
        return false;
    }
    occurs(value, text, |before, after| {
        PAIRS.iter().any(|(open, close)| {
            let Some(before) = before.strip_suffix(*open) else { return false };
            let Some(after) = after.strip_prefix(*close) else { return false };
            // The marks must be a pair: an even number of the same mark before, and none inside the value.
            let line = before.rsplit('\n').next().unwrap_or_default();
            let opens = open != close || line.matches(*open).count() % 2 == 0;
            let ends_word = before.chars().next_back().is_some_and(char::is_alphanumeric);
            let begins_word = after.chars().next().is_some_and(char::is_alphanumeric);
            opens && !ends_word && !begins_word && !value.contains([*open, *close])
        })
    })
}

/// The whole content of a fenced block.
fn is_fenced(value: &str, text: &str) -> bool {
    text.split("```").skip(1).step_by(2).any(|block| {
        let content = block.split_once('\n').map_or(block, |(_, content)| content);
        content.trim() == value.trim()
    })
}

fn delimits(c: char) -> bool {
    c.is_whitespace() || "\"'`()[]{}<>\u{201C}\u{201D}\u{2018}\u{2019}\u{AB}\u{BB}".contains(c)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            ("copy a.txt1 to b.txt2", json!({"from": "a.txt1", "to": "b.txt2", "mode": null})),
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
            ("it was 2024-06-13", json!("2024-06-13")),
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
        ] {
            assert!(!owns(text, value.clone()), "{text:?} {value}");
        }
        assert!(!is_from_owner(&json!("notes.txt"), ArgumentUse::Names, &[]));
        // Two texts do not combine to one value.
        assert!(!is_from_owner(&json!("one two"), ArgumentUse::Names, &["one", "two"]));
    }
}
