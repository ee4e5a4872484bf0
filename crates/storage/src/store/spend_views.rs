//! The views of spending, derived from the entries: aggregated model costs, and the amounts by which limits were raised.

use rusqlite::{Connection, Row, ToSql, params};
use tribune_ledger::entry::EntryText;
use tribune_records::spend::amount::Amount;
use tribune_records::spend::money::Money;
use tribune_records::spend::record::{Raised, SpendRecord, Spent, spend_entity};
use tribune_records::spend::report::{SpendGrouping, SpendLine, SpendReport};

use super::error::StoreError;
use super::reader::Reader;

/// The tables of these views, each with its columns and key order.
pub(super) const TABLES: [(&str, &str, &str); 2] = [
    (
        "spend",
        "day, agent, session_key, model, requests, input, output, cache_read, cache_written, cost, without_price, estimated",
        "day, agent, session_key, model",
    ),
    ("raises", "scope, name, day, tokens, cost", "scope, name, day"),
];

/// The value at which a counter saturates: far enough below the largest integer that rows can be added up.
const MOST: u64 = 1 << 52;

/// Applies an entry of quality `change`. Most are not about spending.
pub(super) fn apply(connection: &Connection, entry: &EntryText) -> rusqlite::Result<()> {
    if !entry.entity_id.starts_with(&spend_entity("")) {
        return Ok(());
    }
    match serde_json::from_str(&entry.payload) {
        Ok(SpendRecord::Reserved(reserved)) => begun(connection, entry, &reserved),
        Ok(SpendRecord::Spent(spent)) => {
            ended(connection, entry)?;
            self::spent(connection, entry, &spent)
        }
        Ok(SpendRecord::Released {}) => ended(connection, entry),
        Ok(SpendRecord::Raised(raised)) => self::raised(connection, &raised),
        Err(_) => Ok(()),
    }
}

/// Records a request that another entry must end.
fn begun(connection: &Connection, entry: &EntryText, reserved: &Spent) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO open_work (cid, kind, session_key, name) VALUES (?1, 'spend', ?2, ?3)",
        )?
        .execute(params![
            entry.cid.to_string(),
            entry.entity_id,
            format!("{}:{}", reserved.provider, reserved.model),
        ])
        .map(drop)
}

fn ended(connection: &Connection, entry: &EntryText) -> rusqlite::Result<()> {
    let Some(begun) = entry.parent_cids().first().map(ToString::to_string) else { return Ok(()) };
    connection.prepare_cached("DELETE FROM open_work WHERE cid = ?1")?.execute([begun]).map(drop)
}

fn spent(connection: &Connection, entry: &EntryText, spent: &Spent) -> rusqlite::Result<()> {
    let at = entry.timestamp.to_string();
    let day = spent.day.as_deref().or(at.get(..10)).unwrap_or_default();
    let usage = &spent.usage;
    connection
        .prepare_cached(
            "INSERT INTO spend (day, agent, session_key, model, requests, input, output, cache_read, cache_written, cost,
                                without_price, estimated)
             VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (day, agent, session_key, model) DO UPDATE SET
                 requests = requests + 1, input = min(input + ?5, ?12), output = min(output + ?6, ?12),
                 cache_read = min(cache_read + ?7, ?12), cache_written = min(cache_written + ?8, ?12),
                 cost = min(cost + ?9, ?12), without_price = without_price + ?10, estimated = estimated + ?11",
        )?
        .execute(params![
            day,
            spent.agent,
            spent.session.as_deref().unwrap_or_default(),
            format!("{}:{}", spent.provider, spent.model),
            usage.input.min(MOST),
            usage.output.min(MOST),
            usage.cache_read.min(MOST),
            usage.cache_written.min(MOST),
            spent.cost.unwrap_or_default().nanos().min(MOST),
            spent.cost.is_none(),
            spent.estimated,
            MOST,
        ])
        .map(drop)
}

fn raised(connection: &Connection, raised: &Raised) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO raises (scope, name, day, tokens, cost) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (scope, name, day) DO UPDATE SET tokens = min(tokens + ?4, ?6), cost = min(cost + ?5, ?6)",
        )?
        .execute(params![
            raised.scope,
            raised.name,
            raised.day.as_deref().unwrap_or_default(),
            raised.by.tokens.min(MOST),
            raised.by.cost.nanos().min(MOST),
            MOST,
        ])
        .map(drop)
}

impl Reader {
    /// The amount spent by a session, by an agent on a day, or by all agents on a day.
    pub fn spent(&self, scope: &str, name: &str, day: Option<&str>) -> Result<Amount, StoreError> {
        let wanted = match scope {
            "session" => "session_key = ?1 AND ?2 = ''",
            "agent" => "agent = ?1 AND day = ?2",
            _ => "?1 = '' AND day = ?2",
        };
        let query = format!(
            "SELECT coalesce(sum(input + output + cache_read + cache_written), 0), coalesce(sum(cost), 0) FROM spend
             WHERE {wanted}"
        );
        let amount = self.one(&query, [name, day.unwrap_or_default()], amount)?;
        Ok(amount.unwrap_or_default())
    }

    /// The amount by which a limit was raised.
    pub fn raised(&self, scope: &str, name: &str, day: Option<&str>) -> Result<Amount, StoreError> {
        let query = "SELECT tokens, cost FROM raises WHERE scope = ?1 AND name = ?2 AND day = ?3";
        Ok(self.one(query, [scope, name, day.unwrap_or_default()], amount)?.unwrap_or_default())
    }

    /// Spending, aggregated by `by`, since a day if one is given.
    pub fn spend_report(&self, by: SpendGrouping, since: Option<&str>) -> Result<SpendReport, StoreError> {
        let name = match by {
            SpendGrouping::Day => "day",
            SpendGrouping::Agent => "agent",
            SpendGrouping::Session => "session_key",
            SpendGrouping::Model => "model",
        };
        let query = format!(
            "SELECT {name}, sum(requests), sum(input), sum(output), sum(cache_read), sum(cache_written), sum(cost),
                    sum(without_price), sum(estimated)
             FROM spend WHERE day >= ?1 GROUP BY {name} ORDER BY {name}"
        );
        let since_param: &dyn ToSql = &since.unwrap_or_default();
        let lines = self.all(&query, [since_param], line)?;
        Ok(SpendReport::new(by, since.map(str::to_owned), lines))
    }
}

fn amount(row: &Row<'_>) -> rusqlite::Result<Amount> {
    Ok(Amount { tokens: row.get(0)?, cost: Money::from_nanos(row.get(1)?) })
}

fn line(row: &Row<'_>) -> rusqlite::Result<SpendLine> {
    Ok(SpendLine {
        name: row.get(0)?,
        requests: row.get(1)?,
        input: row.get(2)?,
        output: row.get(3)?,
        cache_read: row.get(4)?,
        cache_written: row.get(5)?,
        cost: Money::from_nanos(row.get(6)?),
        without_price: row.get(7)?,
        estimated: row.get(8)?,
    })
}
