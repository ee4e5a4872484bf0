//! Speaks to one provider. No redirects, no proxies of the environment, no other provider if this one fails.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::endpoint::{Dialect, Endpoint, Patience};
use super::error::{ProviderError, Quote, Status};
use super::error_body::Complaint;
use super::ids::CallIds;
use super::limits::{MAX_ERROR_BYTES, MAX_MODELS_BYTES};
use super::message::ModelRequest;
use super::parser::Parser;
use super::stream::ModelStream;
use super::transport::{Resolver, explain};
use super::{anthropic, openai, retry, sanitize};

/// How long the body of a refusal may take; it is only there to be quoted.
const REFUSAL: Duration = Duration::from_secs(10);

/// How long a list of models may take.
const LISTING: Duration = Duration::from_secs(30);

/// A provider that can be asked. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    /// Made when something is first asked: a daemon may know many providers and speak to few, and the machine's
    /// certificates take a while to read. `None` if it cannot be made.
    http: Arc<OnceLock<Option<Begin>>>,
    endpoint: Endpoint,
}

/// Begins a request. The types of the HTTP library are hidden behind this and [`Sending`], because they are nested too
/// deep to be looked through from where a turn is spawned.
type Begin = Box<dyn Fn(Method, Url) -> RequestBuilder + Send + Sync>;

