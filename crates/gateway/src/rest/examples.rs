//! The examples in the OpenAPI document. They come from the guides, which a test plays against a running daemon:
//! `docs/guide/rest.md` has the requests with their answers, `docs/guide/rpc.md` the events and the meaning of each error.

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, OpenApi, RefOr, Response, ResponseBuilder};

use crate::error::CODES;

const REST: &str = include_str!("../../../../docs/guide/rest.md");
const RPC: &str = include_str!("../../../../docs/guide/rpc.md");

/// One request of the guide, with its answer.
struct GuideRequest<'g> {
    verb: &'g str,
    path: &'g str,
    body: &'g str,
    status: u16,
    answer: &'g str,
}

impl<'g> GuideRequest<'g> {
    fn read(fence: &'g str) -> Option<Self> {
        let (request, answer) = fence.split_once("← ")?;
        let (status, answer) = answer.split_once('\n')?;
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let mut words = head.split_whitespace();
        let (verb, target) = (words.next()?, words.next()?);
        let path = target.split('?').next()?;
        let status = status.trim().parse().ok()?;
        Some(Self { verb, path, body: body.trim(), status, answer: answer.trim() })
    }

    fn is_of(&self, verb: &str, path: &str) -> bool {
        let alike = |(own, asked): (&str, &str)| own == asked || asked.starts_with('{');
        self.verb == verb
            && self.path.split('/').count() == path.split('/').count()
            && self.path.split('/').zip(path.split('/')).all(alike)
    }
}

/// The fenced code blocks of a guide that have this info string.
fn fences<'g>(guide: &'g str, kind: &str) -> impl Iterator<Item = &'g str> {
    let opening = format!("\n```{kind}\n");
    let mut rest = guide;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(opening.as_str())?;
        let (fence, behind) = behind.split_once("\n```")?;
        rest = behind;
        Some(fence)
    })
}

/// Parses JSON; any other text becomes a string.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// Inserts the examples into the document.
pub(super) fn put_into(document: &mut OpenApi) {
    let requests: Vec<GuideRequest<'_>> = fences(REST, "http").filter_map(GuideRequest::read).collect();
    for (path, item) in &mut document.paths.paths {
        for (verb, operation) in operations(item) {
            let own: Vec<_> = requests.iter().filter(|request| request.is_of(verb, path)).collect();
            add_examples(operation, &own);
        }
    }
    let Some(components) = &mut document.components else { return };
    if let Some(RefOr::T(Schema::AllOf(event))) = components.schemas.get_mut("Event") {
        event.examples = fences(RPC, "event").map(event_example).collect();
    }
    if let Some(RefOr::T(Schema::Object(error))) = components.schemas.get_mut("ErrorBody") {
        error.examples = CODES.iter().map(|(code, ..)| error_example(code)).collect();
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, post, put, delete, .. } = item;
    let all = [("GET", get), ("POST", post), ("PUT", put), ("DELETE", delete)];
    all.into_iter().filter_map(|(verb, operation)| Some((verb, operation.as_mut()?)))
}

fn add_examples(operation: &mut Operation, requests: &[&GuideRequest<'_>]) {
    let responses = &mut operation.responses.responses;
    let template = responses.get("default").cloned();
    for example in requests {
        let status = example.status.to_string();
        if example.status >= 400 && !responses.contains_key(&status) {
            // The status has no response in the document yet: it gets the shape that every error has.
            let Some(RefOr::T(Response { content, .. })) = template.clone() else { continue };
            let mut response = ResponseBuilder::new().description("an error").build();
            response.content = content;
            responses.insert(status.clone(), response.into());
        }
        if let Some(RefOr::T(response)) = responses.get_mut(&status) {
            for content in
                response.content.values_mut().filter_map(inline).filter(|content| content.example.is_none())
            {
                content.example = Some(value(example.answer));
            }
        }
    }
    // The request example is the one with the lowest status, so a successful one if there is any.
    let best = requests.iter().filter(|own| !own.body.is_empty()).min_by_key(|own| own.status);
    if let (Some(RefOr::T(body)), Some(best)) = (&mut operation.request_body, best) {
        for content in body.content.values_mut().filter_map(inline) {
            content.example = Some(value(best.body));
        }
    }
}

fn inline(content: &mut RefOr<Content>) -> Option<&mut Content> {
    match content {
        RefOr::T(content) => Some(content),
        RefOr::Ref(_) => None,
    }
}

fn event_example(fence: &str) -> Value {
    let mut event = value(fence);
    // The guide writes `…` for the number; the schema requires a number.
    if event["seq"] == "…" {
        event["seq"] = json!(1);
    }
    event
}

/// An error with the meaning that the guide gives for its code.
fn error_example(code: &str) -> Value {
    let row = RPC.lines().find(|line| line.starts_with(&format!("| `{code}` | -")));
    let meaning = row.and_then(|row| row.split(" | ").nth(3)).unwrap_or_default();
    json!({ "error": { "code": code, "message": meaning.trim_end_matches([' ', '|']) } })
}
