//! How the law stands in a home where a daemon runs: what `tribune status` and `/tribune` show of it.

use serde_json::{Value, json};
use tribune_client::Client;
use tribune_constitution::Mode;
use tribune_governance::policy_files;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use crate::error::CliError;
use crate::output::{Paint, clean};

/// The law that a daemon runs under.
#[derive(Debug, Default)]
pub(crate) struct LawState {
    hash: String,
    /// Unknown if the texts of the law in force are gone.
    mode: Option<Mode>,
    /// Tools with a mode of their own.
    overrides: usize,
    manifests: usize,
    own_manifests: usize,
    /// Who stopped everything, and when.
    frozen: Option<(String, String)>,
    pending: u64,
    /// The files in the home are another law, or none.
    has_changed: bool,
}

impl LawState {
    /// Asks the daemon what it did not say of itself, and looks at the files of its home.
    pub(crate) async fn ask(home: &Home, status: &Value, client: &mut Client) -> Result<Self, CliError> {
        let page = client.call("approval.list", &json!({ "limit": 1 })).await?;
        Ok(Self::of(home, status, page["pending"].as_u64().unwrap_or(0)))
    }

    /// From what the daemon says of itself and how many approvals wait, and from the files of its home.
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

    /// Lines of a name and a value.
    pub(crate) fn rows(&self, paint: Paint) -> Vec<(&'static str, String)> {
        let mode = match self.mode {
            None => paint.unsure("unknown: the texts of the law in force are gone from constitutions/"),
            Some(Mode::Enforce) => paint.good("enforce"),
            Some(mode @ (Mode::Audit | Mode::Off)) => paint.unsure(mode.as_str()),
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
            let said = clean(&format!("since {at} by {by}; go on with: tribune resume"));
            rows.push(("stopped", format!("{} {said}", paint.bad("EVERYTHING IS STOPPED"))));
        }
        rows.push(match self.pending {
            0 => ("approvals", "none pending".to_owned()),
            n => ("approvals", paint.unsure(&format!("{n} pending: tribune approvals watch"))),
        });
        if self.has_changed {
            let said =
                "the files of the law have changed since the start: restart the daemon to put them in force";
            rows.push(("", paint.unsure(said)));
        }
        rows
    }
}
