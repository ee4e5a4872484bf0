//! Hooks: the operator's programs and local URLs that are called at six points of an agent's work.
//!
//! A hook can only restrict: it may object to a call or narrow its parameters, reject a turn, or lower the trust level of a
//! message. A hook that fails where it could object counts as an objection. A hook cannot allow anything.

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

/// Most concurrent notifications. Further ones are dropped, because a hook that slow would never catch up.
const MAX_NOTIFICATIONS: usize = 32;

/// All hooks of a daemon, in the order in which they are called.
#[derive(Debug)]
pub struct Hooks {
    hooks: Vec<HookSpec>,
    sandbox: HookSandbox,
    notify_permits: Arc<Semaphore>,
    work: TaskTracker,
}

impl Hooks {
    /// Notifications run as tasks of `work`.
    pub fn new(hooks: Vec<HookSpec>, sandbox: HookSandbox, work: TaskTracker) -> Self {
        Self { hooks, sandbox, notify_permits: Arc::new(Semaphore::new(MAX_NOTIFICATIONS)), work }
    }

    pub(crate) fn has(&self, on: HookPoint) -> bool {
        self.of(on).next().is_some()
    }

    fn of(&self, on: HookPoint) -> impl Iterator<Item = &HookSpec> {
        self.hooks.iter().filter(move |hook| hook.on == on)
    }

    /// The objections to a call whose parameters cannot be changed: a hook that would narrow it also counts as objecting.
    pub(crate) async fn objections(&self, who: &HookSubject, call: &ToolCall) -> Vec<Veto> {
        let (narrowed, mut vetoes) = self.before_tool_call(who, call.clone()).await;
        if narrowed != *call {
            let reason = "a hook allows the call with less in it only: ask for less";
            vetoes.push(Veto::new("narrowed", reason));
        }
        vetoes
    }

    /// Asks the hooks about a call. Returns the call as it may be made, or the call with the objection.
    pub(crate) async fn before_tool_call(
        &self,
        who: &HookSubject,
        mut call: ToolCall,
    ) -> (ToolCall, Vec<Veto>) {
        for hook in self.of(HookPoint::BeforeToolCall) {
            let (tool_name, tool_call_id, params) = (&call.name, &call.id, &call.input);
            let event = HookEvent::BeforeToolCall { who, tool_name, tool_call_id, params };
            let objection = match ask(hook, &self.sandbox, &event).await {
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

    /// Asks the hooks for the trust level of a message, which is never higher than `trust`.
    pub(crate) async fn message_received(&self, who: &HookSubject, text: &str, trust: Trust) -> Trust {
        let mut believed = trust;
        for hook in self.of(HookPoint::MessageReceived) {
            let event = HookEvent::MessageReceived { who, text, trust: believed };
            believed = match ask(hook, &self.sandbox, &event).await {
                Ok(Answer { block: true, .. }) => Trust::Untrusted,
                Ok(answer) => answer.trust.map_or(believed, |trust| trust.min(believed)),
                Err(why) => {
                    tracing::warn!(
                        hook = hook.reach.name(),
                        why,
                        "a hook failed: the message is treated as untrusted"
                    );
                    Trust::Untrusted
                }
            };
        }
        believed
    }

    /// Asks the hooks whether a turn may begin. Returns the first objection.
    pub(crate) async fn before_agent_start(
        &self,
        who: &HookSubject,
        mandate: &str,
        law: &str,
    ) -> Option<Veto> {
        for hook in self.of(HookPoint::BeforeAgentStart) {
            let event = HookEvent::BeforeAgentStart { who, mandate, constitution_hash: law };
            let objection = match ask(hook, &self.sandbox, &event).await {
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

    /// Notifies the hooks of an event without waiting for them.
    pub fn tell(&self, on: HookPoint, event: &HookEvent<'_>) {
        for hook in self.of(on) {
            let Ok(permit) = Arc::clone(&self.notify_permits).try_acquire_owned() else {
                tracing::warn!(hook = hook.reach.name(), "hooks are too slow: a notification was dropped");
                continue;
            };
            let (hook, sandbox, body) = (hook.clone(), self.sandbox.clone(), event.json());
            self.work.spawn(async move {
                let _permit = permit;
                if let Err(why) = transport::call(&hook.reach, &sandbox, &body, hook.timeout).await {
                    tracing::warn!(hook = hook.reach.name(), why, "a hook could not be notified");
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

/// The answer of a hook, or why it has no valid answer.
async fn ask(hook: &HookSpec, sandbox: &HookSandbox, event: &HookEvent<'_>) -> Result<Answer, String> {
    let answer = transport::call(&hook.reach, sandbox, &event.json(), hook.timeout).await?;
    Answer::read(&answer)
}
