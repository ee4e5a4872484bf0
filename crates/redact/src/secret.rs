//! A secret in a text: its range and its kind.
//!
//! A secret is confirmed by its core, which has a bounded length. Its tail extends over the following bytes of the same
//! class. Therefore a stream can remove a secret of any length without buffering it.

use crate::bytes::ByteClass;

/// What a confirmed secret continues with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Token,
    Dotted,
    Header,
    Value,
    /// Everything up to the END line of a private key, which may never come.
    Pem,
}

impl Tail {
    /// How many variants there are.
    pub(crate) const COUNT: usize = 5;

    pub(crate) fn class(self) -> ByteClass {
        match self {
            Self::Token | Self::Pem => ByteClass::TOKEN,
            Self::Dotted => ByteClass::DOTTED,
            Self::Header => ByteClass::HEADER,
            Self::Value => ByteClass::VALUE,
        }
    }
}

/// The bounded part of a text that confirms a secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core {
    pub(crate) start: usize,
    /// The tail starts here.
    pub(crate) end: usize,
    pub(crate) kind: &'static str,
    pub(crate) tail: Tail,
}

/// A secret with its tail, as far as the text has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: &'static str,
    /// The tail, if later text may extend it.
    pub(crate) open: Option<OpenTail>,
}

/// A tail that reaches the end of the text that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenTail {
    pub(crate) tail: Tail,
    /// Where the search for its end resumes.
    pub(crate) from: usize,
}
