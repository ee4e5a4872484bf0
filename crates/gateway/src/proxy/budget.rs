//! The cost of a request. The maximum cost is reserved before the request is sent; the actual cost is settled when the response
//! has end. No request waits here for a higher limit: beyond a limit it is denied.

use std::sync::Arc;

use tribune_governance::models::Provider;
use tribune_governance::spend;
use tribune_governance::spend::{Budgets, Payer, ReportedUsage, Reservation, Reserve};
use tribune_providers::ModelRef;
use tribune_records::ledger_payloads::ProxyOutcome;
use tribune_runtime::ErrorKind;

use super::auth::Caller;
use super::body::{Members, ProxiedBody};
use super::routes::Kind;
use super::upstream_call::CallEnd;
use crate::error::ApiError;

/// Assumed maximum tokens of a response if neither the request nor the configuration has a limit.
const DEFAULT_RESPONSE_TOKENS: u64 = 32_768;

/// Maximum alternative responses (`n`, `candidateCount`) of one request.
const MAX_CHOICES: u64 = 128;

/// The reservation for one request.
#[derive(Debug)]
pub(super) struct CostReservation(Reservation);

/// The tokens that a reservation covers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReservedTokens {
    pub(super) prompt: u64,
    pub(super) response: u64,
}

impl CostReservation {
    /// Reserves the maximum cost of a request. `None` if the request is free.
    pub(super) async fn reserve(
        budgets: &Arc<Budgets>,
        caller: &Caller,
        provider: &Provider,
        kind: Kind,
        body: Option<&ProxiedBody>,
    ) -> Result<Option<Self>, ApiError> {
        let Some(body) = body else { return Ok(None) };
        let answer = match kind {
            Kind::Answer => max_response_tokens(provider, body)?,
            Kind::Embeddings => 0,
            Kind::Count | Kind::Models | Kind::Model => return Ok(None),
        };
        let model =
            ModelRef::new(&provider.id, &body.model).map_err(|error| ApiError::params(error.to_string()))?;
        let agent = match caller {
            Caller::Operator => spend::OPERATOR.to_owned(),
            Caller::Agent(_) | Caller::Session(_) => caller.name(),
        };
        let payer = Payer { agent, session: caller.session() };
        // A token is at least one byte, so the bytes bound the prompt's tokens.
        let prompt = body.members.0.iter().map(|(name, value)| name.len() + value.get().len()).sum::<usize>();
        match budgets.reserve(&payer, &model, prompt as u64, answer).await {
            Ok(Reserve::Granted(reservation)) => Ok(Some(Self(reservation))),
            Ok(Reserve::Ask(question)) => {
                // A session can ask a person for a higher limit, but this request does not wait for the answer.
                budgets.is_asking(payer.session.as_deref().unwrap_or_default(), &question.id);
                let why = question.input["why"].as_str().unwrap_or("the request exceeds the spend limit");
                Err(ApiError::forbidden(why))
            }
            Err(refused) if refused.kind == ErrorKind::Storage => {
                Err(ApiError::new("storage", refused.message))
            }
            Err(refused) => Err(ApiError::forbidden(refused.message)),
        }
    }

    /// Records the reservation. The request must not be sent before this returns.
    pub(super) async fn put_on_record(&mut self) -> Result<(), ApiError> {
        Ok(self.0.put_on_record().await?)
    }

    pub(super) const fn tokens(&self) -> ReservedTokens {
        let (prompt, response) = self.0.tokens();
        ReservedTokens { prompt, response }
    }

    /// Settles the actual cost.
    pub(super) async fn settle(self, end: &CallEnd) {
        let usage = end.usage.unwrap_or_default();
        let told = match end.outcome {
            ProxyOutcome::Answered => ReportedUsage::All(usage),
            // Sent, but the response did not arrive completely.
            ProxyOutcome::Cut | ProxyOutcome::Left | ProxyOutcome::Stopped | ProxyOutcome::Interrupted => {
                ReportedUsage::Some(usage)
            }
            ProxyOutcome::Failed if end.was_answered() => ReportedUsage::Some(usage),
            ProxyOutcome::Refused | ProxyOutcome::Failed => return self.0.release().await,
        };
        self.0.settle(told).await;
    }
}

/// The maximum tokens of all responses to the request.
fn max_response_tokens(provider: &Provider, body: &ProxiedBody) -> Result<u64, ApiError> {
    let mut limits_found = Vec::new();
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        limits_found.push(number(&body.members, name)?);
    }
    let generation = generation_config(body)?;
    // Gemini's servers accept both spellings.
    for name in ["maxOutputTokens", "max_output_tokens"] {
        limits_found.push(number(&generation, name)?);
    }
    let declared = provider.config.models.get(&body.model).map(|limits| u64::from(limits.max_output_tokens));
    let one = limits_found.into_iter().flatten().max().or(declared).unwrap_or(DEFAULT_RESPONSE_TOKENS);
    let mut choices = number(&body.members, "n")?.unwrap_or(1).max(1);
    for name in ["candidateCount", "candidate_count"] {
        choices = choices.max(number(&generation, name)?.unwrap_or(1));
    }
    if choices > MAX_CHOICES {
        return Err(ApiError::params(format!("a request may ask for at most {MAX_CHOICES} responses")));
    }
    Ok(one.saturating_mul(choices))
}

/// The generation parameters of Gemini's API.
fn generation_config(body: &ProxiedBody) -> Result<Members, ApiError> {
    let mut found = body.members.0.iter().filter(|(name, _)| {
        name.eq_ignore_ascii_case("generationConfig") || name.eq_ignore_ascii_case("generation_config")
    });
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(ApiError::params("`generationConfig` may appear only once"));
    }
    let Some((name, raw)) = first else { return Ok(Members(Vec::new())) };
    serde_json::from_str::<Option<Members>>(raw.get())
        .map(|members| members.unwrap_or(Members(Vec::new())))
        .map_err(|_| ApiError::params(format!("`{name}` must be an object without duplicate names")))
}

/// An integer of the body, written in digits. In another form the provider could read a larger number than was reserved.
fn number(members: &Members, name: &str) -> Result<Option<u64>, ApiError> {
    let Some((_, raw)) = members.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        return Ok(None);
    };
    serde_json::from_str::<Option<u64>>(raw.get())
        .map_err(|_| ApiError::params(format!("`{name}` must be an integer, written in digits")))
}
