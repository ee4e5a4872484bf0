//! The answer to a message that is not a script: that no model is connected, and what reached the agent.

use super::limits::{ECHO_CHARS, MAIL_CHARS, MAIL_SHOWN};
use super::text::cut_chars;
use crate::content::{ContentBlock, Role, text_of};
use crate::runtime::TurnInput;

/// The answer to an ordinary message.
pub(super) fn answer(text: &str, input: &TurnInput) -> String {
    let mut paragraphs = vec![
        "This is the rehearsal agent: no model is connected, so nobody thought about your message."
            .to_owned(),
        echo(text),
    ];
    paragraphs.extend(attachments(&input.content));
    paragraphs.extend(mail(input));
    paragraphs.push("Send `/scenes` to see what I can play for you.".to_owned());
    paragraphs.join("\n\n")
}

fn echo(text: &str) -> String {
    match text.trim() {
        "" => "You sent no text.".to_owned(),
        text => {
            let quote: Vec<String> =
                cut_chars(text, ECHO_CHARS).lines().map(|line| format!("> {line}")).collect();
            format!("You said:\n\n{}", quote.join("\n"))
        }
    }
}

fn attachments(content: &[ContentBlock]) -> Option<String> {
    let (mut images, mut recordings, mut resources) = (0, 0, 0);
    for block in content {
        match block {
            ContentBlock::Text { .. } => {}
            ContentBlock::Image { .. } => images += 1,
            ContentBlock::Audio { .. } => recordings += 1,
            ContentBlock::Resource { .. } => resources += 1,
        }
    }
    let counts: Vec<String> = [(images, "image"), (recordings, "audio recording"), (resources, "resource")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| counted(count, what))
        .collect();
    (!counts.is_empty()).then(|| format!("With it came {}.", counts.join(", ")))
}

fn mail(input: &TurnInput) -> Option<String> {
    let messages: Vec<_> =
        input.injected_messages.iter().filter(|message| message.role == Role::Mailbox).collect();
    if messages.is_empty() {
        return None;
    }
    let mut lines =
        vec![format!("Before it, {} came from other agents:\n", counted(messages.len(), "message"))];
    for message in messages.iter().take(MAIL_SHOWN) {
        let one_line: String = text_of(&message.content).replace(['\n', '\r'], " ");
        lines.push(format!("- {}", cut_chars(one_line.trim(), MAIL_CHARS)));
    }
    if messages.len() > MAIL_SHOWN {
        lines.push(format!("- and {} more", messages.len() - MAIL_SHOWN));
    }
    Some(lines.join("\n"))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
