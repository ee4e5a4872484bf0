//! Names a model: `moonshot:kimi-k1-128k`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Characters of a name. Longer ones are mistakes.
const MAX_CHARS: usize = 200;

/// A provider and one of its models. Written as one text, or as an object with both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRef {
    provider: String,
    model: String,
}

/// Why a text names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefError {
    #[error("`{0}` names no provider: write provider:model, such as moonshot:kimi-k1-128k")]
    NoProvider(String),
    #[error(
        "`{0}` is no name of a provider, which has small letters, digits, `-` and `_`: write provider:model"
    )]
    Provider(String),
    #[error("no model is named: write provider:model, such as moonshot:kimi-k1-128k")]
    NoModel,
    #[error(
        "the name of a model has no white space and at most {MAX_CHARS} characters: write it as the provider does"
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

    /// May hold `/` and `:`, as in `qwen3:8b` and `anthropic/claude-opus-5.5`.
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
        enum Written {
            Text(String),
            Object(Object),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Object {
            provider: String,
            model: String,
        }
        let read = match Written::deserialize(deserializer)? {
            Written::Text(text) => text.parse(),
            Written::Object(Object { provider, model }) => Self::new(provider, model),
        };
        read.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let wanted = ModelRef::new("moonshot", "kimi-k1-128k").unwrap();
        for text in [r#""moonshot:kimi-k1-128k""#, r#"{"provider":"moonshot","model":"kimi-k1-128k"}"#] {
            assert_eq!(serde_json::from_str::<ModelRef>(text).unwrap(), wanted);
        }
        assert_eq!(serde_json::to_string(&wanted).unwrap(), r#""moonshot:kimi-k1-128k""#);
    }

    #[test]
    fn models_with_colons_and_slashes() {
        let read: ModelRef = "ollama:library/qwen3:8b".parse().unwrap();
        assert_eq!((read.provider(), read.model()), ("ollama", "library/qwen3:8b"));
        assert_eq!(read.to_string().parse(), Ok(read));
    }

    #[test]
    fn what_names_no_model() {
        let error = |text: &str| text.parse::<ModelRef>().unwrap_err().to_string();
        assert_eq!(
            error("kimi-k1-128k"),
            "`kimi-k1-128k` names no provider: write provider:model, such as moonshot:kimi-k1-128k"
        );
        assert_eq!(
            error("moonshot:"),
            "no model is named: write provider:model, such as moonshot:kimi-k1-128k"
        );
        assert!(error("Moon shot:x").starts_with("`Moon shot` is no name of a provider"));
        assert!(error("moonshot:a b").starts_with("the name of a model has no white space"));
        assert!(serde_json::from_str::<ModelRef>(r#"{"provider":"a","model":"b","x":1}"#).is_err());
        assert!(serde_json::from_str::<ModelRef>("7").is_err());
    }
}
