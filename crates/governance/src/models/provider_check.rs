//! Whether a provider can be used, found out by using it: is the key there, does the provider answer, does the model. The
//! last is a real request of a few tokens, so it is made only when somebody asks for it, and it is paid for ([`super::Till`]).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tribune_providers::budget::estimate_tokens;
use tribune_providers::{
    ChatMessage, ModelLimits, ModelRef, ModelRequest, ModelResponse, ProviderClient, ProviderError,
    RequestTimeouts, Thinking, ThinkingForm,
};
use tribune_runtime::RuntimeError;
use utoipa::ToSchema;

use super::check_billing::CheckBilling;
use super::inventory::ModelInventory;
use super::providers::{Provider, Providers};

/// Somebody sits and waits for the result, so nothing is tried twice and nobody is waited for like in a turn.
const TRIAL_PATIENCE: RequestTimeouts = RequestTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(45),
    max_attempts: 1,
    backoff: Duration::from_secs(1),
    max_retry_delay: Duration::from_secs(1),
};

/// Tokens of the answer: one word, and what some models put before it.
const TRIAL_TOKENS: u32 = 64;

/// The least that a model with a budget for thinking may be given to think, and room for a word behind it.
const THINKING_TOKENS: u32 = 1024;

/// `provider.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Trials {
    /// Whether all of them passed. False if there was nothing to try.
    pub ok: bool,
    pub providers: Vec<Trial>,
}

/// What came of trying one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Trial {
    pub provider: String,
    /// `provider:model` that was asked, if one is known.
    pub model: Option<String>,
    pub ok: bool,
    /// In the order in which they were made; none is made behind one that failed.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    /// `key`, `reach` or `model`.
    pub check: String,
    pub ok: bool,
    /// What was found, or what is wrong and what to do.
    pub message: String,
    /// One word for programs, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long it took; absent where nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// Tries what is named: a provider, one of its models, or, if nothing is, everything that is set up.
pub async fn try_out(
    providers: &Providers,
    survey: &ModelInventory,
    target: Option<&str>,
    till: &CheckBilling,
) -> Result<Trials, RuntimeError> {
    let chosen = chosen(providers, survey, target)?;
    let trials = chosen.iter().map(|(provider, model)| try_one(provider, model.as_ref(), till));
    let trials = join_all(trials).await;
    for ((_, model), trial) in chosen.iter().zip(&trials) {
        // What was not asked, for want of a key or of money, says nothing of the model.
        let asked = trial.checks.last().filter(|check| check.took_ms.is_some());
        if let (Some((model, _)), Some(last)) = (model, asked) {
            providers.answers().note(model, (!trial.ok).then(|| last.message.clone()));
        }
    }
    Ok(Trials { ok: !trials.is_empty() && trials.iter().all(|trial| trial.ok), providers: trials })
}

/// Whether anything would be tried, and so whether anything is to be paid for.
pub fn tries_any(
    providers: &Providers,
    survey: &ModelInventory,
    target: Option<&str>,
) -> Result<bool, RuntimeError> {
    Ok(!chosen(providers, survey, target)?.is_empty())
}

/// A provider, and the model that is asked.
type Chosen<'a> = (&'a Provider, Option<(ModelRef, ModelLimits)>);

fn chosen<'a>(
    providers: &'a Providers,
    survey: &ModelInventory,
    target: Option<&str>,
) -> Result<Vec<Chosen<'a>>, RuntimeError> {
    match target {
        Some(text) if text.contains(':') => {
            let model: ModelRef =
                text.parse().map_err(|error| RuntimeError::new("unknown_model", format!("{error}")))?;
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

/// The model of a provider that stands for it: the house's default, one that an agent uses, the provider's default, or the
/// first by name.
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

async fn try_one(provider: &Provider, model: Option<&(ModelRef, ModelLimits)>, till: &CheckBilling) -> Trial {
    let mut checks = Vec::new();
    let ok = checked(provider, model, till, &mut checks).await.is_some();
    let model = model.map(|(model, _)| model.to_string());
    Trial { provider: provider.id.clone(), model, ok, checks }
}

/// Makes one check after the other; `None` at the first that fails.
async fn checked(
    provider: &Provider,
    model: Option<&(ModelRef, ModelLimits)>,
    till: &CheckBilling,
    checks: &mut Vec<Check>,
) -> Option<()> {
    let client = match provider.client() {
        Ok(client) => client.with_timeouts(TRIAL_PATIENCE),
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
        // Names come from elsewhere; what is no name of a model is not repeated.
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
    let tokens = (estimate_tokens(&request), u64::from(request.max_output_tokens));
    let ticket = match till.pay(model, tokens).await {
        Ok(ticket) => ticket,
        Err(error) => {
            let (check, code) = ("model".to_owned(), Some(error.code().to_owned()));
            checks.push(Check { check, ok: false, message: error.message, code, took_ms: None });
            return None;
        }
    };
    let began = Instant::now();
    let answered = ask(&client, &request).await;
    let took = Some(millis(began));
    ticket.settle(&answered, millis(began)).await;
    match answered {
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

/// Asks for the list of models: it costs nothing, and shows whether provider and key are good. Gives the names.
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
        // Somebody is there; a list is nothing that every server has.
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

/// A question of a few tokens.
fn question(model: &ModelRef, limits: &ModelLimits) -> ModelRequest {
    let (thinking, wanted) = match limits.thinking {
        ThinkingForm::Budget if limits.max_output_tokens > THINKING_TOKENS + TRIAL_TOKENS => {
            (Some(Thinking::Budget(THINKING_TOKENS)), THINKING_TOKENS + TRIAL_TOKENS)
        }
        ThinkingForm::Adaptive => (Some(Thinking::Adaptive), THINKING_TOKENS + TRIAL_TOKENS),
        ThinkingForm::NoParameter | ThinkingForm::Budget => (None, TRIAL_TOKENS),
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
