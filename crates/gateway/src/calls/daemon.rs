//! The status of the daemon.

use tribune_sessions::canary::{CanaryStatus, millis};

use super::Answer;
use crate::api::Api;
use crate::api_types::{CanaryInfo, DaemonStatus};
use crate::principal::Principal;

impl Api {
    pub(crate) async fn status(&self, who: &Principal) -> Answer<DaemonStatus> {
        who.operator()?;
        let entries = self.readers.read(|reader| reader.size()).await?;
        let (sessions_open, sessions_loaded) = self.sessions.counts();
        let waiting = self.waiting();
        let status = &self.status;
        let constitution = &self.sessions.governance().policy.gate.law;
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            address: status.address.to_string(),
            home: status.home.display().to_string(),
            started_at: status.started_at.to_string(),
            ready: waiting.is_empty(),
            waiting,
            constitution_hash: constitution.hash().to_string(),
            mandates: constitution.mandates().keys().cloned().collect(),
            backends: status.backends.clone(),
            log: status.log.clone(),
            entries,
            sessions_open,
            sessions_loaded,
            connections: status.connections(),
            recovered_turns: status.recovered.turns,
            recovered_calls: status.recovered.calls,
            recovered_forgets: status.recovered.forgets,
            canaries: self.canaries.standpoints().into_iter().map(canary_info).collect(),
        })
    }
}

fn canary_info(standpoint: CanaryStatus) -> CanaryInfo {
    let CanaryStatus { subject, agents, state, detail, at, took } = standpoint;
    CanaryInfo {
        backend: subject.backend,
        subject: subject.name,
        agents,
        state: state.to_owned(),
        detail,
        at: at.map(|at| at.to_string()),
        took_ms: took.map(millis),
    }
}
