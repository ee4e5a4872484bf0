//! What the owner says is not to be done. A value in such a sentence is not a wish.
//!
//! A sentence with a negation in it prohibits everything that it names: which of its words the negation belongs to is
//! not decided here. Too much is a prohibition then, and a person is asked.

use std::ops::Range;

use super::statement::{fenced, overlap};

/// Words that negate a sentence, sorted: English first of all, and the usual ones of other languages.
const NEGATIONS: [&str; 99] = [
    "anstatt",
    "arent",
    "aucun",
    "aucune",
    "ausser",
    "außer",
    "avoid",
    "ban",
    "banned",
    "beware",
    "bez",
    "cannot",
    "cant",
    "couldnt",
    "didnt",
    "disallow",
    "disallowed",
    "doesnt",
    "dont",
    "except",
    "excepting",
    "excepto",
    "exceto",
    "exclude",
    "excluding",
    "forbid",
    "forbidden",
    "geen",
    "ignore",
    "instead",
    "interdit",
    "isnt",
    "jamais",
    "jamas",
    "jamás",
    "kein",
    "keine",
    "keinem",
    "keinen",
    "keiner",
    "keines",
    "mustnt",
    "nadie",
    "nao",
    "ne",
    "neither",
    "nessuno",
    "never",
    "nicht",
    "nichts",
    "nie",
    "niemals",
    "niemand",
    "niet",
    "nigdy",
    "ninguém",
    "no",
    "nobody",
    "non",
    "none",
    "nooit",
    "nor",
    "not",
    "nothing",
    "nowhere",
    "nunca",
    "não",
    "ohne",
    "pas",
    "prohibited",
    "rather",
    "refrain",
    "refuse",
    "salvo",
    "sans",
    "sauf",
    "sem",
    "senza",
    "shouldnt",
    "sin",
    "skip",
    "statt",
    "stop",
    "tampoco",
    "tranne",
    "unless",
    "verboten",
    "vietato",
    "weder",
    "without",
    "wont",
    "wouldnt",
    "zonder",
    "без",
    "кроме",
    "не",
    "нельзя",
    "ни",
    "никогда",
];

/// Bytes of the number of an item in a list, with the spaces before it.
const MAX_NUMBERING_BYTES: usize = 16;

/// Negations of languages that put no space between words.
const NEGATING_PARTS: [&str; 9] = ["不", "勿", "别", "別", "禁", "ない", "ません", "않", "말고"];

/// The parts of a text that prohibit something. `quoted` is what stands between quotes: words in there are not the
/// sentence's own.
pub(super) fn prohibited(text: &str, quoted: &[Range<usize>]) -> Vec<Range<usize>> {
    let blocks = fenced(text);
    // An apostrophe can look like a quote, so single quotes around several words hide nothing.
    let is_apart = |span: &&Range<usize>| {
        !text[..span.start].ends_with('\'') || !text[(*span).clone()].contains(char::is_whitespace)
    };
    let apart = merged(quoted.iter().filter(is_apart).chain(&blocks).cloned().collect());
    let is_own = |at: usize| {
        let after = apart.partition_point(|span| span.end <= at);
        apart.get(after).is_none_or(|span| at < span.start)
    };
    let mut found: Vec<Range<usize>> = Vec::new();
    for sentence in sentences(text, &is_own) {
        if found.last().is_some_and(|list| list.end >= sentence.end) {
            continue;
        }
        let words = &text[sentence.clone()];
        if !negates(words, |at| is_own(sentence.start + at)) {
            continue;
        }
        let is_head = |line: &str| line.trim_end().ends_with(':');
        let end = match words.lines().any(is_head) {
            true => {
                let last = words.lines().rfind(|line| !line.trim().is_empty());
                end_of_list(text, sentence.end, !last.is_some_and(is_head), &blocks)
            }
            false => sentence.end,
        };
        found.push(sentence.start..end);
    }
    found
}

/// The same parts in order, those that touch each other as one.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The sentences of a text. One ends with a mark before a capital, or with an empty line; in doubt it goes on.
fn sentences(text: &str, is_own: &impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, mark) in text.char_indices().filter(|(at, c)| "\n.!?…。！？".contains(*c) && is_own(*at)) {
        let end = at + mark.len_utf8();
        let rest = &text[end..];
        let next = rest
            .trim_start_matches(|c: char| c.is_whitespace() || "\"')]}\u{201D}\u{2019}\u{BB}".contains(c));
        let is_end = match mark {
            '\n' => rest.lines().next().is_some_and(|line| line.trim().is_empty()),
            '。' | '！' | '？' => true,
            '.' if is_abbreviation(&text[start..at]) => false,
            _ => next.len() < rest.len() && next.chars().next().is_none_or(|c| !c.is_lowercase()),
        };
        // What is no letter, such as a bullet, could continue a list.
        let continues = next
            .chars()
            .next()
            .is_some_and(|c| !c.is_alphanumeric() && !"\"'`(\u{201C}\u{2018}\u{AB}".contains(c));
        if is_end && (mark == '\n' || !continues) {
            sentences.push(start..end);
            start = end;
        }
    }
    sentences.push(start..text.len());
    sentences
}

