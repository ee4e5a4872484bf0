//! The law an agent acts under.
//!
//! A [`Constitution`] is one text for everyone and a set of mandates; its hash names it to the byte. A [`Mandate`]
//! says which tools an agent may call. A [`Gate`] turns the facts of a call into a [`Verdict`]; a denial is a value
//! that says which rule spoke, why, and what would allow the call.
//!
//! This crate is pure: it opens no file, reads no clock and starts nothing. Whoever loads the texts and acts on the
//! verdicts lives in `tribune-host`.
//!
//! Where to start reading: [`bundle`] for what is hashed, [`verdict`] for how a call is decided, [`prompt`] for what an
//! agent is told.

pub mod bundle;
pub mod command;
pub mod mandate;
pub mod nearest;
pub mod prompt;
pub mod verdict;

pub use bundle::{Constitution, ConstitutionError, ConstitutionHash, DEFAULT_CONSTITUTION};
pub use mandate::{DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT, Mandate, MandateError, STRANGER_TOOLS};
pub use verdict::{CallFacts, Decision, Gate, MandateGate, Verdict};
