//! What a request costs: the most of it is set aside before it goes up, and what it did cost counts when it came back. Nobody
//! waits here to be asked for more: beyond a limit, a request is refused.

use std::sync::Arc;

use tribune_agents::provider::ModelRef;

use super::body::Asking;
use super::errand::Ended;
use super::routes::Kind;
use crate::gateway::ApiError;
use crate::models::Provider;
use crate::spend::{Payer, Purse, Reservation, Reserve};

/// Tokens that an answer may have if neither the request nor the configuration says.
const UNKNOWN_ANSWER: u64 = 32_768;

/// Answers to one request, at most.
const MAX_CHOICES: u64 = 128;

/// What is set aside for one request.
#[derive(Debug)]
pub(super) struct Bill {
    purse: Arc<Purse>,
    payer: Payer,
    model: ModelRef,
    reservation: Reservation,
}

impl Bill {
    /// Sets aside what a request can cost, if it can cost anything.
    pub(super) async fn reserve(
        purse: &Arc<Purse>,
        by: String,
        provider: &Provider,
        (kind, asking): (Kind, Option<&Asking>),
    ) -> Result<Option<Self>, ApiError> {
        let Some(asking) = asking else { return Ok(None) };
        let answer = match kind {
            Kind::Answer => answer(provider, asking),
            Kind::Embeddings => 0,
            Kind::Count | Kind::Models | Kind::Model => return Ok(None),
        };
        let model = ModelRef::new(&provider.id, &asking.model)
            .map_err(|error| ApiError::params(error.to_string()))?;
        let payer = Payer { agent: by, session: None };
        // No token has less than a byte.
        let prompt =
            asking.members.0.iter().map(|(name, value)| name.len() + value.get().len()).sum::<usize>();
        match purse.reserve(&payer, &model, (prompt as u64, answer)).await {
            Ok(Reserve::Granted(reservation)) => {
                Ok(Some(Self { purse: Arc::clone(purse), payer, model, reservation }))
            }
            Ok(Reserve::Ask(_)) => Err(ApiError::forbidden("more than may be spent: raise the limit")),
            Err(refused) if refused.code == "storage" => Err(ApiError::new("storage", refused.message)),
            Err(refused) => Err(ApiError::forbidden(refused.message)),
        }
    }

    /// Counts what it did cost.
    pub(super) async fn settle(self, ended: &Ended) {
        if !ended.was_answered() {
            return self.reservation.release();
        }
        self.purse.settle(self.reservation, &self.payer, &self.model, ended.usage).await;
    }
}

/// The most tokens that the answer can have.
fn answer(provider: &Provider, asking: &Asking) -> u64 {
    let said = ["max_tokens", "max_completion_tokens"].map(|name| asking.members.get::<u64>(name));
    let declared =
        provider.config.models.get(&asking.model).map(|limits| u64::from(limits.max_output_tokens));
    let one = said.into_iter().flatten().max().or(declared).unwrap_or(UNKNOWN_ANSWER);
    let choices = asking.members.get::<u64>("n").unwrap_or(1).clamp(1, MAX_CHOICES);
    one.saturating_mul(choices)
}
