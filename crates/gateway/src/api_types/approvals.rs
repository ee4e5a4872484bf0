//! Approvals, decisions and grants.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_governance::approval::{ReplacedContent, ReplacedFile};
use tribune_records::approval::grant::Grant;
use tribune_storage::store::ApprovalRow;
use utoipa::ToSchema;

use crate::views::LabelStep;

/// `approval.list`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalList {
    /// `pending` (the default), `allowed`, `denied`, `expired`, `withdrawn` or `any`. Pending approvals are listed oldest
    /// first, all others newest first, by the time of the request.
    pub(crate) state: Option<String>,
    /// Only approvals after this one in the list: the `next` of the previous page.
    pub(crate) after: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub(crate) limit: Option<usize>,
}

/// Names one approval or grant.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ById {
    pub(crate) id: String,
}

/// `approval.decide`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalDecide {
    pub(crate) id: String,
    /// `allow_once`, `allow_session`, `allow_until`, `allow_pattern`, `deny` or `deny_stop`.
    pub(crate) decision: String,
    pub(crate) until: Option<String>,
    pub(crate) pattern: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) text: Option<String>,
}

/// A decision on an approval.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// `allow_once`, `allow_session`, `allow_until`, `allow_pattern`, `deny` or `deny_stop`.
    pub(crate) decision: String,
    /// For `allow_until` and `allow_pattern`: a time such as 2030-01-31T18:00:00Z.
    pub(crate) until: Option<String>,
    /// For `allow_pattern`: the pattern of calls that the grant covers.
    pub(crate) pattern: Option<String>,
    /// The reason in the decider's words. It is public, like a note in the ledger.
    pub(crate) reason: Option<String>,
    /// For `allow_once`, if `draft` names an argument: replacement text for that argument.
    pub(crate) text: Option<String>,
}

/// A call that waits for a person, or waited for one.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ApprovalInfo {
    pub(crate) id: String,
    /// `pending`, `allowed`, `denied`, `expired` or `withdrawn`.
    pub(crate) state: String,
    pub(crate) session_key: String,
    pub(crate) agent_id: String,
    pub(crate) tool: String,
    pub(crate) call_id: String,
    /// The risk of the tool: `low`, `medium`, `high` or `critical`.
    pub(crate) risk: String,
    /// The rules that require the approval.
    pub(crate) rules: Vec<String>,
    /// Why, as a sentence.
    pub(crate) reason: String,
    /// The least trust of anything in the session's context.
    pub(crate) trust: String,
    /// Whether private data is in the session's context.
    pub(crate) private: bool,
    /// The roles that may decide. If empty, any approver may.
    pub(crate) roles: Vec<String>,
    /// How many people must agree; `votes` lists those who have.
    pub(crate) needs: u32,
    pub(crate) votes: Vec<String>,
    pub(crate) created_at: String,
    pub(crate) expires_at: String,
    /// Digest of the exact action.
    pub(crate) digest: String,
    /// What decides what would run and is not part of the digest, in words. Such a call can only be allowed once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_bound: Vec<String>,
    /// The approval that this one replaces; `changed` lists what has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changed: Vec<String>,
    /// The changes of the files that `changed` names, as a unified diff. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grant: Option<String>,
    /// The text it was allowed with, if the decider replaced its own. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The outcome of the call, once it is known: `ran`, `failed`, `denied`, `cancelled`, `killed`, `timed_out` or
    /// `interrupted`. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) came_of_it: Option<String>,
    /// The exact action that would run. Null once the session's content was forgotten. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) action: Option<Value>,
    /// The folder on this machine to which its paths belong, if it names one. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<String>,
    /// The file that it would replace, as the digest covers it. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<Replaced>,
    /// Patterns that would have covered it, narrowest first. Not in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) patterns: Vec<String>,
    /// How many earlier approvals each pattern would have covered. Not in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) past: Vec<Past>,
    /// The history of the session's labels, oldest first. Not in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) trail: Vec<LabelStep>,
    /// The argument whose text a decider may replace with `text`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) draft: Option<String>,
}

/// The file at the path of a call, as it was when the approval was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Replaced {
    pub(crate) path: String,
    /// Whether there was a file: without one, the call creates it.
    pub(crate) exists: bool,
    /// Its content. Absent if it is large, or no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

impl From<ReplacedFile> for Replaced {
    fn from(file: ReplacedFile) -> Self {
        let exists = file.content != ReplacedContent::Absent;
        Self { path: file.path, exists, text: file.content.text().map(str::to_owned) }
    }
}

/// How many of the agent's last calls of the tool that needed an approval a pattern would have covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Past {
    pub(crate) pattern: String,
    pub(crate) covered: usize,
    /// How many there were; at most 50 of each state are counted.
    pub(crate) asked: usize,
    /// How many of the covered calls were denied.
    pub(crate) denied: usize,
}

/// A page of approvals.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ApprovalPage {
    pub(crate) approvals: Vec<ApprovalInfo>,
    /// Give this as `after` for the next page.
    pub(crate) next: Option<String>,
    /// How many approvals are pending now.
    pub(crate) pending: usize,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DecisionResult {
    pub(crate) id: String,
    pub(crate) state: String,
    /// How many more must agree.
    pub(crate) missing: u32,
    pub(crate) grant: Option<String>,
    /// The turn that made the call has ended. An allowed call is executed all the same, unless something about it has
    /// changed: then a new approval is pending. Either way the result is sent to the agent's mailbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) without_turn: bool,
    /// The outcome of a call that was allowed after its turn, if it is known by now: `ran`, `failed`, `denied`, `killed`,
    /// `timed_out` or `interrupted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) came_of_it: Option<String>,
}

/// The grants in force, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Grants {
    #[schema(value_type = Vec<Object>)]
    pub(crate) grants: Vec<Grant>,
}

/// Whether everything is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Frozen {
    pub(crate) frozen: bool,
    /// Turns that were ended.
    pub(crate) cancelled: usize,
    /// Whether it was already in this state.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) already: bool,
}

impl From<ApprovalRow> for ApprovalInfo {
    fn from(row: ApprovalRow) -> Self {
        let asked = row.requested;
        Self {
            id: asked.id,
            state: row.state.as_str().to_owned(),
            session_key: asked.session,
            agent_id: asked.agent,
            tool: asked.tool,
            call_id: asked.call_id,
            risk: asked.risk,
            rules: asked.rules,
            reason: asked.reason,
            trust: asked.labels.trust.as_str().to_owned(),
            private: asked.labels.private,
            roles: asked.roles,
            needs: asked.needs,
            votes: row.votes,
            created_at: row.created_at,
            expires_at: asked.expires_at,
            digest: asked.digest,
            not_bound: asked.not_bound,
            instead_of: asked.instead_of,
            changed: asked.changed,
            diff: None,
            decision: row.decision,
            decided_by: row.decided_by,
            decided_at: row.decided_at,
            words: row.reason,
            grant: row.grant,
            text: None,
            came_of_it: None,
            action: None,
            folder: None,
            replaces: None,
            patterns: Vec::new(),
            past: Vec::new(),
            trail: Vec::new(),
            draft: None,
        }
    }
}
