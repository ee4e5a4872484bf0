//! `tribune status`.

use serde_json::{Value, json};
use tribune_host::Home;

use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint, clean};
use crate::up::{number, recovered, recovered_of};

pub(crate) fn run(home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let status = daemon::ask(home, "daemon.status", &json!({}))?;
    output.result(|paint| text(&status, paint), &status)?;
    Ok(Outcome::Done)
}

fn text(status: &Value, paint: Paint) -> String {
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
        ("law", word("constitution_hash")),
        ("mandates", list("mandates")),
        ("backends", list("backends")),
        ("sessions", format!("{} open, {} in memory", number("sessions_open"), number("sessions_loaded"))),
        ("connections", number("connections").to_string()),
    ];
    let mut lines = vec![format!("{}{state}", paint.faint(&format!("{:<13}", "state")))];
    lines.extend(
        rows.iter().map(|(name, value)| format!("{}{}", paint.faint(&format!("{name:<13}")), clean(value))),
    );
    lines.extend(recovered(&recovered_of(status)).map(|said| paint.unsure(&said)));
    lines.join("\n")
}
