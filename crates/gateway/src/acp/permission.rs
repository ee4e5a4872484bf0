//! Permission requests in the editor's own dialog (`session/request_permission`).
//!
//! The inbox is authoritative. A client whose principal may decide is asked as well; the first answer decides, and the other
//! clients' requests are cancelled. A client that disconnects decides nothing: the call keeps waiting.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::client_session::ClientSession;
use super::connection::Connection;
use super::passthrough::merge_members;
use super::update_mapper::PermissionRequest;
use super::{tool_call_view, wire};
use crate::api_types::DecisionBody;
use crate::calls::RequestedCall;

/// The duration of "Allow for one hour".
const ONE_HOUR: Duration = Duration::from_secs(60 * 60);

/// The rule that asks about autorun files, which programs of this machine execute or load by name. No mode approves it, because
/// writing such a file runs code on this machine.
const AUTORUN_RULE: &str = "path.obeyed";

/// The options: the id (also the decision in the inbox), the name for people, and the ACP kind.
const OPTIONS: [(&str, &str, &str); 4] = [
    ("allow_once", "Allow once", "allow_once"),
    ("allow_session", "Allow for this session", "allow_always"),
    ("allow_until", "Allow for one hour", "allow_always"),
    ("deny", "Deny", "reject_once"),
];

impl Connection {
    /// Asks the client for permission, unless its mode answers.
    pub(super) fn request_permission(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        request: PermissionRequest,
    ) {
        let Some(over) = session.register_request(&request.id) else { return };
        let (own, session) = (Arc::clone(self), Arc::clone(session));
        self.spawn(async move {
            if own.who.approver().is_err() {
                let what = format!("this call waits for an approver: {} ({})", request.reason, request.id);
                return own.notice(&session, &what).await;
            }
            let requested = own.gateway.api.approval_call(&own.who, &request.id).await;
            // The kind of Tribune's record: the agent may have described the call as another.
            let kind = match &requested {
                Ok(Some(call)) => tool_call_view::kind(&call.tool),
                Ok(None) | Err(_) => "other",
            };
            let mode = session.binding().mode;
            let is_autorun = request.rules.iter().any(|rule| rule == AUTORUN_RULE);
            if let Some(decision) = mode.answer(kind).filter(|decision| *decision == "deny" || !is_autorun) {
                let reason = format!("the session's mode is {}", mode.as_str());
                return own.decide(&session, &request.id, decision, Some(reason)).await;
            }
            let params = match requested {
                Ok(Some(call)) => params(&session, &request, &call),
                Ok(None) => {
                    let why = "the arguments of the call were erased";
                    return own.still_waits(&session, &request.id, why).await;
                }
                Err(error) => return own.still_waits(&session, &request.id, &error.message).await,
            };
            let Some(mut asked) = own.ask(&session.id, "session/request_permission", &params) else {
                return;
            };
            let answer = tokio::select! {
                answer = asked.answer() => answer,
                () = over.cancelled() => {
                    let gone = wire::notification("$/cancel_request", &json!({ "requestId": asked.number }));
                    return own.send(Some(&session.id), gone).await;
                }
            };
            match answer {
                Some(Ok(answer)) if answer["outcome"]["outcome"] == "selected" => {
                    let chosen = answer["outcome"]["optionId"].as_str().unwrap_or_default();
                    if let Some((decision, ..)) = OPTIONS.iter().find(|(id, ..)| *id == chosen) {
                        return own.decide(&session, &request.id, decision, None).await;
                    }
                    own.refuse(&session, &request.id, "the client's answer is not one of the options").await;
                }
                Some(Ok(answer)) if answer["outcome"]["outcome"] == "cancelled" => {
                    own.dismissed(&session, &request).await;
                }
                Some(Ok(_)) => {
                    own.refuse(&session, &request.id, "the client's answer is no answer to the request")
                        .await;
                }
                Some(Err(_)) => {
                    own.refuse(&session, &request.id, "the client answered the request with an error").await;
                }
                None => {}
            }
        });
    }

