//! What an agent is told.
//!
//! Tribune's own loop is given a [`Stack`]: base prompt, the law, the agent's own prompt, the channel's policy, always in
//! this order and the same in every turn of a session. Other backends bring a base prompt of their own and are given
//! one text by [`assemble`]. The board is text that others wrote: it stands behind quotation marks, and in no part that
//! should stay the same.
//!
//! A [`Manifest`] tells which words were used without telling them, and a [`Disclosure`] keeps the confidential ones
//! from being repeated. Nothing here talks to a model.

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
pub use disclosure::{Disclosure, FilteredText, NOTICE, RUN};
pub use manifest::{BasePromptId, PromptManifest};
pub use stack::{PromptLayer, Stack};

use crate::bundle::Constitution;
pub use crate::footer::FOOTER;
use crate::mandate::Mandate;
use crate::text::sanitize;

/// Everything that a backend with a base prompt of its own is told, in one text: constitution, mandate, board, and the
/// hash of the law on the last line. The size of the excerpt is the caller's to bound.
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
