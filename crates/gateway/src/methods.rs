//! The methods of Tribune RPC: their names, and which operation of [`crate::calls`] answers each.

use serde_json::{Value, json};
use tribune_constitution::suggest_name::nearest;
use tribune_sessions::canary::ClearMark;

use crate::api::Api;
use crate::api_types::{
    AgentAdd, AgentRef, AgentTest, ApprovalDecide, ApprovalList, ById, DecisionBody, EntryName, LedgerTail,
    NoteWrite, SessionInit, SessionList, SessionNewest, SessionRef,
};
use crate::calls::approvers::ApproverAdd;
use crate::calls::providers::ProviderTest;
use crate::calls::proxy_tokens::ProxyTokenRequest;
use crate::calls::workspaces::{WorkspaceDiff, WorkspaceDiscard};
use crate::error::ApiError;
use crate::principal::Principal;
use crate::rpc::{Request, value};

/// Every method. Those that need the connection itself (`auth.*`, `run.*`, `session.events`, `session.unfollow`, `turn.run`,
/// `workspace.land`) are in [`super::socket`].
pub const METHODS: [&str; 47] = [
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
    "auth.daemon",
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

/// The answer to a method; `None` if there is no such method.
type Answered = Result<Option<Value>, ApiError>;

/// Answers a method that needs only the principal of the connection.
pub(super) async fn answer(api: &Api, who: &Principal, request: &Request<'_>) -> Result<Value, ApiError> {
    let area = request.method.split_once('.').map_or("", |(area, _)| area);
    let answered = match area {
        "session" => answer_session(api, who, request).await?,
        "ledger" | "keys" => answer_ledger(api, who, request).await?,
        "agent" => answer_agents(api, who, request).await?,
        "approval" | "grant" | "gate" | "approver" => answer_approvals(api, who, request).await?,
        "provider" | "proxy" => answer_models(api, who, request).await?,
        "workspace" => answer_workspaces(api, who, request).await?,
        "daemon" | "auth" => answer_daemon(api, who, request).await?,
        _ => None,
    };
    answered.ok_or_else(|| unknown_method(&request.method))
}

fn unknown_method(name: &str) -> ApiError {
    let near = nearest(name, &METHODS).map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
    ApiError::new("method_not_found", format!("there is no such method{near}"))
}

/// Sessions.
async fn answer_session(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "session.init" => value(api.session_init(who, request.params::<SessionInit>()?).await?)?,
        "session.status" => {
            value(api.session_status(who, &request.params::<SessionRef>()?.session_key).await?)?
        }
        "session.list" => value(api.session_list(who, request.params::<SessionList>()?).await?)?,
        "session.cancel" => {
            value(api.session_cancel(who, &request.params::<SessionRef>()?.session_key).await?)?
        }
        "session.close" => {
            value(api.session_close(who, &request.params::<SessionRef>()?.session_key).await?)?
        }
        "session.forget" => {
            value(api.session_forget(who, &request.params::<SessionRef>()?.session_key).await?)?
        }
        "session.turns" => {
            let SessionNewest { session_key, limit } = request.params()?;
            value(api.session_turns(who, &session_key, limit).await?)?
        }
        "session.history" => {
            let SessionNewest { session_key, limit } = request.params()?;
            value(api.session_history(who, &session_key, limit).await?)?
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// The ledger and its signing key.
async fn answer_ledger(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "ledger.tail" => value(api.ledger_tail(who, request.params::<LedgerTail>()?).await?)?,
        "ledger.entry" => value(api.ledger_entry(who, request.params::<EntryName>()?.entry).await?)?,
        "ledger.checkpoint" => {
            request.no_params()?;
            value(api.ledger_checkpoint(who).await?)?
        }
        "ledger.prove" => {
            let proof = api.ledger_prove(who, request.params::<EntryName>()?.entry).await?;
            json!({ "proof": proof })
        }
        "ledger.note" => value(api.ledger_note(who, request.params::<NoteWrite>()?).await?)?,
        "keys.rotate" => {
            request.no_params()?;
            let (key, written) = api.rotate_key(who).await?;
            json!({ "key": key, "entry": value(written)? })
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Agents.
async fn answer_agents(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "agent.list" => {
            request.no_params()?;
            value(api.agents(who).await?)?
        }
        "agent.show" => value(api.agent(who, &request.params::<AgentRef>()?.agent_id).await?)?,
        "agent.test" => {
            let AgentTest { agent_id, clear_mark } = request.params()?;
            let clear = if clear_mark { ClearMark::Yes } else { ClearMark::No };
            value(api.agent_test(who, &agent_id, clear).await?)?
        }
        "agent.add" => value(api.agent_add(who, request.params::<AgentAdd>()?).await?)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Approvals, grants, the stop of everything, and approvers.
async fn answer_approvals(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "approval.list" => value(api.approvals(who, request.params::<ApprovalList>()?).await?)?,
        "approval.show" => value(api.approval(who, &request.params::<ById>()?.id).await?)?,
        "approval.decide" => {
            let ApprovalDecide { id, decision, until, pattern, reason, text } = request.params()?;
            let body = DecisionBody { decision, until, pattern, reason, text };
            value(api.approval_decide(who, &id, body).await?)?
        }
        "grant.list" => {
            request.no_params()?;
            value(api.grants(who).await?)?
        }
        "grant.revoke" => value(api.grant_revoke(who, &request.params::<ById>()?.id).await?)?,
        "gate.stop_all" => {
            request.no_params()?;
            value(api.stop_all(who).await?)?
        }
        "gate.resume" => {
            request.no_params()?;
            value(api.resume_all(who).await?)?
        }
        "approver.list" => {
            request.no_params()?;
            value(api.approvers(who).await?)?
        }
        "approver.add" => value(api.approver_add(who, request.params::<ApproverAdd>()?).await?)?,
        "approver.remove" => value(api.approver_remove(who, request.params::<ById>()?.id).await?)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Providers, and tokens for the model proxy.
async fn answer_models(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "provider.list" => {
            request.no_params()?;
            value(api.provider_list(who).await?)?
        }
        "provider.test" => value(api.provider_test(who, request.params::<ProviderTest>()?).await?)?,
        "proxy.pass" => value(api.proxy_pass(who, request.params::<ProxyTokenRequest>()?)?)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// Changes of sandboxed runs.
async fn answer_workspaces(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "workspace.list" => {
            request.no_params()?;
            value(api.workspaces(who).await?)?
        }
        "workspace.diff" => value(api.workspace_diff(who, request.params::<WorkspaceDiff>()?).await?)?,
        "workspace.discard" => {
            value(api.workspace_discard(who, request.params::<WorkspaceDiscard>()?).await?)?
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// The daemon, and the caller itself.
async fn answer_daemon(api: &Api, who: &Principal, request: &Request<'_>) -> Answered {
    let answer = match request.method.as_str() {
        "daemon.status" => {
            request.no_params()?;
            value(api.status(who).await?)?
        }
        "auth.whoami" => {
            request.no_params()?;
            value(who.describe(&api.agents))?
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}
