//! `/tribune` (and `/clawos`): the state of the law, and what it denied in this conversation.

use serde_json::{Value, json};
use tribune_storage::store::Reader;

use super::connection::ChatConnection;
use super::view::ChatView;
use crate::approvals::{self, card};
use crate::error::CliError;
use crate::law::denials;
use crate::law::state::LawState;
use crate::output::Paint;

/// Waiting calls that are shown.
const MAX_WAITING: u32 = 20;

/// Whether a message is this command.
pub(super) fn is_slash_tribune(message: &str) -> bool {
    matches!(message.trim(), "/tribune" | "/clawos")
}

pub(super) async fn show(
    connection: &mut ChatConnection<'_>,
    view: &mut ChatView<'_>,
) -> Result<(), CliError> {
    let home = connection.home();
    let status = connection.call("daemon.status", &json!({})).await?;
    let law = LawState::ask(home, &status, connection.client().await?).await?;
    let mut page = connection.call("approval.list", &json!({ "limit": MAX_WAITING })).await?;
    for row in page["approvals"].as_array_mut().into_iter().flatten() {
        let shown = connection.call("approval.show", &json!({ "id": approvals::id_of(row) })).await?;
        row["what"] = card::what(&shown).into();
    }
    let denials = denials::last(&Reader::open(home)?, Some(connection.key().as_str()))?;
    let value = json!({ "law": law.value(), "denials": denials, "approvals": page["approvals"] });
    view.output().result(|paint| text(&law, &denials, &page, paint), &value)?;
    Ok(())
}

fn text(law: &LawState, denials: &[Value], page: &Value, paint: Paint) -> String {
    let row = |(name, value): &(&str, String)| format!("{}{value}", paint.faint(&format!("{name:<13}")));
    let mut lines: Vec<String> = law.rows(paint).iter().map(row).collect();
    lines.push(paint.faint("denied here"));
    lines.extend(denials::lines(denials, paint));
    if approvals::rows(page).next().is_some() {
        lines.push(paint.faint("waiting"));
        let table = approvals::list_text(page, "pending", paint);
        lines.extend(table.lines().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}
