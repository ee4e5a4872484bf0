//! The body of a request: a JSON object that is split into its members, each kept in its original form. The checked bytes are
//! exactly the bytes that are sent. A duplicate name, or a second spelling of `model`, is rejected, because servers differ in how
//! they read it.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tribune_providers::ModelRef;
use tribune_providers::relay::ApiFormat;

use super::routes::{Kind, Route};
use crate::error::ApiError;

/// Maximum members of a body: several times what any API has.
const MAX_MEMBERS: usize = 256;

/// A parsed request body.
#[derive(Debug)]
pub(super) struct ProxiedBody {
    pub(super) model: String,
    pub(super) is_stream: bool,
    pub(super) members: Members,
}

/// The body that the provider gets.
#[derive(Debug, Default)]
pub(super) struct UpstreamBody {
    pub(super) bytes: Vec<u8>,
    /// Whether the usage must be hidden from the client, because the proxy added the request for it.
    pub(super) hides_usage: bool,
}

/// The members of an object, in order and without duplicates.
#[derive(Debug)]
pub(super) struct Members(pub(super) Vec<(String, Box<RawValue>)>);

/// Reads a body of at most `max_bytes` that arrives within `timeout`.
pub(super) async fn read(
    max_bytes: usize,
    timeout: Duration,
    route: &Route,
    body: Body,
) -> Result<ProxiedBody, ApiError> {
    let late = || {
        ApiError::new(
            "invalid_request",
            "the body did not arrive within gateway.idleSeconds, or within a minute",
        )
    };
    let bytes = tokio::time::timeout(timeout, to_bytes(body, max_bytes)).await.map_err(|_| late())?;
    let bytes = bytes.map_err(|_| {
        let what =
            "the body is larger than gateway.maxMessageBytes, or incomplete: shorten it, or raise the limit";
        ApiError::new("too_large", what)
    })?;
    match &route.model {
        Some(model) => ProxiedBody::of_path(&bytes, model, route.is_stream),
        None => ProxiedBody::parse(&bytes),
    }
}

impl ProxiedBody {
    /// For APIs that name the model in the path. A body that also names a model is rejected, because it could name another one.
    fn of_path(bytes: &[u8], model: &str, is_stream: bool) -> Result<Self, ApiError> {
        let members = Members::parse(bytes)?;
        if members.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("model")) {
            return Err(ApiError::params("the path names the model: leave `model` out of the body"));
        }
        Ok(Self { model: model.to_owned(), is_stream, members })
    }

    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let members = Members::parse(bytes)?;
        let twin = |name: &str| name.eq_ignore_ascii_case("model") && name != "model";
        if members.0.iter().any(|(name, _)| twin(name)) {
            return Err(ApiError::params("`model` must be in lower case and appear once"));
        }
        let model = members.get::<String>("model").filter(|model| ModelRef::new("x", model.as_str()).is_ok());
        let model = model.ok_or_else(|| {
            ApiError::params("`model` is missing or invalid: use the provider's name of the model")
        })?;
        let is_stream = members.get::<bool>("stream").unwrap_or(false);
        Ok(Self { model, is_stream, members })
    }

    /// The body for the provider.
    pub(super) fn for_upstream(mut self, wire: ApiFormat, kind: Kind) -> Result<UpstreamBody, ApiError> {
        let mut hides_usage = false;
        if wire == ApiFormat::Chat && kind == Kind::Answer && self.is_stream {
            hides_usage = self.members.ask_for_usage();
        }
        let bytes = self.members.to_bytes().map_err(|error| ApiError::new("internal", error.to_string()))?;
        Ok(UpstreamBody { bytes, hides_usage })
    }
}

