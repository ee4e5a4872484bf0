//! One GET and its redirects, each checked like the first address. Only redirects to the same place are followed: the verdict
//! is about that place, and a redirect to another one takes a call of its own.
//!
//! Every hop has its own client, which resolves one name, to the addresses that were checked for it. So a name cannot mean
//! something else by the time of the connection (DNS rebinding), and no cookies, connection or referrer carry over from
//! one host to the next. Proxies from the environment are not used.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, redirect};
use tribune_config::url::Target;
use tribune_records::outcome::{AccessLog, Resource, ToolError, ToolErrorCode};
use tribune_records::text::shown;

use super::Egress;

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Time limit of the whole fetch with redirects and body: less than that of a call.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(25);

/// The request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) target: Target,
    pub(crate) accept: &'static str,
    /// Maximum bytes of the body; the rest is not read.
    pub(crate) max_bytes: usize,
    pub(crate) redirects: usize,
    /// Which content types are accepted.
    pub(crate) takes: fn(&str) -> bool,
}

/// The response.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The address after the last redirect.
    pub(crate) target: Target,
    /// In lowercase, without parameters.
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body was truncated.
    pub(crate) is_cut: bool,
}

/// Fetches within a time limit.
pub(crate) async fn get(egress: &Egress, asked: Asked, trail: &AccessLog) -> Result<Fetched, ToolError> {
    get_within(TOTAL_TIMEOUT, egress, asked, trail).await
}

async fn get_within(
    limit: Duration,
    egress: &Egress,
    asked: Asked,
    trail: &AccessLog,
) -> Result<Fetched, ToolError> {
    let host = asked.target.host().to_owned();
    tokio::time::timeout(limit, hops(egress, asked, trail)).await.unwrap_or_else(|_| {
        let sentence =
            format!("`{host}` took longer than {} s to answer: try another source", limit.as_secs());
        Err(ToolError::new(ToolErrorCode::TimedOut, sentence))
    })
}

async fn hops(egress: &Egress, asked: Asked, trail: &AccessLog) -> Result<Fetched, ToolError> {
    let mut target = asked.target.clone();
    for _ in 0..=asked.redirects {
        let addresses = egress.check(&target).await?;
        trail.read(Resource::Url(target.host().to_owned()))?;
        let response = send(&target, addresses, asked.accept).await?;
        match redirected(&target, &response)? {
            Some(next) => target = next,
            None => return take(target, response, &asked).await,
        }
    }
    let sentence = match asked.redirects {
        0 => format!("`{}` redirects elsewhere, which is not followed: tell the operator", target.host()),
        most => format!("there are more than {most} redirects: choose another source"),
    };
    Err(ToolError::new(ToolErrorCode::Refused, sentence))
}

async fn send(target: &Target, addresses: Vec<SocketAddr>, accept: &str) -> Result<Response, ToolError> {
    let broken = |what: &str| {
        ToolError::new(
            ToolErrorCode::Failed,
            format!("`{}` {what}: try again later, or another source", target.host()),
        )
    };
    let sent = begin(target, addresses, accept)
        .map_err(|_| broken("could not be reached, because TLS is not available here"))?;
    sent.await.map_err(|error| {
        broken(if error.is_connect() { "could not be connected to" } else { "closed the connection" })
    })
}

/// In a `Box`, because the types of the HTTP library are nested too deep for the compiler to check where a turn is spawned.
fn begin(
    target: &Target,
    addresses: Vec<SocketAddr>,
    accept: &str,
) -> reqwest::Result<BoxFuture<'static, reqwest::Result<Response>>> {
    let mut client = Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("tribune/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(Arc::new(Pinned { host: target.host().to_owned(), addresses }));
    if target.url().scheme() == "http" {
        // No certificate is needed for plain HTTP, so the host's certificates are not read.
        client = client.tls_certs_only([]);
    }
    Ok(Box::pin(client.build()?.get(target.url().clone()).header(ACCEPT, accept).send()))
}

/// The address that the answer redirects to, if any.
fn redirected(from: &Target, response: &Response) -> Result<Option<Target>, ToolError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let refused = |what: &str| {
        let sentence = format!("`{}` redirects {what}: choose another source", from.host());
        ToolError::new(ToolErrorCode::Refused, sentence)
    };
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| from.url().join(location).ok());
    let next = next.ok_or_else(|| refused("to no address"))?;
    if from.url().scheme() == "https" && next.scheme() != "https" {
        return Err(refused("from https to an address without it"));
    }
    let next = Target::new(next)?;
    let place = |target: &Target| (target.url().scheme().to_owned(), target.host().to_owned(), target.port());
    if place(&next) != place(from) {
        let sentence = format!(
            "`{}` leads to another place, `{}`: fetch that address if you need it",
            from.host(),
            shown(next.url().as_str())
        );
        return Err(ToolError::new(ToolErrorCode::Refused, sentence));
    }
    Ok(Some(next))
}

async fn take(target: Target, mut response: Response, asked: &Asked) -> Result<Fetched, ToolError> {
    let host = target.host();
    let status = response.status();
    if !status.is_success() {
        let code = if matches!(status.as_u16(), 404 | 410) {
            ToolErrorCode::NotFound
        } else {
            ToolErrorCode::Failed
        };
        return Err(ToolError::new(code, format!("`{host}` answers {status}: check the address")));
    }
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    let content_type = content_type.trim().to_ascii_lowercase();
    if !(asked.takes)(&content_type) {
        let kind = if content_type.is_empty() { "of no kind" } else { &content_type };
        let sentence =
            format!("the answer of `{host}` is {}, which cannot be used: choose another", shown(kind));
        return Err(ToolError::new(ToolErrorCode::Refused, sentence));
    }
    let mut body = Vec::new();
    let mut is_cut = false;
    loop {
        let chunk = response.chunk().await.map_err(|_| {
            let sentence = format!("`{host}` closed the connection in the middle of its answer: try again");
            ToolError::new(ToolErrorCode::Failed, sentence)
        })?;
        let Some(chunk) = chunk else { break };
        let room = asked.max_bytes - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_cut = true;
            break;
        }
    }
    Ok(Fetched { target, content_type, body, is_cut })
}

/// A resolver that knows one name.
#[derive(Debug)]
struct Pinned {
    host: String,
    addresses: Vec<SocketAddr>,
}

impl Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        let answer = if name.as_str().eq_ignore_ascii_case(&self.host) {
            Ok(Box::new(self.addresses.clone().into_iter()) as Addrs)
        } else {
            Err(io::Error::from(io::ErrorKind::PermissionDenied).into())
        };
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tribune_config::egress_rules::EgressMode;

    use super::*;

    #[tokio::test]
    async fn a_slow_body_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1000\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let allow = vec![address.to_string().parse().unwrap()];
        let asked = Asked {
            target: Target::parse(&format!("http://{address}/")).unwrap(),
            accept: "*/*",
            max_bytes: 100_000,
            redirects: 0,
            takes: |_| true,
        };
        let rules = Egress::new(EgressMode::Allowlist, allow, Vec::new());
        let limit = Duration::from_millis(200);
        let refused = get_within(limit, &rules, asked, &AccessLog::default()).await.unwrap_err();
        assert_eq!(refused.code, ToolErrorCode::TimedOut, "{refused:?}");
        // The connection is closed, so the server ends.
        server.await.unwrap();
    }
}
