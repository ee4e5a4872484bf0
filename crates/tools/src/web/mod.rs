//! The way out: everything that the tools fetch goes through [`client::get`], and no address is reached that [`Egress`]
//! did not let pass.

pub(super) mod client;
mod egress;
pub(super) mod html;

pub use egress::Egress;
