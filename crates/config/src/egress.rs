//! The `egress.agents` section: what the programs in the sandboxes of each agent may connect to.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tribune_runtime::AgentId;

use super::values::{Bounded, FromText, List, TextVisitor, Word, Words, shown};
use crate::egress_rules::{ConnectionKind, EgressRule, UnlistedPolicy};
use crate::url::HostPort;

/// Most agents with a list.
const MAX_AGENTS: usize = 4096;

/// Longest method in letters, and longest path in bytes.
const MAX_METHOD: usize = 24;
const MAX_PATH: usize = 1024;

impl Words for UnlistedPolicy {
    const WORDS: &'static [(&'static str, Self)] = &[("deny", Self::Deny), ("ask", Self::Ask)];
}

impl Words for ConnectionKind {
    const WORDS: &'static [(&'static str, Self)] =
        &[("https", Self::Https), ("http", Self::Http), ("tcp", Self::Tcp)];
}

/// The rules of each agent.
#[derive(Debug, Default)]
pub(super) struct Agents(pub(super) BTreeMap<AgentId, Vec<EgressRule>>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPlace {
    host: Name,
    port: Option<Bounded<1, 65_535>>,
    #[serde(default = "https")]
    scheme: Word<ConnectionKind>,
    #[serde(default)]
    methods: List<Method>,
    #[serde(default)]
    paths: List<Beginning>,
    #[serde(default)]
    private: bool,
}

const fn https() -> Word<ConnectionKind> {
    Word(ConnectionKind::Https)
}

/// A host without a port.
#[derive(Debug)]
struct Name(String);

#[derive(Debug)]
struct Method(String);

/// A path prefix.
#[derive(Debug)]
struct Beginning(String);

/// A rule after the checks that involve several members.
#[derive(Debug)]
struct Checked(EgressRule);

impl FromText for Name {
    fn from_text(text: &str) -> Result<Self, String> {
        let host =
            if text.contains(':') && !text.starts_with('[') { format!("[{text}]") } else { text.to_owned() };
        let read: Option<HostPort> = host.parse().ok();
        read.filter(|read| !read.has_port()).map(|read| Self(read.to_string())).ok_or_else(|| {
            format!(
                "is {}, which is not a plain host: write it like \"example.org\", with its port under `port`, and other \
                 letters in their `xn--` form",
                shown(text)
            )
        })
    }
}

impl FromText for Method {
    fn from_text(text: &str) -> Result<Self, String> {
        let is_method =
            (1..=MAX_METHOD).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase());
        if is_method && text != "CONNECT" {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("is {}, which is not an HTTP method: write it like \"GET\"", shown(text)))
    }
}

impl FromText for Beginning {
    fn from_text(text: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&byte);
        let is_path = text.starts_with('/') && text.len() <= MAX_PATH && text.bytes().all(is_plain);
        if is_path && !text.contains("//") && !text.split('/').any(|part| part == "." || part == "..") {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("is {}, which is not a path prefix: write it like \"/v1/\"", shown(text)))
    }
}

macro_rules! from_text {
    ($($type:ident),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }
    )+};
}
from_text!(Name, Method, Beginning);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawPlace::deserialize(deserializer)?;
        let speech = raw.scheme.0;
        let port = match (raw.port, speech) {
            (Some(port), _) => port.0,
            (None, ConnectionKind::Https) => 443,
            (None, ConnectionKind::Http) => 80,
            (None, ConnectionKind::Tcp) => {
                return Err(D::Error::custom("has no `port`: scheme \"tcp\" needs one"));
            }
        };
        if speech != ConnectionKind::Http && !(raw.methods.0.is_empty() && raw.paths.0.is_empty()) {
            let what = "has `methods` or `paths`, which cannot be seen inside a tunnel: leave them out, or use scheme \"http\"";
            return Err(D::Error::custom(what));
        }
        let at = format!("{}:{port}", raw.host.0);
        let at = at.parse().map_err(|()| D::Error::custom("is not a host that can be connected to"))?;
        Ok(Self(EgressRule {
            at,
            speech,
            methods: raw.methods.0.into_iter().map(|method| method.0).collect(),
            paths: raw.paths.0.into_iter().map(|path| path.0).collect(),
            private: raw.private,
        }))
    }
}

