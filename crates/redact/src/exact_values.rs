//! Exact values that the host holds, matched as they are and in their encodings in JSON, in URLs and in base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::bytes::{InputText, MatchResult, NoMatch};
use crate::secret::{Core, Tail};

/// Exact values shorter than this are not matched: they would redact ordinary words.
pub const MIN_EXACT_VALUE_BYTES: usize = 8;

/// How many bytes of a value the automaton searches for; the rest is compared at each hit.
const ANCHOR_BYTES: usize = 16;

/// An exact value in one encoding.
pub(crate) struct EncodedValue(Vec<u8>);

impl EncodedValue {
    /// Every encoding of the values that are long enough.
    pub(crate) fn all(values: &[String]) -> Vec<Self> {
        let long = values.iter().filter(|value| value.len() >= MIN_EXACT_VALUE_BYTES);
        let mut encoded: Vec<Vec<u8>> =
            long.flat_map(|value| encodings(value)).map(String::into_bytes).collect();
        encoded.sort_unstable();
        encoded.dedup();
        encoded.into_iter().map(Self).collect()
    }

    /// Its first bytes.
    pub(crate) fn anchor(&self) -> &[u8] {
        &self.0[..self.0.len().min(ANCHOR_BYTES)]
    }

    /// The value, if it is at `at`.
    pub(crate) fn secret(&self, input: InputText<'_>, at: usize) -> MatchResult<Core> {
        let end = at + self.0.len();
        let rest = &input.bytes[at..];
        if rest.starts_with(&self.0) {
            return Ok(Core { start: at, end, kind: "known", tail: Tail::Token });
        }
        Err(if !input.is_complete && self.0.starts_with(rest) {
            NoMatch::NeedsMore(at)
        } else {
            NoMatch::Never
        })
    }
}

fn encodings(value: &str) -> Vec<String> {
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
