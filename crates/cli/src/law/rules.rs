//! The rules of a text in Cedar, by their heads: which there are and where, without what they say.

/// A rule's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// From `@id("…")`; a rule without one is called after its file and place.
    pub(super) id: Option<String>,
    /// `permit` or `forbid`.
    pub(super) effect: &'static str,
    pub(super) line: usize,
}

/// The heads of all rules. The text was checked before: strings and comments end.
pub(super) fn heads(text: &str) -> Vec<Head> {
    let mut heads = Vec::new();
    let mut id = None;
    let (mut depth, mut line) = (0_usize, 1);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let token = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => string_end(rest),
            c if c.is_alphanumeric() || c == '_' => {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        let (word, after) = rest.split_at(token);
        match word {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth = depth.saturating_sub(1),
            "@" if depth == 0 => id = annotation(after).or(id),
            "permit" if depth == 0 => heads.push(Head { id: id.take(), effect: "permit", line }),
            "forbid" if depth == 0 => heads.push(Head { id: id.take(), effect: "forbid", line }),
            _ => {}
        }
        line += word.matches('\n').count();
        rest = after;
    }
    heads
}

/// The id, if this is the rest of `@id("…")`.
fn annotation(after: &str) -> Option<String> {
    let value = after.strip_prefix("id")?.trim_start().strip_prefix('(')?.trim_start();
    let text = value.get(..string_end(value))?;
    Some(text.trim_matches('"').to_owned())
}

/// Bytes of the string that begins here, with both its quotes.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_and_nothing_else_is_taken_for_one() {
        let text = "// forbid(nobody)\n@id(\"a\")\n@example_deny(\"{\\\"forbid\\\": 1}\")\nforbid(principal, action, resource)\n\
                    when { context.name == \"permit\" };\n\npermit (principal, action, resource); @id ( \"ü\" ) permit(principal, action, resource);";
        let head = |id: Option<&str>, effect, line| Head { id: id.map(str::to_owned), effect, line };
        assert_eq!(
            heads(text),
            [head(Some("a"), "forbid", 4), head(None, "permit", 7), head(Some("ü"), "permit", 7)]
        );
        assert_eq!(heads("\"open"), []);
    }
}
