//! Billing and logging of provider checks, which cost money like the requests of agents.

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use tribune_config::Config;
use tribune_providers::{ModelRef, ModelResponse, ProviderError};
use tribune_runtime::{ErrorKind, RuntimeError};
use tribune_storage::clock::{Clock, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::{Store, StoreError};

use super::request_log::{RequestLog, RequestRecord};
use crate::spend::{Budgets, OPERATOR, Payer, ReportedUsage, Reservation, Reserve};

/// Charges provider checks to the operator's budget and logs them.
#[derive(Clone)]
pub struct CheckBilling {
    budgets: Arc<Budgets>,
    requests: RequestLog,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for CheckBilling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckBilling")
    }
}

/// A request that is charged and not settled.
#[derive(Debug)]
pub(super) struct Charge {
    billing: CheckBilling,
    model: ModelRef,
    reservation: Reservation,
}

impl CheckBilling {
    pub const fn new(budgets: Arc<Budgets>, requests: RequestLog, clock: Arc<dyn Clock>) -> Self {
        Self { budgets, requests, clock }
    }

    /// Opens a state folder that no daemon uses. It stays locked as long as the returned store lives.
    pub fn open(home: &Home, config: &Config) -> Result<(Self, Store), StoreError> {
        let store = Store::open(home, &SystemClock)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (ledger, readers) = (store.writer()?, store.readers()?);
        let budgets = Arc::new(Budgets::new(config.spend.clone(), ledger, readers, Arc::clone(&clock)));
        let requests = RequestLog::new(home.root().join("logs"), &config.log);
        Ok((Self::new(budgets, requests, clock), store))
    }

    /// Reserves the cost of a request. The reservation is durable when this returns.
    pub(super) async fn pay(
        &self,
        model: &ModelRef,
        prompt: u64,
        answer: u64,
    ) -> Result<Charge, RuntimeError> {
        let payer = Payer { agent: OPERATOR.to_owned(), session: None };
        match self.budgets.reserve(&payer, model, prompt, answer).await? {
            Reserve::Granted(mut reservation) => {
                reservation.put_on_record().await?;
                Ok(Charge { billing: self.clone(), model: model.clone(), reservation })
            }
            // A check does not wait for a person to raise the limit.
            Reserve::Ask(_) => {
                let what = "this would exceed the budget: raise the limit under spend in config.json5";
                Err(RuntimeError::new(ErrorKind::SpendLimit, what))
            }
        }
    }
}

impl Charge {
    /// Counts the cost of the request and logs it.
    pub(super) async fn settle(self, response: &Result<ModelResponse, ProviderError>, latency_ms: u64) {
        let Self { billing, model, reservation } = self;
        let (estimated_tokens, reserved_tokens) = reservation.tokens();
        let (usage, outcome) = match response {
            Ok(answer) => (answer.usage, "trial"),
            Err(error) => (Default::default(), error.code()),
        };
        match response {
            Ok(answer) if answer.finish_reason.is_some() => {
                reservation.settle(ReportedUsage::All(usage)).await
            }
            Ok(_) => reservation.settle(ReportedUsage::Some(usage)).await,
            Err(error) if error.may_be_billed() => reservation.settle(ReportedUsage::Some(usage)).await,
            Err(_) => reservation.release().await,
        }
        let record = RequestRecord {
            request_id: format!("trial.{}", billing.clock.now()),
            timestamp: billing.clock.now().to_string(),
            provider: model.provider().to_owned(),
            model: model.model().to_owned(),
            session: String::new(),
            turn: String::new(),
            round: 0,
            estimated_tokens,
            reserved_tokens,
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_written_tokens: usage.cache_written,
            first_ms: 0,
            latency_ms,
            outcome: outcome.to_owned(),
            prompt: json!({}),
            gate: json!({ "trial": OPERATOR }),
        };
        let log = billing.requests;
        // The task fails only when the runtime shuts down.
        let _ = tokio::task::spawn_blocking(move || log.write(&record)).await;
    }
}
