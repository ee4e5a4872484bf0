//! `tribune workspace land`: requests a land, prints the approval that it waits for, and reports the result.

use std::time::Duration;

use serde_json::Value;
use tribune_client::{ClientError, RpcClient, RpcIncoming};
use tribune_storage::home::Home;

use super::changes::name;
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, count};
use crate::pending_approvals::PendingApprovals;

/// Interval between requests for pending approvals.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn run(home: &Home, params: &Value, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let result = daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        let request = client.send("workspace.land", params).await?;
        let result = wait(home, &mut client, request, output).await?;
        client.close().await;
        Ok::<_, CliError>(result)
    })?;
    let is_whole = result["left"].as_array().is_none_or(Vec::is_empty);
    output.result(|paint| text(&result, paint), &result)?;
    Ok(if is_whole { CommandOutcome::Done } else { CommandOutcome::Failed })
}

/// Waits for the result. If a person must decide, prints the commands for it.
async fn wait(home: &Home, client: &mut RpcClient, request: u64, output: &Output) -> Result<Value, CliError> {
    let mut asking: Option<(RpcClient, PendingApprovals)> = None;
    let mut has_said_wait = false;
    loop {
        tokio::select! {
            result = client.next() => match result {
                Ok(RpcIncoming::Response(of, answer)) if of == request => return Ok(answer?),
                Ok(RpcIncoming::Response(..) | RpcIncoming::Notification(_)) => {}
                Err(error) => return Err(ClientError::into(error)),
            },
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if asking.is_none() {
                    asking = Some((daemon::connect(home).await?, PendingApprovals::for_land(home)));
                }
                if let Some((client, pending)) = &mut asking {
                    pending.print_new(client, output).await?;
                    if !std::mem::replace(&mut has_said_wait, true) && !pending.has_printed() {
                        output.notice("tribune: landing changes; many files take a while");
                    }
                }
            }
        }
    }
}

fn text(result: &Value, paint: Paint) -> String {
    let landed: Vec<&str> = names(&result["landed"]).collect();
    let left: Vec<&Value> = result["left"].as_array().into_iter().flatten().collect();
    let mut lines: Vec<String> =
        landed.iter().map(|path| paint.good(&format!("landed {}", name(path)))).collect();
    for one in &left {
        let part = |part: &str| one[part].as_str().unwrap_or_default();
        lines.push(paint.unsure(&format!("left   {}: {}", name(part("path")), clean(part("why")))));
        if one["version"].is_string() {
            lines.push(format!("       the run's version: {}", name(part("version"))));
        }
    }
    let sum = match (landed.len() as u64, left.len() as u64) {
        (0, 0) => "nothing to land".to_owned(),
        (number, 0) => format!("{} landed", count(number, "change", "changes")),
        (number, left) => format!("{} landed, {left} left", count(number, "change", "changes")),
    };
    lines.push(sum);
    lines.join("\n")
}

fn names(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn land_result_is_safe_for_the_terminal() {
        let result = json!({
            "landed": ["a\u{1b}[2J", "b\u{9b}1m\u{200b}"],
            "left": [{ "path": "c\nlanded d", "why": "changed\u{7}", "version": "/l/\u{202e}c" }],
        });
        let expected = "landed a\\u{1b}[2J\nlanded b\\u{9b}1m\\u{200b}\nleft   c\\u{a}landed d: changed\\u{7}\n       \
                        the run's version: /l/\\u{202e}c\n2 changes landed, 1 left";
        assert_eq!(text(&result, Paint::OFF), expected);
    }
}
