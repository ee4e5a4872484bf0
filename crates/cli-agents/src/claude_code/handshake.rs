//! The first words with Claude Code: that we are called back before each of its calls, and the mode in which it asks.

use std::pin::pin;

use serde_json::json;

use crate::agent_protocol::{Began, Conversation, FirstWords, Offered, Takes, Tongue, Unmet};
use crate::connection::{Heard, Hearing, Link};
use tribune_runtime::RuntimeError;

/// Our name for the callback before each call.
pub(super) const HOOK: &str = "tribune";

/// Seconds until it takes a callback for unanswered, and does not make the call: longer than any question waits for a person.
const HOOK_SECONDS: u32 = 1_000_000;

/// Speaks the first words.
pub(super) async fn shake_hands(
    tongue: &dyn Tongue,
    link: &Link,
    first: FirstWords<'_>,
) -> Result<Conversation, Unmet> {
    let hook = json!({ "matcher": null, "hookCallbackIds": [HOOK], "timeout": HOOK_SECONDS });
    let hello = json!({ "hooks": { "PreToolUse": [hook] } });
    let mut heard = link.listen(Hearing::Start);
    let mut asking = pin!(link.ask("initialize", &hello));
    let mut is_refused = false;
    let answer = loop {
        tokio::select! {
            biased;
            Some(heard) = heard.next() => match heard {
                // The end of a turn that never began: it does not have the conversation that it was started with.
                Heard::Told { what, .. } => is_refused |= what["type"] == "result",
                Heard::Aside { .. } => {}
                Heard::Asked { id, method, .. } => link.send(tongue.refuse_unheard(&id, &method)).await,
            },
            answer = &mut asking => break answer,
        }
    };
    match answer {
        Ok(_) => {}
        Err(_) if is_refused && first.before.is_some() => return Err(Unmet::NotTakenUp),
        Err(fault) => return Err(Unmet::Failed(fault.told("initialize"))),
    }
    if let Some(mode) = first.profile.mode() {
        let set = link.ask("set_permission_mode", &json!({ "mode": mode })).await;
        let set = set.map_err(|fault| Unmet::Failed(fault.told("set_permission_mode")))?;
        if set["mode"].as_str().is_some_and(|now| now != mode) {
            let what = format!("the agent did not go into the mode `{mode}`: change `mode` in its profile");
            return Err(Unmet::Failed(RuntimeError::new("agent_refused", what)));
        }
    }
    let began = if first.before.is_some() { Began::TakenUp } else { Began::New };
    let takes = Takes { image: true, audio: false, resource: false };
    // It was told of them when it was started, where its profile says how.
    let servers = if first.profile.per_server().is_empty() { Offered::NotTaken } else { Offered::Told };
    Ok(Conversation { id: first.before.map(str::to_owned), began, takes, servers })
}
