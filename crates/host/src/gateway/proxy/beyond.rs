//! What a provider would do for an agent beside answering: search the web, run code, call other servers, fetch what an address
//! names. All of it leads out of the house past the gate, so an agent's request that asks for it is refused. The operator's is
//! not looked at.

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::body::Asking;
use crate::gateway::ApiError;

/// Members of a request that are about the answer alone, in either dialect. Others may have the provider reach out, run things,
/// let another model answer or charge another price.
const MEMBERS: [&str; 41] = [
    "dimensions",
    "encoding_format",
    "frequency_penalty",
    "function_call",
    "functions",
    "input",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "model",
    "n",
    "output_config",
    "output_format",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "safety_identifier",
    "seed",
    "stop",
    "stop_sequences",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
];

/// Kinds of tools that run where the agent is.
const OWN_TOOLS: [&str; 2] = ["custom", "function"];

/// Beginnings of kinds that the provider describes and the agent runs.
const OWN_TOOLS_BY_DATE: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// Lets a request through that asks for an answer alone. Its members are written anew: what was looked at goes up.
pub(super) fn check(mut asking: Asking) -> Result<Asking, ApiError> {
    for (name, raw) in &mut asking.members.0 {
        if !MEMBERS.contains(&name.as_str()) {
            return Err(refused(&format!("`{name}`")));
        }
        let value: Value = serde_json::from_str(raw.get()).map_err(|_| {
            ApiError::params(format!("`{name}` is nested too deep, or holds half a character"))
        })?;
        if name == "tools" {
            check_tools(&value)?;
        }
        check_addresses(&value)?;
        *raw = to_raw_value(&value).map_err(|error| ApiError::new("internal", error.to_string()))?;
    }
    Ok(asking)
}

fn check_tools(tools: &Value) -> Result<(), ApiError> {
    for tool in tools.as_array().into_iter().flatten() {
        let kind = match tool.get("type") {
            Some(kind) => kind.as_str().unwrap_or_default(),
            // As Anthropic has it: a name and a schema.
            None if tool["name"].is_string() && tool["input_schema"].is_object() => "custom",
            None => "",
        };
        let is_own = OWN_TOOLS.contains(&kind)
            || OWN_TOOLS_BY_DATE.iter().any(|beginning| kind.starts_with(beginning));
        if !is_own {
            return Err(refused("a tool that runs at the provider"));
        }
    }
    Ok(())
}

/// Looks for parts that are given by their address: `{"type": "url", "url": …}`, `{"image_url": …}`, `{"file_url": …}`.
fn check_addresses(value: &Value) -> Result<(), ApiError> {
    match value {
        Value::Array(items) => items.iter().try_for_each(check_addresses),
        Value::Object(members) => {
            let is_call = members.get("type").is_some_and(|kind| kind == "tool_use");
            let is_by_address = members.get("type").is_some_and(|kind| kind == "url");
            for (name, value) in members {
                let address = match name.as_str() {
                    "url" if is_by_address => value.as_str(),
                    "image_url" | "file_url" => value.as_str().or_else(|| value.get("url")?.as_str()),
                    _ => None,
                };
                if address.is_some_and(|address| !address.starts_with("data:")) {
                    return Err(refused("a part that is given by its address"));
                }
                // The arguments of a call are the agent's own words about its own tool.
                if !(is_call && name == "input") {
                    check_addresses(value)?;
                }
            }
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn refused(what: &str) -> ApiError {
    ApiError::forbidden(format!(
        "{what} is not for agents: the provider would reach out of the house for it, past the gate, or charge more; send what the answer needs with the request"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::proxy::body::Members;

    fn checked(body: &Value) -> Result<String, ApiError> {
        let members: Members = serde_json::from_value(body.clone()).unwrap();
        let asking = Asking { model: "m".into(), is_stream: false, members };
        let asking = check(asking)?;
        Ok(asking.members.0.iter().map(|(name, raw)| format!("{name}:{raw};")).collect())
    }

    #[test]
    fn an_ordinary_conversation_with_tools_goes_through() {
        let body = json!({
            "model": "m",
            "tools": [
                { "name": "fetch", "input_schema": { "properties": { "url": { "type": "string" } } } },
                { "type": "custom", "name": "b" },
                { "type": "function", "function": { "name": "c" } },
                { "type": "bash_20250124", "name": "bash" },
            ],
            "messages": [
                { "role": "user", "content": [{ "type": "image", "source": { "type": "base64", "data": "AA==" } }] },
                { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }] },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "fetch", "input": { "type": "url", "url": "https://a.example" } }] },
            ],
        });
        assert!(checked(&body).unwrap().starts_with("model:\"m\";tools:[{\"name\":\"fetch\""));
    }

    #[test]
    fn whatever_leads_out_of_the_house_is_refused() {
        for more in [
            json!({ "mcp_servers": [] }),
            json!({ "MCP_servers": [{ "url": "https://evil.example" }] }),
            json!({ "container": "c" }),
            json!({ "plugins": [{ "id": "web" }] }),
            json!({ "models": ["expensive"] }),
            json!({ "service_tier": "priority" }),
            json!({ "tools": [{ "google_search": {} }] }),
            json!({ "tools": [{ "name": "x" }] }),
            json!({ "web_search_options": {} }),
            json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }),
            json!({ "tools": [{ "type": "web_fetch_20250910", "name": "web_fetch" }] }),
            json!({ "tools": [{ "type": "code_execution_20250825", "name": "code" }] }),
            json!({ "tools": [{ "type": "mcp_toolset" }] }),
            json!({ "tools": [{ "type": 5 }] }),
            json!({ "tools": [{ "type": "function" }, { "type": "something_new" }] }),
            json!({ "messages": [{ "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example/?q=secret" } }] }] }),
            json!({ "messages": [{ "content": [{ "type": "image_url", "image_url": { "url": "https://evil.example" } }] }] }),
            json!({ "messages": [{ "content": [{ "type": "image_url", "image_url": "http://evil.example" }] }] }),
            json!({ "system": [{ "type": "document", "source": { "type": "url", "url": "https://evil.example" } }] }),
            json!({ "messages": [{ "content": [{ "type": "tool_result", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example" } }] }] }] }),
        ] {
            assert_eq!(checked(&more).unwrap_err().code, "forbidden", "{more}");
        }
    }
}
