//! Reads a tree to its end, whatever is wrong with it: a value that cannot be read is told of, and read again as
//! something that fits. What comes out is never used as it is; it serves to find what else is wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::MAX_MISTAKES;
use super::tree::{self, Tree};

/// Something that cannot be read.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) path: String,
    /// As `serde` says it, or the rest of a sentence about the value.
    pub(super) text: String,
}

/// Where a text was read as something that fits, and not as it stands there.
#[derive(Debug, Default)]
pub(crate) struct Mends {
    /// Values that something stands in for.
    stand_ins: BTreeSet<String>,
    /// Members that are not read.
    left_out: BTreeSet<String>,
    /// Keys that something stands in for, by the object that they are missing in.
    added: BTreeMap<String, Vec<String>>,
}

impl Mends {
    /// Whether the value at `path`, a part of it, or something that it is a part of was not read as it stands there.
    pub(crate) fn touch(&self, path: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let added =
            self.added.iter().flat_map(|(object, keys)| keys.iter().map(|key| tree::member(object, key)));
        let mut all = self.stand_ins.iter().cloned().chain(added);
        all.any(|mended| is_within(&mended, path) || is_within(path, &mended))
    }

    /// Whether the mistake is one that was not mended before.
    fn take(&mut self, mistake: &Mistake) -> bool {
        let Mistake { path, text } = mistake;
        if text.starts_with("unknown field") {
            return self.left_out.insert(path.clone());
        }
        match text.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            Some(key) => {
                let keys = self.added.entry(path.clone()).or_default();
                let is_new = !keys.iter().any(|known| known == key);
                keys.push(key.to_owned());
                is_new
            }
            None => self.stand_ins.insert(path.clone()),
        }
    }
}

/// Everything that is wrong with a tree, and what was read of it all the same.
pub(super) fn read<T: DeserializeOwned>(tree: &Tree) -> (Vec<Mistake>, Option<(T, Mends)>) {
    let (mut mends, mut mistakes) = (Mends::default(), Vec::new());
    loop {
        match T::deserialize(At::new(String::new(), tree, &mends)) {
            Ok(value) => return (mistakes, Some((value, mends))),
            Err(fault) => {
                let mistake = Mistake { path: fault.path.unwrap_or_default(), text: fault.text };
                let is_new = mends.take(&mistake);
                if is_new {
                    mistakes.push(mistake);
                }
                if !is_new || mistakes.len() == MAX_MISTAKES {
                    return (mistakes, None);
                }
            }
        }
    }
}

/// The first mistake on a way through a tree.
#[derive(Debug)]
struct Fault {
    path: Option<String>,
    text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { path: None, text: text.to_string() }
    }
}

/// A value at its path; without one, something stands in for it.
struct At<'t> {
    path: String,
    tree: Option<&'t Tree>,
    mends: &'t Mends,
}

impl<'t> At<'t> {
    fn new(path: String, tree: &'t Tree, mends: &'t Mends) -> Self {
        let tree = (!mends.stand_ins.contains(&path)).then_some(tree);
        Self { path, tree, mends }
    }

    fn members(self, object: &'t [(String, Tree)]) -> Members<'t> {
        let of_text = object.iter().map(|(key, value)| (key.as_str(), Some(value)));
        let added = self.mends.added.get(&self.path).into_iter().flatten();
        let all = of_text.chain(added.map(|key| (key.as_str(), None))).collect();
        Members { path: self.path, left: all, value: None, mends: self.mends }
    }
}

/// Says of a fault where it is, if that is not known yet.
fn placed<T>(path: &str, read: Result<T, Fault>) -> Result<T, Fault> {
    read.map_err(|fault| Fault { path: fault.path.or_else(|| Some(path.to_owned())), ..fault })
}

fn wrong_type<T>(expected: &str) -> Result<T, Fault> {
    Err(de::Error::custom(format!("has the wrong type: write {expected}")))
}

macro_rules! whole_numbers {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            placed(&self.path, match self.tree {
                None => visitor.visit_u64(1),
                Some(Tree::Whole(number)) => visitor.visit_u64(*number),
                Some(Tree::Negative(number)) => visitor.visit_i64(*number),
                Some(_) => wrong_type("a whole number"),
            })
        }
    )* };
}