impl Members {
    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(bytes).map_err(|error| {
            let what = if error.is_data() {
                "the body must be an object without duplicate names"
            } else {
                "the body is not JSON"
            };
            ApiError::params(format!("{what} (line {}, column {})", error.line(), error.column()))
        })
    }

    pub(super) fn get<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.0.iter().find(|(known, _)| known == name)?;
        serde_json::from_str(raw.get()).ok()
    }

    /// Sets `stream_options.include_usage`. Returns whether the client had not set it.
    fn ask_for_usage(&mut self) -> bool {
        const OPTIONS: &str = "stream_options";
        let mut options = self.get::<Map<String, Value>>(OPTIONS).unwrap_or_default();
        if options.get("include_usage") == Some(&Value::Bool(true)) {
            return false;
        }
        options.insert("include_usage".to_owned(), Value::Bool(true));
        let Ok(raw) = to_raw_value(&options) else { return false };
        match self.0.iter_mut().find(|(name, _)| name == OPTIONS) {
            Some((_, value)) => *value = raw,
            None => self.0.push((OPTIONS.to_owned(), raw)),
        }
        true
    }

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        use serde::ser::{SerializeMap as _, Serializer as _};
        let mut bytes = Vec::new();
        let mut serializer = serde_json::Serializer::new(&mut bytes);
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            object.serialize_entry(name, value)?;
        }
        object.end()?;
        Ok(bytes)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = object.next_entry()? {
                    if members.len() == MAX_MEMBERS || members.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a duplicate name, or too many members"));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_bytes_are_the_sent_bytes() {
        let text = r#"{"model":"m","stream":true,"n":18446744073709551617,"t":0.10,"text":"\u00fc \ud83d"}"#;
        let body = ProxiedBody::parse(text.as_bytes()).unwrap();
        assert_eq!((body.model.as_str(), body.is_stream), ("m", true));
        let upstream = body.for_upstream(ApiFormat::Messages, Kind::Answer).unwrap();
        assert_eq!(
            (String::from_utf8(upstream.bytes).unwrap().as_str(), upstream.hides_usage),
            (text, false)
        );
    }

    #[test]
    fn an_ambiguous_model_is_rejected() {
        for text in [
            r#"{"model":"good","model":"bad"}"#,
            r#"{"model":"good","mod\u0065l":"bad"}"#,
            r#"{"model":"good","Model":"bad"}"#,
            r#"{"MODEL":"bad"}"#,
            r#"{"model":["good"]}"#,
            r#"{"model":""}"#,
            r#"{"model":"a b"}"#,
            r#"{"model":null}"#,
            r#"{"messages":[]}"#,
            r#"["model"]"#,
            r#"{"model":"good"} {"model":"bad"}"#,
            r#"{"model":"good""#,
            "",
            "model=good",
        ] {
            assert_eq!(ProxiedBody::parse(text.as_bytes()).unwrap_err().code, "invalid_params", "{text}");
        }
        let many: String = (0..=MAX_MEMBERS).map(|n| format!(",\"m{n}\":0")).collect();
        assert!(ProxiedBody::parse(format!("{{\"model\":\"m\"{many}}}").as_bytes()).is_err());
    }

    #[test]
    fn a_body_names_no_model_if_the_path_does() {
        let body = ProxiedBody::of_path(br#"{"contents":[]}"#, "m", true).unwrap();
        assert_eq!((body.model.as_str(), body.is_stream), ("m", true));
        for text in [r#"{"model":"m"}"#, r#"{"Model":"other"}"#, r#"{"a":1,"a":2}"#, "[]"] {
            assert_eq!(
                ProxiedBody::of_path(text.as_bytes(), "m", false).unwrap_err().code,
                "invalid_params",
                "{text}"
            );
        }
    }

    #[test]
    fn stream_usage_is_requested_and_hidden_unless_the_client_requests_it() {
        let upstream = |text: &str, wire, kind| {
            let body = ProxiedBody::parse(text.as_bytes()).unwrap().for_upstream(wire, kind).unwrap();
            (String::from_utf8(body.bytes).unwrap(), body.hides_usage)
        };
        let chat = |text: &str| upstream(text, ApiFormat::Chat, Kind::Answer);
        assert_eq!(
            chat(r#"{"model":"m","stream":true}"#),
            (r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#.to_owned(), true)
        );
        assert_eq!(
            chat(r#"{"stream_options":{"x":1,"include_usage":false},"model":"m","stream":true}"#),
            (r#"{"stream_options":{"x":1,"include_usage":true},"model":"m","stream":true}"#.to_owned(), true)
        );
        for same in [
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"model":"m","stream":false}"#,
            r#"{"model":"m"}"#,
        ] {
            assert_eq!(chat(same), (same.to_owned(), false));
        }
        let same = r#"{"model":"m","stream":true}"#;
        assert_eq!(upstream(same, ApiFormat::Messages, Kind::Answer), (same.to_owned(), false));
        assert_eq!(upstream(same, ApiFormat::Responses, Kind::Answer), (same.to_owned(), false));
        assert_eq!(upstream(same, ApiFormat::Chat, Kind::Embeddings), (same.to_owned(), false));
    }
}
