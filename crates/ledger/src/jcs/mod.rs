//! JSON Canonicalization Scheme (RFC 8785) with two additional rules: integers beyond 2^53-1 and duplicate keys are
//! errors instead of being rounded or dropped, because other implementations would read another value.
//!
//! [`write()`] makes the canonical form of a value, [`parse()`] parses any JSON text strictly, and [`scan`] checks that a
//! text is canonical without parsing it. This module sorts the keys itself, so the order does not depend on the
//! `serde_json` features that another crate enables.

mod number;
mod parse;
pub mod scan;
mod write;

pub use number::write_double;
pub use parse::parse;
pub use write::{to_vec, write, write_members, write_string};

use std::cmp::Ordering;

/// Why a value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JcsError {
    #[error("the JSON text has {bytes} bytes; the limit is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the value is nested deeper than {limit} levels")]
    TooDeep { limit: usize },
    #[error("the integer {0} is beyond 2^53-1: send it as a string")]
    IntegerTooLarge(String),
    #[error("NaN and infinity have no JSON form")]
    NotFinite,
    #[error("not valid JSON: {0}")]
    Syntax(String),
}

/// Order of object keys: by UTF-16 code units, as RFC 8785 section 3.2.3 requires.
fn compare_keys(a: &str, b: &str) -> Ordering {
    match a.bytes().zip(b.bytes()).find(|(a, b)| a != b) {
        None => a.len().cmp(&b.len()),
        // UTF-8 and UTF-16 order differ only between U+E000..U+FFFF (first byte 0xEE or 0xEF) and the supplementary
        // planes (first byte 0xF0 and up).
        Some((x, y)) if x >= 0xEE && y >= 0xEE => a.encode_utf16().cmp(b.encode_utf16()),
        Some((x, y)) => x.cmp(&y),
    }
}

/// How many bytes at the start of `text` need no escape in a JSON string: no quote, backslash or control character.
fn plain_prefix(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    // Sets the high bit of each byte of the word that is below `limit` (at most 128).
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES * 128);
    let (words, rest) = text.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let special = below(word, 0x20) | quote | backslash;
        if special != 0 {
            // Borrows propagate upwards, so the lowest set bit is correct.
            return i * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    words.len() * 8 + rest.iter().position(special).unwrap_or(rest.len())
}

/// The letter of the two-character escape of a byte, or 0 if it needs `\u00xx`.
const fn short_escape(byte: u8) -> u8 {
    match byte {
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        b'"' => b'"',
        b'\\' => b'\\',
        _ => 0,
    }
}
