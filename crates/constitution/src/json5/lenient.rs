//! Deserializes a tree to its end although it has errors, so that one run finds all of them.
//!
//! A value that cannot be read is reported and replaced by a default, and the tree is read again. The result is never
//! used as a setting; it only serves to find further errors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::MAX_ERRORS;
use super::tree::{Json5Value, item_path, member_path};

/// A value that cannot be read.
#[derive(Debug)]
pub(super) struct ReadError {
    pub(super) path: String,
    /// As `serde` says it, or the rest of a sentence about the value.
    pub(super) text: String,
}

/// Where the tree was read as a default and not as it is written.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// The values that a default replaces.
    defaulted: BTreeSet<String>,
    /// The members that are skipped.
    skipped: BTreeSet<String>,
    /// The missing keys that a default is added for, by the path of their object.
    added: BTreeMap<String, Vec<String>>,
}

impl Repairs {
    /// Whether a default replaces the value at `path`, a part of it, or a value that it is a part of.
    pub(crate) fn affect(&self, path: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let added =
            self.added.iter().flat_map(|(object, keys)| keys.iter().map(|key| member_path(object, key)));
        let mut all = self.defaulted.iter().cloned().chain(added);
        all.any(|repaired| is_within(&repaired, path) || is_within(path, &repaired))
    }

    /// Adds the repair of an error. False if it was repaired before, and so cannot be repaired.
    fn add(&mut self, error: &ReadError) -> bool {
        let ReadError { path, text } = error;
        if text.starts_with("unknown field") {
            return self.skipped.insert(path.clone());
        }
        match text.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            Some(key) => {
                let keys = self.added.entry(path.clone()).or_default();
                let is_new = !keys.iter().any(|known| known == key);
                keys.push(key.to_owned());
                is_new
            }
            None => self.defaulted.insert(path.clone()),
        }
    }
}

/// All errors of a tree, and the value that it has once they are repaired.
pub(super) fn read<T: DeserializeOwned>(tree: &Json5Value) -> (Vec<ReadError>, Option<(T, Repairs)>) {
    let (mut repairs, mut errors) = (Repairs::default(), Vec::new());
    loop {
        match T::deserialize(ValueReader::new(String::new(), tree, &repairs)) {
            Ok(value) => return (errors, Some((value, repairs))),
            Err(first) => {
                let error = ReadError { path: first.path.unwrap_or_default(), text: first.text };
                let is_new = repairs.add(&error);
                if is_new {
                    errors.push(error);
                }
                if !is_new || errors.len() == MAX_ERRORS {
                    return (errors, None);
                }
            }
        }
    }
}

/// The first error of one pass. `serde` makes it without a path; the innermost reader that sees it adds its own.
#[derive(Debug)]
struct FirstError {
    path: Option<String>,
    text: String,
}

impl fmt::Display for FirstError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FirstError {}

impl de::Error for FirstError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { path: None, text: text.to_string() }
    }
}

/// A deserializer of the value at a path; without a value, it gives defaults.
struct ValueReader<'t> {
    path: String,
    tree: Option<&'t Json5Value>,
    repairs: &'t Repairs,
}

impl<'t> ValueReader<'t> {
    fn new(path: String, tree: &'t Json5Value, repairs: &'t Repairs) -> Self {
        let tree = (!repairs.defaulted.contains(&path)).then_some(tree);
        Self { path, tree, repairs }
    }

    fn members(self, object: &'t [(String, Json5Value)]) -> ObjectMembers<'t> {
        let of_text = object.iter().map(|(key, value)| (key.as_str(), Some(value)));
        let added = self.repairs.added.get(&self.path).into_iter().flatten();
        let all = of_text.chain(added.map(|key| (key.as_str(), None))).collect();
        ObjectMembers { path: self.path, left: all, value: None, repairs: self.repairs }
    }
}

/// Adds the path to an error that has none.
fn with_path<T>(path: &str, read: Result<T, FirstError>) -> Result<T, FirstError> {
    read.map_err(|error| FirstError { path: error.path.or_else(|| Some(path.to_owned())), ..error })
}

fn wrong_type<T>(expected: &str) -> Result<T, FirstError> {
    Err(de::Error::custom(format!("has the wrong type: write {expected}")))
}

macro_rules! integers {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
            with_path(&self.path, match self.tree {
                None => visitor.visit_u64(1),
                Some(Json5Value::Unsigned(number)) => visitor.visit_u64(*number),
                Some(Json5Value::Negative(number)) => visitor.visit_i64(*number),
                Some(_) => wrong_type("a whole number"),
            })
        }
    )* };
}

