//! Where trials are paid and logged: what the operator tries costs money like what agents ask.

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use tribune_config::Config;
use tribune_providers::{ModelRef, ModelResponse, ProviderError};
use tribune_runtime::RuntimeError;
use tribune_storage::clock::{Clock, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::{Store, StoreError};

use super::request_log::{RequestLog, RequestRecord};
use crate::spend::{Budgets, OPERATOR, Payer, Reservation, Reserve, Told};

/// Pays for requests of the operator's, and writes them down.
#[derive(Clone)]
pub struct CheckBilling {
    purse: Arc<Budgets>,
    requests: RequestLog,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for CheckBilling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Till")
    }
}

/// A request that is paid for and has not ended.
#[derive(Debug)]
pub(super) struct Charge {
    till: CheckBilling,
    model: ModelRef,
    reservation: Reservation,
}

impl CheckBilling {
    pub const fn new(purse: Arc<Budgets>, requests: RequestLog, clock: Arc<dyn Clock>) -> Self {
        Self { purse, requests, clock }
    }

    /// The till of a home that no daemon holds. It is held as long as the store is.
    pub fn open(home: &Home, config: &Config) -> Result<(Self, Store), StoreError> {
        let store = Store::open(home, &SystemClock)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let parts = (store.writer()?, store.readers()?, Arc::clone(&clock));
        let purse = Arc::new(Budgets::new(config.spend.clone(), parts));
        let requests = RequestLog::new(home.root().join("logs"), &config.log);
        Ok((Self::new(purse, requests, clock), store))
    }

    /// Sets aside what a request can cost. It is on record when this returns.
    pub(super) async fn pay(&self, model: &ModelRef, tokens: (u64, u64)) -> Result<Charge, RuntimeError> {
        let payer = Payer { agent: OPERATOR.to_owned(), session: None };
        match self.purse.reserve(&payer, model, tokens).await? {
            Reserve::Granted(mut reservation) => {
                reservation.put_on_record().await?;
                Ok(Charge { till: self.clone(), model: model.clone(), reservation })
            }
            // Nobody waits in a trial to be asked for more.
            Reserve::Ask(_) => {
                let what = "more than may be spent: raise the limit under spend in config.json5";
                Err(RuntimeError::new("spend_limit", what))
            }
        }
    }
}

impl Charge {
    /// Counts what the request cost, and logs it.
    pub(super) async fn settle(self, answered: &Result<ModelResponse, ProviderError>, latency_ms: u64) {
        let Self { till, model, reservation } = self;
        let (estimated_tokens, reserved_tokens) = reservation.tokens();
        let (usage, outcome) = match answered {
            Ok(answer) => (answer.usage, "trial"),
            Err(error) => (Default::default(), error.code()),
        };
        match answered {
            Ok(answer) if answer.finish_reason.is_some() => reservation.settle(Told::All(usage)).await,
            Ok(_) => reservation.settle(Told::Some(usage)).await,
            Err(error) if error.may_be_billed() => reservation.settle(Told::Some(usage)).await,
            Err(_) => reservation.release().await,
        }
        let record = RequestRecord {
            request_id: format!("trial.{}", till.clock.now()),
            timestamp: till.clock.now().to_string(),
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
        let log = till.requests;
        // It fails only when the process is being torn down.
        let _ = tokio::task::spawn_blocking(move || log.write(&record)).await;
    }
}
