//! The gateway: one listener for WebSocket RPC, REST, ACP, the model proxy and the health pages. It checks the `Host` and
//! `Origin` headers of every request, resolves the caller to a principal, and bounds connections, messages and time.
//! It makes no policy decision about what an agent does; the gate in `tribune-governance` does.
//!
//! The modules are layers. [`api`] is the daemon's state and [`calls`] what can be done with it, in the types of [`api_types`] and
//! [`views`]. Above them are the interfaces: RPC ([`methods`], [`socket`]), [`rest`] and [`acp`]. The [`listener`] is on top. The
//! model proxy is apart ([`proxy`]), because the sockets of sandboxes need it without a gateway.

mod acp;
mod active_streams;
mod api;
mod api_types;
mod bearer;
mod calls;
mod client_stream;
mod connection_limit;
mod decode;
mod error;
mod gateway;
mod guest_rate;
mod head_guard;
mod listener;
mod methods;
mod metrics;
mod principal;
mod proxy;
mod request_limits;
mod rest;
mod rpc;
mod runs;
mod schema;
mod send_queue;
mod socket;
pub mod status;
mod validate_content;
mod views;

pub use api::Api;
pub use error::CODES;
pub use gateway::{Gateway, GatewayLimits, Names, Parts, Timeouts};
pub use methods::METHODS;
pub use principal::{Authenticator, Principal, anonymous, challenge_text};
pub use proxy::{Proxy, ProxyParts, SessionModel};
pub use rest::openapi;
