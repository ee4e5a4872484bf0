//! The `models` section: providers and models. Built-in providers need no entry; a model that is not built in is declared with
//! its limits and features. API keys are never in the configuration: they come from the environment.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use tribune_constitution::suggest_name::nearest;
use tribune_providers::catalog::BUILT_IN_PROVIDERS;
use tribune_providers::{ApiDialect, BaseUrl, ModelLimits, ModelRef, RequestTimeouts, ThinkingForm};

use super::values::{Bounded, FromText, TextVisitor, Word, Words, shown};

/// Most providers, and most models of one provider.
const MAX_PROVIDERS: usize = 64;
const MAX_MODELS: usize = 512;

/// Longest run of bytes between two `_` in the name of a variable. API keys have longer runs.
const MAX_WORD_BYTES: usize = 24;

/// How the daemon checks the models when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartupValidation {
    /// The daemon does not start without its default model.
    Strict,
    /// Models that cannot be reached are logged as warnings.
    #[default]
    Warn,
    /// No provider is asked.
    Off,
}

impl StartupValidation {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Warn => "warn",
            Self::Off => "off",
        }
    }
}

impl Words for StartupValidation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("strict", Self::Strict), ("warn", Self::Warn), ("off", Self::Off)];
}

impl Words for ApiDialect {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("anthropic", Self::Anthropic),
        ("openai", Self::OpenAi),
        ("openai_compatible", Self::OpenAiCompatible),
        ("gemini", Self::Gemini),
    ];
}

impl Words for ThinkingForm {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::NoParameter), ("budget", Self::Budget), ("adaptive", Self::Adaptive)];
}

/// The configured models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelsConfig {
    /// The model of native agents that name none.
    pub default: Option<ModelRef>,
    /// Turns that compaction leaves unchanged.
    pub keep_turns: usize,
    pub providers: BTreeMap<String, ProviderConfig>,
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    pub enabled: bool,
    pub dialect: ApiDialect,
    pub base_url: BaseUrl,
    /// The environment variable that holds its key; `None` if it needs no key.
    pub key_env: Option<String>,
    /// Whether it runs on this machine.
    pub is_local: bool,
    pub startup_validation: StartupValidation,
    pub timeouts: Timeouts,
    pub models: BTreeMap<String, ModelLimits>,
    pub default_model: Option<String>,
    /// Whether the configuration file has an entry for it.
    pub is_configured: bool,
}

/// Timeouts of one provider that replace the defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Option<Duration>,
    /// Until the first byte of a response; a local server may have to load the model first.
    pub first_byte: Option<Duration>,
    /// Between any two later bytes.
    pub idle: Option<Duration>,
}

impl Timeouts {
    /// The default timeouts with the values of this provider applied.
    pub fn over(self, default: RequestTimeouts) -> RequestTimeouts {
        RequestTimeouts {
            connect: self.connect.unwrap_or(default.connect),
            first_byte: self.first_byte.unwrap_or(default.first_byte),
            idle: self.idle.unwrap_or(default.idle),
            ..default
        }
    }
}

/// The section after the checks that involve several keys.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawSection")]
pub(super) struct RawModels(ModelsConfig);

/// The section as it is in the file.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawSection {
    default: Option<Reference>,
    keep_turns: Bounded<1, 1000>,
    providers: Providers,
}

impl Default for RawSection {
    fn default() -> Self {
        Self { default: None, keep_turns: Bounded(4), providers: Providers(built_in()) }
    }
}

impl From<RawSection> for ModelsConfig {
    fn from(raw: RawSection) -> Self {
        Self {
            default: raw.default.map(|reference| reference.0),
            keep_turns: raw.keep_turns.count(),
            providers: raw.providers.0,
        }
    }
}

impl Default for RawModels {
    fn default() -> Self {
        Self(RawSection::default().into())
    }
}

impl TryFrom<RawSection> for RawModels {
    type Error = String;

