//! Tribune RPC: JSON-RPC 2.0, one request per text frame.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tribune_json_rpc::{self as json_rpc, NULL_ID, Repeated, RequestId, RpcMessage, decode_member};
use tribune_sessions::canary::ClearMark;

use super::api::Api;
use super::api_types::{
    AgentAdd, AgentRef, AgentTest, Done, EntryName, LedgerTail, NoteWrite, SessionInit, SessionList,
    SessionNewest, SessionRef,
};
use super::approvals::{ApprovalDecide, ApprovalList, ById, DecisionBody};
use super::approvers::ApproverAdd;
use super::decode;
use super::error::ApiError;
use super::principal::Principal;
use super::providers::ProviderTest;
use super::proxy::PassAsk;
use super::workspaces::{WorkspaceDiff, WorkspaceDiscard};

/// Every method. Those that need the connection itself (`auth.*`, `run.*`, `session.events`, `session.unfollow`, `turn.run`,
/// `workspace.land`) are in [`super::socket`].
pub const METHODS: [&str; 46] = [
    "agent.add",
    "agent.list",
    "agent.show",
    "agent.test",
    "approval.decide",
    "approval.list",
    "approval.show",
    "approver.add",
    "approver.list",
    "approver.remove",
    "auth.agent",
    "auth.challenge",
    "auth.token",
    "auth.whoami",
    "daemon.status",
    "gate.resume",
    "gate.stop_all",
    "grant.list",
    "grant.revoke",
    "keys.rotate",
    "ledger.checkpoint",
    "ledger.entry",
    "ledger.note",
    "ledger.prove",
    "ledger.tail",
    "provider.list",
    "provider.test",
    "proxy.pass",
    "run.ended",
    "run.open",
    "run.started",
    "session.cancel",
    "session.close",
    "session.events",
    "session.forget",
    "session.history",
    "session.init",
    "session.list",
    "session.status",
    "session.turns",
    "session.unfollow",
    "turn.run",
    "workspace.diff",
    "workspace.discard",
    "workspace.land",
    "workspace.list",
];

/// The methods that an approver may call.
pub(super) const APPROVER_METHODS: [&str; 8] = [
    "approval.decide",
    "approval.list",
    "approval.show",
    "auth.whoami",
    "gate.resume",
    "gate.stop_all",
    "grant.list",
    "grant.revoke",
];

/// A request with valid members. Its parameters are not decoded yet.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: RequestId,
    pub(super) method: String,
    params: Option<&'a RawValue>,
}

/// The content of a frame.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    Request(Request<'a>),
    /// A request without an id. It gets no answer and is ignored.
    Notification,
    /// Not a valid request; holds the error to send.
    Refused(String),
}

/// Parses a frame. An invalid frame gets exactly one error.
pub(super) fn read(text: &str) -> Frame<'_> {
    let refuse = |error: ApiError| Frame::Refused(failure(None, &error));
    let invalid = |what: &str| ApiError::new("invalid_request", what);
    let first = text.trim_start().as_bytes().first();
    if first == Some(&b'[') {
        return refuse(invalid("batches are not taken: send one request per frame"));
    }
    let parsed = serde_json::from_str::<RpcMessage<&RawValue>>(text);
    // Whether the text is JSON decides between two errors, so it is checked again only if there is one.
    if parsed.is_err()
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
    {
        let what = format!("the frame is not JSON: {}", describe_json_error(&error));
        return refuse(ApiError::new("parse_error", what));
    }
    if let Err(what) = check_depth(text) {
        return refuse(ApiError::new("parse_error", what));
    }
    if first != Some(&b'{') {
        return refuse(invalid("a request is an object"));
    }
    let message = match parsed {
        Ok(message) if message.repeated != Repeated::Id => message,
        Ok(_) | Err(_) => return refuse(invalid(MEMBERS)),
    };
    let id = match message.id.map(RequestId::from_raw) {
        Some(None) => return refuse(invalid(&id_rule())),
        Some(id) => id,
        None => None,
    };
    let answer = |what: &str| Frame::Refused(failure(id.as_ref(), &invalid(what)));
    let is_request = message.repeated == Repeated::None
        && !message.has_unknown_members
        && message.result.is_none()
        && message.error.is_none();
    let (Ok(version), Ok(method), true) =
        (decode_member::<String>(message.jsonrpc), decode_member::<String>(message.method), is_request)
    else {
        return answer(MEMBERS);
    };
    if version.as_deref() != Some("2.0") {
        return answer("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = method else {
        return answer("`method` is missing");
    };
    let params = message.params.filter(|params| params.get() != "null");
    id.map_or(Frame::Notification, |id| Frame::Request(Request { id, method, params }))
}

