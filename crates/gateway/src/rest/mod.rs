//! `/v1`: the operations of [`crate::calls`] over plain HTTP, for the operator's scripts. The OpenAPI document is generated from
//! the functions of the routes.

mod agents;
mod approvals;
mod daemon;
mod examples;
mod external_gate;
mod extract;
mod health;
mod ledger;
mod providers;
mod proxy;
mod sessions;
mod workspaces;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{any, get};
use axum::{Json, Router};
use utoipa::OpenApi;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;

use crate::error::{ApiError, CODES};
use crate::gateway::Gateway;
use crate::schema::Event;

type App = State<Arc<Gateway>>;
type Answer<T> = Result<Json<T>, ApiError>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tribune",
        description = "The operator's interface to the daemon: the operations of Tribune RPC (docs/guide/rpc.md) over plain HTTP. Requests under /v1 carry `Authorization: Bearer TOKEN` with the token in run/token of the daemon's home. Errors are `{\"error\": {\"code\", \"message\"}}`: a code for programs, a sentence for people. In examples `…` stands for omitted text, and a name in angle brackets for a value."
    ),
    security(("operator" = [])),
    components(schemas(Event)),
    paths(proxy::proxied),
    tags(
        (name = "health", description = "Pages for monitoring, without a token"),
        (name = "daemon", description = "The daemon itself"),
        (name = "sessions", description = "Conversations with agents, and their turns"),
        (name = "ledger", description = "The tamper-evident log"),
        (name = "agents", description = "The roster"),
        (name = "workspaces", description = "Changes of sandboxed runs, which people land"),
        (name = "models", description = "The model providers that agents use"),
        (name = "approvals", description = "Calls that wait for a person, and the people who may decide"),
        (name = "gate", description = "Policy decisions for other agent harnesses"),
        (name = "proxy", description = "The models of this instance, for programs with an SDK of their own")
    )
)]
struct Document;

/// The routes of the document, and the document itself.
pub(crate) fn routes() -> Router<Arc<Gateway>> {
    let (described, _) = router().split_for_parts();
    let document = Arc::new(serde_json::to_value(openapi()).unwrap_or_default());
    described
        .route("/v1/openapi.json", get(move || async move { Json((*document).clone()) }))
        .route("/v1/proxy/{provider}/{*path}", any(proxy::proxied))
}

/// The described routes, with their part of the document.
fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(health::router())
        .merge(daemon::router())
        .merge(sessions::router())
        .merge(ledger::router())
        .merge(agents::router())
        .merge(approvals::router())
        .merge(external_gate::router())
        .merge(providers::router())
        .merge(workspaces::router())
}

/// The OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = router().into_openapi();
    // The version of the interface, not of the program: the document changes only when the interface does.
    document.info.version = "1".to_owned();
    document.info.license = None;
    let components = document.components.get_or_insert_default();
    let token = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("the token in run/token"));
    components.add_security_scheme("operator", SecurityScheme::Http(token.build()));
    let codes = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("a code for programs; docs/guide/rpc.md explains each"))
        .enum_values(Some(CODES.map(|(code, _, _)| code)));
    if let Some(RefOr::T(Schema::Object(error))) = components.schemas.get_mut("ErrorInfo") {
        error.properties.insert("code".to_owned(), codes.into());
    }
    examples::put_into(&mut document);
    document
}