impl<'de> Deserialize<'de> for Agents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = BTreeMap::<String, List<Checked>>::deserialize(deserializer)?;
        if raw.len() > MAX_AGENTS {
            return Err(D::Error::custom(format!("has more than {MAX_AGENTS} entries: remove some")));
        }
        let own = |(name, places): (String, List<Checked>)| {
            let agent: AgentId = name.parse().map_err(|_| {
                D::Error::custom(format!(
                    "has {}, which is not the name of an agent: use the id from the roster",
                    shown(&name)
                ))
            })?;
            Ok((agent, places.0.into_iter().map(|place| place.0).collect()))
        };
        raw.into_iter().map(own).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(places: &str) -> Result<Vec<EgressRule>, String> {
        let text = format!("{{ egress: {{ agents: {{ main: {places} }} }} }}");
        let config = Config::parse("config.json5", &text).map_err(|error| error.to_string())?;
        Ok(config.egress.agents.into_values().flatten().collect())
    }

    #[test]
    fn rules_are_parsed() {
        let place = |at: &str, speech| EgressRule {
            at: at.parse().unwrap(),
            speech,
            methods: Vec::new(),
            paths: Vec::new(),
            private: false,
        };
        assert_eq!(
            read(
                r#"[{ host: "API.example.com" }, { host: "::1", scheme: "http" }, { host: "10.0.0.7", port: 5432, scheme: "tcp" },
                    { host: "m.example", port: 81, scheme: "http", methods: ["GET"], paths: ["/v1/"], private: true }]"#
            ),
            Ok(vec![
                place("api.example.com:443", ConnectionKind::Https),
                place("[::1]:80", ConnectionKind::Http),
                place("10.0.0.7:5432", ConnectionKind::Tcp),
                EgressRule {
                    methods: vec!["GET".into()],
                    paths: vec!["/v1/".into()],
                    private: true,
                    ..place("m.example:81", ConnectionKind::Http)
                },
            ])
        );
    }

    #[test]
    fn invalid_rules_are_rejected_with_their_position() {
        for (places, said) in [
            ("[{ host: 'a.example:443' }]", "is not a plain host"),
            ("[{ host: '127.1' }]", "is not a plain host"),
            ("[{ host: '*.example' }]", "is not a plain host"),
            ("[{ host: 'b\u{fc}cher.example' }]", "`xn--` form"),
            ("[{ port: 443 }]", "has no `host`: add it"),
            ("[{ host: 'a', prot: 1 }]", "did you mean `port`?"),
            ("[{ host: 'a', port: 0 }]", "use a whole number from 1 to 65535"),
            ("[{ host: 'a', scheme: 'htps' }]", "did you mean \"https\"?"),
            ("[{ host: 'a', scheme: 'tcp' }]", "has no `port`"),
            ("[{ host: 'a', methods: ['GET'] }]", "inside a tunnel"),
            ("[{ host: 'a', scheme: 'http', methods: ['get'] }]", "is not an HTTP method"),
            ("[{ host: 'a', scheme: 'http', methods: ['CONNECT'] }]", "is not an HTTP method"),
            ("[{ host: 'a', scheme: 'http', paths: ['v1'] }]", "is not a path prefix"),
            ("[{ host: 'a', scheme: 'http', paths: ['/a/../b'] }]", "is not a path prefix"),
            ("'a'", "write a list"),
        ] {
            let refused = read(places).unwrap_err();
            assert!(refused.starts_with("config.json5:1:") && refused.contains(said), "{places}: {refused}");
        }
        let named = Config::parse("config.json5", "{ egress: { agents: { 'No One': [] } } }").unwrap_err();
        assert!(named.to_string().contains("is not the name of an agent"), "{named}");
    }
}
