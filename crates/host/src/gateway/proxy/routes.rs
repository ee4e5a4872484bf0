//! What may be asked at all: a closed list for each dialect, compared as it is written. Nothing is decoded or cleaned up, so a
//! path that only becomes one of these by decoding (`%2e`, `//`, `..`) is not one of these.

use axum::http::Method;
use tribune_agents::provider::Dialect;

use super::is_chat;
use crate::gateway::ApiError;

/// Characters of the name of a model in a path, and of a value in a query.
const MAX_NAME: usize = 200;

/// A request that is on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: Kind,
    pub(super) method: Method,
    /// Behind the provider's base.
    pub(super) path: String,
    pub(super) query: Option<String>,
    /// The model that the path names.
    pub(super) model: Option<String>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A model's answer.
    Answer,
    /// How many tokens a prompt has.
    Count,
    Embeddings,
    Models,
    Model,
}

/// The entry of the list that a request is. `rest` is what stands behind the provider's name.
pub(super) fn find(
    dialect: Dialect,
    method: &Method,
    rest: &str,
    query: Option<&str>,
) -> Result<Route, ApiError> {
    // SDKs of Chat Completions are given a base that ends with /v1, or one that does not; ours has what the provider wants.
    let path = if is_chat(dialect) { rest.strip_prefix("v1/").unwrap_or(rest) } else { rest };
    let known: &[(Method, &str, Kind)] = match dialect {
        Dialect::Anthropic => &[
            (Method::POST, "v1/messages", Kind::Answer),
            (Method::POST, "v1/messages/count_tokens", Kind::Count),
            (Method::GET, "v1/models", Kind::Models),
        ],
        Dialect::OpenAi | Dialect::OpenAiCompatible => &[
            (Method::POST, "chat/completions", Kind::Answer),
            (Method::POST, "embeddings", Kind::Embeddings),
            (Method::GET, "models", Kind::Models),
        ],
    };
    let listed = known.iter().find(|(verb, name, _)| verb == method && *name == path);
    let (kind, model) = match listed {
        Some((_, _, kind)) => (*kind, None),
        None => {
            let folder = if is_chat(dialect) { "models/" } else { "v1/models/" };
            let model = path.strip_prefix(folder).filter(|name| method == Method::GET && is_name(name));
            let model = model.ok_or_else(|| not_listed(known))?;
            (Kind::Model, Some(model.to_owned()))
        }
    };
    let query = query.filter(|query| !query.is_empty());
    if query.is_some_and(|query| !fits(dialect, kind, query)) {
        return Err(ApiError::forbidden("this query is not forwarded: leave it out"));
    }
    let (method, path, query) = (method.clone(), path.to_owned(), query.map(str::to_owned));
    Ok(Route { kind, method, path, query, model })
}

fn not_listed(known: &[(Method, &str, Kind)]) -> ApiError {
    let known: Vec<String> = known.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    ApiError::forbidden(format!(
        "this is not forwarded: what is, is {}, and GET of one model",
        known.join(", ")
    ))
}

/// Whether every pair of a query is one that SDKs send, and none comes twice.
fn fits(dialect: Dialect, kind: Kind, query: &str) -> bool {
    let is_known = |name: &str, value: &str| match (dialect, kind, name) {
        (Dialect::Anthropic, Kind::Answer | Kind::Count, "beta") => value == "true",
        (Dialect::Anthropic, Kind::Models, "limit") => {
            (1..=4).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit())
        }
        (Dialect::Anthropic, Kind::Models, "after_id" | "before_id") => is_name(value),
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

/// Whether a text is a plain name: one that means the same to everyone on the way.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dialect: Dialect, method: &Method, rest: &str, query: Option<&str>) -> Option<(Kind, String)> {
        find(dialect, method, rest, query).ok().map(|route| (route.kind, route.path))
    }

    #[test]
    fn what_is_on_the_list() {
        let post = |dialect, rest| found(dialect, &Method::POST, rest, None);
        let get = |dialect, rest| found(dialect, &Method::GET, rest, None);
        assert_eq!(post(Dialect::Anthropic, "v1/messages"), Some((Kind::Answer, "v1/messages".into())));
        assert_eq!(
            post(Dialect::Anthropic, "v1/messages/count_tokens"),
            Some((Kind::Count, "v1/messages/count_tokens".into()))
        );
        assert_eq!(
            get(Dialect::Anthropic, "v1/models/claude-haiku-4-5"),
            Some((Kind::Model, "v1/models/claude-haiku-4-5".into()))
        );
        for dialect in [Dialect::OpenAi, Dialect::OpenAiCompatible] {
            for rest in ["chat/completions", "v1/chat/completions"] {
                assert_eq!(post(dialect, rest), Some((Kind::Answer, "chat/completions".into())));
            }
            assert_eq!(post(dialect, "v1/embeddings"), Some((Kind::Embeddings, "embeddings".into())));
            assert_eq!(get(dialect, "models"), Some((Kind::Models, "models".into())));
            assert_eq!(get(dialect, "v1/models/qwen3:8b"), Some((Kind::Model, "models/qwen3:8b".into())));
        }
    }

    #[test]
    fn everything_else_is_refused() {
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
            "responses",
            "v1/responses",
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
            for dialect in [Dialect::Anthropic, Dialect::OpenAi, Dialect::OpenAiCompatible] {
                for method in [Method::GET, Method::POST, Method::DELETE, Method::PUT] {
                    let refused = find(dialect, &method, rest, None).map_err(|error| error.code);
                    assert_eq!(refused, Err("forbidden"), "{dialect:?} {method} {rest:?}");
                }
            }
        }
        for (dialect, method, rest) in [
            (Dialect::Anthropic, Method::GET, "v1/messages"),
            (Dialect::Anthropic, Method::DELETE, "v1/models/a"),
            (Dialect::Anthropic, Method::POST, "v1/models"),
            (Dialect::Anthropic, Method::POST, "messages"),
            (Dialect::OpenAi, Method::GET, "chat/completions"),
            (Dialect::OpenAi, Method::DELETE, "models/a"),
            (Dialect::OpenAi, Method::POST, "v1/messages"),
            (Dialect::OpenAi, Method::OPTIONS, "models"),
        ] {
            assert_eq!(found(dialect, &method, rest, None), None, "{method} {rest}");
        }
    }

    #[test]
    fn queries_are_those_that_sdks_send() {
        let messages = |query| found(Dialect::Anthropic, &Method::POST, "v1/messages", Some(query)).is_some();
        let models = |query| found(Dialect::Anthropic, &Method::GET, "v1/models", Some(query)).is_some();
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
        assert!(found(Dialect::OpenAi, &Method::GET, "models", Some("limit=1")).is_none());
    }
}