    fn try_from(raw: RawSection) -> Result<Self, String> {
        let models = ModelsConfig::from(raw);
        let Some(default) = &models.default else { return Ok(Self(models)) };
        let own = models.providers.get(default.provider());
        if own.is_some_and(|provider| provider.models.contains_key(default.model())) {
            return Ok(Self(models));
        }
        let declared = models
            .providers
            .iter()
            .flat_map(|(id, provider)| provider.models.keys().map(move |model| format!("{id}:{model}")));
        let declared: Vec<String> = declared.collect();
        let names: Vec<&str> = declared.iter().map(String::as_str).collect();
        let default = default.to_string();
        let meant =
            nearest(&default, &names).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
        Err(format!(
            "`models.default` is {}, which no provider declares: {meant}declare it under `models.providers`, or choose one that \
             `tribune models` lists",
            shown(&default)
        ))
    }
}

impl From<RawModels> for ModelsConfig {
    fn from(raw: RawModels) -> Self {
        raw.0
    }
}

#[derive(Debug)]
struct Reference(ModelRef);

/// All providers: the built-in ones with their entries in the file applied, and those of the file alone.
#[derive(Debug)]
struct Providers(BTreeMap<String, ProviderConfig>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawProvider {
    enabled: Option<bool>,
    kind: Option<Word<ApiDialect>>,
    base_url: Option<Address>,
    key_env: Option<Variable>,
    local: Option<bool>,
    startup_validation: Option<Word<StartupValidation>>,
    #[serde(default)]
    timeouts: RawTimeouts,
    #[serde(default)]
    models: BTreeMap<String, RawModel>,
    #[serde(default)]
    defaults: RawDefaults,
}

/// Timeouts in seconds. A whole response may take an hour at most, so no single wait may be longer; a connection attempt never
/// needs more than five minutes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawTimeouts {
    connect_seconds: Option<Bounded<1, 300>>,
    first_byte_seconds: Option<Bounded<1, 3600>>,
    idle_seconds: Option<Bounded<1, 3600>>,
}