fn begin(endpoint: &Endpoint) -> Option<Begin> {
    let mut http = reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(endpoint.patience.connect)
        .user_agent(concat!("tribune/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(Resolver));
    if !endpoint.base_url.is_https() {
        // Nobody is to be trusted, so the machine's certificates need not be read.
        http = http.tls_certs_only([]);
    }
    let http = http.build().ok()?;
    Some(Box::new(move |method, url| http.request(method, url)))
}

/// A request on its way.
pub(super) type Sending = BoxFuture<'static, reqwest::Result<Response>>;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    /// Whether there is a key is found out when one is needed, so that a daemon can hold a provider that it cannot use yet.
    pub fn new(endpoint: Endpoint) -> Result<Self, ProviderError> {
        let provider = || endpoint.provider.clone();
        let base = &endpoint.base_url;
        let has_key = endpoint.key.is_some() || endpoint.key_env.is_some();
        if has_key && !base.is_https() && !base.is_loopback() {
            return Err(ProviderError::InsecureUrl { provider: provider() });
        }
        Ok(Self { http: Arc::default(), endpoint })
    }

    /// The same provider over the same connections, waited for in another way. How long a connection may take stays.
    pub fn with_patience(&self, patience: Patience) -> Self {
        let endpoint = Endpoint { patience, ..self.endpoint.clone() };
        Self { http: Arc::clone(&self.http), endpoint }
    }

    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks, and comes back when the answer begins. Trouble that passes is tried again until then, and never after.
    pub async fn stream(
        &self,
        request: &ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<ModelStream, ProviderError> {
        let cancelled = || ProviderError::Cancelled { provider: self.endpoint.provider.clone() };
        let headers = self.headers()?;
        let body = match self.endpoint.dialect {
            Dialect::Anthropic => anthropic::body(request),
            dialect @ (Dialect::OpenAi | Dialect::OpenAiCompatible) => openai::body(request, dialect),
            Dialect::Gemini => {
                return Err(ProviderError::OnlyRelayed { provider: self.endpoint.provider.clone() });
            }
        };
        let body =
            body.map_err(|_| ProviderError::Unwritable { provider: self.endpoint.provider.clone() })?;
        let ids = CallIds::of(&request.messages);
        let mut attempt = 1;
        loop {
            let sent = self.ask(Purpose::Answer, headers.clone(), body.clone())?;
            let answer = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                answer = self.attempt(sent, ids.clone(), cancel) => answer,
            };
            let error = match answer {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let luck = getrandom::u32().unwrap_or(0);
            let Some(pause) = retry::pause(&error, attempt, &self.endpoint.patience, luck) else {
                return Err(error);
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled()),
                () = tokio::time::sleep(pause) => attempt += 1,
            }
        }
    }

    /// The names of the models that the key can use. Asked once, without patience: it is there to check a provider.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let provider = || self.endpoint.provider.clone();
        let limit = self.endpoint.patience.first_byte.min(LISTING);
        let headers = self.headers()?;
        let sent = self.ask(Purpose::Models, headers, Vec::new())?;
        let list = timeout(limit, async {
            let mut response = self.take(sent).await?;
            Ok(beginning(&mut response, MAX_MODELS_BYTES).await)
        });
        let list = list.await.unwrap_or_else(|_| {
            Err(ProviderError::FirstByteTimeout { provider: provider(), after: limit })
        })?;
        let list = serde_json::from_slice::<Value>(&list).unwrap_or(Value::Null);
        let (list_name, id_name) = match self.endpoint.dialect {
            Dialect::Anthropic | Dialect::OpenAi | Dialect::OpenAiCompatible => ("data", "id"),
            Dialect::Gemini => ("models", "name"),
        };
        let Some(models) = list.get(list_name).and_then(Value::as_array) else {
            let what = "it has no list of models, or one that is too long".to_owned();
            return Err(ProviderError::MalformedStream { provider: provider(), what });
        };
        let names = models.iter().filter_map(|model| model.get(id_name)?.as_str());
        // Gemini lists its models under a folder that requests leave out.
        Ok(names.map(|name| name.strip_prefix("models/").unwrap_or(name).to_owned()).collect())
    }

    async fn attempt(
        &self,
        sent: Sending,
        ids: CallIds,
        cancel: &CancellationToken,
    ) -> Result<ModelStream, ProviderError> {
        let began = Instant::now();
        let patience = &self.endpoint.patience;
        let mut response =
            timeout_at(began + patience.first_byte, self.take(sent)).await.unwrap_or_else(|_| {
                let provider = self.endpoint.provider.clone();
                Err(ProviderError::FirstByteTimeout { provider, after: patience.first_byte })
            })?;
        if let Some(kind) = other_kind(response.headers()) {
            let body = refusal(&mut response).await;
            let message = Complaint::of_status(400, &body).message;
            return Err(ProviderError::NotAStream {
                provider: self.endpoint.provider.clone(),
                kind,
                said: Quote::of(&self.endpoint, message.as_deref()),
            });
        }
        let parser = Parser::new(self.endpoint.dialect, ids);
        let body = Body::new(&self.endpoint, response, began);
        let mut stream = ModelStream::new(self.endpoint.clone(), body, parser, cancel.clone());
        stream.wait_for_output().await?;
        Ok(stream)
    }

    /// Takes only a good answer.
    async fn take(&self, sent: Sending) -> Result<Response, ProviderError> {
        let mut response = self.head(sent).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let again = retry::retry_after(response.headers(), SystemTime::now());
        let body = refusal(&mut response).await;
        let complaint = Complaint::of_status(status.as_u16(), &body);
        Err(ProviderError::of_complaint(&self.endpoint, complaint, Status(Some(status.as_u16())), again))
    }

    /// Takes any answer but one that sends us elsewhere.
    pub(super) async fn head(&self, sent: Sending) -> Result<Response, ProviderError> {
        let response = sent.await.map_err(|error| explain(&self.endpoint, &error))?;
        if response.status().is_redirection() {
            let to = redirected(&response).unwrap_or_else(|| "another address".to_owned());
            let to = sanitize::sentence(&to, self.endpoint.key.as_ref());
            return Err(ProviderError::Redirected { provider: self.endpoint.provider.clone(), to });
        }
        Ok(response)
    }

    /// Begins a request to a path behind the base.
    pub(super) fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, ProviderError> {
        match self.http.get_or_init(|| begin(&self.endpoint)) {
            Some(begin) => Ok(begin(method, url)),
            None => Err(ProviderError::NoTls { provider: self.endpoint.provider.clone() }),
        }
    }

    fn ask(&self, purpose: Purpose, headers: HeaderMap, body: Vec<u8>) -> Result<Sending, ProviderError> {
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
            (Dialect::Anthropic, Purpose::Answer) => "v1/messages",
            (Dialect::Anthropic, Purpose::Models) => "v1/models",
            (Dialect::OpenAi | Dialect::OpenAiCompatible, Purpose::Answer) => "chat/completions",
            (Dialect::OpenAi | Dialect::OpenAiCompatible, Purpose::Models) => "models",
            (Dialect::Gemini, Purpose::Answer | Purpose::Models) => "v1beta/models",
        };
        let mut url = self.endpoint.base_url.join(path);
        if purpose == Purpose::Models {
            // Pages are short otherwise, and one is enough to see whether the key works.
            url.set_query(match self.endpoint.dialect {
                Dialect::Anthropic => Some("limit=1000"),
                Dialect::Gemini => Some("pageSize=1000"),
                Dialect::OpenAi | Dialect::OpenAiCompatible => None,
            });
        }
        url
    }

    /// Who asks.
    pub(super) fn headers(&self) -> Result<HeaderMap, ProviderError> {
        let Endpoint { provider, key, key_env, .. } = &self.endpoint;
        let mut headers = HeaderMap::new();
        let (name, scheme) = match self.endpoint.dialect {
            Dialect::Anthropic => {
                headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
                (HeaderName::from_static("x-api-key"), "")
            }
            Dialect::OpenAi | Dialect::OpenAiCompatible => (AUTHORIZATION, "Bearer "),
            Dialect::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
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

/// What kind an answer is, if it is not a stream of events. One without a kind is given the benefit of the doubt.
fn other_kind(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/event-stream" => None,
        "text/html" => Some("a web page".to_owned()),
        "application/json" => Some("plain JSON".to_owned()),
        _ => Some("another kind of content".to_owned()),
    }
}

/// Where a redirect leads, without path or query.
fn redirected(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let to = response.url().join(location).ok()?;
    Some(to.origin().ascii_serialization())
}

/// The body of a refusal, as much as is looked at.
async fn refusal(response: &mut Response) -> Vec<u8> {
    timeout(REFUSAL, beginning(response, MAX_ERROR_BYTES)).await.unwrap_or_default()
}

/// The beginning of a body, as far as it arrives.
async fn beginning(response: &mut Response, limit: usize) -> Vec<u8> {
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
