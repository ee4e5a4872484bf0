//! `tribune stop-all` and `tribune resume`.

use serde_json::{Value, json};
use tribune_host::Home;

use crate::approver_connection::Door;
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::Output;

/// Stops everything.
pub(crate) fn stop_all(door: &Door, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let stopped = ask(door, home, "gate.stop_all")?;
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
    Ok(Outcome::Done)
}

/// Lets everything go on.
pub(crate) fn resume(door: &Door, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let resumed = ask(door, home, "gate.resume")?;
    output.result(
        |paint| match resumed["already"] == true {
            true => "nothing was stopped: calls are decided by the law, as before".to_owned(),
            false => format!("{}: calls are decided by the law again", paint.good("resumed")),
        },
        &resumed,
    )?;
    Ok(Outcome::Done)
}

fn ask(door: &Door, home: &Home, method: &str) -> Result<Value, CliError> {
    daemon::runtime()?.block_on(async {
        let mut client = door.connect(home).await?;
        let answer = client.call(method, &json!({})).await?;
        client.close().await;
        Ok(answer)
    })
}
