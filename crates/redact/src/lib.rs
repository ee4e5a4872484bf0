//! Takes secrets out of text before it is kept, shown or sent.
//!
//! A secret is known by its value where the host holds it, by its shape, or by the name it stands behind. Shapes are
//! those of keys that grant access by themselves; a password in a sentence has none, so this is the last net and not the
//! first. [`Redactor`] takes a text in one piece, [`Redacting`] takes it as it comes, and both let out the same bytes.
//! Matching takes linear time whatever the text.
//!
//! This crate is pure: it opens nothing and remembers nothing but what it was given. It does not look into archives,
//! images or encodings other than JSON, URLs and base64 of known values.
//!
//! Where to start reading: [`Redactor`], then `scan` for the one pass, `prefixes` for what is known of providers' keys,
//! `secret` for why a stream needs no memory of what it takes out.

mod bytes;
mod contact;
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
mod url;

#[cfg(any(test, feature = "fakes"))]
pub mod fakes;
#[cfg(test)]
mod ordinary_tests;

pub use exact_values::MIN_KNOWN_BYTES;
pub use redactor::Redactor;
pub use stream::Redacting;
