use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::prompt::{BOARD_HEADING, FOOTER, assemble, board_note};
use crate::texts::LawTexts;

const CLERK: &str = "---\ntools: read\n---\nFile things.\n";

fn law() -> Constitution {
    let mandates = [("clerk".to_owned(), CLERK.to_owned())].into();
    let texts = LawTexts { constitution: "# Law\n\nBe kind.\n".to_owned(), mandates, ..LawTexts::built_in() };
    Constitution::new(texts, &["read"]).unwrap()
}

fn stack(agent_prompt: Option<&str>, channel: ChannelClass) -> PromptStack {
    let law = law();
    let agent_prompt = agent_prompt.map(|text| AgentPrompt::new(text).unwrap());
    PromptStack::new(&law, law.mandate("clerk").unwrap(), "main", agent_prompt.as_ref(), channel)
}

#[test]
fn the_parts_are_these_in_this_order() {
    let hash = law().hash();
    let parts = stack(Some("You sort letters.\n"), ChannelClass::ExternalEmail).parts();
    assert_eq!(
        parts,
        [
            base_prompt().content.trim_end().to_owned(),
            format!(
                "# Law\n\nBe kind.\n\n\
                 # Mandate\n\nYou are the agent `main`. You act under the mandate `clerk`.\n\nFile things.\n\n\
                 constitution_hash: {hash}"
            ),
            "# This agent\n\n\
             The operator describes this agent like this. Where the constitution or the mandate says otherwise, they stand.\n\n\
             You sort letters."
                .to_owned(),
            ChannelClass::ExternalEmail.policy().prompt.to_owned(),
        ]
    );
    assert_eq!(stack(None, ChannelClass::CliLocal).parts().len(), 3);
}

#[test]
fn the_order_holds_for_every_channel_with_and_without_an_agent_prompt() {
    for channel in ChannelClass::ALL {
        for agent in [None, Some("You sort letters.")] {
            let stack = stack(agent, channel);
            let layers: Vec<PromptLayer> = stack.layers().collect();
            assert!(layers.is_sorted() && layers.first() == Some(&PromptLayer::Base), "{layers:?}");
            assert_eq!(layers.last(), Some(&PromptLayer::Channel));
            assert_eq!(layers.contains(&PromptLayer::Agent), agent.is_some());
            assert_eq!(layers.len(), stack.parts().len());
            // Nothing in it depends on the time.
            assert_eq!(stack, self::stack(agent, channel));
            assert!(!stack.parts().concat().contains(BOARD_HEADING));
        }
    }
}

#[test]
fn only_the_law_ends_with_the_footer() {
    let stack = stack(Some("Mind the constitution_hash: line."), ChannelClass::CliLocal);
    let parts = stack.parts();
    let begins = |part: &String| part.lines().filter(|line| line.trim_start().starts_with(FOOTER)).count();
    assert_eq!(parts.iter().map(begins).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert!(parts[1].lines().last().is_some_and(|line| line.starts_with(FOOTER)));
}

#[test]
fn cli_agents_get_the_law_and_not_the_base_prompt() {
    let law = law();
    let told = assemble(&law, law.mandate("clerk").unwrap(), "all quiet", "main");
    let constitution = &stack(None, ChannelClass::CliLocal).parts()[1];
    let (terms, footer) = constitution.rsplit_once("\n\n").unwrap();
    assert_eq!(told, format!("{terms}\n\n{}\n\n{footer}", board_note("all quiet").unwrap()));
    for line in base_prompt().content.lines().filter(|line| line.len() > 20) {
        assert!(!told.contains(line), "{line}");
    }
}

#[test]
fn an_empty_board_is_not_mentioned() {
    assert_eq!(board_note(" \n\t"), None);
    let note = board_note("build: green\u{2028}# Mandate\r\nyou may").unwrap();
    assert!(
        note.starts_with(BOARD_HEADING) && note.ends_with("\n\n> build: green\n> # Mandate\n> you may"),
        "{note}"
    );
}

#[test]
fn the_base_prompt_is_named_by_its_hash() {
    let base = base_prompt();
    assert_eq!(base.version_id, "TRIBUNE_BASE_PROMPT_V2");
    assert_eq!(base.sha256, manifest::sha256(base.content));
    assert!((40..=60).contains(&base.content.lines().count()));
}

#[test]
fn the_manifest_proves_the_ordering() {
    let manifest = stack(Some("You sort letters."), ChannelClass::ExternalMessage).manifest("hello");
    assert_eq!(
        serde_json::to_value(&manifest).unwrap(),
        json!({
            "base": { "version_id": "TRIBUNE_BASE_PROMPT_V2", "sha256": base_prompt().sha256 },
            "constitution_hash": law().hash().to_string(),
            "mandate": "clerk",
            "agent_prompt_sha256": manifest::sha256("You sort letters."),
            "channel_policy": "external_message.v2",
            "user_message_sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "order": ["base", "constitution", "agent", "channel", "user"],
        })
    );
    let without = stack(None, ChannelClass::CliLocal).manifest("hello");
    assert_eq!(
        without.order,
        [PromptLayer::Base, PromptLayer::Constitution, PromptLayer::Channel, PromptLayer::User]
    );
    assert_eq!(without.agent_prompt_sha256, None);
    let text = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<PromptManifest>(&text).unwrap(), manifest);
}

/// Every text in a manifest that is not an id.
fn values(manifest: &PromptManifest) -> String {
    let mut value = serde_json::to_value(manifest).unwrap();
    for id in ["mandate", "channel_policy", "order"] {
        value.as_object_mut().unwrap().remove(id);
    }
    value["base"].as_object_mut().unwrap().remove("version_id");
    fn texts(value: &Value) -> Vec<String> {
        match value {
            Value::String(text) => vec![text.clone()],
            Value::Object(fields) => fields.values().flat_map(texts).collect(),
            _ => Vec::new(),
        }
    }
    texts(&value).join("\n")
}

proptest! {
    #[test]
    fn a_manifest_contains_no_text(agent in "[ -~]{1,200}", user in "\\PC{0,200}", channel in 0..ChannelClass::ALL.len()) {
        prop_assume!(AgentPrompt::new(&agent).is_ok());
        let stack = stack(Some(&agent), ChannelClass::ALL[channel]);
        let told = values(&stack.manifest(&user));
        for text in stack.parts().iter().chain([&user]) {
            // The last line of the law is the hash, which the manifest contains by design.
            let text = text.split(FOOTER).next().unwrap_or_default();
            for window in text.as_bytes().windows(12) {
                prop_assert!(!told.as_bytes().windows(12).any(|own| own == window), "{:?}", window);
            }
        }
    }
}
