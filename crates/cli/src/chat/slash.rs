//! The slash commands of a conversation. Any other word that begins with `/` is sent to the agent.

use serde_json::json;
use tribune_runtime::SessionKey;

use super::connection::ChatConnection;
use super::slash_tribune;
use super::view::ChatView;
use crate::error::CliError;
use crate::output::clean;
use crate::{agents, approvals, sessions};

/// Messages that `/history` shows.
const HISTORY: u32 = 20;

/// Session numbers that `/new` tries.
const MAX_SESSIONS: u32 = 10_000;

const HELP: &str = "\
/help      show this list
/status    show the session: its state, its mandate, its turns
/history   show the newest messages
/sessions  list the sessions of this agent
/agents    list the agents and what they may do
/tribune   show the law: its mode, its hash, what it denied here, which calls wait (also /clawos)
/approve   allow a waiting call: /approve ID, or just /approve if only one waits
/deny      deny a waiting call: /deny ID
/new       start a new session
/cancel    cancel the running turn
/quit      quit (Ctrl-D); the session stays open
Any other line that begins with `/` goes to the agent: the rehearsal agent knows /scenes and /play NAME.";

/// What to do after a line.
pub(super) enum SlashOutcome {
    /// It was a command, which has run.
    Handled,
    Quit,
    /// It is a message for the agent.
    SendToAgent,
}

pub(super) async fn run(
    line: &str,
    connection: &mut ChatConnection<'_>,
    view: &mut ChatView<'_>,
) -> Result<SlashOutcome, CliError> {
    let of_session = json!({ "session_key": connection.key() });
    match line {
        "/help" => view.output().result(|_| HELP.to_owned(), &json!({ "help": HELP }))?,
        "/quit" | "/exit" => return Ok(SlashOutcome::Quit),
        "/status" => {
            let info = connection.call("session.status", &of_session).await?;
            view.output().result(|paint| sessions::info_text(&info, paint), &info)?;
        }
        "/history" => {
            let params = json!({ "session_key": connection.key(), "limit": HISTORY });
            let history = connection.call("session.history", &params).await?;
            view.output().result(|paint| sessions::history_text(&history, paint), &history)?;
        }
        "/sessions" => {
            let page =
                connection.call("session.list", &json!({ "agent_id": connection.key().agent() })).await?;
            view.output().result(|paint| sessions::list_text(&page, paint), &page)?;
        }
        "/agents" => {
            let list = connection.call("agent.list", &json!({})).await?;
            view.output().result(|paint| agents::list_text(&list, paint), &list)?;
        }
        line if slash_tribune::is_slash_tribune(line) => slash_tribune::show(connection, view).await?,
        "/cancel" => {
            let cancelled = connection.call("session.cancel", &of_session).await?;
            view.output().result(|_| sessions::cancelled_text(&cancelled).to_owned(), &cancelled)?;
        }
        "/new" => {
            let key = unused_key(connection).await?;
            connection.switch_to(key).await?;
            let key = connection.key();
            view.output()
                .result(|_| format!("this is {}", clean(key.as_str())), &json!({ "session_key": key }))?;
        }
        other => match decision(other) {
            Some((decision, id)) => decide(connection, view, decision, &id).await?,
            None => return Ok(SlashOutcome::SendToAgent),
        },
    }
    Ok(SlashOutcome::Handled)
}

/// The decision that a line asks for, and the call's id; an empty id stands for the only waiting call.
pub(super) fn decision(line: &str) -> Option<(&'static str, String)> {
    let (word, id) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let id = id.trim();
    // More than one word is a message for the agent.
    if id.contains(char::is_whitespace) {
        return None;
    }
    match word {
        "/approve" => Some(("allow_once", id.to_ascii_lowercase())),
        "/deny" => Some(("deny", id.to_ascii_lowercase())),
        _ => None,
    }
}

/// Decides a call that an earlier turn left waiting.
async fn decide(
    connection: &mut ChatConnection<'_>,
    view: &mut ChatView<'_>,
    decision: &str,
    typed: &str,
) -> Result<(), CliError> {
    if typed.is_empty() {
        let what = "name the call by the first characters of its id: /tribune shows the waiting calls";
        return Err(CliError::Input(what.to_owned()));
    }
    let id = approvals::resolve(connection.client().await?, typed).await?;
    let decided = connection.call("approval.decide", &json!({ "id": id, "decision": decision })).await?;
    view.output().result(|_| approvals::decided_text(&decided), &decided)?;
    Ok(())
}

/// Finds a key that no session has: the current key with a number appended.
async fn unused_key(connection: &mut ChatConnection<'_>) -> Result<SessionKey, CliError> {
    let (base, number) = numbered(connection.key().as_str());
    let base = base.to_owned();
    for number in number + 1..=MAX_SESSIONS {
        let key: SessionKey =
            format!("{base}-{number}").parse().map_err(|error| CliError::Input(format!("{error}")))?;
        match connection.call("session.status", &json!({ "session_key": key })).await {
            Ok(_) => {}
            Err(CliError::Daemon(error)) if error.code() == Some("not_found") => return Ok(key),
            Err(error) => return Err(error),
        }
    }
    Err(CliError::Input(format!(
        "there are {MAX_SESSIONS} sessions with this name: choose another name with --session"
    )))
}

/// Splits a key into its base and its number; the first session has none.
fn numbered(key: &str) -> (&str, u32) {
    let number = key.rsplit_once('-').and_then(|(base, number)| Some((base, number.parse().ok()?)));
    number.filter(|(_, number)| *number > 1).unwrap_or((key, 1))
}

#[cfg(test)]
mod tests {
    use super::decision;

    #[test]
    fn decision_is_one_word_and_an_id() {
        assert_eq!(decision(" /approve 7K "), Some(("allow_once", "7k".to_owned())));
        assert_eq!(decision("/deny"), Some(("deny", String::new())));
        for line in ["/approved 7k", "approve 7k", "/approve this and that"] {
            assert_eq!(decision(line), None, "{line}");
        }
    }
}
