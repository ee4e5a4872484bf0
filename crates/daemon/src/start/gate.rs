//! Stage `gate`: completes the gate with the agents, and builds what decides beside it: the budgets and the decisions outside of
//! turns. It touches no file and cannot fail.

use std::sync::Arc;

use tribune_governance::gate::Gate;
use tribune_governance::models::RequestLog;
use tribune_governance::spend::Budgets;
use tribune_governance::turn::OutOfTurn;
use tribune_registry::Agents;

use super::StartContext;

/// What decides about calls, and what records the requests to models.
#[derive(Debug)]
pub(crate) struct GateServices {
    pub(crate) gate: Arc<Gate>,
    pub(crate) out_of_turn: Arc<OutOfTurn>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) requests: RequestLog,
}

/// Completes the gate of stage `policy`.
pub(crate) fn complete(context: StartContext<'_>, gate: Gate, agents: &Arc<Agents>) -> GateServices {
    let StartContext { home, config, storage } = context;
    let gate = Arc::new(gate.with_agents(Arc::clone(agents)));
    let requests = RequestLog::new(home.root().join("logs"), &config.log);
    let budgets = Arc::new(Budgets::new(
        config.spend.clone(),
        storage.ledger.clone(),
        storage.readers.clone(),
        Arc::clone(&storage.clock),
    ));
    let out_of_turn = Arc::new(OutOfTurn::new(Arc::clone(&gate), storage.clone()));
    GateServices { gate, out_of_turn, budgets, requests }
}
