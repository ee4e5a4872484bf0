//! A reference to a model of a provider: `moonshot:kimi-k1-128k`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum characters of a provider name or a model name.
const MAX_CHARS: usize = 200;

/// A provider and one of its models. The serialized form is one string; an object with both members is accepted too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    provider: String,
    model: String,
}

/// Why a text is not a valid model reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefError {
    #[error("`{0}` names no provider: write provider:model, such as moonshot:kimi-k1-128k")]
    NoProvider(String),
    #[error(
        "`{0}` is not a provider name, which has lowercase letters, digits, `-` and `_`: write provider:model"
    )]
    Provider(String),
    #[error("the model name is missing: write provider:model, such as moonshot:kimi-k1-128k")]
    NoModel,
    #[error(
        "a model name has no white space and at most {MAX_CHARS} characters: write it as the provider does"
    )]
    Model,
}

impl ModelRef {
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Result<Self, ModelRefError> {
        let (provider, model) = (provider.into(), model.into());
        let is_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || "-_".contains(char);
        if provider.is_empty() || provider.len() > MAX_CHARS || !provider.chars().all(is_name) {
            return Err(ModelRefError::Provider(provider.chars().take(MAX_CHARS).collect()));
        }
        if model.is_empty() {
            return Err(ModelRefError::NoModel);
        }
        if model.chars().count() > MAX_CHARS
            || model.chars().any(|char| char.is_whitespace() || char.is_control())
        {
            return Err(ModelRefError::Model);
        }
        Ok(Self { provider, model })
    }

    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The model name as the provider writes it. It may contain `/` and `:`, as in `qwen3:8b` and
    /// `anthropic/claude-opus-5.5`.
    pub fn model(&self) -> &str {
        &self.model
    }
}

impl FromStr for ModelRef {
    type Err = ModelRefError;

    fn from_str(text: &str) -> Result<Self, ModelRefError> {
        let text = text.trim();
        match text.split_once(':') {
            Some((provider, model)) => Self::new(provider, model),
            None => Err(ModelRefError::NoProvider(text.chars().take(MAX_CHARS).collect())),
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

impl Serialize for ModelRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a model is provider:model, or an object with provider and model")]
        enum ModelRefRepr {
            Text(String),
            Object(ModelRefObject),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ModelRefObject {
            provider: String,
            model: String,
        }
        let parsed = match ModelRefRepr::deserialize(deserializer)? {
            ModelRefRepr::Text(text) => text.parse(),
            ModelRefRepr::Object(ModelRefObject { provider, model }) => Self::new(provider, model),
        };
        parsed.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deserialize_accepts_text_and_object() {
        let wanted = ModelRef::new("moonshot", "kimi-k1-128k").unwrap();
        for text in [r#""moonshot:kimi-k1-128k""#, r#"{"provider":"moonshot","model":"kimi-k1-128k"}"#] {
            assert_eq!(serde_json::from_str::<ModelRef>(text).unwrap(), wanted);
        }
        assert_eq!(serde_json::to_string(&wanted).unwrap(), r#""moonshot:kimi-k1-128k""#);
    }

    #[test]
    fn model_names_may_contain_colons_and_slashes() {
        let read: ModelRef = "ollama:library/qwen3:8b".parse().unwrap();
        assert_eq!((read.provider(), read.model()), ("ollama", "library/qwen3:8b"));
        assert_eq!(read.to_string().parse(), Ok(read));
    }

    #[test]
    fn invalid_references_are_rejected() {
        let error = |text: &str| text.parse::<ModelRef>().unwrap_err().to_string();
        assert_eq!(
            error("kimi-k1-128k"),
            "`kimi-k1-128k` names no provider: write provider:model, such as moonshot:kimi-k1-128k"
        );
        assert_eq!(
            error("moonshot:"),
            "the model name is missing: write provider:model, such as moonshot:kimi-k1-128k"
        );
        assert!(error("Moon shot:x").starts_with("`Moon shot` is not a provider name"));
        assert!(error("moonshot:a b").starts_with("a model name has no white space"));
        assert!(serde_json::from_str::<ModelRef>(r#"{"provider":"a","model":"b","x":1}"#).is_err());
        assert!(serde_json::from_str::<ModelRef>("7").is_err());
    }
}
