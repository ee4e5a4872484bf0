//! Texts that people write in JSON5: settings and manifests. Every refusal says file, line and column, and ends with
//! what to do.
//!
//! A text goes through two readings: the first knows no keys and finds broken syntax and keys given twice, the second
//! reads the keys. Plain JSON is JSON5, so manifests pass with and without comments.

use std::collections::BTreeSet;
use std::fmt;

use json5::{ErrorCode, Position};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};

use crate::mandate::shown;
use crate::nearest::nearest;

/// Nesting of objects and lists: our keys need four levels, and each costs stack.
const MAX_DEPTH: usize = 16;

/// Why a text is refused, and where. Line and column count from 1, the column in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct TextError {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// Reads a text of at most `max_bytes`.
pub(crate) fn read<T: DeserializeOwned>(file: &str, text: &str, max_bytes: usize) -> Result<T, TextError> {
    if text.len() > max_bytes {
        let message = format!("the file has {} bytes: shorten it to at most {max_bytes}", text.len());
        return Err(at(file, None, message));
    }
    json5::from_str::<Walked>(text).map_err(|error| {
        let message = error.code().map_or_else(|| text_of(&error), syntax);
        at(file, error.position(), message)
    })?;
    let mut deserializer = json5::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (inner, path) = (error.inner(), error.path().to_string());
        let message = match inner.code() {
            Some(code) => format!("{} {}", subject(&path, "the file"), wrong_type(code)),
            None => complaint(&path, "the file", &text_of(inner)),
        };
        at(file, inner.position(), message)
    })
}

/// Reads a value that stands in another text, which messages call `whole`. A refusal is a sentence about the key.
pub(crate) fn read_value<T: DeserializeOwned>(whole: &str, value: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match error.inner().to_string() {
            text if text.starts_with("invalid") => {
                format!("{} cannot be read ({text}): correct it", subject(&path, whole))
            }
            text => complaint(&path, whole, &text),
        }
    })
}

/// What a message is about: the value at `path`, or everything.
fn subject(path: &str, whole: &str) -> String {
    if path == "." { whole.to_owned() } else { format!("`{}`", shown(path)) }
}

/// What `serde` says of the value at `path`, in our words.
fn complaint(path: &str, whole: &str, text: &str) -> String {
    let subject = subject(path, whole);
    if text.starts_with("unknown field") {
        unknown_key(path, text)
    } else if text.starts_with("unknown variant") {
        unknown_word(&subject, text)
    } else if text.starts_with("missing field") {
        format!("{subject}: {}", missing_key(text))
    } else {
        format!("{subject} {text}")
    }
}

/// A refusal of the value at `path` (such as `exceptions[0].tool`) of a text that was already read.
pub(crate) fn refusal(file: &str, text: &str, path: &str, message: impl fmt::Display) -> TextError {
    let mut deserializer = json5::Deserializer::from_str(text);
    let seed = ValueSeed { path: "", depth: 0, wanted: Some(path) };
    let position = seed.deserialize(&mut deserializer).err().and_then(|error| error.position());
    at(file, position, format!("`{}` {message}", shown(path)))
}

/// "did you mean `x`? The names are a, b" or "the names are a, b".
pub(crate) fn suggestion(word: &str, names: &[&str], what: &str) -> String {
    let meant =
        nearest(word, names).map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"));
    format!("{meant} {what} are {}", names.join(", "))
}

fn at(file: &str, position: Option<Position>, message: String) -> TextError {
    let Position { line, column } = position.unwrap_or(Position { line: 0, column: 0 });
    TextError { file: file.to_owned(), line: line + 1, column: column + 1, message }
}

/// The message without the position that `json5` puts behind it.
fn text_of(error: &json5::Error) -> String {
    let text = error.to_string();
    let behind = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
    text.strip_suffix(behind.as_str()).unwrap_or(&text).to_owned()
}

/// The names in the list at the end of what `serde` says; they are ours and hold no backtick.
fn listed(text: &str) -> Vec<&str> {
    let listed = text.rsplit_once("`, expected ").map_or("", |(_, listed)| listed);
    listed.split('`').skip(1).step_by(2).collect()
}

/// `serde` says: unknown field `x`, expected one of `a`, `b`.
fn unknown_key(path: &str, text: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    format!("unknown key `{}`: {}", shown(path), suggestion(key, &listed(text), "keys here"))
}

/// `serde` says: unknown variant `x`, expected one of `a`, `b`.
fn unknown_word(subject: &str, text: &str) -> String {
    let word = text.split('`').nth(1).unwrap_or_default();
    format!("{subject} is `{}`: {}", shown(word), suggestion(word, &listed(text), "words"))
}

/// `serde` says: missing field `x`.
fn missing_key(text: &str) -> String {
    let key = text.split('`').nth(1).unwrap_or_default();
    format!("the key `{key}` is missing: add it")
}

fn wrong_type(code: ErrorCode) -> String {
    let expected = match code {
        ErrorCode::ExpectedNumber => "a number",
        ErrorCode::ExpectedString => "a string in quotes",
        ErrorCode::ExpectedBool => "`true` or `false`",
        ErrorCode::ExpectedOpeningBrace => "an object in `{ }`",
        ErrorCode::ExpectedOpeningBracket => "a list in `[ ]`",
        other => return format!("cannot be read: {other}"),
    };
    format!("has the wrong type: write {expected}")
}

fn syntax(code: ErrorCode) -> String {
    format!("this is not valid JSON5 ({code}): correct the text here")
}

/// A text that passed the first reading.
struct Walked;

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueSeed { path: "", depth: 0, wanted: None }.deserialize(deserializer).map(|()| Self)
    }
}

/// Any value at `path`. Reading stops with an error at the path that is `wanted`, since errors know where they are.
#[derive(Clone, Copy)]
struct ValueSeed<'p> {
    path: &'p str,
    depth: usize,
    wanted: Option<&'p str>,
}

impl ValueSeed<'_> {
    fn deeper<E: Error>(self) -> Result<usize, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("this is nested deeper than {MAX_DEPTH} levels: flatten it")));
        }
        Ok(self.depth + 1)
    }

    fn scalar<E: Error>(self) -> Result<(), E> {
        if self.wanted == Some(self.path) { Err(E::custom("here")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.scalar()?;
        let depth = self.deeper()?;
        for index in 0_usize.. {
            let path = format!("{}[{index}]", self.path);
            if items.next_element_seed(ValueSeed { path: &path, depth, wanted: self.wanted })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.scalar()?;
        let depth = self.deeper()?;
        let mut seen = BTreeSet::new();
        while let Some(path) = members.next_key_seed(KeySeed { parent: self, seen: &mut seen })? {
            members.next_value_seed(ValueSeed { path: &path, depth, wanted: self.wanted })?;
        }
        Ok(())
    }
}

/// A key of the object at `parent`; becomes the path of its value.
struct KeySeed<'p, 's> {
    parent: ValueSeed<'p>,
    seen: &'s mut BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        let parent = self.parent.path;
        let path = if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") };
        if !self.seen.insert(key.to_owned()) {
            return Err(E::custom(format!("`{}` is given twice: remove one of them", shown(&path))));
        }
        // An unknown word is most often a key, and its place is better than that of its value.
        if self.parent.wanted == Some(path.as_str()) {
            return Err(E::custom("here"));
        }
        Ok(path)
    }
}
