//! `tribune stop-all` and `tribune resume`.

use serde_json::{Value, json};
use tribune_storage::home::Home;

use crate::approver_connection::ApproverConnection;
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::Output;

/// Stops all work.
pub(crate) fn stop_all(
    connection: &ApproverConnection,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let stopped = ask(connection, home, "gate.stop_all")?;
    output.result(
        |paint| {
            let ended = match stopped["cancelled"].as_u64().unwrap_or(0) {
                0 => "no turn was running".to_owned(),
                1 => "1 turn was ended".to_owned(),
                turns => format!("{turns} turns were ended"),
            };
            let word = if stopped["already"] == true { "stopped already" } else { "stopped" };
            format!("{}: {ended}; no call is allowed until: tribune resume", paint.bad(word))
        },
        &stopped,
    )?;
    Ok(CommandOutcome::Done)
}

/// Allows work again.
pub(crate) fn resume(
    connection: &ApproverConnection,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let resumed = ask(connection, home, "gate.resume")?;
    output.result(
        |paint| match resumed["already"] == true {
            true => "work was not stopped: the law decides calls, as before".to_owned(),
            false => format!("{}: the law decides calls again", paint.good("resumed")),
        },
        &resumed,
    )?;
    Ok(CommandOutcome::Done)
}

fn ask(connection: &ApproverConnection, home: &Home, method: &str) -> Result<Value, CliError> {
    daemon::runtime()?.block_on(async {
        let mut client = connection.connect(home).await?;
        let answer = client.call(method, &json!({})).await?;
        client.close().await;
        Ok(answer)
    })
}