impl From<RawTimeouts> for Timeouts {
    fn from(raw: RawTimeouts) -> Self {
        Self {
            connect: raw.connect_seconds.map(|seconds| Duration::from_secs(seconds.0)),
            first_byte: raw.first_byte_seconds.map(|seconds| Duration::from_secs(seconds.0)),
            idle: raw.idle_seconds.map(|seconds| Duration::from_secs(seconds.0)),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawDefaults {
    model: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawModel {
    context_window: Bounded<256, 100_000_000>,
    max_output_tokens: Bounded<1, 10_000_000>,
    supports_tools: Option<bool>,
    supports_streaming: Option<bool>,
    supports_images: Option<bool>,
    thinking: Option<Word<ThinkingForm>>,
}

#[derive(Debug)]
struct Address(BaseUrl);

/// The name of an environment variable.
#[derive(Debug)]
struct Variable(String);

/// The built-in providers with their defaults.
fn built_in() -> BTreeMap<String, ProviderConfig> {
    let known = BUILT_IN_PROVIDERS.iter().filter_map(|own| {
        let base_url = BaseUrl::parse(own.base_url).ok()?;
        let models = own.models.iter().map(|(name, limits)| ((*name).to_owned(), *limits)).collect();
        let provider = ProviderConfig {
            enabled: true,
            dialect: own.dialect,
            base_url,
            key_env: own.key_env.map(str::to_owned),
            is_local: own.is_local,
            startup_validation: StartupValidation::Warn,
            timeouts: Timeouts::default(),
            models,
            default_model: own.default_model.map(str::to_owned),
            is_configured: false,
        };
        Some((own.id.to_owned(), provider))
    });
    known.collect()
}

impl RawProvider {
    /// Applies this entry to the built-in provider `known`, if there is one. The error is a complete sentence.
    fn checked(self, id: &str, known: Option<ProviderConfig>) -> Result<ProviderConfig, String> {
        if let Err(error) = ModelRef::new(id, "x") {
            return Err(error.to_string());
        }
        if self.models.len() > MAX_MODELS {
            return Err(format!("the provider `{id}` has more than {MAX_MODELS} models: remove some"));
        }
        let base_url = match (self.base_url, &known) {
            (Some(own), _) => own.0,
            (None, Some(known)) => known.base_url.clone(),
            (None, None) => {
                return Err(format!(
                    "the provider `{id}` is not built in: give its `baseUrl`, and `keyEnv` or `local: true`"
                ));
            }
        };
        let is_local = self.local.or(known.as_ref().map(|known| known.is_local)).unwrap_or(false);
        let key_env = match (self.key_env, &known) {
            (Some(own), _) => Some(own.0),
            (None, Some(known)) => known.key_env.clone().filter(|_| !is_local),
            (None, None) if is_local => None,
            (None, None) => {
                return Err(format!(
                    "the provider `{id}` needs a key unless it runs on this machine: name the variable that holds the key in `keyEnv`, \
                     or set `local: true`"
                ));
            }
        };
        let mut models = known.as_ref().map(|known| known.models.clone()).unwrap_or_default();
        for (name, model) in self.models {
            ModelRef::new(id, &name).map_err(|error| error.to_string())?;
            let limits = model.checked(&format!("{id}:{name}"))?;
            models.insert(name, limits);
        }
        let default_model =
            self.defaults.model.or_else(|| known.as_ref().and_then(|known| known.default_model.clone()));
        if let Some(model) = &default_model
            && !models.contains_key(model)
        {
            return Err(format!(
                "`models.providers.{id}.defaults.model` is {}, which is not among its models: declare it under `models`",
                shown(model)
            ));
        }
        Ok(ProviderConfig {
            enabled: self.enabled.unwrap_or(true),
            dialect: match (self.kind, &known) {
                (Some(kind), _) => kind.0,
                (None, Some(known)) => known.dialect,
                (None, None) => ApiDialect::OpenAiCompatible,
            },
            base_url,
            key_env,
            is_local,
            startup_validation: self.startup_validation.map(|word| word.0).unwrap_or_default(),
            timeouts: self.timeouts.into(),
            models,
            default_model,
            is_configured: true,
        })
    }
}

impl RawModel {
    fn checked(self, name: &str) -> Result<ModelLimits, String> {
        let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        if self.max_output_tokens.0 >= self.context_window.0 {
            return Err(format!(
                "the model `{name}` has no room for a prompt: `maxOutputTokens` must be less than `contextWindow`"
            ));
        }
        Ok(ModelLimits {
            context_window: bounded(self.context_window.0),
            max_output_tokens: bounded(self.max_output_tokens.0),
            supports_tools: self.supports_tools.unwrap_or(true),
            supports_streaming: self.supports_streaming.unwrap_or(true),
            supports_images: self.supports_images.unwrap_or(false),
            thinking: self.thinking.map_or(ThinkingForm::NoParameter, |word| word.0),
        })
    }
}

impl<'de> Deserialize<'de> for Providers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Providers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of providers by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Providers, A::Error> {
                let mut all = built_in();
                while let Some((id, raw)) = members.next_entry::<String, RawProvider>()? {
                    let known = all.remove(&id);
                    all.insert(id.clone(), raw.checked(&id, known).map_err(A::Error::custom)?);
                    if all.len() > MAX_PROVIDERS {
                        return Err(A::Error::custom(format!(
                            "has more than {MAX_PROVIDERS} entries: remove some"
                        )));
                    }
                }
                Ok(Providers(all))
            }
        }

        deserializer.deserialize_map(All)
    }
}

impl FromText for Address {
    fn from_text(text: &str) -> Result<Self, String> {
        BaseUrl::parse(text).map(Self).map_err(|error| format!("is {}: {error}", shown(text)))
    }
}

impl FromText for Variable {
    fn from_text(text: &str) -> Result<Self, String> {
        if is_variable(text) {
            return Ok(Self(text.to_owned()));
        }
        // The text may be the key itself, so the message does not repeat it.
        Err("is not the name of a variable: write a name such as \"EXAMPLE_API_KEY\", never the key itself"
            .to_owned())
    }
}

/// Whether a text is the name of an environment variable and not an API key: capitals, digits and `_`, no leading digit, and
/// no part between underscores longer than 24 bytes.
pub fn is_variable(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=100).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.split('_').all(|word| word.len() <= MAX_WORD_BYTES)
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ModelRef::deserialize(deserializer)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("is wrong: {error}")))
    }
}

/// The name of a dialect in config.json5.
pub const fn dialect_name(dialect_name: ApiDialect) -> &'static str {
    match dialect_name {
        ApiDialect::Anthropic => "anthropic",
        ApiDialect::OpenAi => "openai",
        ApiDialect::OpenAiCompatible => "openai_compatible",
        ApiDialect::Gemini => "gemini",
    }
}
