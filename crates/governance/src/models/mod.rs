//! Models: the configured providers, the model of each agent, checks whether they can be reached, and the log of requests.
//!
//! API keys come from the environment only and go to their provider only: nothing here shows, logs or stores one.

pub mod agent_model;
mod agent_prompt;
mod check_billing;
pub mod inventory;
mod model_health;
mod model_resolver;
mod provider_check;
mod providers;
mod request_log;
pub mod startup_check;

pub use agent_prompt::AgentPrompts;
pub use check_billing::CheckBilling;
pub use inventory::{AgentModel, ModelInfo, ModelInventory, ProviderInfo, take_inventory};
pub use model_health::ModelHealth;
pub use model_resolver::ConfiguredModels;
pub use provider_check::{Check, Trial, Trials, tries_any, try_out};
pub use providers::{Env, Provider, Providers, process_env};
pub use request_log::{RequestLog, RequestRecord};
pub use startup_check::{Validation, validate};
