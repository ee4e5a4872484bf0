//! Stage `egress`: the model proxy, and the session sockets of sandboxes with the services behind them. No socket is open yet;
//! each session opens its own.

use std::sync::Arc;

use tribune_egress::{EgressRules, Network, RealNetwork, SessionSocketService, SocketLimits};
use tribune_gateway::{Proxy, ProxyParts, SessionModel, Timeouts};
use tribune_registry::Agents;

use super::StartContext;
use super::gate::GateServices;
use super::secrets::Secrets;
use crate::shutdown::Shutdown;
use crate::start_error::StartError;

/// What sandboxes reach.
#[derive(Debug)]
pub(crate) struct EgressServices {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) socket_service: SessionSocketService,
}

/// Builds the services, and removes the sockets of an earlier daemon. Without `network`, sandboxes reach the real one.
pub(crate) fn open(
    context: StartContext<'_>,
    secrets: &Secrets,
    agents: &Arc<Agents>,
    gate: &GateServices,
    shutdown: &Shutdown,
    network: Option<Arc<dyn Network>>,
    limits: SocketLimits,
) -> Result<EgressServices, StartError> {
    let StartContext { home, config, storage } = context;
    let proxy = Arc::new(Proxy::new(ProxyParts {
        providers: Arc::clone(&secrets.providers),
        agents: Arc::clone(agents),
        gate: Arc::clone(&gate.gate),
        budgets: Arc::clone(&gate.budgets),
        redactor: Arc::clone(&secrets.redactor),
        requests: gate.requests.clone(),
        ledger: storage.ledger.clone(),
        clock: Arc::clone(&storage.clock),
        max_body: config.gateway.max_message_bytes,
        body_timeout: config.gateway.idle.min(Timeouts::default().body),
        draining: shutdown.draining.clone(),
        stopping: shutdown.stopping.clone(),
    }));
    let rules = EgressRules {
        agents: config.egress.agents.clone(),
        deny: config.egress.deny.clone(),
        unlisted: config.egress.unlisted,
    };
    let network = network.unwrap_or_else(|| Arc::new(RealNetwork));
    let model = Arc::new(SessionModel(Arc::clone(&proxy)));
    let out_of_turn = Arc::clone(&gate.out_of_turn);
    let socket_service = SessionSocketService::new(home, out_of_turn, model, rules, network, limits)?;
    Ok(EgressServices { proxy, socket_service })
}
