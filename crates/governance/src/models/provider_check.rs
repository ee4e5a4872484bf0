//! Provider checks: whether the key is set, the provider answers, and the model answers. The last check is a real request of a
//! few tokens, so it runs only on demand, and it is billed ([`super::CheckBilling`]).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tribune_providers::budget::estimate_tokens;
use tribune_providers::{
    ChatMessage, ModelLimits, ModelRef, ModelRequest, ModelResponse, ProviderClient, ProviderError,
    RequestTimeouts, Thinking, ThinkingForm,
};
use tribune_runtime::{ErrorKind, RuntimeError};

use super::check_billing::CheckBilling;
use super::inventory::ModelInventory;
use super::providers::{Provider, Providers};

/// A person waits for the result, so there are no retries and the timeouts are shorter than in a turn.
const CHECK_TIMEOUTS: RequestTimeouts = RequestTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(45),
    max_attempts: 1,
    backoff: Duration::from_secs(1),
    max_retry_delay: Duration::from_secs(1),
};

/// Tokens of the response: one word, and the text that some models put before it.
const CHECK_TOKENS: u32 = 64;

/// The smallest thinking budget that such models accept; tokens for the response come on top.
const THINKING_TOKENS: u32 = 1024;

/// `provider.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trials {
    /// Whether all checks passed. False if there was nothing to check.
    pub ok: bool,
    pub providers: Vec<Trial>,
}

/// The result for one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub provider: String,
    /// The model that was asked, as `provider:model`, if one is known.
    pub model: Option<String>,
    pub ok: bool,
    /// In the order in which they ran; none runs after a failed one.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// `key`, `reach` or `model`.
    pub check: String,
    pub ok: bool,
    /// The finding, or what is wrong and what to do.
    pub message: String,
    /// Machine-readable code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Duration in milliseconds; absent if no request was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// Checks the target: a provider, one of its models, or without a target every provider that is set up.
pub async fn try_out(
    providers: &Providers,
    survey: &ModelInventory,
    target: Option<&str>,
    billing: &CheckBilling,
) -> Result<Trials, RuntimeError> {
    let chosen = chosen(providers, survey, target)?;
    let trials = chosen.iter().map(|(provider, model)| check_provider(provider, model.as_ref(), billing));
    let trials = join_all(trials).await;
    for ((_, model), trial) in chosen.iter().zip(&trials) {
        // A check that made no request, for lack of a key or of budget, says nothing about the model.
        let requested = trial.checks.last().filter(|check| check.took_ms.is_some());
        if let (Some((model, _)), Some(last)) = (model, requested) {
            providers.answers().note(model, (!trial.ok).then(|| last.message.clone()));
        }
    }
    Ok(Trials { ok: !trials.is_empty() && trials.iter().all(|trial| trial.ok), providers: trials })
}

/// Whether anything would be checked, and so whether anything is to be billed.
pub fn tries_any(
    providers: &Providers,
    survey: &ModelInventory,
    target: Option<&str>,
) -> Result<bool, RuntimeError> {
    Ok(!chosen(providers, survey, target)?.is_empty())
}

/// A provider and the model to ask.
type Chosen<'a> = (&'a Provider, Option<(ModelRef, ModelLimits)>);

fn chosen<'a>(
    providers: &'a Providers,
    survey: &ModelInventory,
    target: Option<&str>,
) -> Result<Vec<Chosen<'a>>, RuntimeError> {
    match target {
        Some(text) if text.contains(':') => {
            let model: ModelRef = text
                .parse()
                .map_err(|error| RuntimeError::new(ErrorKind::UnknownModel, format!("{error}")))?;
            let (provider, limits) = providers.resolve(&model)?;
            Ok(vec![(provider, Some((model, limits)))])
        }
        Some(id) => {
            let provider = providers.enabled(id)?;
            Ok(vec![(provider, usual(provider, survey))])
        }
        None => {
            let is_set_up = |provider: &&Provider| {
                let is_used = survey.agents.iter().filter_map(|agent| agent.model.as_deref());
                let mut used = is_used.filter_map(|model| model.split_once(':'));
                let config = &provider.config;
                config.enabled
                    && (config.is_configured || provider.has_key || used.any(|(id, _)| id == provider.id))
            };
            let all = providers.all().filter(is_set_up);
            Ok(all.map(|provider| (provider, usual(provider, survey))).collect())
        }
    }
}

/// The model that a provider is checked with: the configured default, one that an agent uses, the provider's default, or
/// the first by name.
fn usual(provider: &Provider, survey: &ModelInventory) -> Option<(ModelRef, ModelLimits)> {
    let used = survey.agents.iter().filter_map(|agent| agent.model.clone());
    let own = provider.config.default_model.iter().map(|name| format!("{}:{name}", provider.id));
    let first = provider.config.models.keys().map(|name| format!("{}:{name}", provider.id));
    let mut wanted = survey.default_model.clone().into_iter().chain(used).chain(own).chain(first);
    wanted.find_map(|model| {
        let model: ModelRef =
            model.parse().ok().filter(|model: &ModelRef| model.provider() == provider.id)?;
        let limits = *provider.config.models.get(model.model())?;
        Some((model, limits))
    })
}

