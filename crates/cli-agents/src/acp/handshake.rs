//! The first words with an agent: which version, what each side can do, and the conversation that goes on or begins.

use serde_json::{Value, json};

use super::passthrough_meta::opened;
use crate::agent_protocol::{Began, Conversation, FirstWords, Offered, Takes};
use crate::connection::{Fault, Link};
use crate::mcp_bridge::Served;
use crate::profile::{Capabilities, Profile, Quirk};
use tribune_runtime::RuntimeError;

/// The version of ACP that is spoken here.
const VERSION: u64 = 1;

/// Speaks the first words.
pub(super) async fn shake_hands(link: &Link, first: FirstWords<'_>) -> Result<Conversation, RuntimeError> {
    let FirstWords { profile, workspace, before, servers } = first;
    let Capabilities { fs, terminal } = profile.capabilities();
    let hello = json!({
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": { "readTextFile": fs.read_text_file, "writeTextFile": fs.write_text_file },
            "terminal": terminal,
        },
        "clientInfo": { "name": "tribune", "title": "Tribune", "version": env!("CARGO_PKG_VERSION") },
    });
    let answer = link.ask("initialize", &hello).await.map_err(|fault| told("initialize", fault))?;
    if answer["protocolVersion"] != VERSION {
        let what = format!(
            "the agent speaks version {} of ACP and not {VERSION}: install the version that its profile names",
            answer["protocolVersion"]
        );
        return Err(RuntimeError::new("agent_protocol", what));
    }
    let can = &answer["agentCapabilities"];
    let prompt = &can["promptCapabilities"];
    let takes = Takes {
        image: prompt["image"] == true,
        audio: prompt["audio"] == true,
        resource: prompt["embeddedContext"] == true,
    };
    let takes_servers = can["mcpCapabilities"]["http"] == true && !profile.has(Quirk::IgnoresServers);
    let (servers, offered) = match takes_servers {
        true => (servers.iter().map(Served::acp).collect::<Vec<_>>(), Offered::Told),
        false => (Vec::new(), Offered::NotTaken),
    };
    let place = json!({ "cwd": workspace, "mcpServers": servers });
    if let Some(before) = before
        && take_up(link, can, before, &place).await?
    {
        set_mode(link, profile, before).await?;
        return Ok(Conversation {
            id: Some(before.to_owned()),
            began: Began::TakenUp,
            takes,
            servers: offered,
        });
    }
    let (new, line) =
        link.ask_for_line("session/new", &place).await.map_err(|fault| told("session/new", fault))?;
    link.opens_with(opened("session/new", &new, &line));
    let Some(id) = new["sessionId"].as_str().filter(|id| !id.is_empty()) else {
        return Err(RuntimeError::new(
            "agent_protocol",
            "the agent began a session without a name, which is no ACP",
        ));
    };
    set_mode(link, profile, id).await?;
    let began = if before.is_some() { Began::Lost } else { Began::New };
    Ok(Conversation { id: Some(id.to_owned()), began, takes, servers: offered })
}

/// Takes up an earlier conversation, if the agent can. An agent that does not find it begins another.
async fn take_up(link: &Link, can: &Value, before: &str, place: &Value) -> Result<bool, RuntimeError> {
    let resume = &can["sessionCapabilities"]["resume"];
    let method = if !resume.is_null() && *resume != false {
        "session/resume"
    } else if can["loadSession"] == true {
        "session/load"
    } else {
        return Ok(false);
    };
    let mut params = place.clone();
    params["sessionId"] = before.into();
    match link.ask_for_line(method, &params).await {
        Ok((answer, line)) => {
            link.opens_with(opened(method, &answer, &line));
            Ok(true)
        }
        Err(Fault::Refused(_)) => Ok(false),
        Err(fault) => Err(told(method, fault)),
    }
}

/// Puts the session into the mode in which the agent asks. Without it nothing is run.
async fn set_mode(link: &Link, profile: &Profile, id: &str) -> Result<(), RuntimeError> {
    let Some(mode) = profile.mode() else { return Ok(()) };
    let params = json!({ "sessionId": id, "modeId": mode });
    let set = link.ask("session/set_mode", &params).await;
    set.map(drop).map_err(|fault| told("session/set_mode", fault))
}

/// A fault in a sentence.
pub(super) fn told(method: &str, fault: Fault) -> RuntimeError {
    match fault {
        Fault::Refused(refusal) if refusal.code == -32000 => RuntimeError::new(
            "agent_refused",
            "the agent wants to be logged in: its profile must lead it to the house's model, with a placeholder for a key",
        ),
        fault => fault.told(method),
    }
}
