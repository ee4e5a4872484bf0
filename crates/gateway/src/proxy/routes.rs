//! The allowed endpoints: an allowlist for each dialect, compared literally. Nothing is decoded or normalized, so a path that
//! matches only after decoding (`%2e`, `//`, `..`) is rejected.

use axum::http::Method;
use tribune_providers::ApiDialect;
use tribune_providers::relay::ApiFormat;

use crate::error::ApiError;

/// Maximum characters of a model name in a path, and of a value in a query.
const MAX_NAME: usize = 200;

/// A request to an allowed endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: Kind,
    /// The format of the request and of the response.
    pub(super) wire: ApiFormat,
    pub(super) method: Method,
    /// The path relative to the provider's base URL.
    pub(super) path: String,
    pub(super) query: Option<String>,
    /// The model that the path names.
    pub(super) model: Option<String>,
    /// Whether the path requests a stream (Gemini). In other dialects the body does.
    pub(super) is_stream: bool,
}

/// One allowed endpoint.
type Listed = (Method, &'static str, Kind, ApiFormat);

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A model response.
    Answer,
    /// The token count of a prompt.
    Count,
    Embeddings,
    Models,
    Model,
}

/// Finds the endpoint of a request. `rest` is the path after the provider's name.
pub(super) fn find(
    dialect: ApiDialect,
    method: &Method,
    rest: &str,
    query: Option<&str>,
) -> Result<Route, ApiError> {
    let known: &[Listed] = match dialect {
        ApiDialect::Anthropic => &[
            (Method::POST, "v1/messages", Kind::Answer, ApiFormat::Messages),
            (Method::POST, "v1/messages/count_tokens", Kind::Count, ApiFormat::Messages),
            (Method::GET, "v1/models", Kind::Models, ApiFormat::Messages),
        ],
        ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => &[
            (Method::POST, "chat/completions", Kind::Answer, ApiFormat::Chat),
            (Method::POST, "responses", Kind::Answer, ApiFormat::Responses),
            (Method::POST, "embeddings", Kind::Embeddings, ApiFormat::Chat),
            (Method::GET, "models", Kind::Models, ApiFormat::Chat),
        ],
        ApiDialect::Gemini => &[(Method::GET, "v1beta/models", Kind::Models, ApiFormat::Gemini)],
    };
    let (path, folder, wire) = match dialect {
        ApiDialect::Anthropic => (rest, "v1/models/", ApiFormat::Messages),
        // OpenAI SDKs are configured with a base URL with or without `/v1`; the provider's base URL has it where needed.
        ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => {
            (rest.strip_prefix("v1/").unwrap_or(rest), "models/", ApiFormat::Chat)
        }
        ApiDialect::Gemini => (rest, "v1beta/models/", ApiFormat::Gemini),
    };
    let listed = known.iter().find(|(verb, name, ..)| verb == method && *name == path);
    let mut route = Route {
        kind: Kind::Model,
        wire,
        method: method.clone(),
        path: path.to_owned(),
        query: query.filter(|query| !query.is_empty()).map(str::to_owned),
        model: None,
        is_stream: false,
    };
    if let Some((_, _, kind, wire)) = listed {
        (route.kind, route.wire) = (*kind, *wire);
    } else {
        let named = path.strip_prefix(folder).and_then(|name| of_model(dialect, method, name));
        let (kind, model, is_stream) = named.ok_or_else(|| not_listed(dialect, known))?;
        (route.kind, route.model, route.is_stream) = (kind, Some(model.to_owned()), is_stream);
    }
    let is_good = match &route.query {
        Some(query) => fits(dialect, &route, query),
        // Without `alt=sse`, Gemini streams one JSON array, which the proxy does not parse.
        None => !(route.is_stream && dialect == ApiDialect::Gemini),
    };
    if !is_good {
        let what = match route.is_stream {
            true => "a stream needs the query `alt=sse` and no other",
            false => "this query is not forwarded: remove it",
        };
        return Err(ApiError::forbidden(what));
    }
    Ok(route)
}

/// Parses the part of the path after `models/`: the kind, the model, and whether it requests a stream.
fn of_model<'n>(dialect: ApiDialect, method: &Method, name: &'n str) -> Option<(Kind, &'n str, bool)> {
    if method == Method::GET {
        // After a colon Gemini has verbs, and other dialects have versions.
        let is_plain = dialect != ApiDialect::Gemini || !name.contains(':');
        return (is_name(name) && is_plain).then_some((Kind::Model, name, false));
    }
    let (model, verb) =
        name.split_once(':').filter(|_| dialect == ApiDialect::Gemini && method == Method::POST)?;
    let (kind, is_stream) = match verb {
        "generateContent" => (Kind::Answer, false),
        "streamGenerateContent" => (Kind::Answer, true),
        "countTokens" => (Kind::Count, false),
        _ => return None,
    };
    is_name(model).then_some((kind, model, is_stream))
}