async fn check_provider(
    provider: &Provider,
    model: Option<&(ModelRef, ModelLimits)>,
    billing: &CheckBilling,
) -> Trial {
    let mut checks = Vec::new();
    let ok = run_checks(provider, model, billing, &mut checks).await.is_some();
    let model = model.map(|(model, _)| model.to_string());
    Trial { provider: provider.id.clone(), model, ok, checks }
}

/// Runs the checks in order; `None` after the first that fails.
async fn run_checks(
    provider: &Provider,
    model: Option<&(ModelRef, ModelLimits)>,
    billing: &CheckBilling,
    checks: &mut Vec<Check>,
) -> Option<()> {
    let client = match provider.client() {
        Ok(client) => client.with_timeouts(CHECK_TIMEOUTS),
        Err(error) => {
            checks.push(failed("key", error, None));
            return None;
        }
    };
    match &provider.config.key_env {
        None => checks.push(passed("key", "none is needed".to_owned(), None)),
        Some(env) if provider.has_key => checks.push(passed("key", format!("{env} is set"), None)),
        Some(env) => {
            let error = ProviderError::MissingKey { provider: provider.id.clone(), env: env.clone() };
            checks.push(failed("key", &error, None));
            return None;
        }
    }
    let listed = reach(provider, &client, checks).await?;
    let Some((model, limits)) = model else {
        let id = &provider.id;
        // The names come from the provider; those that are not valid model names are not shown.
        let names = listed.iter().filter(|name| ModelRef::new(id, name.as_str()).is_ok());
        let some = names.take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let offers = if some.is_empty() { String::new() } else { format!(" It offers {some}.") };
        checks.push(Check {
            check: "model".to_owned(),
            ok: false,
            message: format!(
                "no model of {id} is declared: `tribune providers add {id} --model NAME --context-window N --max-output N` declares \
                 one.{offers}"
            ),
            code: Some("unknown_model".to_owned()),
            took_ms: None,
        });
        return None;
    };
    let request = question(model, limits);
    let prompt = estimate_tokens(&request);
    let charge = match billing.pay(model, prompt, u64::from(request.max_output_tokens)).await {
        Ok(charge) => charge,
        Err(error) => {
            let (check, code) = ("model".to_owned(), Some(error.code().to_owned()));
            checks.push(Check { check, ok: false, message: error.message, code, took_ms: None });
            return None;
        }
    };
    let began = Instant::now();
    let response = ask(&client, &request).await;
    let took = Some(millis(began));
    charge.settle(&response, millis(began)).await;
    match response {
        Ok(answer) => {
            let tokens = answer.usage.prompt() + answer.usage.output;
            checks.push(passed("model", format!("{model} answers ({tokens} tokens)"), took));
            Some(())
        }
        Err(error) => {
            checks.push(failed("model", &error, took));
            None
        }
    }
}

/// Requests the list of models: it costs nothing, and shows whether the provider and the key work. Returns the names.
async fn reach(provider: &Provider, client: &ProviderClient, checks: &mut Vec<Check>) -> Option<Vec<String>> {
    let began = Instant::now();
    let listed = client.models().await;
    let took = Some(millis(began));
    let base_url = &provider.config.base_url;
    match listed {
        Ok(names) => {
            checks.push(passed("reach", format!("{base_url} answers"), took));
            Some(names)
        }
        // The server answers; not every server has a list of models.
        Err(
            ProviderError::NotFound { .. }
            | ProviderError::MalformedStream { .. }
            | ProviderError::BadRequest { .. },
        ) => {
            checks.push(passed("reach", format!("{base_url} answers, without a list of its models"), took));
            Some(Vec::new())
        }
        Err(error) => {
            checks.push(failed("reach", &error, took));
            None
        }
    }
}

/// A request of a few tokens.
fn question(model: &ModelRef, limits: &ModelLimits) -> ModelRequest {
    let (thinking, wanted) = match limits.thinking {
        ThinkingForm::Budget if limits.max_output_tokens > THINKING_TOKENS + CHECK_TOKENS => {
            (Some(Thinking::Budget(THINKING_TOKENS)), THINKING_TOKENS + CHECK_TOKENS)
        }
        ThinkingForm::Adaptive => (Some(Thinking::Adaptive), THINKING_TOKENS + CHECK_TOKENS),
        ThinkingForm::NoParameter | ThinkingForm::Budget => (None, CHECK_TOKENS),
    };
    ModelRequest {
        model: model.model().to_owned(),
        system: Vec::new(),
        messages: vec![ChatMessage::user("Answer with the word ok.")],
        tools: Vec::new(),
        max_output_tokens: wanted.min(limits.max_output_tokens),
        thinking,
    }
}

async fn ask(client: &ProviderClient, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
    let mut stream = client.stream(request, &CancellationToken::new()).await?;
    let mut answer = ModelResponse::default();
    while let Some(event) = stream.next().await {
        answer.apply(&event?);
    }
    Ok(answer)
}

fn passed(check: &str, message: String, took_ms: Option<u64>) -> Check {
    Check { check: check.to_owned(), ok: true, message, code: None, took_ms }
}

fn failed(check: &str, error: &ProviderError, took_ms: Option<u64>) -> Check {
    let code = Some(error.code().to_owned());
    Check { check: check.to_owned(), ok: false, message: error.to_string(), code, took_ms }
}

fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
