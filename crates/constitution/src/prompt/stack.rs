//! The prompt stack of Tribune's own loop: the same layers in the same order for every provider, and the same bytes
//! in every turn of a session, so that providers can cache them. What changes from turn to turn (the board, mailbox
//! messages, the user's words) is therefore not in it.

use serde::{Deserialize, Serialize};

use super::manifest::{self, BasePromptId, PromptManifest};
use super::{AgentPrompt, ChannelClass, base_prompt, footer, terms};
use crate::bundle::Constitution;
use crate::hash::ConstitutionHash;
use crate::mandate::Mandate;

/// The layers of a prompt, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptLayer {
    Base,
    /// With the mandate, and the hash of the law on the last line.
    Constitution,
    Agent,
    Channel,
    User,
}

/// Everything before the user's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptStack {
    // INVARIANT: in the order of their layers, each at most once, and no user layer.
    parts: Vec<(PromptLayer, String)>,
    constitution_hash: ConstitutionHash,
    mandate: String,
    channel: ChannelClass,
    agent_prompt_sha256: Option<String>,
}

impl PromptStack {
    pub fn new(
        law: &Constitution,
        mandate: &Mandate,
        agent_id: &str,
        agent_prompt: Option<&AgentPrompt>,
        channel: ChannelClass,
    ) -> Self {
        let base = base_prompt().content.trim_end().to_owned();
        let constitution = format!("{}\n\n{}", terms(law, mandate, agent_id), footer(law));
        let agent = agent_prompt.map(|prompt| (PromptLayer::Agent, described(prompt)));
        let mut parts = vec![(PromptLayer::Base, base), (PromptLayer::Constitution, constitution)];
        parts.extend(agent);
        parts.push((PromptLayer::Channel, channel.policy().prompt.to_owned()));
        Self {
            parts,
            constitution_hash: law.hash(),
            mandate: mandate.name.clone(),
            channel,
            agent_prompt_sha256: agent_prompt.map(|prompt| manifest::sha256(prompt.as_str())),
        }
    }

    /// The texts, in their order.
    pub fn parts(&self) -> Vec<String> {
        self.parts.iter().map(|(_, text)| text.clone()).collect()
    }

    /// The layers of these parts, in the same order.
    pub fn layers(&self) -> impl Iterator<Item = PromptLayer> {
        self.parts.iter().map(|(layer, _)| *layer)
    }

    /// The manifest of the prompt with this message of the user.
    pub fn manifest(&self, user_message: &str) -> PromptManifest {
        let base = base_prompt();
        PromptManifest {
            base: BasePromptId { version_id: base.version_id.to_owned(), sha256: base.sha256.to_owned() },
            constitution_hash: self.constitution_hash,
            mandate: self.mandate.clone(),
            agent_prompt_sha256: self.agent_prompt_sha256.clone(),
            channel_policy: self.channel.policy().id.to_owned(),
            user_message_sha256: manifest::sha256(user_message),
            order: self.layers().chain([PromptLayer::User]).collect(),
        }
    }
}

fn described(prompt: &AgentPrompt) -> String {
    format!(
        "# This agent\n\n\
         The operator describes this agent like this. Where the constitution or the mandate says otherwise, they stand.\n\n\
         {}",
        prompt.as_str()
    )
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
