//! What REST and RPC answer about values of other crates: how the JSON looks, and its description in the OpenAPI document.
//!
//! These types are what is serialised. Each conversion lists every field of the type it describes, so that a new field does
//! not compile before it is decided whether the answer shows it. The crates below name neither utoipa nor a wire format.

mod approvals;
mod models;
mod workspaces;

pub(crate) use approvals::LabelStep;
pub(crate) use models::{InventoryView, ProviderTestView};
pub(crate) use workspaces::{DiffView, LandingView};
