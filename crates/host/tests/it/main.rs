//! The store and the export from outside.

mod appending;
mod auditing;
mod fixture;
mod keys;
mod views;
