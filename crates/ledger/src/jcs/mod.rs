//! JSON Canonicalization Scheme (RFC 8785), with two rules of our own: integers beyond 2^53-1 and duplicate keys are
//! refused instead of rounded or dropped, because other implementations would read something else.
//!
//! Three doors: [`write`] makes the canonical form of a value, [`parse`] reads any JSON text strictly, and [`scan`]
//! checks at reading speed that a text already is canonical. Key order is decided here; it does not depend on which
//! features of `serde_json` another crate switched on.

mod number;
mod parse;
pub mod scan;
mod write;

pub use number::write_double;
pub use parse::parse;
pub use write::{to_vec, write, write_members, write_string};

use std::cmp::Ordering;

/// Why a value has no canonical form here.
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

/// Order of object keys: by UTF-16 code units, as RFC 8785 section 3.2.3 asks.
fn compare_keys(a: &str, b: &str) -> Ordering {
    // UTF-8 and UTF-16 order differ only between U+E000..U+FFFF (first byte 0xEE or 0xEF) and the supplementary
    // planes (first byte 0xF0 and up).
    let differs = |key: &str| key.bytes().any(|byte| byte >= 0xEE);
    if differs(a) && differs(b) { a.encode_utf16().cmp(b.encode_utf16()) } else { a.cmp(b) }
}

/// The two-character escape of a control character, or 0 where it needs `\u00xx`.
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