/// The error for unknown members, or members of the wrong type.
const MEMBERS: &str = "a request has the members jsonrpc, id, method and params, and method is a string";

/// The error for an invalid id.
pub(super) fn id_rule() -> String {
    format!("an id is a whole number or a string of at most {} bytes", RequestId::MAX_BYTES)
}

/// Nesting of a frame, at most. No request needs more; the parser's own limit is higher.
const MAX_DEPTH: usize = 64;

pub(super) fn check_depth(text: &str) -> Result<(), String> {
    match json_rpc::is_deeper_than(text, MAX_DEPTH) {
        true => Err(format!("the frame is nested deeper than {MAX_DEPTH}")),
        false => Ok(()),
    }
}

/// The position and kind of a JSON error, without repeating what was sent.
fn describe_json_error(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax => "it is malformed",
        serde_json::error::Category::Data => "it has unknown members, or members of the wrong type",
        serde_json::error::Category::Io => "it could not be read",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

impl Request<'_> {
    /// Decodes the parameters into the type of this method.
    pub(super) fn params<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let text = self.params.map_or("{}", RawValue::get);
        if !text.starts_with('{') {
            return Err(ApiError::params("params is an object"));
        }
        // Only known methods decode parameters, so the error may repeat the method name.
        decode::json(text, "params")
            .map_err(|error| ApiError::params(format!("{}: {}", self.method, error.message)))
    }

    /// Refuses parameters for a method that takes none.
    pub(super) fn no_params(&self) -> Result<(), ApiError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct None {}
        self.params::<None>().map(drop)
    }
}

/// Answers a method that needs only the principal of the connection.
pub(super) async fn answer(api: &Api, who: &Principal, request: &Request<'_>) -> Result<Value, ApiError> {
    match request.method.as_str() {
        "session.init" => value(api.session_init(who, request.params::<SessionInit>()?).await?),
        "session.status" => {
            value(api.session_status(who, &request.params::<SessionRef>()?.session_key).await?)
        }
        "session.list" => value(api.session_list(who, request.params::<SessionList>()?).await?),
        "session.cancel" => {
            value(api.session_cancel(who, &request.params::<SessionRef>()?.session_key).await?)
        }
        "session.close" => value(api.session_close(who, &request.params::<SessionRef>()?.session_key).await?),
        "session.forget" => {
            value(api.session_forget(who, &request.params::<SessionRef>()?.session_key).await?)
        }
        "session.turns" => {
            let SessionNewest { session_key, limit } = request.params()?;
            value(api.session_turns(who, &session_key, limit).await?)
        }
        "session.history" => {
            let SessionNewest { session_key, limit } = request.params()?;
            value(api.session_history(who, &session_key, limit).await?)
        }
        "ledger.tail" => value(api.ledger_tail(who, request.params::<LedgerTail>()?).await?),
        "ledger.entry" => value(api.ledger_entry(who, request.params::<EntryName>()?.entry).await?),
        "ledger.checkpoint" => {
            request.no_params()?;
            value(api.ledger_checkpoint(who).await?)
        }
        "ledger.prove" => {
            let proof = api.ledger_prove(who, request.params::<EntryName>()?.entry).await?;
            Ok(json!({ "proof": proof }))
        }
        "ledger.note" => value(api.ledger_note(who, request.params::<NoteWrite>()?).await?),
        "keys.rotate" => {
            request.no_params()?;
            let (key, written) = api.rotate_key(who).await?;
            Ok(json!({ "key": key, "entry": value(written)? }))
        }
        "agent.list" => {
            request.no_params()?;
            value(api.agents(who).await?)
        }
        "agent.show" => value(api.agent(who, &request.params::<AgentRef>()?.agent_id).await?),
        "agent.test" => {
            let AgentTest { agent_id, clear_mark } = request.params()?;
            value(
                api.agent_test(who, &agent_id, if clear_mark { ClearMark::Yes } else { ClearMark::No })
                    .await?,
            )
        }
        "agent.add" => value(api.agent_add(who, request.params::<AgentAdd>()?).await?),
        "approval.list" => value(api.approvals(who, request.params::<ApprovalList>()?).await?),
        "approval.show" => value(api.approval(who, &request.params::<ById>()?.id).await?),
        "approval.decide" => {
            let ApprovalDecide { id, decision, until, pattern, reason, text } = request.params()?;
            let body = DecisionBody { decision, until, pattern, reason, text };
            value(api.approval_decide(who, &id, body).await?)
        }
        "grant.list" => {
            request.no_params()?;
            value(api.grants(who).await?)
        }
        "grant.revoke" => value(api.grant_revoke(who, &request.params::<ById>()?.id).await?),
        "gate.stop_all" => {
            request.no_params()?;
            value(api.stop_all(who).await?)
        }
        "gate.resume" => {
            request.no_params()?;
            value(api.resume_all(who).await?)
        }
        "approver.list" => {
            request.no_params()?;
            value(api.approvers(who)?)
        }
        "approver.add" => value(api.approver_add(who, request.params::<ApproverAdd>()?).await?),
        "approver.remove" => value(api.approver_remove(who, request.params::<ById>()?.id).await?),
        "provider.list" => {
            request.no_params()?;
            value(api.provider_list(who).await?)
        }
        "provider.test" => value(api.provider_test(who, request.params::<ProviderTest>()?).await?),
        "proxy.pass" => value(api.proxy_pass(who, request.params::<PassAsk>()?)?),
        "workspace.list" => {
            request.no_params()?;
            value(api.workspaces(who).await?)
        }
        "workspace.diff" => value(api.workspace_diff(who, request.params::<WorkspaceDiff>()?).await?),
        "workspace.discard" => {
            value(api.workspace_discard(who, request.params::<WorkspaceDiscard>()?).await?)
        }
        "daemon.status" => {
            request.no_params()?;
            value(api.status(who).await?)
        }
        "auth.whoami" => {
            request.no_params()?;
            value(who.describe(&api.agents))
        }
        unknown => {
            let near = tribune_constitution::suggest_name::nearest(unknown, &METHODS)
                .map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
            Err(ApiError::new("method_not_found", format!("there is no such method{near}")))
        }
    }
}

