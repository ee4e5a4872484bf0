//! The tools that a server lists, within bounds. A tool that exceeds them is left out and counted, because an agent can call
//! every tool it is offered.

use serde_json::{Value, json};
use tribune_redact::Redactor;
use tribune_runtime::ToolSpec;

use super::server_spec::{ServerSpec, digest};

/// The prefix of every name under which an agent calls a tool of a server.
pub(super) const PREFIX: &str = "mcp__";

/// Maximum number of tools of one server; each takes space in every request to a model.
pub(super) const MAX_TOOLS: usize = 64;

/// Maximum bytes of a description; a longer one is cut.
const MAX_DESCRIPTION_BYTES: usize = 2048;

/// Maximum bytes of a schema, and its maximum depth.
const MAX_SCHEMA_BYTES: usize = 16 << 10;
const MAX_SCHEMA_DEPTH: usize = 16;

/// Maximum bytes of a tool's name at its server.
const MAX_NAME_BYTES: usize = 128;

/// Maximum bytes of the name under which an agent calls it, a limit of the model providers.
const MAX_SPEC_NAME_BYTES: usize = 64;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    /// Its name at its server.
    pub(super) name: String,
    /// A digest of the server and the tool as an agent was offered it.
    pub(super) definition: String,
    /// The specification that agents receive.
    pub(crate) spec: ToolSpec,
}

/// Collects the result of `tools/list`, one page at a time.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<Tool>,
    pub(super) left_out: usize,
}

impl Listing {
    pub(super) fn take(&mut self, wanted: &ServerSpec, redactor: &Redactor, page: &Value) {
        for told in page["tools"].as_array().into_iter().flatten() {
            let read = read(wanted, redactor, told);
            let is_new = |tool: &Tool| self.tools.iter().all(|own| own.spec.name != tool.spec.name);
            match read.filter(is_new) {
                Some(tool) if self.tools.len() < MAX_TOOLS => self.tools.push(tool),
                Some(_) | None => self.left_out += 1,
            }
        }
    }
}

/// One tool, if it can be offered.
fn read(wanted: &ServerSpec, redactor: &Redactor, told: &Value) -> Option<Tool> {
    let name = told["name"].as_str()?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_word) {
        return None;
    }
    let called = format!("{PREFIX}{}__{}", wanted.name, name.replace(['.', '/'], "_"));
    let schema = &told["inputSchema"];
    let is_object = schema["type"] == "object" && schema.get("properties").is_none_or(Value::is_object);
    if called.len() > MAX_SPEC_NAME_BYTES || !is_object || !is_shallow(schema, MAX_SCHEMA_DEPTH) {
        return None;
    }
    let input_schema = redactor.redact_json(schema);
    if input_schema.to_string().len() > MAX_SCHEMA_BYTES {
        return None;
    }
    let said = redactor.redact(told["description"].as_str().unwrap_or_default()).into_owned();
    let description = format!("{} (a tool of the MCP server `{}`)", cut(&said), wanted.name);
    let definition = digest(&json!({
        "server": wanted.described(), "tool": name, "description": told["description"], "schema": schema,
    }));
    let spec = ToolSpec { name: called, description, input_schema };
    Some(Tool { name: name.to_owned(), definition, spec })
}

/// The text without invisible and direction-changing characters, truncated.
fn cut(text: &str) -> String {
    let is_plain = |c: &char| *c == '\n' || !(c.is_control() || tribune_constitution::command::is_hidden(*c));
    let mut plain: String = text.chars().filter(is_plain).collect();
    if plain.len() > MAX_DESCRIPTION_BYTES {
        plain.truncate(plain.floor_char_boundary(MAX_DESCRIPTION_BYTES));
        plain.push('…');
    }
    plain.trim().to_owned()
}

