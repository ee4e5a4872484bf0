//! Values that validate themselves during deserialization, because only then is their position in the file known.
//!
//! An error text is the rest of a sentence that begins with the value's path: "is 0: use a whole number from 1 to 9".

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use tribune_constitution::suggest_name::nearest;

use crate::egress_rules::EgressMode;
use crate::url::{HostPort, SearchEndpoint};

/// Most entries in a list. People type these lists.
const MAX_ENTRIES: usize = 64;

/// Longest host name with its port, in bytes; DNS allows no more.
const MAX_HOST_BYTES: usize = 255;

/// Longest pattern in bytes; the kernel accepts no longer path.
const MAX_PATTERN_BYTES: usize = 4095;

/// Longest part of a rejected value shown in a message, in characters.
const MAX_SHOWN_CHARS: usize = 64;

/// How callers without a token are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anonymous {
    /// They are rejected.
    Deny,
    /// They are accepted under the mandate for anonymous callers.
    DefaultMandate,
}

/// The least serious message that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// The sandbox that an agent's commands run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Commands run with their own root filesystem, network and process namespace, or not at all.
    Full,
    /// Commands run under Landlock and seccomp only, or not at all. For machines without user namespaces.
    Landlock,
    /// Commands run as the daemon's user. For machines that are a sandbox themselves.
    Off,
}

/// An enum that is written as one of a few words.
pub(super) trait Words: Sized + Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for Anonymous {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deny", Self::Deny), ("default_mandate", Self::DefaultMandate)];
}

impl Words for LogLevel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info), ("debug", Self::Debug)];
}

impl Words for Sandbox {
    const WORDS: &'static [(&'static str, Self)] =
        &[("full", Self::Full), ("landlock", Self::Landlock), ("off", Self::Off)];
}

impl Words for EgressMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("allowlist", Self::Allowlist), ("public", Self::Public)];
}

impl LogLevel {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

#[derive(Debug)]
pub(super) struct Word<T>(pub(super) T);

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounded<const MIN: u64, const MAX: u64>(pub(super) u64);

/// The listen address of the gateway: loopback only.
#[derive(Debug)]
pub(super) struct Address(pub(super) SocketAddr);

/// A value of the `Host` header: `name` or `name:port`.
#[derive(Debug)]
pub(super) struct Host(pub(super) String);

/// A value of the `Origin` header: `scheme://host` or `scheme://host:port`.
#[derive(Debug)]
pub(super) struct Origin(pub(super) String);

/// A host with a port that may be connected to.
#[derive(Debug)]
pub(super) struct AllowedHost(pub(super) HostPort);

/// A host, with or without a port, that may not be connected to.
#[derive(Debug)]
pub(super) struct DeniedHost(pub(super) HostPort);

/// A pattern of names in a workspace.
#[derive(Debug)]
pub(super) struct HiddenName(pub(super) String);

/// The name of a profile.
#[derive(Debug)]
pub(super) struct ProfileName(pub(super) String);

/// The address of a search engine.
#[derive(Debug)]
pub(super) struct Endpoint(pub(super) SearchEndpoint);

#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<const MIN: u64, const MAX: u64> Bounded<MIN, MAX> {
    /// The number as `usize`. No bound in use exceeds `usize`.
    pub(super) fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn refusal(found: impl fmt::Display) -> String {
        format!("is {found}: use a whole number from {MIN} to {MAX}")
    }
}

impl Default for Address {
    fn default() -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, 18789)))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Parses a text into a value; the error is the rest of a sentence.
pub(super) trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

impl<T: Words> FromText for Word<T> {
    fn from_text(text: &str) -> Result<Self, String> {
        if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(Self(*value));
        }
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let meant = nearest(text, &words)
            .map_or_else(|| "use".to_owned(), |word| format!("did you mean \"{word}\"? Use"));
        let choices: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        Err(format!("is {}: {meant} one of {}", shown(text), choices.join(", ")))
    }
}

impl FromText for Address {
    fn from_text(text: &str) -> Result<Self, String> {
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "is {}, which is not an address with a port: write it like \"127.0.0.1:18789\"",
                shown(text)
            )
        })?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "is {}, which other machines can reach: keep a loopback address such as \"127.0.0.1:18789\", and put \
                 a reverse proxy with TLS in front for other machines",
                shown(text)
            ));
        }
        Ok(Self(address))
    }
}

