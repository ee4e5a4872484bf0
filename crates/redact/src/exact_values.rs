//! Values that the host holds, looked for as they are and as they are written in JSON, in URLs and in base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::bytes::{Step, Stop, View};
use crate::secret::{Core, Tail};

/// Known values shorter than this are not looked for: they would blank out ordinary words.
pub const MIN_KNOWN_BYTES: usize = 8;

/// How much of a value is a literal to look for; the rest is compared where that is found.
const ANCHOR: usize = 16;

/// A value, in one of its forms.
pub(crate) struct Form(Vec<u8>);

impl Form {
    /// Every form of the values that are long enough.
    pub(crate) fn all(values: &[String]) -> Vec<Self> {
        let long = values.iter().filter(|value| value.len() >= MIN_KNOWN_BYTES);
        let mut forms: Vec<Vec<u8>> = long.flat_map(|value| forms(value)).map(String::into_bytes).collect();
        forms.sort_unstable();
        forms.dedup();
        forms.into_iter().map(Self).collect()
    }

    /// How it begins.
    pub(crate) fn anchor(&self) -> &[u8] {
        &self.0[..self.0.len().min(ANCHOR)]
    }

    /// The value, if it stands at a place.
    pub(crate) fn secret(&self, view: View<'_>, at: usize) -> Step<Core> {
        let end = at + self.0.len();
        let rest = &view.bytes[at..];
        if rest.starts_with(&self.0) {
            return Ok(Core { start: at, end, kind: "known", tail: Tail::Token });
        }
        Err(if !view.is_whole && self.0.starts_with(rest) { Stop::More(at) } else { Stop::No })
    }
}

fn forms(value: &str) -> Vec<String> {
    let json = |is_ascii: bool| {
        let mut escaped = String::with_capacity(value.len());
        for character in value.chars() {
            match character {
                '"' | '\\' => escaped.extend(['\\', character]),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                '\0'..' ' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
                '\u{7f}'.. if is_ascii => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        escaped.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => escaped.push(character),
            }
        }
        escaped
    };
    let url = |space: &str| {
        let mut encoded = String::with_capacity(value.len());
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    encoded.push(char::from(byte))
                }
                b' ' => encoded.push_str(space),
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
        }
        encoded
    };
    vec![
        value.to_owned(),
        json(false),
        json(true),
        url("%20"),
        url("+"),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
    ]
}
