//! An ACP agent in one turn, step by step.

use serde_json::{Value, json};

use super::fake_agent::AgentPipes;

/// An agent's side of a turn.
pub(super) struct AcpAgent {
    pub(super) pipes: AgentPipes,
    prompt: Value,
    next: u64,
}

impl AcpAgent {
    /// Performs the handshake with the capabilities `can`, and waits for the prompt. Returns the earlier requests, too.
    pub(super) async fn begin(mut pipes: AgentPipes, can: Value) -> (Self, Vec<Value>) {
        let mut first = Vec::new();
        loop {
            let message = pipes.next().await;
            let result = match message["method"].as_str() {
                Some("initialize") => json!({ "protocolVersion": 1, "agentCapabilities": can }),
                Some("session/new") => json!({ "sessionId": "s1" }),
                Some("session/load" | "session/resume") => json!({}),
                Some("session/prompt") => {
                    let prompt = message["id"].clone();
                    return (Self::prompted(pipes, prompt), first);
                }
                other => panic!("{other:?}"),
            };
            pipes.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
            first.push(message);
        }
    }

    /// In the turn of this prompt.
    pub(super) const fn prompted(pipes: AgentPipes, prompt: Value) -> Self {
        Self { pipes, prompt, next: 100 }
    }

    pub(super) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        params["sessionId"] = "s1".into();
        self.next += 1;
        let id = self.next;
        self.pipes.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub(super) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.pipes.next().await;
            match message["method"].as_str() {
                Some("session/cancel") => {}
                None if message["id"] == id => return message,
                _ => panic!("{message} and not the answer to {id}"),
            }
        }
    }

    /// The result, or the error.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.send(method, params).await;
        let answer = self.answer(id).await;
        match answer["error"]["message"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    pub(super) async fn tell(&mut self, kind: &str, mut update: Value) {
        update["sessionUpdate"] = kind.into();
        let params = json!({ "sessionId": "s1", "update": update });
        self.pipes.say(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })).await;
    }

    /// Requests permission for a call. Returns the chosen option: `y` or `n`.
    pub(super) async fn asks(&mut self, call: Value) -> Value {
        let options =
            json!([{ "optionId": "y", "kind": "allow_once" }, { "optionId": "n", "kind": "reject_once" }]);
        let params = json!({ "toolCall": call, "options": options });
        let answer = self.ask("session/request_permission", params).await.unwrap();
        answer["outcome"]["optionId"].clone()
    }

    pub(super) async fn end(mut self) {
        let result = json!({ "stopReason": "end_turn" });
        self.pipes.say(&json!({ "jsonrpc": "2.0", "id": self.prompt, "result": result })).await;
        self.pipes.wait_for_close().await;
    }
}
