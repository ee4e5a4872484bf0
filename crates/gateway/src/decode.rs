//! Decodes the parameters, body or query of a request into its type. An error is one sentence that names the member and the
//! expected value. It never repeats what was sent, which may be private text, or a token in the wrong member.

use serde::Deserializer;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use tribune_constitution::suggest_name::nearest;

use crate::error::ApiError;

/// Decodes JSON. `whole` names the value in an error that is not about one of its members.
pub(super) fn json<T: DeserializeOwned>(text: &str, whole: &str) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = read(&mut reader, whole, serde_json::Error::is_data)?;
    reader
        .end()
        .map_err(|_| ApiError::params(format!("{whole} is not JSON: there is text after its end")))?;
    Ok(read)
}

/// Decodes the query of a URL.
pub(super) fn query<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    read(pairs, "the query", |_| true)
}

fn read<'de, T, D>(reader: D, whole: &str, is_data: fn(&D::Error) -> bool) -> Result<T, ApiError>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let what = match is_data(error.inner()) {
            true => sentence(whole, error.path(), &error.inner().to_string()),
            false => format!("{whole} is not JSON: it is malformed or ends too early"),
        };
        ApiError::params(what)
    })
}

/// Turns a serde error into a sentence of ours. Serde's own text repeats values and names Rust types.
fn sentence(whole: &str, path: &Path, fault: &str) -> String {
    if let Some(rest) = fault.strip_prefix("unknown field ") {
        return unknown_member(whole, rest);
    }
    if let Some(name) = field_name(fault, "missing field `") {
        return format!("{} is missing", member_path(whole, path, Some(name)));
    }
    if let Some(name) = field_name(fault, "duplicate field `") {
        return format!("{} is given twice", member_path(whole, path, Some(name)));
    }
    let at = member_path(whole, path, None);
    if fault.starts_with("unknown variant ") {
        return format!("{at} is not one of {}", accepted_names(fault).join(", "));
    }
    let is_number = ["invalid digit", "number too", "cannot parse integer", "number out of range"];
    if is_number.iter().any(|words| fault.starts_with(words)) {
        return format!("{at} must be a whole number that is not too large");
    }
    match fault.rsplit_once(", expected ") {
        Some((_, expected)) => format!("{at} must be {}", expected_type(expected)),
        None => format!("{at} has the wrong value"),
    }
}

fn unknown_member(whole: &str, fault: &str) -> String {
    let known = accepted_names(fault);
    if known.is_empty() {
        return format!("{whole} must be empty: nothing is asked for here");
    }
    // The name that was sent may be anything and is not repeated; the suggestion is one of our names.
    let sent =
        fault.strip_prefix('`').and_then(|rest| rest.rsplit_once("`, expected ")).map(|(sent, _)| sent);
    let meant = sent.and_then(|sent| nearest(sent, &known));
    let meant = meant.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
    format!("{whole} has an unknown member{meant}: the members are {}", known.join(", "))
}

/// The accepted names, taken from serde's message.
fn accepted_names(fault: &str) -> Vec<&str> {
    let Some((_, expected)) = fault.rsplit_once("`, expected ") else { return Vec::new() };
    let expected = expected.split(" at line ").next().unwrap_or_default();
    expected.split('`').skip(1).step_by(2).collect()
}

/// The field name that follows `words` in serde's message.
fn field_name<'f>(fault: &'f str, words: &str) -> Option<&'f str> {
    fault.strip_prefix(words)?.split('`').next()
}

/// The path of the value, such as `input.content[0]`. Member names on the path were accepted by serde, so they are ours.
fn member_path(whole: &str, path: &Path, last: Option<&str>) -> String {
    let mut at = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => at.push_str(&format!("[{index}]")),
            // The names in a free-form object are the sender's: the path stops there.
            Segment::Map { key } if !is_known_form(key) || Some(key.as_str()) == last => break,
            Segment::Map { key } => push(&mut at, key),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if let Some(last) = last {
        push(&mut at, last);
    }
    if at.is_empty() { whole.to_owned() } else { format!("`{at}`") }
}

fn push(at: &mut String, name: &str) {
    if !at.is_empty() {
        at.push('.');
    }
    at.push_str(name);
}

/// Bytes of the longest parameter name.
const MAX_NAME: usize = 24;

fn is_known_form(name: &str) -> bool {
    name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// The expected type in plain words, without Rust type names.
fn expected_type(expected: &str) -> &str {
    let expected = expected.split(" at line ").next().unwrap_or_default();
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" | "internally tagged enum" => "an object",
        "a string" => "a string",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => {
            "an object"
        }
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_types::{AuthToken, SessionList, TurnRun};

    fn run(text: &str) -> String {
        json::<TurnRun>(text, "params").map(drop).unwrap_err().message
    }

    #[test]
    fn an_error_names_the_member_and_never_repeats_what_was_sent() {
        let block = |block: &str| format!(r#"{{"session_key":"k","input":{{"content":[{block}]}}}}"#);
        for (text, expected) in [
            (r#"{"session_key":"k"}"#.to_owned(), "`input` is missing"),
            (r#"{"session_key":"k","input":{}}"#.to_owned(), "`input.content` is missing"),
            (r#"{"session_key":"k","input":"SECRET"}"#.to_owned(), "`input` must be an object"),
            (
                r#"{"session_key":"k","input":{"content":"SECRET"}}"#.to_owned(),
                "`input.content` must be a list",
            ),
            (block("\"SECRET\""), "`input.content[0]` must be an object"),
            (
                block(r#"{"type":"SECRET"}"#),
                "`input.content[0].type` is not one of text, image, audio, resource",
            ),
            (r#"{"session_key":5,"input":{"content":[]}}"#.to_owned(), "`session_key` must be a string"),
            (
                r#"{"session_key":"k","wait":"SECRET","input":{"content":[]}}"#.to_owned(),
                "`wait` must be true or false",
            ),
            (
                r#"{"session_key":"k","session_key":"SECRET","input":{"content":[]}}"#.to_owned(),
                "`session_key` is given twice",
            ),
            (
                r#"{"sesion_key":"SECRET"}"#.to_owned(),
                "params has an unknown member (did you mean `session_key`?): the members are session_key, input, wait",
            ),
            (
                r#"{"SECRET`, expected `SECRET":1}"#.to_owned(),
                "params has an unknown member: the members are session_key, input, wait",
            ),
            ("[\"SECRET\"]".to_owned(), "params must be an object"),
            ("{\"SECRET".to_owned(), "params is not JSON: it is malformed or ends too early"),
            ("{} SECRET".to_owned(), "`session_key` is missing"),
        ] {
            assert_eq!(run(&text), expected, "{text}");
        }
        let token = json::<AuthToken>(r#"{"trb_SECRET":1}"#, "params").map(drop).unwrap_err();
        assert_eq!(token.message, "params has an unknown member: the members are token");
    }

    #[test]
    fn an_error_in_a_query_does_not_repeat_what_was_sent_either() {
        for (text, expected) in [
            ("limit=SECRET", "`limit` must be a whole number that is not too large"),
            ("SECRET=1", "the query has an unknown member: the members are agent_id, state, after, limit"),
        ] {
            assert_eq!(query::<SessionList>(text).map(drop).unwrap_err().message, expected, "{text}");
        }
    }
}