macro_rules! texts {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            placed(&self.path, match self.tree {
                None => visitor.visit_str(""),
                Some(Tree::Text(text)) => visitor.visit_str(text),
                Some(_) => wrong_type("a string in quotes"),
            })
        }
    )* };
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Fault;

    whole_numbers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    }

    texts! { deserialize_str deserialize_string deserialize_char deserialize_identifier }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        placed(
            &self.path,
            match self.tree {
                None => visitor.visit_bool(false),
                Some(Tree::Flag(flag)) => visitor.visit_bool(*flag),
                Some(_) => wrong_type("`true` or `false`"),
            },
        )
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.tree {
            None | Some(Tree::Null) => visitor.visit_none(),
            Some(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        placed(
            &path,
            match self.tree {
                None => visitor.visit_seq(Items { list: &[], next: 0, at: self }),
                Some(Tree::List(list)) => visitor.visit_seq(Items { list, next: 0, at: self }),
                Some(_) => wrong_type("a list in `[ ]`"),
            },
        )
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        placed(
            &path,
            match self.tree {
                None => visitor.visit_map(self.members(&[])),
                Some(Tree::Object(object)) => visitor.visit_map(self.members(object)),
                Some(_) => wrong_type("an object in `{ }`"),
            },
        )
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if self.tree.is_some() {
            return self.deserialize_map(visitor);
        }
        let left = fields.iter().map(|field| (*field, None)).collect();
        visitor.visit_map(Members { path: self.path, left, value: None, mends: self.mends })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        placed(
            &path,
            match self.tree {
                None => visitor.visit_enum(variants.first().copied().unwrap_or_default().into_deserializer()),
                Some(Tree::Text(word)) => visitor.visit_enum(word.as_str().into_deserializer()),
                Some(Tree::Object(object)) if object.len() == 1 => {
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
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        let read = match self.tree {
            None | Some(Tree::Null) => visitor.visit_unit(),
            Some(Tree::Flag(flag)) => visitor.visit_bool(*flag),
            Some(Tree::Whole(number)) => visitor.visit_u64(*number),
            Some(Tree::Negative(number)) => visitor.visit_i64(*number),
            Some(Tree::Float(number)) => visitor.visit_f64(*number),
            Some(Tree::Text(text)) => visitor.visit_str(text),
            Some(Tree::List(_)) => self.deserialize_seq(visitor),
            Some(Tree::Object(_)) => self.deserialize_map(visitor),
        };
        placed(&path, read)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

/// The items of a list.
struct Items<'t> {
    list: &'t [Tree],
    next: usize,
    at: At<'t>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some(value) = self.list.get(self.next) else { return Ok(None) };
        let path = tree::item(&self.at.path, self.next);
        self.next += 1;
        seed.deserialize(At::new(path, value, self.at.mends)).map(Some)
    }
}

/// The members of an object; those without a value are stood in for.
struct Members<'t> {
    path: String,
    left: VecDeque<(&'t str, Option<&'t Tree>)>,
    value: Option<At<'t>>,
    mends: &'t Mends,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        while let Some((key, value)) = self.left.pop_front() {
            let path = tree::member(&self.path, key);
            if self.mends.left_out.contains(&path) {
                continue;
            }
            let read = placed(&path, seed.deserialize(key.into_deserializer()))?;
            self.value = Some(match value {
                Some(value) => At::new(path, value, self.mends),
                None => At { path, tree: None, mends: self.mends },
            });
            return Ok(Some(read));
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("has no value")),
        }
    }
}
