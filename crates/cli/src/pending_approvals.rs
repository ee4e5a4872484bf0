//! Questions that wait for a person while a command runs, told beside it with the words that answer them.

use std::collections::HashSet;

use serde_json::{Value, json};
use tribune_client::{Client, ClientError};
use tribune_constitution::{EGRESS, LAND};
use tribune_host::Home;

use crate::approvals::{self, card};
use crate::output::{Output, clean};
use crate::up::next_command;

/// Questions that are looked through.
const LOOKED_THROUGH: usize = 1_000;

/// Which questions are told, and which were already.
pub(crate) struct Questions {
    home: Home,
    about: About,
    told: HashSet<String>,
}

enum About {
    /// Connections of this session.
    Egress(String),
    Landing,
}

impl Questions {
    pub(crate) fn about_egress(home: &Home, session: &str) -> Self {
        Self { home: home.clone(), about: About::Egress(session.to_owned()), told: HashSet::new() }
    }

    pub(crate) fn about_landing(home: &Home) -> Self {
        Self { home: home.clone(), about: About::Landing, told: HashSet::new() }
    }

    /// Tells those that are new.
    pub(crate) async fn look(&mut self, client: &mut Client, output: &Output) -> Result<(), ClientError> {
        let page = client.call("approval.list", &json!({ "limit": LOOKED_THROUGH })).await?;
        let new: Vec<&Value> = approvals::rows(&page).filter(|row| self.is_meant(row)).collect();
        for row in new {
            let id = approvals::id_of(row);
            if self.told.contains(id) {
                continue;
            }
            let shown = client.call("approval.show", &json!({ "id": id })).await?;
            let decide = |word: &str| next_command(&self.home, &format!("approvals {word} {}", clean(id)));
            let what = match self.about {
                About::Egress(_) => format!("wants to connect to {}", card::what(&shown)),
                About::Landing => format!("waits for a decision: {}", card::what(&shown)),
            };
            output.aside(&format!(
                "tribune: {what}\n  allow it: {}\n  deny it:  {}",
                decide("allow"),
                decide("deny")
            ));
            self.told.insert(id.to_owned());
        }
        Ok(())
    }

    /// Whether any was told.
    pub(crate) fn were_told(&self) -> bool {
        !self.told.is_empty()
    }

    fn is_meant(&self, row: &Value) -> bool {
        match &self.about {
            About::Egress(session) => row["session_key"] == session.as_str() && row["tool"] == EGRESS,
            About::Landing => row["tool"] == LAND,
        }
    }
}
