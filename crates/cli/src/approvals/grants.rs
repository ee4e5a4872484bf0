//! `tribune approvals grants` and `revoke`.

use serde_json::{Value, json};
use tribune_client::RpcClient;

use super::{MIN_PREFIX, card};
use crate::error::CliError;
use crate::output::{Output, Paint, cell, clean, table};
use crate::times;

pub(super) async fn list(client: &mut RpcClient, output: &mut Output) -> Result<(), CliError> {
    let grants = client.call("grant.list", &json!({})).await?;
    output.result(|paint| text(&grants, paint), &grants)?;
    Ok(())
}

pub(super) async fn revoke(client: &mut RpcClient, typed: &str, output: &mut Output) -> Result<(), CliError> {
    let grants = client.call("grant.list", &json!({})).await?;
    let ids: Vec<&str> = rows(&grants).filter_map(|grant| grant["id"].as_str()).collect();
    let id = pick(&typed.to_ascii_lowercase(), &ids)?;
    let left = client.call("grant.revoke", &json!({ "id": id })).await?;
    let value = json!({ "revoked": id, "grants": left["grants"] });
    output.result(
        |_| format!("{} is revoked: the calls that it covered are asked about again", clean(&id)),
        &value,
    )?;
    Ok(())
}

fn pick(typed: &str, ids: &[&str]) -> Result<String, CliError> {
    let found: Vec<&str> = ids.iter().copied().filter(|id| id.starts_with(typed)).collect();
    match found.as_slice() {
        _ if typed.len() < MIN_PREFIX => Err(CliError::Input(format!(
            "`{typed}` is too short: type at least {MIN_PREFIX} characters of the grant's id"
        ))),
        [] => Err(CliError::Input(format!(
            "no grant has an id that begins with `{typed}`: list the grants with `tribune approvals grants`"
        ))),
        [one] => Ok((*one).to_owned()),
        several => Err(CliError::Input(format!(
            "several grants have ids that begin with `{typed}`: {}",
            several.join(", ")
        ))),
    }
}

fn rows(grants: &Value) -> impl Iterator<Item = &Value> {
    grants["grants"].as_array().into_iter().flatten()
}

fn text(grants: &Value, paint: Paint) -> String {
    let row = |grant: &Value| {
        let scope =
            if grant["session"].is_null() { "any session".to_owned() } else { cell(&grant["session"]) };
        let until = match grant["until"].as_str() {
            Some(until) => format!("{} left", times::time_left(until)),
            None if grant["session"].is_null() => "you revoke it".to_owned(),
            None => "the session is closed".to_owned(),
        };
        let labels = &grant["labels"];
        vec![
            cell(&grant["id"]),
            cell(&grant["agent"]),
            cell(&grant["tool"]),
            subject(&grant["subject"]),
            scope,
            card::context(labels["trust"].as_str().unwrap_or_default(), labels["private"] == true),
            until,
            cell(&grant["by"]),
        ]
    };
    let rows: Vec<Vec<String>> = rows(grants).map(row).collect();
    if rows.is_empty() {
        return "no grants are in force".to_owned();
    }
    let heading = ["ID", "AGENT", "TOOL", "COVERS", "IN", "CONTEXT NO WORSE THAN", "UNTIL", "BY"];
    table(&heading, &rows, paint)
}

fn subject(subject: &Value) -> String {
    let words = ["pattern", "path", "host", "recipient"];
    match words.iter().find_map(|name| subject[name].as_str()) {
        Some(word) => clean(word),
        None => "exactly the same arguments".to_owned(),
    }
}
