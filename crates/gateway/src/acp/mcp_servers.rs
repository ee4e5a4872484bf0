//! The MCP servers that a client sends with a session.

use serde_json::Value;
use tribune_runtime::SessionKey;
use tribune_tools::mcp::{IfRunning, ServerSpec, named_once};

use super::client_session::SessionBinding;
use super::connection::Connection;
use super::cwd::{list, names};
use super::wire::Fault;
use crate::principal::Principal;

/// The parsed `mcpServers`: servers that may be started, and sentences about those that are left out.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) servers: Vec<ServerSpec>,
    pub(super) left_out: Vec<String>,
}

/// Parses `mcpServers`. Only the operator may add programs to a session.
pub(super) fn sent(who: &Principal, params: &Value) -> Result<Sent, Fault> {
    let all = list(params, "mcpServers")?;
    let name = |server: &Value| server["name"].as_str().unwrap_or("unnamed").to_owned();
    let mut sent = Sent::default();
    if who.operator().is_err() {
        if !all.is_empty() {
            let names = names(all.iter().map(name));
            sent.left_out.push(format!("MCP servers are added by the operator alone. Left out: {names}."));
        }
        return Ok(sent);
    }
    let is_remote = |server: &&Value| {
        !server["url"].is_null() || server["type"].as_str().is_some_and(|kind| kind != "stdio")
    };
    let (remote, local): (Vec<&Value>, Vec<&Value>) = all.iter().partition(is_remote);
    if !remote.is_empty() {
        let names = names(remote.into_iter().map(name));
        sent.left_out.push(format!(
            "Tribune starts MCP servers as local programs (stdio) and does not connect to remote ones. Left out: {names}."
        ));
    }
    let read = |server: &Value| {
        ServerSpec::read(server)
            .map_err(|what| Fault::params(format!("`mcpServers` has an invalid entry: {what}")))
    };
    let servers = local.into_iter().map(read).collect::<Result<Vec<ServerSpec>, Fault>>()?;
    let (servers, others) = named_once(servers);
    sent.servers = servers;
    if !others.is_empty() {
        let names = names(others.into_iter());
        sent.left_out.push(format!(
            "A session has at most 8 MCP servers, each with a name of its own. Left out: {names}."
        ));
    }
    Ok(sent)
}

impl Connection {
    /// Starts the MCP servers of an open session. Returns sentences about those that are not available.
    pub(super) async fn bring_servers(&self, binding: &SessionBinding, if_running: IfRunning) -> Vec<String> {
        let SessionBinding { key, servers, .. } = binding;
        if servers.is_empty() {
            return Vec::new();
        }
        match self.start_all(key, servers, if_running).await {
            Ok(sentences) => sentences,
            Err(fault) => vec![format!("The session's MCP servers were not started: {}.", fault.message)],
        }
    }

    async fn start_all(
        &self,
        key: &SessionKey,
        servers: &[ServerSpec],
        if_running: IfRunning,
    ) -> Result<Vec<String>, Fault> {
        self.who.operator()?;
        let api = &self.gateway.api;
        let Some(row) = api.sessions.row(key).await? else { return Ok(Vec::new()) };
        let left_out = |why: &str| {
            let names = names(servers.iter().map(|server| server.name.clone()));
            Ok(vec![format!("{why} Left out: {names}.")])
        };
        if api.sessions.live(key).await?.0 {
            return match if_running {
                IfRunning::Replace => {
                    left_out("A turn is running in this session, with the MCP servers that it had before.")
                }
                IfRunning::Keep => Ok(Vec::new()),
            };
        }
        Ok(api.mcp.start_all(&row, servers, if_running).await)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(name: &str) -> Value {
        json!({ "name": name, "command": "y", "args": [], "env": [] })
    }

    fn ask(who: &Principal, servers: Value) -> Result<(Vec<String>, Vec<String>), String> {
        let sent = sent(who, &json!({ "mcpServers": servers })).map_err(|fault| fault.message)?;
        Ok((sent.servers.into_iter().map(|server| server.name).collect(), sent.left_out))
    }

    #[test]
    fn local_servers_of_the_operator_are_accepted_and_the_rest_is_reported() {
        let operator = Principal::Operator;
        let all = json!([
            server("git"), server("my files"), server("my/files"),
            { "type": "http", "name": "far", "url": "https://example.org/mcp", "headers": [] },
            { "type": "sse", "name": "farther", "url": "https://example.org/sse", "headers": [] },
        ]);
        let (servers, left_out) = ask(&operator, all.clone()).unwrap();
        assert_eq!(servers, ["git", "my_files"]);
        assert_eq!(left_out.len(), 2, "{left_out:?}");
        assert!(left_out[0].contains("`far`, `farther`"), "{left_out:?}");
        assert!(left_out[1].contains("a name of its own. Left out: `my_files`"), "{left_out:?}");
        let many: Vec<Value> = (0..100).map(|n| server(&n.to_string())).collect();
        let (servers, left_out) = ask(&operator, json!(many)).unwrap();
        assert_eq!(servers.len(), 8);
        assert!(left_out[0].contains("`15` and 84 more"), "{left_out:?}");
        assert_eq!(ask(&operator, json!([])), Ok((vec![], vec![])));
        assert_eq!(ask(&operator, Value::Null), Ok((vec![], vec![])));
        for wrong in [
            json!("x"),
            json!({}),
            json!([{ "name": "x" }]),
            json!([7]),
            json!([{ "name": "x", "command": 7 }]),
        ] {
            assert!(ask(&operator, wrong.clone()).unwrap_err().contains("`mcpServers`"), "{wrong}");
        }
        let anonymous = Principal::Anonymous { id: "anonymous".parse().unwrap() };
        let (servers, left_out) = ask(&anonymous, all).unwrap();
        assert!(servers.is_empty() && left_out[0].contains("the operator alone"), "{left_out:?}");
    }
}
