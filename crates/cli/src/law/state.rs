//! The state of the law that a running daemon enforces, for `tribune status` and `/tribune`.

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_constitution::EnforcementMode;
use tribune_governance::policy_files;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use crate::error::CliError;
use crate::output::{Paint, clean};

/// The law that a daemon enforces.
#[derive(Debug, Default)]
pub(crate) struct LawState {
    hash: String,
    /// Unknown if the kept texts of the law are missing.
    mode: Option<EnforcementMode>,
    /// Tools with their own mode.
    overrides: usize,
    manifests: usize,
    own_manifests: usize,
    /// Who stopped all work, and when.
    frozen: Option<(String, String)>,
    pending: u64,
    /// The files in the home are another law, or none.
    has_changed: bool,
}

impl LawState {
    /// Asks the daemon for what the status lacks, and reads the files of its home.
    pub(crate) async fn ask(home: &Home, status: &Value, client: &mut RpcClient) -> Result<Self, CliError> {
        let page = client.call("approval.list", &json!({ "limit": 1 })).await?;
        Ok(Self::of(home, status, page["pending"].as_u64().unwrap_or(0)))
    }

    /// Builds the state from the daemon's status, the number of pending approvals and the files of its home.
    pub(crate) fn of(home: &Home, status: &Value, pending: u64) -> Self {
        let hash = status["constitution_hash"].as_str().unwrap_or_default().to_owned();
        let kept = hash
            .parse()
            .ok()
            .and_then(|hash| policy_files::kept(home.root(), hash, &tribune_tools::NAMES).ok());
        let frozen = Reader::open(home).and_then(|reader| reader.frozen()).ok().flatten();
        let present =
            policy_files::load(home.root(), &tribune_tools::NAMES).map(|law| law.hash().to_string());
        Self {
            mode: kept.as_ref().map(|law| law.settings().mode),
            overrides: kept.as_ref().map_or(0, |law| law.settings().overrides.len()),
            manifests: kept.as_ref().map_or(0, |law| law.manifests().len()),
            own_manifests: kept.as_ref().map_or(0, |law| law.texts().manifests.len()),
            frozen,
            pending,
            has_changed: present.map_or(true, |present| present != hash),
            hash,
        }
    }

    pub(crate) fn value(&self) -> Value {
        json!({
            "constitution_hash": self.hash, "mode": self.mode, "overrides": self.overrides,
            "manifests": self.manifests, "own_manifests": self.own_manifests, "pending_approvals": self.pending,
            "frozen": self.frozen.as_ref().map(|(by, at)| json!({ "by": by, "at": at })),
            "files_changed": self.has_changed,
        })
    }

    /// The state as names and values.
    pub(crate) fn rows(&self, paint: Paint) -> Vec<(&'static str, String)> {
        let mode = match self.mode {
            None => paint.unsure("unknown: the texts of the law in force are missing from constitutions/"),
            Some(EnforcementMode::Enforce) => paint.good("enforce"),
            Some(mode @ (EnforcementMode::Audit | EnforcementMode::Off)) => paint.unsure(mode.as_str()),
        };
        let overrides = match self.overrides {
            0 => String::new(),
            n => format!(", {n} with a mode of their own"),
        };
        let mut rows = vec![
            ("law", clean(&self.hash)),
            ("mode", format!("{mode}{overrides}")),
            ("manifests", format!("{}, of which {} of this home", self.manifests, self.own_manifests)),
        ];
        if let Some((by, at)) = &self.frozen {
            let text = clean(&format!("since {at} by {by}; allow work again with: tribune resume"));
            rows.push(("stopped", format!("{} {text}", paint.bad("EVERYTHING IS STOPPED"))));
        }
        rows.push(match self.pending {
            0 => ("approvals", "none pending".to_owned()),
            n => ("approvals", paint.unsure(&format!("{n} pending: tribune approvals watch"))),
        });
        if self.has_changed {
            let text =
                "the law's files have changed since the daemon started: restart it to put them in force";
            rows.push(("", paint.unsure(text)));
        }
        rows
    }
}
