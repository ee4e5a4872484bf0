//! Reads bounded lines from standard input. A line that is too long is dropped but for its outline, so that the request
//! in it can be answered with an error.

use std::io::BufRead;

use serde_json::Value;
use tribune_json_rpc::{LineBuffer, RpcMessage};

/// Bytes of an outline: the top-level members of a message without their contents.
const MAX_OUTLINE: usize = 4 << 10;

/// A line that is not empty.
#[derive(Debug, PartialEq)]
pub(super) enum InputLine {
    Whole(String),
    /// A line of more than `most` bytes, which are dropped.
    TooLong {
        /// The id of the request in it.
        id: Option<Value>,
        most: usize,
    },
}

/// Reads the next line that is not empty; `None` at the end.
pub(super) fn read_line(input: &mut impl BufRead, most: usize) -> std::io::Result<Option<InputLine>> {
    loop {
        let (mut line, mut outline) = (LineBuffer::new(most), Outline::default());
        let is_over = loop {
            let piece = input.fill_buf()?;
            if piece.is_empty() {
                break true;
            }
            let pushed = line.push(piece, |dropped| outline.take(dropped));
            input.consume(pushed.consumed);
            if pushed.is_line_end {
                break false;
            }
        };
        let Ok(line) = line.take() else {
            return Ok(Some(InputLine::TooLong { id: request_id(&outline.text), most }));
        };
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        match (line.is_empty(), is_over) {
            (false, _) => return Ok(Some(InputLine::Whole(line))),
            (true, true) => return Ok(None),
            (true, false) => {}
        }
    }
}

/// The id of a request; `None` if the message is no request or cannot be read.
pub(super) fn request_id(message: &[u8]) -> Option<Value> {
    let message: RpcMessage<Value> = serde_json::from_slice(message).ok()?;
    let is_request = message.method.is_some_and(|method| method.is_string());
    message.id.filter(|id| is_request && (id.is_string() || id.is_number()))
}

/// A message with `null` in place of every nested list and object.
#[derive(Debug, Default)]
struct Outline {
    text: Vec<u8>,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

impl Outline {
    fn take(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take_one(*byte));
    }

    fn take_one(&mut self, byte: u8) {
        let is_outside = self.depth <= 1;
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == 2 {
                        self.keep(b"null");
                    }
                    if self.depth > 1 {
                        return;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if !is_outside {
                        return;
                    }
                }
                _ => {}
            }
        }
        if is_outside {
            self.keep(&[byte]);
        }
    }

    /// Drops bytes beyond the bound; the outline then no longer parses.
    fn keep(&mut self, bytes: &[u8]) {
        if self.text.len() < MAX_OUTLINE {
            self.text.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use serde_json::json;

    use super::*;

    fn all(text: &str, most: usize, at_once: usize) -> Vec<InputLine> {
        let mut input = BufReader::with_capacity(at_once, text.as_bytes());
        std::iter::from_fn(|| read_line(&mut input, most).unwrap()).collect()
    }

    #[test]
    fn long_lines_are_reduced_to_their_request_id() {
        let long = "x".repeat(200);
        let request = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "m", "params": { "a": [long, { "id": 9 }] } });
        let behind =
            format!(r#"{{"params":{{"t":"\"{long}}}]","b":[[]]}},"method":"m","id":"last \" one"}}"#);
        let answer = json!({ "jsonrpc": "2.0", "id": 5, "result": { "a": long } });
        let text = format!(
            "short\n\n  \n{}\n{}\n{behind}\n{answer}\n{long}\nafter\r\nlast",
            request(json!(3)),
            request(json!("a"))
        );
        let too_long = |id: Option<Value>| InputLine::TooLong { id, most: 100 };
        let whole = |text: &str| InputLine::Whole(text.to_owned());
        let expected = [
            whole("short"),
            too_long(Some(json!(3))),
            too_long(Some(json!("a"))),
            too_long(Some(json!("last \" one"))),
            too_long(None),
            too_long(None),
            whole("after"),
            whole("last"),
        ];
        for at_once in [1, 7, 64, 4096] {
            assert_eq!(all(&text, 100, at_once), expected, "{at_once} bytes at once");
        }
    }

    #[test]
    fn only_an_object_has_a_request_id() {
        for text in ["[]", "[1]", "3", "\"id\"", "null", "", "{}", r#"{"id":1}"#, r#"{"id":1,"method":2}"#] {
            assert_eq!(request_id(text.as_bytes()), None, "{text}");
        }
        let batch = format!("[{}]", r#"{"id":1,"method":"m"},"#.repeat(10));
        assert_eq!(all(&batch, 100, 64), [InputLine::TooLong { id: None, most: 100 }]);
    }

    #[test]
    fn outline_is_bounded() {
        let text = format!(r#"{{"id":1,"method":"{}"}}"#, "m".repeat(1 << 20));
        assert_eq!(all(&text, 100, 4096), [InputLine::TooLong { id: None, most: 100 }]);
        let deep = format!(r#"{{"id":1,"method":"m","params":{}"#, "[".repeat(1 << 20));
        assert_eq!(
            all(&deep, 100, 4096),
            [InputLine::TooLong { id: None, most: 100 }],
            "a message without an end has no id"
        );
    }
}
