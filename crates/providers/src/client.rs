//! HTTP client of one provider. It follows no redirects, ignores the proxy variables of the environment, and does not
//! fall back to another provider.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::body::ResponseBody;
use super::endpoint::{ApiDialect, ProviderEndpoint, RequestTimeouts};
use super::error::{HttpStatus, ProviderError, QuotedMessage};
use super::error_body::ReportedError;
use super::ids::CallIds;
use super::limits::{MAX_ERROR_BYTES, MAX_MODELS_BYTES};
use super::message::ModelRequest;
use super::parser::StreamParser;
use super::stream::ModelStream;
use super::transport::{Resolver, classify};
use super::{anthropic, openai, retry, sanitize};

/// Time limit for reading the body of an error response, which is only quoted.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for listing the models.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one provider. Clones share the connection pool.
#[derive(Clone)]
pub struct ProviderClient {
    /// Built on the first request: a daemon may configure many providers and use few, and loading the system's
    /// certificates is slow. `None` if building failed.
    http: Arc<OnceLock<Option<RequestFactory>>>,
    endpoint: ProviderEndpoint,
}

/// Creates request builders. This type and [`PendingResponse`] erase the types of the HTTP library, which are nested
/// too deep for the compiler to resolve where a turn is spawned.
type RequestFactory = Box<dyn Fn(Method, Url) -> RequestBuilder + Send + Sync>;

