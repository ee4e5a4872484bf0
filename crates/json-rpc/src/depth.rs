//! Limits the nesting of a message before it is parsed into values. It does not check whether the text is JSON.

/// Whether lists and objects are nested deeper than `max` in a JSON text.
pub fn is_deeper_than(text: &str, max: usize) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_brackets_outside_of_strings() {
        for (text, depth) in [
            ("1", 0),
            (r#""[[[""#, 0),
            (r#""\"[[""#, 0),
            (r#""\\",[]"#, 1),
            ("[[],[],{}]", 2),
            (r#"{"a":[{"b":"}"}]}"#, 3),
            ("]]][", 1),
        ] {
            assert!(!is_deeper_than(text, depth), "{text}");
            assert!(depth == 0 || is_deeper_than(text, depth - 1), "{text}");
        }
    }
}
