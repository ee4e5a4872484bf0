//! Hooks: programs and local addresses of the operator's that are asked, or told, at six points of an agent's work.
//!
//! A hook can only add rejections. It may object to a call or take something away from it, refuse a turn, or lower the
//! trust in a message; one that fails, where it would have been asked, counts as if it had done so. It can allow nothing.

mod answer;
mod event;
mod sandboxed;
mod transport;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tribune_config::hook_spec::{HookPoint, HookSpec};
use tribune_constitution::{Trust, Veto};
use tribune_runtime::ToolCall;

use self::answer::{Answer, narrowed};
pub use self::event::{HookEvent, HookSubject};
pub use self::sandboxed::HookSandbox;

/// Notifications under way at once. Beyond them a hook is not told: it would never catch up.
const MAX_TOLD: usize = 32;

/// All hooks of a daemon, in the order in which they are asked.
#[derive(Debug)]
pub struct Hooks {
    hooks: Vec<HookSpec>,
    boxes: HookSandbox,
    told: Arc<Semaphore>,
    work: TaskTracker,
}

impl Hooks {
    /// Notifications run in `work`.
    pub fn new(hooks: Vec<HookSpec>, boxes: HookSandbox, work: TaskTracker) -> Self {
        Self { hooks, boxes, told: Arc::new(Semaphore::new(MAX_TOLD)), work }
    }

    pub(crate) fn has(&self, on: HookPoint) -> bool {
        self.of(on).next().is_some()
    }

    fn of(&self, on: HookPoint) -> impl Iterator<Item = &HookSpec> {
        self.hooks.iter().filter(move |hook| hook.on == on)
    }

    /// What the hooks have against a call that is made as it is or not at all: a hook that would have less in it objects
    /// to it too.
    pub(crate) async fn objections(&self, who: &HookSubject, call: &ToolCall) -> Vec<Veto> {
        let (narrowed, mut vetoes) = self.before_tool_call(who, call.clone()).await;
        if narrowed != *call {
            let reason = "a hook allows the call with less in it only: ask for less";
            vetoes.push(Veto::new("narrowed", reason));
        }
        vetoes
    }

    /// Asks about a call. It comes back as it may be made, or as it was with who objects.
    pub(crate) async fn before_tool_call(
        &self,
        who: &HookSubject,
        mut call: ToolCall,
    ) -> (ToolCall, Vec<Veto>) {
        for hook in self.of(HookPoint::BeforeToolCall) {
            let (tool_name, tool_call_id, params) = (&call.name, &call.id, &call.input);
            let event = HookEvent::BeforeToolCall { who, tool_name, tool_call_id, params };
            let objection = match ask(hook, &self.boxes, &event).await {
                Err(why) => why,
                Ok(Answer { block: true, block_reason, .. }) => {
                    block_reason.unwrap_or_else(|| "it objects and does not say why".to_owned())
                }
                Ok(Answer { params: None, .. }) => continue,
                Ok(Answer { params: Some(params), .. }) => match narrowed(&call, params) {
                    Some(input) => {
                        call.input = input;
                        continue;
                    }
                    None => "it tried to widen the call, and hooks may only narrow one".to_owned(),
                },
            };
            return (call, vec![Veto::new(&hook.reach.name(), &objection)]);
        }
        (call, Vec::new())
    }

    /// Asks how far a message is to be believed: never further than `trust`.
    pub(crate) async fn message_received(&self, who: &HookSubject, text: &str, trust: Trust) -> Trust {
        let mut believed = trust;
        for hook in self.of(HookPoint::MessageReceived) {
            let event = HookEvent::MessageReceived { who, text, trust: believed };
            believed = match ask(hook, &self.boxes, &event).await {
                Ok(Answer { block: true, .. }) => Trust::Untrusted,
                Ok(answer) => answer.trust.map_or(believed, |trust| trust.min(believed)),
                Err(why) => {
                    tracing::warn!(
                        hook = hook.reach.name(),
                        why,
                        "a hook failed: the message is not believed"
                    );
                    Trust::Untrusted
                }
            };
        }
        believed
    }

    /// Asks whether a turn may begin. Who objects comes back.
    pub(crate) async fn before_agent_start(
        &self,
        who: &HookSubject,
        mandate: &str,
        law: &str,
    ) -> Option<Veto> {
        for hook in self.of(HookPoint::BeforeAgentStart) {
            let event = HookEvent::BeforeAgentStart { who, mandate, constitution_hash: law };
            let objection = match ask(hook, &self.boxes, &event).await {
                Err(why) => why,
                Ok(Answer { block: true, block_reason, .. }) => {
                    block_reason.unwrap_or_else(|| "it objects and does not say why".to_owned())
                }
                Ok(_) => continue,
            };
            return Some(Veto::new(&hook.reach.name(), &objection));
        }
        None
    }

    /// Tells whoever wants to know, without waiting for them.
    pub fn tell(&self, on: HookPoint, event: &HookEvent<'_>) {
        for hook in self.of(on) {
            let Ok(permit) = Arc::clone(&self.told).try_acquire_owned() else {
                tracing::warn!(hook = hook.reach.name(), "a hook is too slow and was not told of an event");
                continue;
            };
            let (hook, boxes, body) = (hook.clone(), self.boxes.clone(), event.json());
            self.work.spawn(async move {
                let _permit = permit;
                if let Err(why) = transport::call(&hook.reach, &boxes, &body, hook.timeout).await {
                    tracing::warn!(hook = hook.reach.name(), why, "a hook could not be told of an event");
                }
            });
        }
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self::new(Vec::new(), HookSandbox::none(), TaskTracker::new())
    }
}

/// What a hook answers, or why it has no answer that counts.
async fn ask(hook: &HookSpec, boxes: &HookSandbox, event: &HookEvent<'_>) -> Result<Answer, String> {
    let answer = transport::call(&hook.reach, boxes, &event.json(), hook.timeout).await?;
    Answer::read(&answer)
}
