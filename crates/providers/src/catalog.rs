//! The built-in providers, and the limits of their known models.
//!
//! A model that is not in the table must be declared in the configuration: its limits are not guessed from its name,
//! and no provider or model substitutes for another.

use super::endpoint::ApiDialect;

/// The capabilities and limits of a model, as its provider declares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of prompt and answer combined.
    pub context_window: u32,
    pub max_output_tokens: u32,
    pub supports_tools: bool,
    pub supports_streaming: bool,
    pub supports_images: bool,
    pub thinking: ThinkingForm,
}

/// How a request turns on a model's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingForm {
    /// The request has no thinking parameter; the model may still think.
    NoParameter,
    /// The request gives a token budget.
    Budget,
    /// The model decides how much it thinks.
    Adaptive,
}

/// A built-in provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltInProvider {
    pub id: &'static str,
    pub dialect: ApiDialect,
    pub base_url: &'static str,
    /// `None` if the provider needs no key.
    pub key_env: Option<&'static str>,
    /// Whether the server runs on this machine.
    pub is_local: bool,
    pub default_model: Option<&'static str>,
    pub models: &'static [(&'static str, ModelLimits)],
}

impl BuiltInProvider {
    pub fn limits(&self, model: &str) -> Option<ModelLimits> {
        self.models.iter().find(|(name, _)| *name == model).map(|(_, limits)| *limits)
    }
}

/// The built-in provider with this id.
pub fn built_in_provider(id: &str) -> Option<&'static BuiltInProvider> {
    BUILT_IN_PROVIDERS.iter().find(|provider| provider.id == id)
}

const fn limits(context_window: u32, max_output_tokens: u32) -> ModelLimits {
    ModelLimits {
        context_window,
        max_output_tokens,
        supports_tools: true,
        supports_streaming: true,
        supports_images: true,
        thinking: ThinkingForm::NoParameter,
    }
}

const fn kimi(context_window: u32) -> ModelLimits {
    ModelLimits { supports_images: false, ..limits(context_window, 4096) }
}

const fn claude(context_window: u32, max_output_tokens: u32, thinking: ThinkingForm) -> ModelLimits {
    ModelLimits { thinking, ..limits(context_window, max_output_tokens) }
}

/// All built-in providers.
pub const BUILT_IN_PROVIDERS: &[BuiltInProvider] = &[
    BuiltInProvider {
        id: "moonshot",
        dialect: ApiDialect::OpenAiCompatible,
        base_url: "https://api.moonshot.cn/v1",
        key_env: Some("MOONSHOT_API_KEY"),
        is_local: false,
        default_model: Some("kimi-k1-128k"),
        models: &[("kimi-k1-128k", kimi(131_072)), ("kimi-k1-32k", kimi(32_768))],
    },
    BuiltInProvider {
        id: "anthropic",
        dialect: ApiDialect::Anthropic,
        base_url: "https://api.anthropic.com",
        key_env: Some("ANTHROPIC_API_KEY"),
        is_local: false,
        default_model: None,
        models: &[
            ("claude-opus-5-5", claude(1_000_000, 128_000, ThinkingForm::Adaptive)),
            ("claude-sonnet-5", claude(1_000_000, 128_000, ThinkingForm::Adaptive)),
            ("claude-haiku-4-5", claude(200_000, 64_000, ThinkingForm::Budget)),
        ],
    },
    BuiltInProvider {
        id: "openai",
        dialect: ApiDialect::OpenAi,
        base_url: "https://api.openai.com/v1",
        key_env: Some("OPENAI_API_KEY"),
        is_local: false,
        default_model: None,
        models: &[("gpt-5.1", limits(400_000, 128_000)), ("gpt-4.1", limits(1_047_576, 32_768))],
    },
    BuiltInProvider {
        id: "gemini",
        dialect: ApiDialect::OpenAiCompatible,
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        key_env: Some("GEMINI_API_KEY"),
        is_local: false,
        default_model: None,
        models: &[
            ("gemini-2.5-pro", limits(1_048_576, 65_535)),
            ("gemini-2.5-flash", limits(1_048_576, 65_535)),
        ],
    },
    BuiltInProvider {
        id: "ollama",
        dialect: ApiDialect::OpenAiCompatible,
        base_url: "http://127.0.0.1:11434/v1",
        key_env: None,
        is_local: true,
        default_model: None,
        models: &[],
    },
    BuiltInProvider {
        id: "openrouter",
        dialect: ApiDialect::OpenAiCompatible,
        base_url: "https://openrouter.ai/api/v1",
        key_env: Some("OPENROUTER_API_KEY"),
        is_local: false,
        default_model: None,
        models: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BaseUrl, ModelRef};

    #[test]
    fn moonshot_entry_has_the_contracted_values() {
        let moonshot = built_in_provider("moonshot").unwrap();
        assert_eq!(moonshot.base_url, "https://api.moonshot.cn/v1");
        assert_eq!(moonshot.key_env, Some("MOONSHOT_API_KEY"));
        assert_eq!(moonshot.default_model, Some("kimi-k1-128k"));
        for (model, window) in [("kimi-k1-128k", 131_072), ("kimi-k1-32k", 32_768)] {
            let limits = moonshot.limits(model).unwrap();
            assert_eq!((limits.context_window, limits.max_output_tokens), (window, 4096));
            assert!(limits.supports_tools && limits.supports_streaming);
        }
        assert_eq!(moonshot.models.len(), 2);
        assert_eq!(moonshot.limits("kimi-k2"), None);
    }

    #[test]
    fn every_entry_is_consistent() {
        for provider in BUILT_IN_PROVIDERS {
            assert!(BaseUrl::parse(provider.base_url).is_ok());
            assert!(provider.key_env.is_some() != provider.is_local, "{}", provider.id);
            assert!(provider.default_model.is_none_or(|model| provider.limits(model).is_some()));
            for (model, limits) in provider.models {
                assert!(ModelRef::new(provider.id, *model).is_ok());
                assert!(limits.max_output_tokens < limits.context_window, "{model}");
            }
        }
    }
}