fn is_shallow(value: &Value, depth: usize) -> bool {
    let inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => return true,
    };
    depth > 0 && { inside }.all(|value| is_shallow(value, depth - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> ServerSpec {
        ServerSpec::read(&json!({ "name": "probe", "command": "probe" })).unwrap()
    }

    fn tool(name: &str) -> Value {
        json!({ "name": name, "description": "Does it.", "inputSchema": { "type": "object" } })
    }

    fn listed(tools: Value) -> Listing {
        let mut listing = Listing::default();
        listing.take(&wanted(), &Redactor::new(), &json!({ "tools": tools }));
        listing
    }

    #[test]
    fn a_tool_is_offered_under_the_name_of_its_server() {
        let listing = listed(
            json!([tool("git.status"), { "name": "bare", "inputSchema": { "type": "object", "properties": {} } }]),
        );
        let names: Vec<&str> = listing.tools.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!((names, listing.left_out), (vec!["mcp__probe__git_status", "mcp__probe__bare"], 0));
        assert_eq!(listing.tools[0].name, "git.status");
        assert_eq!(listing.tools[0].spec.description, "Does it. (a tool of the MCP server `probe`)");
        // A changed tool has another digest, and so has a tool of another program.
        let mut other = tool("git.status");
        other["description"] = "Does it otherwise.".into();
        let one = &listing.tools[0].definition;
        assert_ne!(*one, listed(json!([other])).tools[0].definition);
        let elsewhere = ServerSpec { command: "/other".to_owned(), ..wanted() };
        let mut again = Listing::default();
        again.take(&elsewhere, &Redactor::new(), &json!({ "tools": [tool("git.status")] }));
        assert_ne!(*one, again.tools[0].definition);
        assert_eq!(*one, listed(json!([tool("git.status")])).tools[0].definition);
    }

    #[test]
    fn l6_oversized_tools_are_left_out_and_counted() {
        let deep =
            (0..200).fold(json!({}), |inner, _| json!({ "type": "object", "properties": { "a": inner } }));
        let wide = json!({ "type": "object", "properties": { "a": { "description": "x".repeat(MAX_SCHEMA_BYTES) } } });
        let with = |schema: Value| json!({ "name": "odd", "inputSchema": schema });
        for odd in [
            json!({ "name": "", "inputSchema": { "type": "object" } }),
            tool("with space"),
            tool("new\nline"),
            tool("ünder"),
            tool(&"x".repeat(129)),
            tool(&"x".repeat(60)),
            json!({ "name": 7, "inputSchema": { "type": "object" } }),
            json!({ "name": "odd" }),
            with(json!({ "type": "string" })),
            with(json!({ "type": "object", "properties": [] })),
            with(deep),
            with(wide),
            json!("odd"),
        ] {
            let listing = listed(json!([odd, tool("good")]));
            assert_eq!((listing.tools.len(), listing.left_out), (1, 1), "{odd}");
        }
        let clash = listed(json!([tool("a.b"), tool("a_b"), tool("a.b")]));
        assert_eq!((clash.tools.len(), clash.left_out), (1, 2));
        let many: Vec<Value> = (0..1000).map(|number| tool(&format!("t{number}"))).collect();
        let listing = listed(json!(many));
        assert_eq!((listing.tools.len(), listing.left_out), (MAX_TOOLS, 1000 - MAX_TOOLS));
        assert_eq!(listed(json!("nonsense")).tools.len(), 0);
    }

    #[test]
    fn a_description_is_short_and_has_no_hidden_characters() {
        let mut told = tool("a");
        told["description"] = format!("one\ntwo\u{202e}\u{200b}\u{7} {}", "ä".repeat(5000)).into();
        let listing = listed(json!([told]));
        let said = &listing.tools[0].spec.description;
        assert!(said.starts_with("one\ntwo ä") && said.len() < MAX_DESCRIPTION_BYTES + 100, "{said}");
        let mut told = tool("a");
        told["description"] = "use ghp_0123456789abcdefghijklmnopqrstuvwx01 here".into();
        assert!(!listed(json!([told])).tools[0].spec.description.contains("ghp_0123"));
    }
}