macro_rules! strings {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
            with_path(&self.path, match self.tree {
                None => visitor.visit_str(""),
                Some(Json5Value::String(text)) => visitor.visit_str(text),
                Some(_) => wrong_type("a string in quotes"),
            })
        }
    )* };
}

impl<'de> Deserializer<'de> for ValueReader<'_> {
    type Error = FirstError;

    integers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    }

    strings! { deserialize_str deserialize_string deserialize_char deserialize_identifier }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
        with_path(
            &self.path,
            match self.tree {
                None => visitor.visit_bool(false),
                Some(Json5Value::Bool(flag)) => visitor.visit_bool(*flag),
                Some(_) => wrong_type("`true` or `false`"),
            },
        )
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
        match self.tree {
            None | Some(Json5Value::Null) => visitor.visit_none(),
            Some(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
        let path = self.path.clone();
        with_path(
            &path,
            match self.tree {
                None => visitor.visit_seq(ListItems { list: &[], next: 0, at: self }),
                Some(Json5Value::List(list)) => visitor.visit_seq(ListItems { list, next: 0, at: self }),
                Some(_) => wrong_type("a list in `[ ]`"),
            },
        )
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
        let path = self.path.clone();
        with_path(
            &path,
            match self.tree {
                None => visitor.visit_map(self.members(&[])),
                Some(Json5Value::Object(object)) => visitor.visit_map(self.members(object)),
                Some(_) => wrong_type("an object in `{ }`"),
            },
        )
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FirstError> {
        if self.tree.is_some() {
            return self.deserialize_map(visitor);
        }
        let left = fields.iter().map(|field| (*field, None)).collect();
        visitor.visit_map(ObjectMembers { path: self.path, left, value: None, repairs: self.repairs })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FirstError> {
        let path = self.path.clone();
        with_path(
            &path,
            match self.tree {
                None => visitor.visit_enum(variants.first().copied().unwrap_or_default().into_deserializer()),
                Some(Json5Value::String(word)) => visitor.visit_enum(word.as_str().into_deserializer()),
                Some(Json5Value::Object(object)) if object.len() == 1 => {
                    visitor.visit_enum(MapAccessDeserializer::new(self.members(object)))
                }
                Some(_) => wrong_type("a string in quotes"),
            },
        )
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, FirstError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FirstError> {
        let path = self.path.clone();
        let read = match self.tree {
            None | Some(Json5Value::Null) => visitor.visit_unit(),
            Some(Json5Value::Bool(flag)) => visitor.visit_bool(*flag),
            Some(Json5Value::Unsigned(number)) => visitor.visit_u64(*number),
            Some(Json5Value::Negative(number)) => visitor.visit_i64(*number),
            Some(Json5Value::Float(number)) => visitor.visit_f64(*number),
            Some(Json5Value::String(text)) => visitor.visit_str(text),
            Some(Json5Value::List(_)) => self.deserialize_seq(visitor),
            Some(Json5Value::Object(_)) => self.deserialize_map(visitor),
        };
        with_path(&path, read)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

/// The items of a list.
struct ListItems<'t> {
    list: &'t [Json5Value],
    next: usize,
    at: ValueReader<'t>,
}

impl<'de> SeqAccess<'de> for ListItems<'_> {
    type Error = FirstError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, FirstError> {
        let Some(value) = self.list.get(self.next) else { return Ok(None) };
        let path = item_path(&self.at.path, self.next);
        self.next += 1;
        seed.deserialize(ValueReader::new(path, value, self.at.repairs)).map(Some)
    }
}

/// The members of an object; those without a value get a default.
struct ObjectMembers<'t> {
    path: String,
    left: VecDeque<(&'t str, Option<&'t Json5Value>)>,
    value: Option<ValueReader<'t>>,
    repairs: &'t Repairs,
}

impl<'de> MapAccess<'de> for ObjectMembers<'_> {
    type Error = FirstError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FirstError> {
        while let Some((key, value)) = self.left.pop_front() {
            let path = member_path(&self.path, key);
            if self.repairs.skipped.contains(&path) {
                continue;
            }
            let read = with_path(&path, seed.deserialize(key.into_deserializer()))?;
            self.value = Some(match value {
                Some(value) => ValueReader::new(path, value, self.repairs),
                None => ValueReader { path, tree: None, repairs: self.repairs },
            });
            return Ok(Some(read));
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, FirstError> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("has no value")),
        }
    }
}
