//! `tribune status`.

use serde_json::{Value, json};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::law::denials;
use crate::law::state::LawState;
use crate::output::{Output, Paint, clean};
use crate::times::age;
use crate::up::{number, recovered_from_status, recovered_text};

pub(crate) fn run(home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let (mut status, law) = daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        let status = client.call("daemon.status", &json!({})).await?;
        let law = LawState::ask(home, &status, &mut client).await?;
        client.close().await;
        Ok::<_, CliError>((status, law))
    })?;
    let denied = denials::last(&Reader::open(home)?, None)?;
    status["law"] = law.value();
    status["denials"] = json!(denied);
    output.result(|paint| text(&status, &law, &denied, paint), &status)?;
    Ok(CommandOutcome::Done)
}

fn text(status: &Value, law: &LawState, denied: &[Value], paint: Paint) -> String {
    let word = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
    let list = |name: &str| -> String {
        let words = status[name].as_array().map(Vec::as_slice).unwrap_or_default();
        words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let number = |name: &str| number(status, name);
    let state = match status["ready"].as_bool() {
        Some(true) => paint.good("ready"),
        _ => paint.bad(&clean(&format!("not ready: waiting for {}", list("waiting")))),
    };
    let rows = [
        ("daemon", format!("tribune {}, pid {}", word("version"), number("pid"))),
        ("address", format!("http://{}", word("address"))),
        ("home", word("home")),
        ("since", word("started_at")),
        ("log", format!("{}, {} entries", word("log"), number("entries"))),
        ("mandates", list("mandates")),
        ("backends", list("backends")),
        ("sessions", format!("{} open, {} in memory", number("sessions_open"), number("sessions_loaded"))),
        ("connections", number("connections").to_string()),
    ];
    let mut lines = vec![format!("{}{state}", paint.faint(&format!("{:<13}", "state")))];
    lines.extend(
        rows.iter().map(|(name, value)| format!("{}{}", paint.faint(&format!("{name:<13}")), clean(value))),
    );
    lines.extend(canaries(status, paint));
    lines.extend(
        law.rows(paint).iter().map(|(name, value)| format!("{}{value}", paint.faint(&format!("{name:<13}")))),
    );
    if !denied.is_empty() {
        lines.push(paint.faint("denied lately"));
        lines.extend(denials::lines(denied, paint));
    }
    lines.extend(recovered_text(&recovered_from_status(status)).map(|text| paint.unsure(&text)));
    lines.join("\n")
}

/// The canary results: one line for each CLI agent, and one for every backend that the gate does not hold.
fn canaries(status: &Value, paint: Paint) -> Vec<String> {
    let all = status["canaries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let word = |canary: &Value, name: &str| clean(canary[name].as_str().unwrap_or_default());
    let is_listed = |canary: &&Value| {
        word(canary, "backend") != word(canary, "subject") || canary["state"] == "ungoverned"
    };
    let line = |canary: &Value| {
        let (subject, detail) = (word(canary, "subject"), word(canary, "detail"));
        let state = match canary["state"].as_str().unwrap_or_default() {
            "live" => paint.good(&format!("live, tested {} ago", age(&word(canary, "at")))),
            "ungoverned" => paint.bad(&format!("UNGOVERNED, not run: {detail}")),
            "not_tried" => paint.bad(&format!("not tested, not run: {detail}")),
            "untried" => paint.unsure(&format!("not tested, run because canary.untried names it: {detail}")),
            "off" => paint.unsure("off: no canary tests whether the gate holds it"),
            state => state.to_owned(),
        };
        format!("{}{subject}: {state}", paint.faint(&format!("{:<13}", "canary")))
    };
    all.iter().filter(is_listed).map(line).collect()
}
