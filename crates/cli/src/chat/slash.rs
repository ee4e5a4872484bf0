//! The commands of a conversation. A word that is none of them is the agent's own, and is sent to it.

use serde_json::json;
use tribune_agents::SessionKey;

use super::talk::Talk;
use super::view::View;
use crate::error::CliError;
use crate::output::clean;
use crate::{agents, sessions};

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
        _ => return Ok(After::Say),
    }
    Ok(After::Stay)
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