impl FromText for Host {
    fn from_text(text: &str) -> Result<Self, String> {
        if !is_host(text) {
            return Err(format!(
                "is {}, which is not a valid `Host` header: write it like \"tribune.example.org\" or \"tribune.local:8080\"",
                shown(text)
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl FromText for Origin {
    fn from_text(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let is_scheme = |scheme: &str| {
            let word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
            scheme.bytes().next().is_some_and(|first| first.is_ascii_alphabetic()) && scheme.bytes().all(word)
        };
        let (scheme, host) = match lower.split_once("://") {
            Some((scheme, host)) if is_scheme(scheme) && is_host(host) => (scheme, host),
            _ => {
                return Err(format!(
                    "is {}, which is not a valid `Origin` header: write it like \"https://tribune.example.org\", without a \
                     path",
                    shown(text)
                ));
            }
        };
        // Browsers omit the default port.
        let host = match scheme {
            "http" => host.strip_suffix(":80").unwrap_or(host),
            "https" => host.strip_suffix(":443").unwrap_or(host),
            _ => host,
        };
        Ok(Self(format!("{scheme}://{host}")))
    }
}

impl FromText for AllowedHost {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(HostPort::has_port).map(Self).ok_or_else(|| {
            format!("is {}, which is not a host with a port: write it like \"example.org:443\"", shown(text))
        })
    }
}

impl FromText for DeniedHost {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|()| {
            format!(
                "is {}, which is not a host: write it like \"example.org\" or \"example.org:443\"",
                shown(text)
            )
        })
    }
}

impl FromText for HiddenName {
    fn from_text(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !inner.split('/').all(is_name) || inner.contains('\0') || inner.len() > MAX_PATTERN_BYTES {
            return Err(format!(
                "is {}, which is not a name in a workspace: write a name like \".env\" or \"*.pem\", or a path from its root \
                 like \"config/secrets\"",
                shown(text)
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromText for ProfileName {
    fn from_text(text: &str) -> Result<Self, String> {
        let is_name =
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "is {}, which is not the name of a profile: write a name like \"generic\"; `tribune agents` lists them",
                shown(text)
            )),
        }
    }
}

impl FromText for Endpoint {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_: String| {
            format!(
                "is {}, which is not a plain address: write it like \"http://127.0.0.1:8888/search\"",
                shown(text)
            )
        })
    }
}

/// `name`, `name:port`, `[v6]` or `[v6]:port`.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, rest)) if v6.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", rest),
        Some(_) => return false,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    !name.is_empty() && text.len() <= MAX_HOST_BYTES && name.bytes().all(word) && is_port
}

/// A rejected value for a message: shortened, on one line. The first pass rejects secrets before any value is shown.
pub(super) fn shown(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c });
    let short: String = chars.by_ref().take(MAX_SHOWN_CHARS).collect();
    format!("`{short}{}`", if chars.next().is_some() { "…" } else { "" })
}

pub(super) struct TextVisitor<T>(pub(super) PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }
}

macro_rules! from_text {
    ($($type:ident $(<$parameter:ident: $bound:ident>)?),+) => {$(
        impl<'de $(, $parameter: $bound)?> Deserialize<'de> for $type $(<$parameter>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }
    )+};
}
from_text!(Word<T: Words>, Address, Host, Origin, AllowedHost, DeniedHost, HiddenName, ProfileName, Endpoint);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(NumberVisitor)
    }
}

struct NumberVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for NumberVisitor<MIN, MAX> {
    type Value = Bounded<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        if (MIN..=MAX).contains(&number) { Ok(Bounded(number)) } else { Err(refused::<MIN, MAX, E>(number)) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u64::try_from(number)
            .map_or_else(|_| Err(refused::<MIN, MAX, E>(number)), |number| self.visit_u64(number))
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Self::Value, E> {
        Err(refused::<MIN, MAX, E>(number))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Self::Value, E> {
        Err(refused::<MIN, MAX, E>(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Err(refused::<MIN, MAX, E>(number))
    }
}

fn refused<const MIN: u64, const MAX: u64, E: Error>(number: impl fmt::Display) -> E {
    E::custom(Bounded::<MIN, MAX>::refusal(number))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX_ENTRIES {
                return Err(A::Error::custom(format!("has more than {MAX_ENTRIES} entries: remove some")));
            }
            list.push(item);
        }
        Ok(List(list))
    }
}

/// An interval such as `30m`, `12h` or `2d`; or `off`.
#[derive(Debug)]
pub(super) struct Every(pub(super) Option<Duration>);

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "off" {
            return Ok(Self(None));
        }
        let hours = |hours: u64| Duration::from_secs(60 * 60 * hours);
        let (number, unit) = text.split_at(text.len().saturating_sub(1));
        let number: u64 = number.parse().unwrap_or(0);
        let time = match unit {
            "m" => Duration::from_secs(number.saturating_mul(60)),
            "h" => hours(number.min(24 * 365)),
            "d" => hours(24 * number.min(365)),
            _ => Duration::ZERO,
        };
        if (Duration::from_mins(10)..=hours(24 * 30)).contains(&time) {
            return Ok(Self(Some(time)));
        }
        let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        Err(D::Error::custom(format!(
            "is \"{shown}\": use a time from \"10m\" to \"30d\", such as \"12h\", or \"off\""
        )))
    }
}