fn not_listed(dialect: ApiDialect, known: &[Listed]) -> ApiError {
    let mut known: Vec<String> = known.iter().map(|(method, path, ..)| format!("{method} {path}")).collect();
    if dialect == ApiDialect::Gemini {
        let verbs = ["generateContent", "streamGenerateContent", "countTokens"];
        known.extend(verbs.map(|verb| format!("POST v1beta/models/MODEL:{verb}")));
    }
    ApiError::forbidden(format!(
        "this endpoint is not forwarded: use one of {}, or GET of one model",
        known.join(", ")
    ))
}

/// Whether every parameter of a query is one that SDKs send, without duplicates.
fn fits(dialect: ApiDialect, route: &Route, query: &str) -> bool {
    let is_known = |name: &str, value: &str| match (dialect, route.kind, name) {
        (ApiDialect::Anthropic, Kind::Answer | Kind::Count, "beta") => value == "true",
        (ApiDialect::Anthropic, Kind::Models, "limit") => {
            (1..=4).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit())
        }
        (ApiDialect::Anthropic, Kind::Models, "after_id" | "before_id") => is_name(value),
        (ApiDialect::Gemini, Kind::Answer, "alt") => route.is_stream && value == "sse",
        (ApiDialect::Gemini, Kind::Models, "pageSize") => {
            (1..=4).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    let mut seen = Vec::new();
    query.split('&').all(|pair| {
        let Some((name, value)) = pair.split_once('=') else { return false };
        let is_new = !seen.contains(&name);
        seen.push(name);
        is_new && is_known(name, value)
    })
}

/// Whether a text is a plain name, which every server on the way reads the same.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECTS: [ApiDialect; 4] =
        [ApiDialect::Anthropic, ApiDialect::OpenAi, ApiDialect::OpenAiCompatible, ApiDialect::Gemini];

    fn found(
        dialect: ApiDialect,
        method: &Method,
        rest: &str,
        query: Option<&str>,
    ) -> Option<(Kind, String)> {
        find(dialect, method, rest, query).ok().map(|route| (route.kind, route.path))
    }

    #[test]
    fn allowed_endpoints_are_found() {
        let post = |dialect, rest| found(dialect, &Method::POST, rest, None);
        let get = |dialect, rest| found(dialect, &Method::GET, rest, None);
        assert_eq!(post(ApiDialect::Anthropic, "v1/messages"), Some((Kind::Answer, "v1/messages".into())));
        assert_eq!(
            post(ApiDialect::Anthropic, "v1/messages/count_tokens"),
            Some((Kind::Count, "v1/messages/count_tokens".into()))
        );
        assert_eq!(
            get(ApiDialect::Anthropic, "v1/models/claude-haiku-4-5"),
            Some((Kind::Model, "v1/models/claude-haiku-4-5".into()))
        );
        for dialect in [ApiDialect::OpenAi, ApiDialect::OpenAiCompatible] {
            for rest in ["chat/completions", "v1/chat/completions"] {
                assert_eq!(post(dialect, rest), Some((Kind::Answer, "chat/completions".into())));
            }
            assert_eq!(post(dialect, "v1/embeddings"), Some((Kind::Embeddings, "embeddings".into())));
            assert_eq!(get(dialect, "models"), Some((Kind::Models, "models".into())));
            assert_eq!(post(dialect, "v1/responses"), Some((Kind::Answer, "responses".into())));
            assert_eq!(get(dialect, "v1/models/qwen3:8b"), Some((Kind::Model, "models/qwen3:8b".into())));
        }
    }

    #[test]
    fn a_gemini_path_names_the_model_and_the_stream() {
        let asked = |path: &str, query: Option<&str>| {
            let route = find(ApiDialect::Gemini, &Method::POST, path, query).ok()?;
            Some((route.kind, route.model?, route.is_stream, route.query))
        };
        let model = || "gemini-2.5-pro".to_owned();
        let path = |verb: &str| format!("v1beta/models/gemini-2.5-pro:{verb}");
        assert_eq!(asked(&path("generateContent"), None), Some((Kind::Answer, model(), false, None)));
        assert_eq!(asked(&path("countTokens"), None), Some((Kind::Count, model(), false, None)));
        let sse = Some("alt=sse".to_owned());
        assert_eq!(
            asked(&path("streamGenerateContent"), sse.as_deref()),
            Some((Kind::Answer, model(), true, sse))
        );
        for query in [None, Some(""), Some("alt=json"), Some("alt=sse&key=x"), Some("alt=sse&alt=sse")] {
            assert_eq!(asked(&path("streamGenerateContent"), query), None, "{query:?}");
        }
        assert_eq!(asked(&path("generateContent"), Some("alt=sse")), None);
        assert_eq!(asked(&path("generateContent"), Some("key=x")), None, "the client cannot send a key");
        let list = find(ApiDialect::Gemini, &Method::GET, "v1beta/models", Some("pageSize=50")).unwrap();
        assert_eq!(list.kind, Kind::Models);
    }

    #[test]
    fn everything_else_is_denied() {
        let tricks = [
            "",
            "/",
            "v1",
            "v1/",
            "v1/messages/",
            "/v1/messages",
            "v1//messages",
            "V1/messages",
            "v1/messages/batches",
            "v1/files",
            "v1/../v1/messages",
            "v1/./messages",
            "v1/%6dessages",
            "v1%2fmessages",
            "v1/messages%00",
            "v1/messages;a=b",
            "v1/messages\\",
            "v1/models/",
            "v1/models/..",
            "v1/models/.",
            "v1/models/a/b",
            "v1/models/a%2fb",
            "v1/models/..%2fadmin",
            "v1/models/a b",
            "responses/",
            "responses/resp_1",
            "v1/responses/resp_1/input_items",
            "v1/responses/compact",
            "v1/v1/responses",
            "v1beta/models/m:generateContent/x",
            "v1beta/models/m:predict",
            "v1beta/models/m:embedContent",
            "v1beta/models/:generateContent",
            "v1beta/models/..:generateContent",
            "v1beta/models/m:generateContent:countTokens",
            "v1beta/models/m:generatecontent",
            "v1beta/models/a/b:generateContent",
            "v1beta/models/m%3AgenerateContent",
            "v1beta/cachedContents",
            "v1beta/files",
            "upload/v1beta/files",
            "v1beta/corpora/x",
            "v1beta/tunedModels/m:generateContent",
            "v1/v1/models",
            "chat/completions/",
            "chat/completions/x",
            "v1/chat/../models",
            "fine_tuning/jobs",
            "files",
            "models/..",
            "admin",
            "@evil.example/v1/messages",
            "http://evil.example/v1/messages",
        ];
        for rest in tricks {
            for dialect in DIALECTS {
                for method in [Method::GET, Method::POST, Method::DELETE, Method::PUT] {
                    let refused = find(dialect, &method, rest, None).map_err(|error| error.code);
                    assert_eq!(refused, Err("forbidden"), "{dialect:?} {method} {rest:?}");
                }
            }
        }
        for (dialect, method, rest) in [
            (ApiDialect::Anthropic, Method::GET, "v1/messages"),
            (ApiDialect::Anthropic, Method::POST, "v1/models/m:generateContent"),
            (ApiDialect::Gemini, Method::GET, "v1beta/models/m:generateContent"),
            (ApiDialect::Anthropic, Method::DELETE, "v1/models/a"),
            (ApiDialect::Anthropic, Method::POST, "v1/models"),
            (ApiDialect::Anthropic, Method::POST, "messages"),
            (ApiDialect::OpenAi, Method::GET, "chat/completions"),
            (ApiDialect::OpenAi, Method::DELETE, "models/a"),
            (ApiDialect::OpenAi, Method::POST, "v1/messages"),
            (ApiDialect::OpenAi, Method::OPTIONS, "models"),
            (ApiDialect::OpenAi, Method::GET, "responses"),
            (ApiDialect::OpenAi, Method::DELETE, "responses"),
            (ApiDialect::Anthropic, Method::POST, "v1/responses"),
            (ApiDialect::OpenAi, Method::POST, "models/m:generateContent"),
            (ApiDialect::Gemini, Method::PUT, "v1beta/models/m:generateContent"),
            (ApiDialect::Gemini, Method::POST, "v1beta/models/m"),
            (ApiDialect::Gemini, Method::POST, "v1/messages"),
            (ApiDialect::Gemini, Method::POST, "v1/responses"),
        ] {
            assert_eq!(found(dialect, &method, rest, None), None, "{method} {rest}");
        }
    }

    #[test]
    fn only_queries_that_sdks_send_are_accepted() {
        let messages =
            |query| found(ApiDialect::Anthropic, &Method::POST, "v1/messages", Some(query)).is_some();
        let models = |query| found(ApiDialect::Anthropic, &Method::GET, "v1/models", Some(query)).is_some();
        assert!(messages("") && messages("beta=true"));
        assert!(models("limit=20&after_id=claude-haiku-4-5"));
        for query in
            ["beta=false", "beta", "beta=true&beta=true", "x=1", "beta=true&", "beta=true#x", "limit=1"]
        {
            assert!(!messages(query), "{query}");
        }
        for query in ["limit=", "limit=-1", "limit=99999", "after_id=a%26b", "after_id=..", "limit=1&limit=2"]
        {
            assert!(!models(query), "{query}");
        }
        assert!(found(ApiDialect::OpenAi, &Method::GET, "models", Some("limit=1")).is_none());
    }
}
