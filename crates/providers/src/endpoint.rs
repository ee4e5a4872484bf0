//! The address, the dialect and the timeouts of a provider.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;

use super::key::ApiKey;

/// The format of requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiDialect {
    /// Anthropic Messages.
    Anthropic,
    /// Chat Completions of OpenAI: the output limit is `max_completion_tokens`.
    OpenAi,
    /// Chat Completions of other providers: the output limit is `max_tokens`, and `reasoning_content` is sent back with
    /// a call.
    OpenAiCompatible,
    /// Gemini's native API. It is only relayed for clients that speak it; the native agent loop does not use it.
    Gemini,
}

/// A configured provider.
#[derive(Debug, Clone)]
pub struct ProviderEndpoint {
    /// The configured name, such as `moonshot`.
    pub provider: String,
    pub dialect: ApiDialect,
    pub base_url: BaseUrl,
    pub key: Option<ApiKey>,
    /// The environment variable of the key. If it is set, requests require a key.
    pub key_env: Option<String>,
    pub timeouts: RequestTimeouts,
}

/// The timeouts of a request and its retry limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// Limit for establishing the connection, including TLS.
    pub connect: Duration,
    /// Limit until the first byte of the response body. It includes the time in which the provider processes the
    /// prompt.
    pub first_byte: Duration,
    /// Limit between two chunks after that. Pings count as chunks.
    pub idle: Duration,
    /// Limit for the whole response, so that pings cannot keep a turn open forever.
    pub total: Duration,
    /// Maximum number of times a request is sent.
    pub max_attempts: u32,
    /// Delay before the second attempt; doubled before each further one.
    pub backoff: Duration,
    /// Maximum delay between attempts. If the provider asks for a longer one, the request fails and the error gives the
    /// delay.
    pub max_retry_delay: Duration,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            idle: Duration::from_mins(2),
            total: Duration::from_hours(1),
            max_attempts: 4,
            backoff: Duration::from_secs(1),
            max_retry_delay: Duration::from_mins(1),
        }
    }
}

/// A URL that request paths can be appended to: `http` or `https`, a host, and no user, query or fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Why a text is not a valid base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    #[error("the base URL is not a URL: write one like https://api.example.com/v1")]
    NotAUrl,
    #[error("the base URL has the scheme `{0}`: use https, or http for a server on this machine")]
    Scheme(String),
    #[error("the base URL contains a user name or a password: remove them, keys come from the environment")]
    Credentials,
    #[error("the base URL has a query or a fragment, so that no path can be appended: remove it")]
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

    /// The URL with `path` appended.
    pub(super) fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        let path = format!("{}/{path}", self.0.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// Host and port, for messages.
    pub(super) fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether the host is this machine.
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
    fn join_appends_the_path() {
        let joined = |base: &str| BaseUrl::parse(base).unwrap().join("chat/completions").to_string();
        assert_eq!(joined("https://api.moonshot.cn/v1"), "https://api.moonshot.cn/v1/chat/completions");
        assert_eq!(joined("https://api.moonshot.cn/v1/"), "https://api.moonshot.cn/v1/chat/completions");
        assert_eq!(joined("http://127.0.0.1:1"), "http://127.0.0.1:1/chat/completions");
    }

    #[test]
    fn parse_rejects_invalid_base_urls() {
        assert_eq!(BaseUrl::parse("api.example.com"), Err(BaseUrlError::NotAUrl));
        assert_eq!(BaseUrl::parse("ftp://example.com"), Err(BaseUrlError::Scheme("ftp".into())));
        assert_eq!(BaseUrl::parse("https://me:key@example.com"), Err(BaseUrlError::Credentials));
        assert_eq!(BaseUrl::parse("https://example.com/?key=1"), Err(BaseUrlError::Tail));
    }

    #[test]
    fn loopback_hosts_are_recognised() {
        for (base, is_loopback) in [
            ("http://127.0.0.1:11434/v1", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://localhost.example.com", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(BaseUrl::parse(base).unwrap().is_loopback(), is_loopback, "{base}");
        }
    }
}
