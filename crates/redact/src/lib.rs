//! Removes secrets from text before it is stored, shown or sent.
//!
//! A secret is found by its exact value if the host holds it, by its shape, or by the name in front of it. The known
//! shapes are those of keys that grant access on their own. A password in a sentence has no shape, so redaction is the
//! last line of defence and not the first. [`Redactor`] takes a complete text, [`RedactionStream`] takes a stream, and both
//! emit the same bytes. Matching takes linear time for any input.
//!
//! This crate is pure: it opens nothing and keeps no state except what it was given. It does not look into archives,
//! images or encodings other than JSON, URLs, and base64 of exact values.
//!
//! Where to start reading: [`Redactor`], then `scan` for the single pass, `prefixes` for the key formats of providers,
//! `secret` for why a stream does not need to keep what it removes.

mod bytes;
mod contact;
mod cookies;
mod curl;
mod entropy;
mod exact_values;
mod json;
mod named_values;
mod partial_match;
mod pem;
mod prefixes;
mod redactor;
mod scan;
mod secret;
mod stream;
mod structured_tokens;
mod tail_ends;
mod url;

#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
#[cfg(test)]
mod ordinary_tests;
#[cfg(test)]
mod recall_tests;

pub use exact_values::MIN_EXACT_VALUE_BYTES;
pub use redactor::Redactor;
pub use stream::RedactionStream;
