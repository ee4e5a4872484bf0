//! Provenance over generated JSON shapes: arguments are the owner's if all of them are, wherever they stand.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use tribune_constitution::provenance::{ArgumentUse, OwnerSpan, OwnerText, WordsUse, owner_spans};

/// Keys that say nothing, because tools define them.
const PARAMETERS: [&str; 6] = ["path", "to", "fields", "permissions", "newText", "new_path"];

/// The shape of arguments, without their values.
#[derive(Debug, Clone)]
enum Shape {
    Leaf,
    List(Vec<Shape>),
    /// Each member with whether its key is a value of someone, or else a parameter's name.
    Map(Vec<(bool, Shape)>),
}

impl Shape {
    /// How many values and keys someone chose.
    fn places(&self) -> usize {
        match self {
            Self::Leaf => 1,
            Self::List(items) => items.iter().map(Self::places).sum(),
            Self::Map(members) => {
                members.iter().map(|(is_own, member)| usize::from(*is_own) + member.places()).sum()
            }
        }
    }

    fn fill(&self, values: &mut impl Iterator<Item = Value>) -> Value {
        match self {
            Self::Leaf => values.next().unwrap(),
            Self::List(items) => items.iter().map(|item| item.fill(values)).collect(),
            Self::Map(members) => {
                let mut map = Map::new();
                for ((is_own, member), parameter) in members.iter().zip(PARAMETERS) {
                    let key = match is_own {
                        true => values.next().unwrap(),
                        false => json!(parameter),
                    };
                    let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                    map.insert(key, member.fill(values));
                }
                Value::Object(map)
            }
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    Just(Shape::Leaf).prop_recursive(5, 48, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..5).prop_map(Shape::List),
            vec((any::<bool>(), inner), 1..PARAMETERS.len()).prop_map(Shape::Map),
        ]
    })
}

/// What the owner did not say, and what nobody says.
fn foreign() -> impl Strategy<Value = Value> {
    select(vec![
        json!("evil@attacker.example"),
        json!("file-0.tx"),
        json!("File-0.txt"),
        json!("writer"),
        json!(7),
        json!(true),
        json!(null),
        json!(""),
        json!(" "),
        json!([]),
        json!({}),
        json!([[]]),
    ])
}

fn word(number: usize) -> String {
    format!("file-{number}.txt")
}

/// A text that names as many words, each once, set apart.
fn text(words: usize) -> String {
    (0..words).map(|number| format!("{}\n", word(number))).collect::<String>() + "Please."
}

fn spans(
    arguments: &Value,
    taken_as: ArgumentUse,
    text: &str,
    used: &[Range<usize>],
) -> Option<Vec<OwnerSpan>> {
    owner_spans(arguments, taken_as, WordsUse::Once, &[OwnerText { text, used }])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arguments_of_the_owners_words_alone_are_the_owners_once(shape in shape()) {
        let places = shape.places();
        let arguments = shape.fill(&mut (0..places).map(|number| json!(word(number))));
        let text = text(places);
        for taken_as in [ArgumentUse::Names, ArgumentUse::Instructions] {
            let found = spans(&arguments, taken_as, &text, &[]);
            prop_assert_eq!(found.as_ref().map(Vec::len), Some(places), "{}", arguments);
            // The words are used up, each of them, in whatever shape they come again.
            let used: Vec<Range<usize>> = found.unwrap().into_iter().map(|span| span.range).collect();
            prop_assert_eq!(spans(&arguments, taken_as, &text, &used), None);
            prop_assert_eq!(spans(&json!(word(0)), taken_as, &text, &used), None);
            prop_assert_eq!(spans(&json!([arguments, arguments]), taken_as, &text, &[]), None);
            // In a prohibition they are no wish.
            let never = format!("Never use any of these:\n{text}");
            prop_assert_eq!(spans(&arguments, taken_as, &never, &[]), None);
        }
    }

    #[test]
    fn one_foreign_or_empty_value_or_key_anywhere_is_not_the_owners(
        shape in shape(), at in any::<prop::sample::Index>(), foreign in foreign(),
    ) {
        let places = shape.places();
        let at = at.index(places);
        let value = |number: usize| if number == at { foreign.clone() } else { json!(word(number)) };
        let arguments = shape.fill(&mut (0..places).map(value));
        let text = text(places);
        for taken_as in [ArgumentUse::Names, ArgumentUse::Instructions] {
            for words_use in [WordsUse::Once, WordsUse::Reusable] {
                let texts = [OwnerText { text: &text, used: &[] }];
                prop_assert_eq!(owner_spans(&arguments, taken_as, words_use, &texts), None, "{}", arguments);
            }
        }
    }
}
