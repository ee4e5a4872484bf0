//! Truncates tool results to the room in the context window.
//!
//! A result that fills the window would end the turn before the model has seen it. A truncated result keeps its
//! beginning and its end, and says in the middle how much is missing, so that the model can ask for a part.

use tribune_providers::ToolResult;

/// Of the room that is left, one part in so many goes to the results of a round; the rest is for what follows.
const SHARE: u64 = 2;

/// Bytes that a result keeps whatever the room: an error is never cut, and neither is a short answer.
const MIN_RESULT_BYTES: usize = 256;

/// The results, truncated so that together they take at most their share of `room`, in bytes. Short ones stay whole,
/// and the room that they leave goes to the long ones.
pub(super) fn truncate_results(room: u64, mut results: Vec<ToolResult>) -> Vec<ToolResult> {
    let share = usize::try_from(room / SHARE).unwrap_or(usize::MAX);
    let most = most_each(share, results.iter().map(|result| result.content.len()).collect());
    for result in &mut results {
        if result.content.len() > most {
            result.content = cut(&result.content, most);
        }
    }
    results
}

/// The most that each may have so that all fit into `share`.
fn most_each(share: usize, mut lengths: Vec<usize>) -> usize {
    lengths.sort_unstable();
    let mut left = share;
    for (at, &length) in lengths.iter().enumerate() {
        let each = left / (lengths.len() - at);
        if length > each {
            return each.max(MIN_RESULT_BYTES);
        }
        left -= length;
    }
    usize::MAX
}

/// At most `most` bytes of a text, with a mark in the middle.
fn cut(text: &str, most: usize) -> String {
    let mark = |left_out: usize| {
        format!(
            "\n[… {left_out} bytes left out: all of it does not fit the model's window; ask for a part …]\n"
        )
    };
    let kept = most.saturating_sub(mark(text.len()).len());
    let head = text.floor_char_boundary(kept - kept / 4);
    let tail = text.ceil_char_boundary(text.len() - kept / 4);
    format!("{}{}{}", &text[..head], mark(tail - head), &text[tail..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(content: String) -> ToolResult {
        ToolResult { id: "a".to_owned(), content, is_error: false }
    }

    #[test]
    fn a_result_that_fits_stays_and_a_long_one_keeps_its_ends() {
        let short = result("short".to_owned());
        let long = result(format!("first{}last", "ä".repeat(50_000)));
        let cut = truncate_results(8_000, vec![short.clone(), long.clone()]);
        assert_eq!(cut[0], short);
        let text = &cut[1].content;
        assert!(text.starts_with("firstä") && text.ends_with("älast") && text.len() <= 4_000, "{text}");
        let missing: usize = text.split_once("[… ").unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
        let mark = text.lines().nth(1).unwrap().len() + 2;
        assert_eq!(missing, long.content.len() - (text.len() - mark));
        assert_eq!(truncate_results(1 << 20, vec![short.clone(), long.clone()]), [short, long]);
    }

    #[test]
    fn short_results_are_kept_without_any_room() {
        let refused = result("denied: the mandate does not list it".to_owned());
        assert_eq!(truncate_results(0, vec![refused.clone()]), [refused]);
        assert!(truncate_results(0, vec![result("x".repeat(9_000))])[0].content.len() <= MIN_RESULT_BYTES);
    }

    proptest! {
        #[test]
        fn results_take_no_more_than_their_share(
            texts in prop::collection::vec("(a|ä|…){0,2000}", 0..8),
            room in 0_u64..40_000,
        ) {
            let results: Vec<ToolResult> = texts.into_iter().map(result).collect();
            let share = usize::try_from(room / SHARE).unwrap();
            let cut = truncate_results(room, results.clone());
            let all: usize = cut.iter().map(|one| one.content.len()).sum();
            prop_assert!(all <= share.max(MIN_RESULT_BYTES * results.len()));
            for (cut, whole) in cut.iter().zip(&results) {
                prop_assert!(cut.content.len() <= whole.content.len());
                prop_assert!(cut == whole || whole.content.len() > MIN_RESULT_BYTES);
            }
        }
    }
}
