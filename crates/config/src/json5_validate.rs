//! The first pass over a JSON5 text, independent of what the keys mean: the text is valid JSON5, no object has a duplicate
//! key, and no string or comment looks like a secret.
//!
//! Each check runs while the value is deserialized, because only then is its position in the file known.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use json5::Position;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tribune_redact::Redactor;

use super::edit::scan::between;

/// Deepest nesting of objects and lists. Each level uses stack.
const MAX_DEPTH: usize = 32;

/// Marks a text that passed the first pass.
#[derive(Debug)]
pub(super) struct Walked;

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueSeed { path: "", depth: 0 }.deserialize(deserializer).map(|()| Self)
    }
}

/// Deserializes any value at `path`.
#[derive(Clone, Copy)]
struct ValueSeed<'p> {
    path: &'p str,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ValueSeed<'_> {
    fn deeper<E: Error>(self) -> Result<usize, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("this is nested deeper than {MAX_DEPTH} levels: flatten it")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if Redactor::new().contains_secret(text) {
            let what = if self.path.is_empty() { "this".to_owned() } else { format!("`{}`", self.path) };
            return Err(E::custom(holds_a_secret(&what)));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        let mut index = 0_usize;
        loop {
            let path = format!("{}[{index}]", self.path);
            if items.next_element_seed(ValueSeed { path: &path, depth })?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        let mut seen = BTreeSet::new();
        while let Some(path) = members.next_key_seed(KeySeed { parent: self.path, seen: &mut seen })? {
            members.next_value_seed(ValueSeed { path: &path, depth })?;
        }
        Ok(())
    }
}

/// Deserializes a key of the object at `parent` into the path of its value.
struct KeySeed<'p> {
    parent: &'p str,
    seen: &'p mut BTreeSet<String>,
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
        ValueSeed { path: "", depth: 0 }.visit_str::<E>(key)?;
        let path = super::error::joined(self.parent, key);
        if !self.seen.insert(key.to_owned()) {
            return Err(E::custom(format!("`{path}` is given twice: remove one of them")));
        }
        Ok(path)
    }
}

/// The error for a position where a secret was found. It never repeats the secret.
fn holds_a_secret(what: &str) -> String {
    format!(
        "{what} contains something that looks like a secret: remove it, because secrets do not belong in this file, and \
         rotate it if anyone may have seen it"
    )
}

/// The position of the first secret inside a comment, with its message.
pub(super) fn in_comments(text: &str) -> Option<(Position, String)> {
    let redactor = Redactor::new();
    let first = |gap: Range<usize>| Some(gap.start + redactor.first_secret(&text[gap])?);
    let found = between(text).into_iter().find_map(first)?;
    Some((Position::from_offset(found, text), holds_a_secret("this comment")))
}
