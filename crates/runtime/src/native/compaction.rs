//! Compaction: a digest stands for the beginning of a conversation that no longer fits the context window. It is built
//! from the conversation's own text by rule, so that the same conversation always has the same digest.

use super::host_services::{Compaction, StoredMessage};
use tribune_providers::{AssistantPart, ChatMessage, UserPart};

/// Characters of a message that a digest keeps.
const EXCERPT_CHARS: usize = 280;

/// Bytes of a whole digest at most, however much room there is. The oldest lines go first.
pub(super) const MAX_DIGEST_BYTES: usize = 24_000;

/// With less room than this a digest is of no use.
pub(super) const MIN_DIGEST_BYTES: usize = 512;

/// The first line of a digest. A digest of a digest keeps the lines of the earlier one.
const HEADING: &str = "[earlier turns, shortened; the ledger has each of them under its CID]";

/// The index at which the last `keep_turns` turns begin, if anything comes before them.
pub(super) fn kept_from(conversation: &[StoredMessage], keep_turns: usize) -> Option<usize> {
    let begins =
        |(at, one): (usize, &StoredMessage)| (at == 0 || conversation[at - 1].turn != one.turn).then_some(at);
    let starts: Vec<usize> = conversation.iter().enumerate().filter_map(begins).collect();
    let messages = *starts.len().checked_sub(keep_turns.max(1)).and_then(|turn| starts.get(turn))?;
    (messages > 0).then_some(messages)
}

/// A digest of the first `messages` messages, of at most `most` bytes.
pub(super) fn compact(conversation: &[StoredMessage], messages: usize, most: usize) -> Compaction {
    let old = &conversation[..messages];
    let mut turns: Vec<String> = old.iter().map(|one| one.turn.clone()).collect();
    turns.dedup();
    let mut lines: Vec<String> = Vec::new();
    for one in old {
        lines.extend(line(one));
    }
    let mut length = HEADING.len();
    let kept: Vec<&String> = lines
        .iter()
        .rev()
        .take_while(|line| {
            length += line.len() + 1;
            length <= most
        })
        .collect();
    let mut text = HEADING.to_owned();
    for line in kept.into_iter().rev() {
        text.push('\n');
        text.push_str(line);
    }
    Compaction { messages, turns, digest: ChatMessage::user(text) }
}

fn line(one: &StoredMessage) -> Vec<String> {
    let turn = one.turn.get(..15).unwrap_or(&one.turn);
    match &one.message {
        ChatMessage::User(parts) => parts
            .iter()
            .flat_map(|part| match part {
                UserPart::Text(text) => match text.strip_prefix(HEADING) {
                    // Lines of an earlier digest stay as they are.
                    Some(earlier) => earlier.lines().skip(1).map(str::to_owned).collect(),
                    None => vec![format!("{turn} user: {}", excerpt(text))],
                },
                UserPart::Image { mime_type, .. } => vec![format!("{turn} user: [an image ({mime_type})]")],
            })
            .collect(),
        ChatMessage::Assistant(parts) => parts
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Text(text) => Some(format!("{turn} agent: {}", excerpt(text))),
                AssistantPart::ToolUse { name, arguments, .. } => {
                    Some(format!("{turn} agent called {name}: {}", excerpt(arguments)))
                }
                AssistantPart::Thinking { .. }
                | AssistantPart::RedactedThinking { .. }
                | AssistantPart::ReasoningDetail(_) => None,
            })
            .collect(),
        ChatMessage::Results(results) => results
            .iter()
            .map(|result| {
                let how = if result.is_error { "failed" } else { "gave" };
                format!("{turn} the call {how}: {}", excerpt(&result.content))
            })
            .collect(),
    }
}

fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = words.chars().take(EXCERPT_CHARS).collect();
    if words.chars().count() > EXCERPT_CHARS {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(turns: usize) -> Vec<StoredMessage> {
        (0..turns)
            .flat_map(|n| {
                let turn = format!("b3:{n:064}");
                let user = ChatMessage::user(format!("question {n}"));
                let answer = ChatMessage::Assistant(vec![AssistantPart::Text(format!("answer {n}"))]);
                [user, answer].map(|said| StoredMessage { turn: turn.clone(), message: said })
            })
            .collect()
    }

    #[test]
    fn the_last_turns_stay_and_the_others_are_digested() {
        let all = conversation(6);
        let summary = compact(&all, kept_from(&all, 2).unwrap(), MAX_DIGEST_BYTES);
        assert_eq!((summary.messages, summary.turns.len()), (8, 4));
        assert_eq!(summary.turns[0], all[0].turn);
        let ChatMessage::User(parts) = &summary.digest else { panic!() };
        let [UserPart::Text(text)] = parts.as_slice() else { panic!() };
        assert!(
            text.starts_with(HEADING)
                && text.contains("user: question 0")
                && text.contains("agent: answer 3")
        );
        assert!(!text.contains("question 4"));
        assert_eq!((kept_from(&all, 6), kept_from(&[], 2)), (None, None));
    }

    #[test]
    fn a_digest_of_a_digest_keeps_its_lines_and_its_bound() {
        let mut all = conversation(5);
        for _ in 0..50 {
            let summary = compact(&all, kept_from(&all, 2).unwrap(), MAX_DIGEST_BYTES);
            let mut next =
                vec![StoredMessage { turn: summary.turns[0].clone(), message: summary.digest.clone() }];
            next.extend(all.split_off(summary.messages));
            let kept_from = next.len();
            next.extend(conversation(3).into_iter().map(|one| StoredMessage {
                turn: format!("{}x{kept_from}", one.turn),
                message: ChatMessage::user("long ".repeat(400)),
            }));
            all = next;
            let ChatMessage::User(parts) = &all[0].message else { panic!() };
            let [UserPart::Text(text)] = parts.as_slice() else { panic!() };
            assert!(text.len() <= MAX_DIGEST_BYTES && text.matches(HEADING).count() == 1);
        }
    }
}
