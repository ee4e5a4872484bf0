//! `tribune agents test`: tests whether the gate holds an agent, and whether it answers.

use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use tribune_client::{ClientError, RpcClient, RpcIncoming};
use tribune_runtime::{AgentId, SessionKey};

use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean};

/// The message of the plain turn.
const PLAIN: &str = "Answer with the single word: ready";

/// The name of the step that runs the plain turn.
const ANSWERED: &str = "answered";

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The agent's id.
    id: String,
    /// Test only the gate; send nothing to the agent's own model.
    #[arg(long)]
    canary_only: bool,
    /// Confirm that you have looked at what an agent of this kind did without permission. If the gate holds it, it runs
    /// again. An agent that cannot be tested runs again on your confirmation alone, if canary.untried in config.json5
    /// names its profile.
    #[arg(long)]
    clear_mark: bool,
}

pub(crate) async fn run(
    client: &mut RpcClient,
    args: &TestArgs,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let mut tested =
        client.call("agent.test", &json!({ "agent_id": args.id, "clear_mark": args.clear_mark })).await?;
    let is_held = tested["outcome"] != "not_stopped" && tested["mark"].is_null();
    if is_held && !args.canary_only {
        let step = plain_turn(client, &args.id).await?;
        if let Some(steps) = tested["steps"].as_array_mut() {
            steps.push(step);
        }
    }
    let is_good = is_held
        && tested["outcome"] == "live"
        && steps(&tested).all(|step| step["ok"] == true)
        && steps(&tested).count() > 0;
    tested["ok"] = is_good.into();
    output.verdict(|paint| text(&tested, paint), &tested)?;
    // It cannot be tested, and the operator's confirmation was recorded.
    let is_cleared_on_word = is_cleared_untested(&tested)
        && steps(&tested).filter(|step| step["step"] == ANSWERED).all(|step| step["ok"] == true);
    Ok(if is_good || is_cleared_on_word { CommandOutcome::Done } else { CommandOutcome::Failed })
}

/// Has the agent answer a question in a session that is closed afterwards.
async fn plain_turn(client: &mut RpcClient, id: &str) -> Result<Value, CliError> {
    let began = Instant::now();
    let agent: AgentId = id.parse().map_err(|error| CliError::Input(format!("{error}")))?;
    let key = SessionKey::direct(&agent, "cli", "test", &std::process::id().to_string())
        .map_err(|error| CliError::Input(error.to_string()))?;
    let fault = match ask(client, &key).await {
        Ok(fault) => fault,
        Err(error @ ClientError::Rpc { .. }) => Some(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    // A session that could not be opened needs no closing.
    let _ = client.call("session.close", &json!({ "session_key": key })).await;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(json!({ "step": ANSWERED, "ok": fault.is_none(), "took_ms": took, "detail": fault }))
}

/// Runs the turn. Returns why there was no answer, if there was none.
async fn ask(client: &mut RpcClient, key: &SessionKey) -> Result<Option<String>, ClientError> {
    client.call("session.init", &json!({ "session_key": key })).await?;
    let content = json!([{ "type": "text", "text": PLAIN }]);
    let request_id =
        client.send("turn.run", &json!({ "session_key": key, "input": { "content": content } })).await?;
    let (mut fault, mut has_answer) = (None, false);
    loop {
        match client.next().await? {
            RpcIncoming::Response(request, answer) if request == request_id => {
                let stop = answer?["stop_reason"].as_str().unwrap_or_default().to_owned();
                let silent = || format!("the turn ended with `{stop}` and without an answer");
                return Ok(fault.or_else(|| (!has_answer).then(silent)));
            }
            RpcIncoming::Response(..) => {}
            RpcIncoming::Notification(event) => match event.params["event"]["type"].as_str() {
                Some("text_delta") => has_answer = true,
                Some("error") => fault = event.params["event"]["message"].as_str().map(str::to_owned),
                _ => {}
            },
        }
    }
}

/// Whether the mark was cleared on the operator's word, without a test.
fn is_cleared_untested(tested: &Value) -> bool {
    tested["cleared"] == "looked_at_untried"
}

fn steps(tested: &Value) -> impl Iterator<Item = &Value> {
    tested["steps"].as_array().into_iter().flatten()
}

fn text(tested: &Value, paint: Paint) -> String {
    let line = |step: &Value| {
        let word = |name: &str| clean(step[name].as_str().unwrap_or_default());
        let detail = match word("detail").as_str() {
            "" => String::new(),
            detail => format!("  {detail}"),
        };
        let took = format!("{:>8} ms", step["took_ms"].as_u64().unwrap_or(0));
        let verdict = if step["ok"] == true { paint.good("ok  ") } else { paint.bad("FAIL") };
        format!("{verdict}  {:<24}{}{detail}", word("step"), paint.faint(&took))
    };
    let mut lines: Vec<String> = steps(tested).map(line).collect();
    if let Some(mark) = tested["mark"].as_str() {
        let (done, next) = match (tested["outcome"].as_str(), tested["excepted"] == true) {
            (Some("not_tried"), true) => ("nothing allowed, and it cannot be tested", "add --clear-mark"),
            (Some("not_tried"), false) => (
                "nothing allowed, and it cannot be tested",
                "name its profile in canary.untried in config.json5, restart the daemon and add --clear-mark",
            ),
            _ => ("no canary provokes", "add --clear-mark"),
        };
        let what = format!(
            "UNGOVERNED: an agent of this kind did what {done} ({}), and none is run: read the session's record, then {next}",
            clean(mark)
        );
        lines.push(paint.bad(&what));
        return lines.join("\n");
    }
    if is_cleared_untested(tested) {
        let what = "the mark is cleared, and this is recorded, on your word alone: it is not known whether the gate holds it, since it could \
                    not be made to try anything";
        lines.push(paint.unsure(what));
        return lines.join("\n");
    }
    lines.push(match tested["outcome"].as_str() {
        Some("live") => paint.good("the gate holds it: it asked, was refused, and did not do it"),
        Some("not_stopped") => paint.bad("UNGOVERNED: the gate does not hold it, and it is not run"),
        _ => paint.unsure("it is not known whether the gate holds it: it could not be made to try anything"),
    });
    lines.join("\n")
}
