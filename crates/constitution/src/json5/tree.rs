//! A JSON5 text as a tree of values, and the position of each value in the text.
//!
//! [`walk`] reports every key and value to an observer in the order of the text. An error of the observer ends the walk
//! and gets the position that was reached. Everything that needs positions is built on that: duplicate keys, the
//! position of a path ([`locate`]), and checks of callers, such as a search for secrets in strings.

use std::collections::BTreeSet;
use std::fmt;

use ::json5::Position;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value without its position.
#[derive(Debug)]
pub(super) enum Json5Value {
    Null,
    Bool(bool),
    /// A whole number from zero.
    Unsigned(u64),
    /// A whole number below zero.
    Negative(i64),
    Float(f64),
    String(String),
    List(Vec<Json5Value>),
    /// The members in the order of the text. Of a duplicate key, the first value.
    Object(Vec<(String, Json5Value)>),
}

/// What a walk meets at a path such as `exceptions[0].tool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEvent<'a> {
    Key {
        key: &'a str,
        /// Whether the object has this key already.
        is_duplicate: bool,
    },
    /// The beginning of a list or an object, or a value that is no string.
    Value,
    String(&'a str),
}

/// What a walk reports to: the path and the event. An error is the message of the walk's error.
pub type Observer<'o> = dyn Fn(&str, WalkEvent<'_>) -> Result<(), String> + 'o;

/// Reads a text whose lists and objects nest at most `max_depth` levels deep. Keys have no meaning here.
///
/// The error is a syntax error, a message about nesting, or the message of the observer, each with its position.
pub(super) fn walk(
    text: &str,
    max_depth: usize,
    observer: &Observer<'_>,
) -> Result<Json5Value, ::json5::Error> {
    let walk = TreeWalk { max_depth, observer };
    let mut deserializer = ::json5::Deserializer::from_str(text);
    let tree = ValueSeed { path: "", depth: 0, walk: &walk }.deserialize(&mut deserializer)?;
    // A deserializer stops behind the value; only `from_str` refuses what follows it.
    ::json5::from_str::<IgnoredAny>(text)?;
    Ok(tree)
}

/// Which part of the member at a path to locate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocateTarget {
    /// Its key, or its value if it is an item of a list or the whole text.
    Key,
    Value,
    /// Its key, where it is given for the second time.
    DuplicateKey,
}

/// The position of the member at `path` in a text that was read before.
pub(super) fn locate(text: &str, path: &str, target: LocateTarget) -> Option<Position> {
    let has_key = !path.is_empty() && !path.ends_with(']');
    let stop = |at: &str, event: WalkEvent<'_>| {
        let is_target = match (target, event) {
            (LocateTarget::Key, WalkEvent::Key { is_duplicate, .. }) => !is_duplicate,
            (LocateTarget::DuplicateKey, WalkEvent::Key { is_duplicate, .. }) => is_duplicate,
            (LocateTarget::Key, WalkEvent::Value | WalkEvent::String(_)) => !has_key,
            (LocateTarget::Value, WalkEvent::Value | WalkEvent::String(_)) => true,
            (LocateTarget::Value, WalkEvent::Key { .. })
            | (LocateTarget::DuplicateKey, WalkEvent::Value | WalkEvent::String(_)) => false,
        };
        // An error has a position, so an error ends the walk here.
        if is_target && at == path { Err("found".to_owned()) } else { Ok(()) }
    };
    walk(text, super::MAX_DEPTH, &stop).err().and_then(|error| error.position())
}

/// What is the same for all values of a text.
struct TreeWalk<'w> {
    max_depth: usize,
    observer: &'w Observer<'w>,
}

impl TreeWalk<'_> {
    fn report<E: Error>(&self, path: &str, event: WalkEvent<'_>) -> Result<(), E> {
        (self.observer)(path, event).map_err(E::custom)
    }
}

/// Any value at `path`.
#[derive(Clone, Copy)]
struct ValueSeed<'p> {
    path: &'p str,
    depth: usize,
    walk: &'p TreeWalk<'p>,
}

