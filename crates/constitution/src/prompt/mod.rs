//! The prompts of agents.
//!
//! Tribune's own loop gets a [`PromptStack`]: base prompt, law, the agent's own prompt and the channel's policy, always
//! in this order and the same in every turn of a session. CLI agents have a base prompt of their own and get one
//! text from [`assemble`]. The board is text of others: it is quoted, and in no part that must stay the same.
//!
//! A [`PromptManifest`] records which texts a prompt consists of without containing them, and a [`DisclosureFilter`]
//! keeps the confidential ones out of the agent's output. Nothing here talks to a model.

mod agent;
mod base;
mod board;
mod channel;
mod disclosure;
mod manifest;
mod stack;

pub use agent::{AgentPrompt, AgentPromptError, MAX_AGENT_PROMPT_BYTES};
pub use base::{BasePrompt, base_prompt};
pub use board::{BOARD_HEADING, board_note};
pub use channel::{AnswerRetention, ChannelClass, ChannelPolicy};
pub use disclosure::{DisclosureFilter, FilteredText, NOTICE, RUN_LETTERS};
pub use manifest::{BasePromptId, PromptManifest};
pub use stack::{PromptLayer, PromptStack};

use crate::bundle::Constitution;
pub use crate::footer::FOOTER;
use crate::mandate::Mandate;
use crate::text::sanitize;

/// The prompt of a backend with a base prompt of its own: constitution, mandate, board, and the hash of the law on
/// the last line. The caller bounds the size of the excerpt.
pub fn assemble(
    constitution: &Constitution,
    mandate: &Mandate,
    board_excerpt: &str,
    agent_id: &str,
) -> String {
    let terms = terms(constitution, mandate, agent_id);
    let board = board::section(board_excerpt);
    let footer = footer(constitution);
    format!("{terms}\n\n{board}\n\n{footer}")
}

/// Constitution and mandate.
fn terms(constitution: &Constitution, mandate: &Mandate, agent_id: &str) -> String {
    let law = constitution.text().trim_end();
    let (agent, name, prose) = (sanitize(agent_id), &mandate.name, &mandate.prose);
    format!(
        "{law}\n\n\
         # Mandate\n\n\
         You are the agent `{agent}`. You act under the mandate `{name}`.\n\n\
         {prose}"
    )
}

fn footer(constitution: &Constitution) -> String {
    format!("{FOOTER} {}", constitution.hash())
}

#[cfg(test)]
mod tests;