pub(super) fn value(result: impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(result).map_err(|error| ApiError::new("internal", error.to_string()))
}

/// An error, as a frame. The id is null if the request has no valid one.
pub(super) fn failure(id: Option<&RequestId>, error: &ApiError) -> String {
    json_rpc::error_response(id.map_or(NULL_ID, RequestId::as_str), &error.to_rpc())
}

/// A result or an error, as a frame.
pub(super) fn response(id: &RequestId, answer: &Result<Value, ApiError>) -> String {
    match answer {
        Ok(result) => json_rpc::response(id, result),
        Err(error) => failure(Some(id), error),
    }
}

/// One event, as a notification.
pub(super) fn notification(session_key: &str, subscription: Option<u64>, event: &str) -> String {
    // A session key has no character that JSON would have to escape.
    let of_subscription =
        subscription.map_or_else(String::new, |number| format!(r#""subscription":{number},"#));
    json_rpc::notification(
        "session.event",
        format_args!(r#"{{"session_key":"{session_key}",{of_subscription}"event":{event}}}"#),
    )
}

/// The notification that a subscription has ended.
pub(super) fn ended(session_key: &str, subscription: u64, error: Option<&ApiError>) -> String {
    let mut params = json!({ "session_key": session_key, "subscription": subscription });
    if let Some(error) = error {
        params["error"] = json!(error.to_rpc());
    }
    json_rpc::notification("session.ended", &params)
}

/// The result of a method that returns nothing else.
pub(super) const DONE: Done = Done { ok: true };

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Value {
        match read(text) {
            Frame::Refused(answer) => serde_json::from_str(&answer).unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_invalid_request_gets_one_clear_error() {
        for (text, id, code) in [
            ("", Value::Null, -32700),
            ("{", Value::Null, -32700),
            ("nonsense", Value::Null, -32700),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"} trailing"#, Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#, Value::Null, -32600),
            ("1", Value::Null, -32600),
            (r#"{"id":1,"method":"x"}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"x"}"#, "a".into(), -32600),
            (r#"{"jsonrpc":"2.0","id":0}"#, 0.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","extra":1}"#, 1.into(), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","methd":"x"}"#, "a".into(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, Value::Null, -32600),
            ("{}", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0"}"#, Value::Null, -32600),
            (r#"{"method":"x"}"#, Value::Null, -32600),
        ] {
            let answer = refused(text);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &code.into()), "{text}");
        }
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        assert_eq!(refused(&deep)["error"]["code"], -32700);
        let deeper = "[".repeat(1_000_000);
        assert_eq!(refused(&format!("{{\"a\":{deeper}"))["error"]["code"], -32700);
    }

    #[test]
    fn an_id_is_returned_unchanged() {
        for id in ["0", "-1", "9007199254740993", "\"a\\u0041\"", "\"\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
            match read(&text) {
                Frame::Request(request) => assert_eq!(request.id.as_str(), id),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"x"}"#), Frame::Notification));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#)["error"]["code"], -32600);
    }
}
