//! `tribune workspace land`: asks for it, says whom it waits for, and tells what came of it.

use std::time::Duration;

use serde_json::Value;
use tribune_client::{Client, ClientError, Incoming};
use tribune_host::Home;

use super::changes::name;
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint, clean};
use crate::pending_approvals::Questions;
use crate::up::count;

/// Between two looks for what it waits for.
const GLANCE: Duration = Duration::from_secs(1);

pub(super) fn run(home: &Home, params: &Value, output: &mut Output) -> Result<Outcome, CliError> {
    let came = daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        let request = client.send("workspace.land", params).await?;
        let came = wait(home, &mut client, request, output).await?;
        client.close().await;
        Ok::<_, CliError>(came)
    })?;
    let is_whole = came["left"].as_array().is_none_or(Vec::is_empty);
    output.result(|paint| text(&came, paint), &came)?;
    Ok(if is_whole { Outcome::Done } else { Outcome::Failed })
}

/// Waits for the answer. If a person is asked meanwhile, says how to answer.
async fn wait(home: &Home, client: &mut Client, request: u64, output: &Output) -> Result<Value, CliError> {
    let mut asking: Option<(Client, Questions)> = None;
    let mut is_told = false;
    loop {
        tokio::select! {
            came = client.next() => match came {
                Ok(Incoming::Answer(of, answer)) if of == request => return Ok(answer?),
                Ok(Incoming::Answer(..) | Incoming::Notification(_)) => {}
                Err(error) => return Err(ClientError::into(error)),
            },
            () = tokio::time::sleep(GLANCE) => {
                if asking.is_none() {
                    asking = Some((daemon::connect(home).await?, Questions::about_landing(home)));
                }
                if let Some((client, questions)) = &mut asking {
                    questions.look(client, output).await?;
                    if !std::mem::replace(&mut is_told, true) && !questions.were_told() {
                        output.aside("tribune: landing; with many files this takes a while");
                    }
                }
            }
        }
    }
}

fn text(came: &Value, paint: Paint) -> String {
    let landed: Vec<&str> = names(&came["landed"]).collect();
    let left: Vec<&Value> = came["left"].as_array().into_iter().flatten().collect();
    let mut lines: Vec<String> =
        landed.iter().map(|path| paint.good(&format!("landed {}", name(path)))).collect();
    for one in &left {
        let part = |part: &str| one[part].as_str().unwrap_or_default();
        lines.push(paint.unsure(&format!("left   {}: {}", name(part("path")), clean(part("why")))));
        if one["version"].is_string() {
            lines.push(format!("       the box's version: {}", name(part("version"))));
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
    fn what_landed_steers_no_terminal() {
        let came = json!({
            "landed": ["a\u{1b}[2J", "b\u{9b}1m\u{200b}"],
            "left": [{ "path": "c\nlanded d", "why": "changed\u{7}", "version": "/l/\u{202e}c" }],
        });
        let expected = "landed a\\u{1b}[2J\nlanded b\\u{9b}1m\\u{200b}\nleft   c\\u{a}landed d: changed\\u{7}\n       \
                        the box's version: /l/\\u{202e}c\n2 changes landed, 1 left";
        assert_eq!(text(&came, Paint::OFF), expected);
    }
}
