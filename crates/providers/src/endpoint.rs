//! Where a provider is, how it is spoken to, and how long it is waited for.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;

use super::key::ApiKey;

/// How requests and answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// Chat Completions as OpenAI takes it: the bound of the output is `max_completion_tokens`.
    OpenAi,
    /// Chat Completions as others took it up: `max_tokens`, and `reasoning_content` goes back with a call.
    OpenAiCompatible,
    /// Gemini's own API. It is handed through for programs that speak it; our own loop does not.
    Gemini,
}

/// A provider as it is configured.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The name people know it by, such as `moonshot`.
    pub provider: String,
    pub dialect: Dialect,
    pub base_url: BaseUrl,
    pub key: Option<ApiKey>,
    /// The variable that the key comes from. Where there is one, a key is needed.
    pub key_env: Option<String>,
    pub patience: Patience,
}

/// How long each thing may take, and how often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until a connection stands, TLS and all.
    pub connect: Duration,
    /// Until the first byte of an answer's body. A long prompt is read first.
    pub first_byte: Duration,
    /// Between any two bytes after that. Pings count.
    pub idle: Duration,
    /// All of one answer, so that pings cannot keep a turn open for ever.
    pub whole: Duration,
    /// How often a request is sent at most.
    pub attempts: u32,
    /// Before the second attempt; doubled before each further one.
    pub backoff: Duration,
    /// A provider that asks for more is not waited for: the error says when to come back.
    pub longest_wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            idle: Duration::from_mins(2),
            whole: Duration::from_hours(1),
            attempts: 4,
            backoff: Duration::from_secs(1),
            longest_wait: Duration::from_mins(1),
        }
    }
}

/// An address that paths can be put behind: `http` or `https`, a host, and no user, query or fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Why a text is not the address of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    #[error("the base URL is not a URL: write one like https://api.example.com/v1")]
    NotAUrl,
    #[error("the base URL begins with `{0}:`: write https:, or http: for a server on this machine")]
    Scheme(String),
    #[error("the base URL holds a user or a password: keys come from the environment, take them out")]
    Credentials,
    #[error("the base URL has a query or a fragment, which paths cannot follow: take it out")]
    Tail,
}

impl BaseUrl {
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| BaseUrlError::NotAUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BaseUrlError::Scheme(url.scheme().to_owned()));
        }
        if !url.has_host() {
            return Err(BaseUrlError::NotAUrl);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BaseUrlError::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(BaseUrlError::Tail);
        }
        Ok(Self(url))
    }

    /// The address with a path behind it.
    pub(super) fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        let path = format!("{}/{path}", self.0.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// Host and port, for people.
    pub(super) fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Whether what is sent there is sealed.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether nothing that is sent there leaves the machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.map_or(host == "localhost", |address| address.is_loopback())
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_behind() {
        let joined = |base: &str| BaseUrl::parse(base).unwrap().join("chat/completions").to_string();
        assert_eq!(joined("https://api.moonshot.cn/v1"), "https://api.moonshot.cn/v1/chat/completions");
        assert_eq!(joined("https://api.moonshot.cn/v1/"), "https://api.moonshot.cn/v1/chat/completions");
        assert_eq!(joined("http://127.0.0.1:1"), "http://127.0.0.1:1/chat/completions");
    }

    #[test]
    fn what_is_no_base() {
        assert_eq!(BaseUrl::parse("api.example.com"), Err(BaseUrlError::NotAUrl));
        assert_eq!(BaseUrl::parse("ftp://example.com"), Err(BaseUrlError::Scheme("ftp".into())));
        assert_eq!(BaseUrl::parse("https://me:key@example.com"), Err(BaseUrlError::Credentials));
        assert_eq!(BaseUrl::parse("https://example.com/?key=1"), Err(BaseUrlError::Tail));
    }

    #[test]
    fn what_stays_on_the_machine() {
        for (base, stays) in [
            ("http://127.0.0.1:11434/v1", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://localhost.example.com", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(BaseUrl::parse(base).unwrap().is_loopback(), stays, "{base}");
        }
    }
}
