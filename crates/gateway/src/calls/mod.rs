//! The operations of the daemon, which JSON-RPC, REST and ACP share. Each takes the principal first and checks what it may do.
//!
//! Nothing here knows an interface: no route, no method name, no frame.

mod agents;
mod approvals;
pub(crate) mod approvers;
mod daemon;
pub(crate) mod external_gate;
mod ledger;
pub(crate) mod providers;
pub(crate) mod proxy_tokens;
mod sessions;
pub(crate) mod workspaces;

pub(crate) use approvals::RequestedCall;
use tribune_runtime::SessionKey;

use crate::error::{ApiError, misnamed};

type Answer<T> = Result<T, ApiError>;

/// Rows on one page: the default, and the most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

fn parse_key(key: &str) -> Answer<SessionKey> {
    key.parse().map_err(|error| misnamed(&error))
}

fn page_limit(limit: Option<usize>) -> Answer<usize> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        limit => Err(ApiError::params(format!("limit is 1 to {MAX_PAGE}, not {limit}"))),
    }
}
