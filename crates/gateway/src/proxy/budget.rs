//! What a request costs: the most of it is set aside before it goes up, and what it did cost counts when it came back. Nobody
//! waits here to be asked for more: beyond a limit, a request is refused.

use std::sync::Arc;

use tribune_governance::models::Provider;
use tribune_governance::spend;
use tribune_governance::spend::{Budgets, Payer, Reservation, Reserve, Told};
use tribune_providers::ModelRef;
use tribune_records::ledger_payloads::ProxyOutcome;
use tribune_runtime::ErrorKind;

use super::auth::Caller;
use super::body::{Asking, Members};
use super::routes::Kind;
use super::upstream_call::Ended;
use crate::ApiError;

/// Tokens that an answer may have if neither the request nor the configuration says.
const UNKNOWN_ANSWER: u64 = 32_768;

/// Answers to one request, at most.
const MAX_CHOICES: u64 = 128;

/// What is set aside for one request.
#[derive(Debug)]
pub(super) struct Bill(Reservation);

impl Bill {
    /// Sets aside what a request can cost, if it can cost anything.
    pub(super) async fn reserve(
        purse: &Arc<Budgets>,
        caller: &Caller,
        provider: &Provider,
        (kind, asking): (Kind, Option<&Asking>),
    ) -> Result<Option<Self>, ApiError> {
        let Some(asking) = asking else { return Ok(None) };
        let answer = match kind {
            Kind::Answer => answer(provider, asking)?,
            Kind::Embeddings => 0,
            Kind::Count | Kind::Models | Kind::Model => return Ok(None),
        };
        let model = ModelRef::new(&provider.id, &asking.model)
            .map_err(|error| ApiError::params(error.to_string()))?;
        let agent = match caller {
            Caller::Operator => spend::OPERATOR.to_owned(),
            Caller::Agent(_) | Caller::Session(_) => caller.name(),
        };
        let payer = Payer { agent, session: caller.session() };
        // No token has less than a byte.
        let prompt =
            asking.members.0.iter().map(|(name, value)| name.len() + value.get().len()).sum::<usize>();
        match purse.reserve(&payer, &model, (prompt as u64, answer)).await {
            Ok(Reserve::Granted(reservation)) => Ok(Some(Self(reservation))),
            Ok(Reserve::Ask(question)) => {
                // A session could ask a person for more, but nobody waits for the answer here.
                purse.is_asking(payer.session.as_deref().unwrap_or_default(), &question.id);
                let why = question.input["why"].as_str().unwrap_or("this is more than may be spent");
                Err(ApiError::forbidden(why))
            }
            Err(refused) if refused.kind == ErrorKind::Storage => {
                Err(ApiError::new("storage", refused.message))
            }
            Err(refused) => Err(ApiError::forbidden(refused.message)),
        }
    }

    /// Writes down what is set aside. The request must not go up before this returns.
    pub(super) async fn put_on_record(&mut self) -> Result<(), ApiError> {
        Ok(self.0.put_on_record().await?)
    }

    /// The tokens of the prompt and of the answer, at most.
    pub(super) const fn tokens(&self) -> (u64, u64) {
        self.0.tokens()
    }

    /// Counts what it did cost.
    pub(super) async fn settle(self, ended: &Ended) {
        let usage = ended.usage.unwrap_or_default();
        let told = match ended.outcome {
            ProxyOutcome::Answered => Told::All(usage),
            // Sent, and not heard to its end.
            ProxyOutcome::Cut | ProxyOutcome::Left | ProxyOutcome::Stopped | ProxyOutcome::Interrupted => {
                Told::Some(usage)
            }
            ProxyOutcome::Failed if ended.was_answered() => Told::Some(usage),
            ProxyOutcome::Refused | ProxyOutcome::Failed => return self.0.release().await,
        };
        self.0.settle(told).await;
    }
}

/// The most tokens that the answer can have.
fn answer(provider: &Provider, asking: &Asking) -> Result<u64, ApiError> {
    let mut said = Vec::new();
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        said.push(number(&asking.members, name)?);
    }
    let generation = generation(asking)?;
    // Its servers read both spellings.
    for name in ["maxOutputTokens", "max_output_tokens"] {
        said.push(number(&generation, name)?);
    }
    let declared =
        provider.config.models.get(&asking.model).map(|limits| u64::from(limits.max_output_tokens));
    let one = said.into_iter().flatten().max().or(declared).unwrap_or(UNKNOWN_ANSWER);
    let mut choices = number(&asking.members, "n")?.unwrap_or(1).max(1);
    for name in ["candidateCount", "candidate_count"] {
        choices = choices.max(number(&generation, name)?.unwrap_or(1));
    }
    if choices > MAX_CHOICES {
        return Err(ApiError::params(format!("more than {MAX_CHOICES} answers at once are too many")));
    }
    Ok(one.saturating_mul(choices))
}

/// Where Gemini's API keeps what the answer is to be like.
fn generation(asking: &Asking) -> Result<Members, ApiError> {
    let mut found = asking.members.0.iter().filter(|(name, _)| {
        name.eq_ignore_ascii_case("generationConfig") || name.eq_ignore_ascii_case("generation_config")
    });
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        return Err(ApiError::params("`generationConfig` is written once"));
    }
    let Some((name, raw)) = first else { return Ok(Members(Vec::new())) };
    serde_json::from_str::<Option<Members>>(raw.get())
        .map(|members| members.unwrap_or(Members(Vec::new())))
        .map_err(|_| ApiError::params(format!("`{name}` is an object in which no name comes twice")))
}

/// A whole number of the body, in digits: in another form it could mean more than was set aside.
fn number(members: &Members, name: &str) -> Result<Option<u64>, ApiError> {
    let Some((_, raw)) = members.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        return Ok(None);
    };
    serde_json::from_str::<Option<u64>>(raw.get())
        .map_err(|_| ApiError::params(format!("`{name}` is a whole number, written in digits")))
}
