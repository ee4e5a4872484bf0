//! Prints the approvals that a running command waits for, with the commands that answer them.

use std::collections::HashSet;

use serde_json::{Value, json};
use tribune_client::{ClientError, RpcClient};
use tribune_constitution::{EGRESS, LAND};
use tribune_storage::home::Home;

use crate::approvals::{self, card};
use crate::hints::next_command;
use crate::output::{Output, clean};

/// Approvals that are read at a time.
const LOOKED_THROUGH: usize = 1_000;

/// Prints each pending approval of a scope once.
pub(crate) struct PendingApprovals {
    home: Home,
    scope: ApprovalScope,
    printed: HashSet<String>,
}

enum ApprovalScope {
    /// Connections of this session.
    Egress(String),
    Land,
}

impl PendingApprovals {
    pub(crate) fn for_egress(home: &Home, session: &str) -> Self {
        Self { home: home.clone(), scope: ApprovalScope::Egress(session.to_owned()), printed: HashSet::new() }
    }

    pub(crate) fn for_land(home: &Home) -> Self {
        Self { home: home.clone(), scope: ApprovalScope::Land, printed: HashSet::new() }
    }

    /// Prints the new ones.
    pub(crate) async fn print_new(
        &mut self,
        client: &mut RpcClient,
        output: &Output,
    ) -> Result<(), ClientError> {
        let page = client.call("approval.list", &json!({ "limit": LOOKED_THROUGH })).await?;
        let new: Vec<&Value> = approvals::rows(&page).filter(|row| self.is_in_scope(row)).collect();
        for row in new {
            let id = approvals::id_of(row);
            if self.printed.contains(id) {
                continue;
            }
            let shown = client.call("approval.show", &json!({ "id": id })).await?;
            let decide = |word: &str| next_command(&self.home, &format!("approvals {word} {}", clean(id)));
            let what = match self.scope {
                ApprovalScope::Egress(_) => format!("wants to connect to {}", card::what(&shown)),
                ApprovalScope::Land => format!("waits for a decision: {}", card::what(&shown)),
            };
            output.notice(&format!(
                "tribune: {what}\n  allow it: {}\n  deny it:  {}",
                decide("allow"),
                decide("deny")
            ));
            self.printed.insert(id.to_owned());
        }
        Ok(())
    }

    /// Whether any was printed.
    pub(crate) fn has_printed(&self) -> bool {
        !self.printed.is_empty()
    }

    fn is_in_scope(&self, row: &Value) -> bool {
        match &self.scope {
            ApprovalScope::Egress(session) => row["session_key"] == session.as_str() && row["tool"] == EGRESS,
            ApprovalScope::Land => row["tool"] == LAND,
        }
    }
}
