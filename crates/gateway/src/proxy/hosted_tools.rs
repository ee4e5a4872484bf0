//! Denies tools that run at the provider: web search, code execution, calls to other servers, fetching a URL. They would reach the
//! network without passing the gate, so an agent's request that uses one is denied. The operator's requests are not checked.

use serde_json::Value;
use serde_json::value::to_raw_value;
use tribune_providers::relay::ApiFormat;

use super::body::ProxiedBody;
use crate::error::ApiError;

/// Request members that affect only the response, in Anthropic's Messages and in Chat Completions. Others may make the provider
/// reach the network, run code, use another model or charge another price.
const MEMBERS: [&str; 42] = [
    "context_management",
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

/// The same for OpenAI's Responses. Members that refer to data stored at the provider (`previous_response_id`, `conversation`,
/// `prompt`) are not among them, because the data may belong to another caller.
const RESPONSES: [&str; 22] = [
    "client_metadata",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

/// The same for Gemini's API, in the spelling that its SDKs use.
const GEMINI: [&str; 6] =
    ["contents", "generationConfig", "safetySettings", "systemInstruction", "toolConfig", "tools"];

/// Allowed values of `include` in Responses: no results of the provider's tools.
const INCLUDED: [&str; 2] = ["message.output_text.logprobs", "reasoning.encrypted_content"];

/// Types of conversation items that refer to data stored at the provider.
const REFERENCE_ITEMS: [&str; 2] = ["item_reference", "image_generation_call"];

/// Types of tools that the agent runs.
const OWN_TOOLS: [&str; 2] = ["custom", "function"];

/// Type prefixes of tools that the provider defines and the agent runs.
const OWN_TOOLS_BY_DATE: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// Accepts a request that asks only for a response. Its members are serialized again, so that exactly the checked values are sent.
pub(super) fn check(mut body: ProxiedBody, wire: ApiFormat) -> Result<ProxiedBody, ApiError> {
    let known: &[&str] = match wire {
        ApiFormat::Messages | ApiFormat::Chat => &MEMBERS,
        ApiFormat::Responses => &RESPONSES,
        ApiFormat::Gemini => &GEMINI,
    };
    for (name, raw) in &mut body.members.0 {
        if !known.contains(&name.as_str()) {
            return Err(refused(&format!("`{name}`")));
        }
        let value: Value = serde_json::from_str(raw.get()).map_err(|_| {
            ApiError::params(format!("`{name}` is nested too deeply, or has an unpaired surrogate"))
        })?;
        match (name.as_str(), wire) {
            ("tools", ApiFormat::Gemini) => check_declarations(&value)?,
            ("tools", _) => check_tools(&value)?,
            ("input", ApiFormat::Responses) => check_items(&value)?,
            ("store", _) if value != Value::Bool(false) => {
                return Err(refused("`store`, unless it is false,"));
            }
            ("include", _) => check_included(&value)?,
            _ => {}
        }
        // The property names in a tool's schema are the agent's own.
        if !matches!(name.as_str(), "tools" | "functions") {
            check_addresses(&value)?;
        }
        *raw = to_raw_value(&value).map_err(|error| ApiError::new("internal", error.to_string()))?;
    }
    if wire == ApiFormat::Responses && !body.members.0.iter().any(|(name, _)| name == "store") {
        // The default of `store` is true.
        let no = to_raw_value(&false).map_err(|error| ApiError::new("internal", error.to_string()))?;
        body.members.0.push(("store".to_owned(), no));
    }
    Ok(body)
}

fn check_tools(tools: &Value) -> Result<(), ApiError> {
    if tools.is_null() {
        return Ok(());
    }
    let Some(tools) = tools.as_array() else {
        return Err(refused("a `tools` that is not a list"));
    };
    for tool in tools {
        let kind = match tool.get("type") {
            Some(kind) => kind.as_str().unwrap_or_default(),
            // Anthropic's form without a type: a name and a schema.
            None if tool["name"].is_string() && tool["input_schema"].is_object() => "custom",
            None => "",
        };
        if kind == "namespace" && tool["tools"].is_array() {
            // Responses groups tools into namespaces.
            check_tools(&tool["tools"])?;
            continue;
        }
        let is_own = OWN_TOOLS.contains(&kind)
            || OWN_TOOLS_BY_DATE.iter().any(|beginning| kind.starts_with(beginning));
        if !is_own {
            return Err(refused("a tool that runs at the provider"));
        }
    }
    Ok(())
}

/// Gemini's tools: the agent runs function declarations; everything else runs at the provider.
fn check_declarations(tools: &Value) -> Result<(), ApiError> {
    let is_own = |tool: &Value| {
        tool.as_object().is_some_and(|tool| tool.keys().all(|name| name == "functionDeclarations"))
    };
    match tools.as_array().is_some_and(|tools| tools.iter().all(is_own)) {
        true => Ok(()),
        false => Err(refused("a tool that runs at the provider")),
    }
}

fn check_included(included: &Value) -> Result<(), ApiError> {
    let is_known = |word: &Value| word.as_str().is_some_and(|word| INCLUDED.contains(&word));
    match included.is_null() || included.as_array().is_some_and(|words| words.iter().all(is_known)) {
        true => Ok(()),
        false => Err(refused("this value of `include`")),
    }
}

/// Checks the items of a Responses conversation. An item without a type or role refers to data stored at the provider.
fn check_items(input: &Value) -> Result<(), ApiError> {
    let is_named = |item: &Value| {
        let is_kind = |kind: &Value| kind.as_str().is_some_and(|kind| !REFERENCE_ITEMS.contains(&kind));
        match item.get("type") {
            Some(kind) => !is_kind(kind),
            None => item.is_object() && !item["role"].is_string(),
        }
    };
    match input.as_array().into_iter().flatten().any(is_named) {
        true => Err(refused("a part that is given by its name at the provider")),
        false => Ok(()),
    }
}

/// Denies content given by URL: any member named `…url` or `…uri`, in any spelling, whose value is not a `data:` URL, and file data
/// that is a URL. Also denies content given by an id at the provider, which may belong to another caller (`{"file_id": …}`,
/// `{"type": "item_reference"}`).
fn check_addresses(value: &Value) -> Result<(), ApiError> {
    match value {
        Value::Array(items) => items.iter().try_for_each(check_addresses),
        Value::Object(members) => {
            let is_call = members.get("type").is_some_and(|kind| kind == "tool_use");
            if members.get("type").is_some_and(|kind| kind == "item_reference") {
                return Err(refused("a part that is given by its name at the provider"));
            }
            for (name, value) in members {
                let word = name.to_ascii_lowercase();
                let address = match word.ends_with("url") || word.ends_with("uri") {
                    true => value.as_str().or_else(|| value.get("url")?.as_str()),
                    // Base64 has no colon, a URL has.
                    false if word == "file_data" => value.as_str().filter(|data| data.contains(':')),
                    false => None,
                };
                if address.is_some_and(|address| !address.starts_with("data:")) {
                    return Err(refused("content given by URL"));
                }
                if word == "file_id" && value.is_string() {
                    return Err(refused("a part that is given by its name at the provider"));
                }
                // The arguments of a tool call and its result are the agent's own data.
                let is_own = match name.as_str() {
                    "input" => is_call,
                    "args" | "response" => members.contains_key("name"),
                    _ => false,
                };
                if !is_own {
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
        "{what} is not available to agents: the provider could reach the network without the gate, or charge more; send the needed content with the request"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proxy::body::Members;

    fn checked(body: &Value) -> Result<String, ApiError> {
        checked_as(body, ApiFormat::Messages)
    }

    fn checked_as(body: &Value, wire: ApiFormat) -> Result<String, ApiError> {
        let members: Members = serde_json::from_value(body.clone()).unwrap();
        let body = ProxiedBody { model: "m".into(), is_stream: false, members };
        let body = check(body, wire)?;
        Ok(body.members.0.iter().map(|(name, raw)| format!("{name}:{raw};")).collect())
    }

    #[test]
    fn an_ordinary_conversation_with_tools_is_accepted() {
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
                { "role": "user", "content": [{ "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA==" } }] },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "fetch", "input": { "type": "url", "url": "https://a.example" } }] },
            ],
        });
        assert!(checked(&body).unwrap().starts_with("model:\"m\";tools:[{\"name\":\"fetch\""));
    }

    #[test]
    fn requests_that_make_the_provider_act_are_denied() {
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
            json!({ "messages": [{ "content": [{ "type": "document_url", "documentUrl": "https://evil.example" }] }] }),
            json!({ "system": [{ "type": "document", "source": { "type": "url", "url": "https://evil.example" } }] }),
            json!({ "messages": [{ "content": [{ "type": "video_url", "video_url": { "url": "http://evil.example" } }] }] }),
            json!({ "messages": [{ "content": [{ "type": "audio_url", "audio_url": { "url": "http://evil.example" } }] }] }),
            json!({ "messages": [{ "content": [{ "type": "document_url", "document_url": "https://evil.example" }] }] }),
            json!({ "messages": [{ "content": [{ "type": "x", "audioUrl": "https://evil.example" }] }] }),
            json!({ "messages": [{ "content": [{ "type": "file", "file": { "file_data": "https://evil.example" } }] }] }),
            json!({ "tools": { "type": "web_search" } }),
            json!({ "tools": "web_search" }),
            json!({ "messages": [{ "content": [{ "type": "tool_result", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example" } }] }] }] }),
        ] {
            assert_eq!(checked(&more).unwrap_err().code, "forbidden", "{more}");
        }
    }

    #[test]
    fn codex_requests_are_accepted() {
        let body = json!({
            "model": "m", "instructions": "be good", "store": false, "stream": true,
            "include": ["reasoning.encrypted_content"], "client_metadata": { "x": "y" },
            "tools": [
                { "type": "function", "name": "exec_command", "parameters": {} },
                { "type": "custom", "name": "apply_patch" },
                { "type": "namespace", "name": "agents", "tools": [{ "type": "function", "name": "spawn" }] },
            ],
            "input": [
                { "type": "message", "role": "user", "content": [{ "type": "input_image", "image_url": "data:image/png;base64,AA==" }] },
                { "type": "function_call", "name": "fetch", "arguments": "{\"file_id\":\"x\",\"url\":\"https://a.example\"}" },
            ],
        });
        assert!(checked_as(&body, ApiFormat::Responses).is_ok());
        let said =
            checked_as(&json!({ "input": [{ "role": "user", "content": "hi" }] }), ApiFormat::Responses)
                .unwrap();
        assert!(said.ends_with(";store:false;"), "nothing is stored at the provider: {said}");
    }

    #[test]
    fn responses_allows_no_provider_tools_or_references() {
        for more in [
            json!({ "previous_response_id": "resp_1" }),
            json!({ "conversation": "conv_1" }),
            json!({ "prompt": { "id": "pmpt_1" } }),
            json!({ "background": true }),
            json!({ "service_tier": "priority" }),
            json!({ "messages": [] }),
            json!({ "store": true }),
            json!({ "store": "false" }),
            json!({ "store": null }),
            json!({ "include": ["web_search_call.action.sources"] }),
            json!({ "include": "reasoning.encrypted_content" }),
            json!({ "tools": [{ "type": "web_search" }] }),
            json!({ "tools": [{ "type": "mcp", "server_url": "https://evil.example" }] }),
            json!({ "tools": [{ "type": "code_interpreter", "container": { "type": "auto" } }] }),
            json!({ "tools": [{ "type": "file_search", "vector_store_ids": ["vs_1"] }] }),
            json!({ "tools": [{ "type": "namespace", "tools": [{ "type": "web_search" }] }] }),
            json!({ "tools": [{ "type": "namespace" }] }),
            json!({ "input": [{ "type": "item_reference", "id": "msg_1" }] }),
            json!({ "input": [{ "id": "msg_1" }] }),
            json!({ "input": [{ "type": 5, "id": "msg_1" }] }),
            json!({ "input": [{ "type": "image_generation_call", "id": "ig_1" }] }),
            json!({ "input": [{ "type": "message", "content": [{ "type": "input_file", "file_id": "file_1" }] }] }),
            json!({ "input": [{ "type": "message", "content": [{ "type": "input_file", "file_url": "https://evil.example" }] }] }),
            json!({ "input": [{ "type": "message", "content": [{ "type": "input_image", "image_url": "https://evil.example" }] }] }),
        ] {
            assert_eq!(checked_as(&more, ApiFormat::Responses).unwrap_err().code, "forbidden", "{more}");
        }
    }

    #[test]
    fn gemini_allows_no_provider_tools_or_references() {
        let good = json!({
            "contents": [
                { "role": "user", "parts": [{ "text": "hi" }, { "inlineData": { "mimeType": "image/png", "data": "AA==" } }] },
                { "role": "model", "parts": [{ "functionCall": { "name": "fetch", "args": { "fileUri": "x", "type": "url", "url": "https://a.example" } } }] },
                { "role": "user", "parts": [{ "functionResponse": { "name": "fetch", "response": { "fileUri": "x" } } }] },
            ],
            "systemInstruction": { "parts": [{ "text": "be good" }] },
            "generationConfig": { "temperature": 0 },
            "tools": [{ "functionDeclarations": [{ "name": "fetch", "parametersJsonSchema": { "properties": { "fileUri": { "type": "string" } } } }] }],
        });
        assert!(checked_as(&good, ApiFormat::Gemini).is_ok());
        for more in [
            json!({ "cachedContent": "cachedContents/x" }),
            json!({ "system_instruction": {} }),
            json!({ "model": "models/other" }),
            json!({ "labels": {} }),
            json!({ "tools": [{ "googleSearch": {} }] }),
            json!({ "tools": [{ "functionDeclarations": [], "googleSearch": {} }] }),
            json!({ "tools": [{ "urlContext": {} }] }),
            json!({ "tools": [{ "codeExecution": {} }] }),
            json!({ "tools": { "googleSearch": {} } }),
            json!({ "contents": [{ "parts": [{ "fileData": { "fileUri": "https://evil.example" } }] }] }),
            json!({ "contents": [{ "parts": [{ "functionResponse": { "name": "x", "response": {}, "parts": [{ "fileData": { "fileUri": "https://evil.example" } }] } }] }] }),
            json!({ "contents": [{ "parts": [{ "file_data": { "file_uri": "gs://bucket/x" } }] }] }),
        ] {
            assert_eq!(checked_as(&more, ApiFormat::Gemini).unwrap_err().code, "forbidden", "{more}");
        }
    }
}
