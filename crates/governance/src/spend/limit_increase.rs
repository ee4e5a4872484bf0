//! Limit increases: the call that asks a person to raise a limit, its wording, and which other calls it answers.

use std::collections::HashSet;
use std::sync::PoisonError;

use serde_json::{Value, json};
use tribune_constitution::SPEND;
use tribune_records::spend::amount::Amount;
use tribune_records::spend::money::Money;
use tribune_runtime::ToolCall;

use super::budgets::{Account, Budgets, ExceededLimit};

/// Most calls that were made and not yet submitted. A turn that ends in between leaves one behind.
const MAX_OPEN_CALLS: usize = 10_000;

impl Budgets {
    /// The call that asks a person to raise the limits: each by its own amount, or by what is missing if that is more.
    pub(super) fn question(&self, session: &str, over: &[ExceededLimit], amount: Amount) -> ToolCall {
        let more = |over: &ExceededLimit| {
            let ExceededLimit { account, limit, raised, used } = over;
            let needed = *used + amount;
            let (scope, name, day) = account.names();
            let mut one = json!({ "scope": scope, "name": name });
            if let Some(day) = day {
                one["day"] = day.into();
            }
            if let Some(tokens) = limit.tokens {
                let missing = needed.tokens.saturating_sub(tokens.saturating_add(raised.tokens));
                one["tokens"] = tokens.max(missing).into();
            }
            if let Some(cost) = limit.cost {
                let missing = needed.cost.saturating_sub(cost + raised.cost);
                one["cost"] = cost.max(missing).to_string().into();
            }
            one
        };
        let input =
            json!({ "why": in_the_way(over, amount), "raise": over.iter().map(more).collect::<Vec<_>>() });
        let id = format!("spend-{:016x}", random());
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.len() >= MAX_OPEN_CALLS {
            asking.clear();
        }
        asking.insert((session.to_owned(), id.clone()));
        ToolCall { id, name: SPEND.to_owned(), input }
    }

    /// Whether the daemon itself made this call. True only once per call.
    pub fn is_asking(&self, session: &str, call: &str) -> bool {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.remove(&(session.to_owned(), call.to_owned()))
    }
}

/// The budgets that a call asks to raise, in words.
pub(crate) fn whose(input: &Value) -> String {
    let one = |one: &Value| {
        let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        match (word("scope").as_str(), word("day")) {
            ("session", _) => "this session".to_owned(),
            ("agent", day) => format!("{} on {day}", word("name")),
            (_, day) => format!("everyone on {day}"),
        }
    };
    let all: Vec<String> = input["raise"].as_array().into_iter().flatten().map(one).collect();
    all.join(" and of ")
}

/// Whether two calls ask to raise at least one common limit.
pub(crate) fn share_a_limit(one: &Value, other: &Value) -> bool {
    let limits = |input: &Value| -> HashSet<[String; 3]> {
        let names = |one: &Value| {
            ["scope", "name", "day"].map(|name| one[name].as_str().unwrap_or_default().to_owned())
        };
        input["raise"].as_array().into_iter().flatten().map(names).collect()
    };
    !limits(one).is_disjoint(&limits(other))
}

/// The error text: which limits would be exceeded, and what to do.
pub(super) fn refusal(over: &[ExceededLimit], amount: Amount) -> String {
    format!(
        "{}: raise the limit in config.json5, start a new session if it is the limit of a session, or wait until tomorrow if it is a daily limit",
        in_the_way(over, amount)
    )
}

/// The limits that would be exceeded, in words.
fn in_the_way(over: &[ExceededLimit], amount: Amount) -> String {
    let one = |over: &ExceededLimit| {
        let ExceededLimit { account, limit, used, .. } = over;
        let of = match account {
            Account::Session(_) => "this session".to_owned(),
            Account::Agent { agent, day } => format!("{agent} on {day}"),
            Account::Day(day) => format!("everyone on {day}"),
        };
        let tokens = limit.tokens.map(|tokens| format!("{tokens} tokens"));
        let cost = limit.cost.map(|cost| format!("a cost of {cost}"));
        let limit: Vec<String> = tokens.into_iter().chain(cost).collect();
        let used = match used.cost {
            Money::ZERO => format!("{} tokens", used.tokens),
            cost => format!("{} tokens, a cost of {cost}", used.tokens),
        };
        format!("the limit of {of} ({}), of which {used} are used", limit.join(", "))
    };
    let all: Vec<String> = over.iter().map(one).collect();
    format!("the next request, with up to {} tokens, would go beyond {}", amount.tokens, all.join(" and "))
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // A duplicate id is rejected. The id need not be secret.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