impl ValueSeed<'_> {
    fn deeper<E: Error>(self) -> Result<usize, E> {
        let most = self.walk.max_depth;
        if self.depth == most {
            return Err(E::custom(format!("this is nested deeper than {most} levels: flatten it")));
        }
        Ok(self.depth + 1)
    }

    fn report_value<E: Error>(self) -> Result<(), E> {
        self.walk.report(self.path, WalkEvent::Value)
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Json5Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json5Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Json5Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Json5Value, E> {
        self.report_value().map(|()| Json5Value::Bool(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json5Value, E> {
        self.report_value().map(|()| Json5Value::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json5Value, E> {
        self.report_value().map(|()| Json5Value::Negative(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json5Value, E> {
        self.report_value().map(|()| Json5Value::Float(number))
    }

    fn visit_unit<E: Error>(self) -> Result<Json5Value, E> {
        self.report_value().map(|()| Json5Value::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json5Value, E> {
        self.walk.report(self.path, WalkEvent::String(text))?;
        Ok(Json5Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json5Value, A::Error> {
        self.report_value()?;
        let depth = self.deeper()?;
        let mut list = Vec::new();
        loop {
            let path = item_path(self.path, list.len());
            match items.next_element_seed(ValueSeed { path: &path, depth, walk: self.walk })? {
                Some(value) => list.push(value),
                None => return Ok(Json5Value::List(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json5Value, A::Error> {
        self.report_value()?;
        let depth = self.deeper()?;
        let (mut object, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = members.next_key_seed(KeySeed { parent: self, seen: &seen })? {
            let path = member_path(self.path, &key);
            let value = members.next_value_seed(ValueSeed { path: &path, depth, walk: self.walk })?;
            if seen.insert(key.clone()) {
                object.push((key, value));
            }
        }
        Ok(Json5Value::Object(object))
    }
}

/// A key of the object at `parent`.
struct KeySeed<'p> {
    parent: ValueSeed<'p>,
    seen: &'p BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        let path = member_path(self.parent.path, key);
        self.parent.walk.report(&path, WalkEvent::Key { key, is_duplicate: self.seen.contains(key) })?;
        Ok(key.to_owned())
    }
}

/// The path of an item of the list at `path`.
pub(super) fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The path of a member of the object at `path`.
pub(super) fn member_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_walk_reports_keys_and_values_in_order() {
        let seen = RefCell::new(Vec::new());
        let note = |path: &str, event: WalkEvent<'_>| {
            let what = match event {
                WalkEvent::Key { key, is_duplicate } => format!("{path}: key {key} {is_duplicate}"),
                WalkEvent::Value => format!("{path}: value"),
                WalkEvent::String(text) => format!("{path}: string {text}"),
            };
            seen.borrow_mut().push(what);
            Ok(())
        };
        walk("{ a: [1, 'x'], a: null }", 2, &note).unwrap();
        let expected = [
            ": value",
            "a: key a false",
            "a: value",
            "a[0]: value",
            "a[1]: string x",
            "a: key a true",
            "a: value",
        ];
        assert_eq!(seen.into_inner(), expected);
    }

    #[test]
    fn an_error_of_the_observer_has_its_position() {
        let refuse = |_: &str, event: WalkEvent<'_>| match event {
            WalkEvent::String("secret") => Err("no".to_owned()),
            WalkEvent::Key { .. } | WalkEvent::Value | WalkEvent::String(_) => Ok(()),
        };
        let error = walk("{\n  a: ['x', 'secret'] }", 2, &refuse).unwrap_err();
        assert_eq!(error.position(), Some(Position { line: 1, column: 11 }));
        assert_eq!(super::super::messages::error_text(&error), "no");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let accept = |_: &str, _: WalkEvent<'_>| Ok(());
        assert!(walk("[[1]]", 2, &accept).is_ok());
        assert!(walk("[[[1]]]", 2, &accept).unwrap_err().to_string().contains("nested deeper than 2 levels"));
    }
}
