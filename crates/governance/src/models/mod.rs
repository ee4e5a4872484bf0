//! The models of the house: which providers there are, who sits where and uses what, whether they can be reached, and
//! what was asked of them.
//!
//! Keys come from the environment alone and go to their provider alone: nothing here shows, logs or stores one.

mod agent_prompt;
mod answers;
pub mod providers;
mod request_log;
mod seats;
pub mod survey;
mod till;
mod trial;
mod validate;

pub use agent_prompt::AgentPrompts;
pub use answers::Answers;
pub use providers::{Env, Provider, Providers, process_env};
pub use request_log::{RequestLog, RequestRecord};
pub use seats::HouseSeats;
pub use survey::{AgentModel, ModelInfo, ProviderInfo, Survey, survey};
pub use till::Till;
pub use trial::{Check, Trial, Trials, tries_any, try_out};
pub use validate::{Validation, validate};
