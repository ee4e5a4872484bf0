//! A JSON5 text as a tree, and where in the text a value of it stands.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use ::json5::Position;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Nesting of objects and lists: our keys need four levels, and each costs stack.
const MAX_DEPTH: usize = 16;

/// A value without its place.
#[derive(Debug)]
pub(super) enum Tree {
    Null,
    Flag(bool),
    Whole(u64),
    Negative(i64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    /// Of a key that is given twice, what it is given first.
    Object(Vec<(String, Tree)>),
}

/// Where to look for the value at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At its key, if it has one.
    Key,
    Value,
    /// At its key, where that is given for the second time.
    SecondKey,
}

/// A text as a tree, and the paths of the keys that are given twice.
pub(super) struct Planted {
    pub(super) tree: Tree,
    pub(super) twice: BTreeSet<String>,
}

impl<'de> Deserialize<'de> for Planted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let walk = Walk::default();
        let tree = ValueSeed { path: "", depth: 0, walk: &walk }.deserialize(deserializer)?;
        Ok(Self { tree, twice: walk.twice.into_inner() })
    }
}

/// Where the value at `path` (such as `exceptions[0].tool`) stands in a text that was read before.
pub(super) fn locate(text: &str, path: &str, place: Place) -> Option<Position> {
    let walk = Walk { wanted: Some((path, place)), ..Walk::default() };
    let mut deserializer = ::json5::Deserializer::from_str(text);
    // Errors know where they are, so that is how the walk ends.
    let end = ValueSeed { path: "", depth: 0, walk: &walk }.deserialize(&mut deserializer);
    end.err().and_then(|error| error.position())
}

/// What is looked for on a way through a text, and what was found.
#[derive(Default)]
struct Walk<'w> {
    wanted: Option<(&'w str, Place)>,
    twice: RefCell<BTreeSet<String>>,
}

impl Walk<'_> {
    fn stop<E: Error>(&self, path: &str, place: Place) -> Result<(), E> {
        if self.wanted == Some((path, place)) { Err(E::custom("here")) } else { Ok(()) }
    }
}

/// Any value at `path`.
#[derive(Clone, Copy)]
struct ValueSeed<'p> {
    path: &'p str,
    depth: usize,
    walk: &'p Walk<'p>,
}

impl ValueSeed<'_> {
    fn deeper<E: Error>(self) -> Result<usize, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("this is nested deeper than {MAX_DEPTH} levels: flatten it")));
        }
        Ok(self.depth + 1)
    }

    fn here<E: Error>(self) -> Result<(), E> {
        self.walk.stop(self.path, Place::Value)?;
        // An item of a list has no key.
        if self.path.is_empty() || self.path.ends_with(']') {
            self.walk.stop(self.path, Place::Key)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Tree, E> {
        self.here().map(|()| Tree::Flag(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Tree, E> {
        self.here().map(|()| Tree::Whole(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Tree, E> {
        self.here().map(|()| Tree::Negative(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
        self.here().map(|()| Tree::Float(number))
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        self.here().map(|()| Tree::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
        self.here().map(|()| Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        self.here()?;
        let depth = self.deeper()?;
        let mut list = Vec::new();
        loop {
            let path = item(self.path, list.len());
            match items.next_element_seed(ValueSeed { path: &path, depth, walk: self.walk })? {
                Some(value) => list.push(value),
                None => return Ok(Tree::List(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        self.here()?;
        let depth = self.deeper()?;
        let (mut object, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = members.next_key_seed(KeySeed { parent: self, seen: &seen })? {
            let path = member(self.path, &key);
            let value = members.next_value_seed(ValueSeed { path: &path, depth, walk: self.walk })?;
            if seen.insert(key.clone()) {
                object.push((key, value));
            } else {
                self.walk.twice.borrow_mut().insert(path);
            }
        }
        Ok(Tree::Object(object))
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
        let path = member(self.parent.path, key);
        let place = if self.seen.contains(key) { Place::SecondKey } else { Place::Key };
        self.parent.walk.stop(&path, place)?;
        Ok(key.to_owned())
    }
}

/// The path of an item of the list at `path`.
pub(super) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The path of a member of the object at `path`.
pub(super) fn member(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
