//! The network access of the web tools: everything they fetch goes through [`client::get`], and only to addresses that
//! [`Egress`] allows.

pub(super) mod client;
mod egress;
pub(super) mod html;

pub use egress::Egress;
