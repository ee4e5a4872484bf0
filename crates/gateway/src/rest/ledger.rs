//! `/v1/ledger`: entries, proofs, checkpoints and notes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Operator, UrlQuery};
use super::{Answer, App};
use crate::api_types::{CheckpointInfo, Entries, EntryInfo, ErrorBody, LedgerTail, NoteWrite, NotesWritten};
use crate::error::ApiError;
use crate::gateway::Gateway;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(ledger_tail))
        .routes(routes!(ledger_entry))
        .routes(routes!(ledger_checkpoint))
        .routes(routes!(ledger_proof))
        .routes(routes!(ledger_note))
}

/// The newest entries of the ledger, oldest first.
#[utoipa::path(get, path = "/v1/ledger/entries", tag = "ledger", params(LedgerTail), responses((status = 200, description = "the entries", body = Entries), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_tail(
    State(app): App,
    Operator(who): Operator,
    UrlQuery(tail): UrlQuery<LedgerTail>,
) -> Answer<Entries> {
    app.api.ledger_tail(&who, tail).await.map(Json)
}

/// One entry, by index, CID or the CID's first digits.
#[utoipa::path(get, path = "/v1/ledger/entries/{entry}", tag = "ledger", params(("entry" = String, Path, description = "index, CID or its first digits")), responses((status = 200, description = "the entry", body = EntryInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_entry(
    State(app): App,
    Operator(who): Operator,
    Path(entry): Path<String>,
) -> Answer<EntryInfo> {
    app.api.ledger_entry(&who, entry).await.map(Json)
}

/// The newest signed checkpoint.
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger", responses((status = 200, description = "the checkpoint", body = CheckpointInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_checkpoint(State(app): App, Operator(who): Operator) -> Answer<CheckpointInfo> {
    app.api.ledger_checkpoint(&who).await.map(Json)
}

/// A C2SP tlog-proof that an entry is in the log.
#[utoipa::path(get, path = "/v1/ledger/proofs/{entry}", tag = "ledger", params(("entry" = String, Path, description = "index, CID or its first digits")), responses((status = 200, description = "the proof", body = String, content_type = "text/plain"), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_proof(
    State(app): App,
    Operator(who): Operator,
    Path(entry): Path<String>,
) -> Result<String, ApiError> {
    app.api.ledger_prove(&who, entry).await
}

/// Writes notes. Their text is public: everyone who gets an export can read it.
#[utoipa::path(post, path = "/v1/ledger/notes", tag = "ledger", request_body = NoteWrite, responses((status = 200, description = "where the notes were written", body = NotesWritten), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_note(
    State(app): App,
    Operator(who): Operator,
    Body(note): Body<NoteWrite>,
) -> Answer<NotesWritten> {
    app.api.ledger_note(&who, note).await.map(Json)
}