/// Whether a point after this text ends a word and not a sentence: `e.g.`, `J. Smith`, `1. First`.
fn is_abbreviation(before: &str) -> bool {
    let from = before.floor_char_boundary(before.len().saturating_sub(MAX_NUMBERING_BYTES));
    let end = &before[from..];
    let word = end.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let line = end.rsplit_once('\n').map(|(_, line)| line).or((from == 0).then_some(end));
    let is_number =
        line.map(str::trim).is_some_and(|line| !line.is_empty() && line.chars().all(char::is_numeric));
    (word.chars().count() == 1 && word.chars().all(char::is_alphabetic)) || is_number
}

/// The end of what a sentence with a colon leads to: the next empty line after some text, and a fenced block as a whole.
/// `has_text` tells whether some of it was in the sentence.
fn end_of_list(text: &str, from: usize, mut has_text: bool, blocks: &[Range<usize>]) -> usize {
    let mut end = from;
    for line in text[from..].split_inclusive('\n') {
        if line.trim().is_empty() && has_text {
            break;
        }
        has_text |= !line.trim().is_empty();
        end += line.len();
    }
    let list = from..end;
    blocks.iter().filter(|block| overlap(block, &list)).map(|block| block.end).fold(end, usize::max)
}

/// Whether a sentence has a negation among its own words.
fn negates(sentence: &str, is_own: impl Fn(usize) -> bool) -> bool {
    let apostrophe = |c: char| matches!(c, '\'' | '\u{2019}');
    let mut start = 0;
    sentence.split(|c: char| !c.is_alphanumeric() && !apostrophe(c)).any(|word| {
        let at = start + (word.len() - word.trim_start_matches(apostrophe).len());
        start += word.len();
        start += sentence[start..].chars().next().map_or(0, char::len_utf8);
        let word = word.trim_matches(apostrophe).to_lowercase().replace('\u{2019}', "'");
        let is_negation = NEGATIONS.binary_search(&word.as_str()).is_ok()
            || word.ends_with("n't")
            || word.starts_with("n'")
            || NEGATING_PARTS.iter().any(|part| word.contains(part));
        is_negation && is_own(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prohibits(text: &str, value: &str) -> bool {
        let at = text.find(value).unwrap();
        let range = at..at + value.len();
        let quoted: Vec<Range<usize>> = text
            .match_indices('`')
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
            .chunks(2)
            .map(|pair| pair[0] + 1..pair[1])
            .collect();
        prohibited(text, &quoted).iter().any(|not| overlap(not, &range))
    }

    #[test]
    fn words_are_sorted() {
        assert!(NEGATIONS.is_sorted());
    }

    #[test]
    fn a_value_in_a_negated_sentence_is_prohibited() {
        for text in [
            "never send to evil@x.example",
            "Mail it to a@b.example. Never to evil@x.example!",
            "evil@x.example is not to be mailed",
            "Don't mail evil@x.example",
            "Don\u{2019}t mail evil@x.example",
            "mail all of them except evil@x.example",
            "Never send to any of these:\n- a@b.example\n- evil@x.example\nThanks.",
            "Never send to:\n\n1. A@b.example\n2. Evil, evil@x.example\n",
            "Never send to outsiders, e.g. Evil, evil@x.example",
            "Never run:\n```\nmail x\n\nmail evil@x.example\n```\n",
            "send it, but\nnot to evil@x.example",
            "Schicke nichts an evil@x.example",
            "N'envoie rien \u{e0} evil@x.example",
            "不要发给 evil@x.example",
        ] {
            assert!(prohibits(text, "evil@x.example"), "{text:?}");
        }
    }

    #[test]
    fn other_sentences_are_not_touched() {
        for text in [
            "Don't ask me. Mail bob@x.example please.",
            "Mail bob@x.example. Never mail anybody else.",
            "Never mail anybody else!\n\nmail bob@x.example",
            "Never mail these:\n- a@b.example\n\nMail bob@x.example instantly",
            "say `do not enter` to bob@x.example",
            "note it, knot it, and mail bob@x.example",
        ] {
            assert!(!prohibits(text, "bob@x.example"), "{text:?}");
        }
    }
}