fn request_factory(endpoint: &ProviderEndpoint) -> Option<RequestFactory> {
    let mut http = reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(endpoint.timeouts.connect)
        .user_agent(concat!("tribune/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(Resolver));
    if !endpoint.base_url.is_https() {
        // Without TLS the system's certificates are not needed.
        http = http.tls_certs_only([]);
    }
    let http = http.build().ok()?;
    Some(Box::new(move |method, url| http.request(method, url)))
}

/// A request that is being sent.
pub(super) type PendingResponse = BoxFuture<'static, reqwest::Result<Response>>;

impl fmt::Debug for ProviderClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ProviderClient {
    /// A missing key is reported on the first request, so that a daemon can configure a provider before its key is set.
    pub fn new(endpoint: ProviderEndpoint) -> Result<Self, ProviderError> {
        let provider = || endpoint.provider.clone();
        let base = &endpoint.base_url;
        let has_key = endpoint.key.is_some() || endpoint.key_env.is_some();
        if has_key && !base.is_https() && !base.is_loopback() {
            return Err(ProviderError::InsecureUrl { provider: provider() });
        }
        Ok(Self { http: Arc::default(), endpoint })
    }

    /// A client of the same provider with the same connection pool and other timeouts. The connect timeout does not
    /// change.
    pub fn with_timeouts(&self, patience: RequestTimeouts) -> Self {
        let endpoint = ProviderEndpoint { timeouts: patience, ..self.endpoint.clone() };
        Self { http: Arc::clone(&self.http), endpoint }
    }

    pub const fn endpoint(&self) -> &ProviderEndpoint {
        &self.endpoint
    }

    /// Sends the request and returns when the first output arrives. Until then transient errors are retried; afterwards
    /// nothing is retried.
    pub async fn stream(
        &self,
        request: &ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<ModelStream, ProviderError> {
        let cancelled = || ProviderError::Cancelled { provider: self.endpoint.provider.clone() };
        let headers = self.headers()?;
        let body = match self.endpoint.dialect {
            ApiDialect::Anthropic => anthropic::body(request),
            dialect @ (ApiDialect::OpenAi | ApiDialect::OpenAiCompatible) => openai::body(request, dialect),
            ApiDialect::Gemini => {
                return Err(ProviderError::RelayOnly { provider: self.endpoint.provider.clone() });
            }
        };
        let body = body
            .map_err(|_| ProviderError::SerializationFailed { provider: self.endpoint.provider.clone() })?;
        let ids = CallIds::used_in(&request.messages);
        let mut attempt = 1;
        loop {
            let sent = self.start(Purpose::Answer, headers.clone(), body.clone())?;
            let answer = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                answer = self.attempt(sent, ids.clone(), cancel) => answer,
            };
            let error = match answer {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let jitter = getrandom::u32().unwrap_or(0);
            let Some(delay) = retry::delay(&error, attempt, &self.endpoint.timeouts, jitter) else {
                return Err(error);
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                () = tokio::time::sleep(delay) => attempt += 1,
            }
        }
    }

    /// The names of the models that the key can use. Sent once, without retries and with a short time limit, because it
    /// only checks a provider.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let provider = || self.endpoint.provider.clone();
        let limit = self.endpoint.timeouts.first_byte.min(MODEL_LIST_TIMEOUT);
        let headers = self.headers()?;
        let sent = self.start(Purpose::Models, headers, Vec::new())?;
        let list = timeout(limit, async {
            let mut response = self.successful(sent).await?;
            Ok(read_prefix(&mut response, MAX_MODELS_BYTES).await)
        });
        let list = list.await.unwrap_or_else(|_| {
            Err(ProviderError::FirstByteTimeout { provider: provider(), after: limit })
        })?;
        let list = serde_json::from_slice::<Value>(&list).unwrap_or(Value::Null);
        let (list_name, id_name) = match self.endpoint.dialect {
            ApiDialect::Anthropic | ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => ("data", "id"),
            ApiDialect::Gemini => ("models", "name"),
        };
        let Some(models) = list.get(list_name).and_then(Value::as_array) else {
            let what = "the response has no list of models, or the list is too long".to_owned();
            return Err(ProviderError::MalformedStream { provider: provider(), what });
        };
        let names = models.iter().filter_map(|model| model.get(id_name)?.as_str());
        // Gemini prefixes the names in its list; requests use them without the prefix.
        Ok(names.map(|name| name.strip_prefix("models/").unwrap_or(name).to_owned()).collect())
    }

    async fn attempt(
        &self,
        sent: PendingResponse,
        ids: CallIds,
        cancel: &CancellationToken,
    ) -> Result<ModelStream, ProviderError> {
        let sent_at = Instant::now();
        let patience = &self.endpoint.timeouts;
        let mut response =
            timeout_at(sent_at + patience.first_byte, self.successful(sent)).await.unwrap_or_else(|_| {
                let provider = self.endpoint.provider.clone();
                Err(ProviderError::FirstByteTimeout { provider, after: patience.first_byte })
            })?;
        if let Some(kind) = non_stream_kind(response.headers()) {
            let body = error_body(&mut response).await;
            let message = ReportedError::from_response(400, &body).message;
            return Err(ProviderError::NotAStream {
                provider: self.endpoint.provider.clone(),
                kind,
                message: QuotedMessage::new(&self.endpoint, message.as_deref()),
            });
        }
        let parser = StreamParser::new(self.endpoint.dialect, ids);
        let body = ResponseBody::new(&self.endpoint, response, sent_at);
        let mut stream = ModelStream::new(self.endpoint.clone(), body, parser, cancel.clone());
        stream.wait_for_output().await?;
        Ok(stream)
    }

    /// Waits for the response head. Fails unless the status is a success.
    async fn successful(&self, sent: PendingResponse) -> Result<Response, ProviderError> {
        let mut response = self.head(sent).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry::retry_after(response.headers(), SystemTime::now());
        let body = error_body(&mut response).await;
        let reported = ReportedError::from_response(status.as_u16(), &body);
        let status = HttpStatus(Some(status.as_u16()));
        Err(ProviderError::from_reported(&self.endpoint, reported, status, retry_after))
    }

    /// Waits for the response head, whatever its status. Fails on a redirect.
    pub(super) async fn head(&self, sent: PendingResponse) -> Result<Response, ProviderError> {
        let response = sent.await.map_err(|error| classify(&self.endpoint, &error))?;
        if response.status().is_redirection() {
            let to = redirect_origin(&response).unwrap_or_else(|| "another address".to_owned());
            let to = sanitize::sentence(&to, self.endpoint.key.as_ref());
            return Err(ProviderError::Redirected { provider: self.endpoint.provider.clone(), to });
        }
        Ok(response)
    }

    /// Creates a request builder. Fails if TLS could not be initialised.
    pub(super) fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, ProviderError> {
        match self.http.get_or_init(|| request_factory(&self.endpoint)) {
            Some(create) => Ok(create(method, url)),
            None => Err(ProviderError::TlsUnavailable { provider: self.endpoint.provider.clone() }),
        }
    }

    fn start(
        &self,
        purpose: Purpose,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<PendingResponse, ProviderError> {
        let url = self.url(purpose);
        let request = match purpose {
            Purpose::Models => self.request(Method::GET, url)?,
            Purpose::Answer => self
                .request(Method::POST, url)?
                .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body),
        };
        Ok(Box::pin(request.headers(headers).send()))
    }

    fn url(&self, purpose: Purpose) -> Url {
        let path = match (self.endpoint.dialect, purpose) {
            (ApiDialect::Anthropic, Purpose::Answer) => "v1/messages",
            (ApiDialect::Anthropic, Purpose::Models) => "v1/models",
            (ApiDialect::OpenAi | ApiDialect::OpenAiCompatible, Purpose::Answer) => "chat/completions",
            (ApiDialect::OpenAi | ApiDialect::OpenAiCompatible, Purpose::Models) => "models",
            (ApiDialect::Gemini, Purpose::Answer | Purpose::Models) => "v1beta/models",
        };
        let mut url = self.endpoint.base_url.join(path);
        if purpose == Purpose::Models {
            // The default page is short, and one page is enough to check the key.
            url.set_query(match self.endpoint.dialect {
                ApiDialect::Anthropic => Some("limit=1000"),
                ApiDialect::Gemini => Some("pageSize=1000"),
                ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => None,
            });
        }
        url
    }

    /// The authentication headers of the dialect, with the API version where the dialect has one.
    pub(super) fn headers(&self) -> Result<HeaderMap, ProviderError> {
        let ProviderEndpoint { provider, key, key_env, .. } = &self.endpoint;
        let mut headers = HeaderMap::new();
        let (name, scheme) = match self.endpoint.dialect {
            ApiDialect::Anthropic => {
                headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
                (HeaderName::from_static("x-api-key"), "")
            }
            ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => (AUTHORIZATION, "Bearer "),
            ApiDialect::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
        };
        match (key, key_env) {
            (Some(key), env) => {
                let unusable = || ProviderError::UnusableKey {
                    provider: provider.clone(),
                    env: env.clone().unwrap_or_else(|| "the environment".to_owned()),
                };
                headers.insert(name, key.header(scheme).ok_or_else(unusable)?);
            }
            (None, Some(env)) => {
                return Err(ProviderError::MissingKey { provider: provider.clone(), env: env.clone() });
            }
            (None, None) => {}
        }
        Ok(headers)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Answer,
    Models,
}

/// The content kind of a response that is not an event stream. A response without a content type is read as a stream.
fn non_stream_kind(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/event-stream" => None,
        "text/html" => Some("a web page".to_owned()),
        "application/json" => Some("plain JSON".to_owned()),
        _ => Some("another kind of content".to_owned()),
    }
}

/// The origin that a redirect points to, without path and query.
fn redirect_origin(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let to = response.url().join(location).ok()?;
    Some(to.origin().ascii_serialization())
}

/// The first [`MAX_ERROR_BYTES`] of the body of an error response.
async fn error_body(response: &mut Response) -> Vec<u8> {
    timeout(ERROR_BODY_TIMEOUT, read_prefix(response, MAX_ERROR_BYTES)).await.unwrap_or_default()
}

/// The first `limit` bytes of a body, or fewer if the connection fails.
async fn read_prefix(response: &mut Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            break;
        }
    }
    body
}
