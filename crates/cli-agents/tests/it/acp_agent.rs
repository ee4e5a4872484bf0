//! An agent that speaks ACP, step by step in one turn.

use serde_json::{Value, json};

use super::fake_agent::Stage;

/// An agent's side of a turn.
pub(super) struct Agent {
    pub(super) stage: Stage,
    prompt: Value,
    next: u64,
}

impl Agent {
    /// Says what it can, and waits for the prompt. Returns what was said before that, too.
    pub(super) async fn begin(mut stage: Stage, can: Value) -> (Self, Vec<Value>) {
        let mut first = Vec::new();
        loop {
            let message = stage.next().await;
            let result = match message["method"].as_str() {
                Some("initialize") => json!({ "protocolVersion": 1, "agentCapabilities": can }),
                Some("session/new") => json!({ "sessionId": "s1" }),
                Some("session/load" | "session/resume") => json!({}),
                Some("session/prompt") => {
                    let prompt = message["id"].clone();
                    return (Self::prompted(stage, prompt), first);
                }
                other => panic!("{other:?}"),
            };
            stage.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
            first.push(message);
        }
    }

    /// In the turn of this prompt.
    pub(super) const fn prompted(stage: Stage, prompt: Value) -> Self {
        Self { stage, prompt, next: 100 }
    }

    pub(super) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        params["sessionId"] = "s1".into();
        self.next += 1;
        let id = self.next;
        self.stage.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub(super) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.stage.next().await;
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
        self.stage.say(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })).await;
    }

    /// Asks leave for a call. Returns the option that was chosen: `y` or `n`.
    pub(super) async fn asks(&mut self, call: Value) -> Value {
        let options =
            json!([{ "optionId": "y", "kind": "allow_once" }, { "optionId": "n", "kind": "reject_once" }]);
        let params = json!({ "toolCall": call, "options": options });
        let answer = self.ask("session/request_permission", params).await.unwrap();
        answer["outcome"]["optionId"].clone()
    }

    pub(super) async fn end(mut self) {
        let result = json!({ "stopReason": "end_turn" });
        self.stage.say(&json!({ "jsonrpc": "2.0", "id": self.prompt, "result": result })).await;
        self.stage.linger().await;
    }
}
