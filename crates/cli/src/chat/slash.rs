//! The commands of a conversation. A word that is none of them is the agent's own, and is sent to it.

use serde_json::json;
use tribune_agents::SessionKey;

use super::connection::Talk;
use super::slash_tribune;
use super::view::View;
use crate::error::CliError;
use crate::output::clean;
use crate::{agents, approvals, sessions};

/// Messages that `/history` shows.
const HISTORY: u32 = 20;

/// Sessions that `/new` counts through before it gives up.
const MAX_SESSIONS: u32 = 10_000;

const HELP: &str = "\
/help      this
/status    the session: its state, its mandate, its turns
/history   what was said last
/sessions  every session of this agent
/agents    every agent, and what it may do
/tribune   the law: its mode, its hash, what it denied here, what waits (also /clawos)
/approve   allow a call that waits: /approve ID, or just /approve if one waits
/deny      deny it: /deny ID
/new       begin a new session
/cancel    cancel the turn that is running
/quit      leave (Ctrl-D); the session stays open
Anything else that begins with `/` goes to the agent: the rehearsal agent knows /scenes and /play NAME.";

/// What happens after a line.
pub(super) enum After {
    /// It was a command, and is done.
    Stay,
    Quit,
    /// It is for the agent.
    Say,
}

pub(super) async fn run(line: &str, talk: &mut Talk<'_>, view: &mut View<'_>) -> Result<After, CliError> {
    let of_session = json!({ "session_key": talk.key() });
    match line {
        "/help" => view.output().result(|_| HELP.to_owned(), &json!({ "help": HELP }))?,
        "/quit" | "/exit" => return Ok(After::Quit),
        "/status" => {
            let info = talk.call("session.status", &of_session).await?;
            view.output().result(|paint| sessions::info_text(&info, paint), &info)?;
        }
        "/history" => {
            let params = json!({ "session_key": talk.key(), "limit": HISTORY });
            let history = talk.call("session.history", &params).await?;
            view.output().result(|paint| sessions::history_text(&history, paint), &history)?;
        }
        "/sessions" => {
            let page = talk.call("session.list", &json!({ "agent_id": talk.key().agent() })).await?;
            view.output().result(|paint| sessions::list_text(&page, paint), &page)?;
        }
        "/agents" => {
            let list = talk.call("agent.list", &json!({})).await?;
            view.output().result(|paint| agents::list_text(&list, paint), &list)?;
        }
        line if slash_tribune::is_meant(line) => slash_tribune::show(talk, view).await?,
        "/cancel" => {
            let cancelled = talk.call("session.cancel", &of_session).await?;
            view.output().result(|_| sessions::cancelled_text(&cancelled).to_owned(), &cancelled)?;
        }
        "/new" => {
            let key = fresh(talk).await?;
            talk.move_to(key).await?;
            let key = talk.key();
            view.output()
                .result(|_| format!("this is {}", clean(key.as_str())), &json!({ "session_key": key }))?;
        }
        other => match decision(other) {
            Some((decision, id)) => decide(talk, view, decision, &id).await?,
            None => return Ok(After::Say),
        },
    }
    Ok(After::Stay)
}

/// The decision that a line asks for, and about which call; no letters stand for the only one.
pub(super) fn decision(line: &str) -> Option<(&'static str, String)> {
    let (word, id) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let id = id.trim();
    // More than one word is something to say to the agent.
    if id.contains(char::is_whitespace) {
        return None;
    }
    match word {
        "/approve" => Some(("allow_once", id.to_ascii_lowercase())),
        "/deny" => Some(("deny", id.to_ascii_lowercase())),
        _ => None,
    }
}

/// Decides between turns, about what an earlier turn left waiting.
async fn decide(
    talk: &mut Talk<'_>,
    view: &mut View<'_>,
    decision: &str,
    typed: &str,
) -> Result<(), CliError> {
    if typed.is_empty() {
        let what = "say which call is meant, by the first letters of its id: /tribune shows what waits";
        return Err(CliError::Input(what.to_owned()));
    }
    let id = approvals::resolve(talk.client().await?, typed).await?;
    let decided = talk.call("approval.decide", &json!({ "id": id, "decision": decision })).await?;
    view.output().result(|_| approvals::decided_text(&decided), &decided)?;
    Ok(())
}

/// A key that no session has: the one of now with a number behind it.
async fn fresh(talk: &mut Talk<'_>) -> Result<SessionKey, CliError> {
    let (base, number) = numbered(talk.key().as_str());
    let base = base.to_owned();
    for number in number + 1..=MAX_SESSIONS {
        let key: SessionKey =
            format!("{base}-{number}").parse().map_err(|error| CliError::Input(format!("{error}")))?;
        match talk.call("session.status", &json!({ "session_key": key })).await {
            Ok(_) => {}
            Err(CliError::Daemon(error)) if error.code() == Some("not_found") => return Ok(key),
            Err(error) => return Err(error),
        }
    }
    Err(CliError::Input(format!(
        "there are {MAX_SESSIONS} sessions of this name: name another with --session"
    )))
}

/// A key and the number behind it; the first has none.
fn numbered(key: &str) -> (&str, u32) {
    let number = key.rsplit_once('-').and_then(|(base, number)| Some((base, number.parse().ok()?)));
    number.filter(|(_, number)| *number > 1).unwrap_or((key, 1))
}

#[cfg(test)]
mod tests {
    use super::decision;

    #[test]
    fn a_decision_is_one_word_and_an_id() {
        assert_eq!(decision(" /approve 7K "), Some(("allow_once", "7k".to_owned())));
        assert_eq!(decision("/deny"), Some(("deny", String::new())));
        for line in ["/approved 7k", "approve 7k", "/approve this and that"] {
            assert_eq!(decision(line), None, "{line}");
        }
    }
}