    /// The dialog was closed without an answer, which is how a client cancels its turn. Only a turn of this client is cancelled:
    /// a call in another client's turn keeps waiting.
    async fn dismissed(&self, session: &ClientSession, request: &PermissionRequest) {
        let own = match &*session.running() {
            Some(running) if running.turn.as_ref() == Some(&request.turn) => Some(running.token.clone()),
            _ => None,
        };
        match own {
            Some(own) => own.cancel(),
            None => self.still_waits(session, &request.id, "the dialog was closed without an answer").await,
        }
    }

    /// An answer that is no decision counts as a refusal: nobody would be asked again, and the turn would wait.
    async fn refuse(&self, session: &ClientSession, id: &str, why: &str) {
        self.notice(session, &format!("{why}, which counts as a denial")).await;
        self.decide(session, id, "deny", Some(why.to_owned())).await;
    }

    async fn still_waits(&self, session: &ClientSession, id: &str, why: &str) {
        let what = format!(
            "{why}, so the call keeps waiting: decide it with `tribune approvals allow {id}`, or deny it"
        );
        self.notice(session, &what).await;
    }

    /// Records the decision as the client's principal.
    async fn decide(&self, session: &ClientSession, id: &str, decision: &str, reason: Option<String>) {
        let api = &self.gateway.api;
        let until = api.sessions.governance().storage.clock.now().plus(ONE_HOUR).to_string();
        let body = |decision: &str| DecisionBody {
            decision: decision.to_owned(),
            until: (decision == "allow_until").then(|| until.clone()),
            pattern: None,
            reason: reason.clone(),
            text: None,
        };
        let mut decided = api.approval_decide(&self.who, id, body(decision)).await;
        if decided.as_ref().is_err_and(|error| error.code == "invalid_params")
            && decision.starts_with("allow_")
        {
            // This call cannot get a lasting grant. Allowing it once grants less than was chosen.
            decided = api.approval_decide(&self.who, id, body("allow_once")).await;
        }
        match decided {
            Ok(decided) if decided.missing > 0 => {
                let what =
                    format!("{} more must agree to `{id}`: see `tribune approvals list`", decided.missing);
                self.notice(session, &what).await;
            }
            // Another approver was first.
            Ok(_) => {}
            Err(error) if error.code == "conflict" => {}
            Err(error) => self.still_waits(session, id, &error.message).await,
        }
    }
}

/// The params of the permission request. They show the complete call as it would run, in Tribune's description: the agent's own
/// description may differ, and events are redacted, including the text between the two marks of a secret.
fn params(session: &ClientSession, request: &PermissionRequest, requested: &RequestedCall) -> Value {
    let mut call = request.call.clone();
    if let Some(fields) = call.as_object_mut() {
        tool_call_view::WHAT_IS_SHOWN.iter().for_each(|name| drop(fields.remove(*name)));
        fields.extend(tool_call_view::requested(requested, &session.binding().folder.to_string_lossy()));
        if !request.not_bound.is_empty() {
            let text = format!("Not bound by an approval: {}", request.not_bound.join("; "));
            let content = fields.entry("content").or_insert_with(|| json!([]));
            if let Some(blocks) = content.as_array_mut() {
                blocks.push(json!({ "type": "content", "content": { "type": "text", "text": text } }));
            }
        }
    }
    let option =
        |(id, name, kind): &(&str, &str, &str)| json!({ "optionId": id, "name": name, "kind": kind });
    let is_offered =
        |(_, _, kind): &&(&str, &str, &str)| request.not_bound.is_empty() || *kind != "allow_always";
    let options: Vec<Value> = OPTIONS.iter().filter(is_offered).map(option).collect();
    let mut of_agent = request.of_agent.clone();
    let mut meta = of_agent.remove("_meta").unwrap_or_default();
    let mut tribune = json!({ "approval": request.id, "reason": request.reason });
    if !of_agent.is_empty() {
        // Includes the agent's own options, from which Tribune chooses.
        tribune["agent_request"] = Value::Object(of_agent);
    }
    merge_members(&mut meta, json!({ "tribune": tribune }));
    json!({ "sessionId": session.id, "toolCall": call, "options": options, "_meta": meta })
}
