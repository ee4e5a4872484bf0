//! Budgets: what was spent, what is reserved, and whether the limits allow one more request.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tribune_config::{AtLimit, SpendConfig};
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_providers::ModelRef;
use tribune_records::ledger_payloads::payload;
use tribune_records::spend::amount::{Amount, SpendLimit};
use tribune_records::spend::record::{Raised, SpendRecord, spend_entity};
use tribune_runtime::{ErrorKind, RuntimeError, ToolCall};
use tribune_storage::clock::Clock;
use tribune_storage::store::{LedgerWriter, Readers, StoreError};

use super::limit_increase::refusal;
use super::reservation::{Reservation, Stage};

/// Most accounts in the cache. Evicted ones are read again from the ledger.
const MAX_ACCOUNTS: usize = 100_000;

/// The agent and session that a request is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    pub agent: String,
    pub session: Option<String>,
}

/// An account that a limit applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Account {
    Session(String),
    Agent { agent: String, day: String },
    Day(String),
}

/// A limit that a request would exceed.
pub(super) struct ExceededLimit {
    pub(super) account: Account,
    pub(super) limit: SpendLimit,
    pub(super) raised: Amount,
    pub(super) used: Amount,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Balance {
    pub(super) spent: Amount,
    pub(super) reserved: Amount,
    raised: Amount,
}

/// The result of a reservation.
#[derive(Debug)]
pub enum Reserve {
    Granted(Reservation),
    /// A limit would be exceeded; a person may raise it by allowing this call.
    Ask(ToolCall),
}

/// The budgets of a daemon.
pub struct Budgets {
    pub(super) config: SpendConfig,
    pub(super) ledger: LedgerWriter,
    readers: Readers,
    clock: Arc<dyn Clock>,
    accounts: Mutex<HashMap<Account, Balance>>,
    /// Limit increase calls that the daemon itself makes, by session and id. Agents cannot make such a call.
    pub(super) asking: Mutex<HashSet<(String, String)>>,
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budgets")
    }
}

impl Budgets {
    pub fn new(config: SpendConfig, ledger: LedgerWriter, readers: Readers, clock: Arc<dyn Clock>) -> Self {
        Self { config, ledger, readers, clock, accounts: Mutex::default(), asking: Mutex::default() }
    }

    pub(super) fn accounts(&self) -> MutexGuard<'_, HashMap<Account, Balance>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the most that a request can cost. An error names the limits that would be exceeded.
    pub async fn reserve(
        self: &Arc<Self>,
        payer: &Payer,
        model: &ModelRef,
        prompt: u64,
        answer: u64,
    ) -> Result<Reserve, RuntimeError> {
        let price = self.config.prices.get(model);
        let limits = self.limits_of(payer);
        if price.is_none() && limits.iter().any(|(_, limit)| limit.cost.is_some()) {
            let what = format!(
                "{model} has no price, but a cost limit applies: add its price to spend.prices in config.json5 (0 if it is free)"
            );
            return Err(RuntimeError::new(ErrorKind::NoPrice, what));
        }
        let cost = price.map(|price| price.at_most(prompt, answer)).unwrap_or_default();
        let amount = Amount { tokens: prompt.saturating_add(answer), cost };
        self.load(&limits).await?;
        let mut accounts = self.accounts();
        let is_over = |(account, limit): &&(Account, SpendLimit)| {
            let balance = accounts.get(account).copied().unwrap_or_default();
            !limit.holds(balance.spent + balance.reserved + amount, balance.raised)
        };
        let over: Vec<ExceededLimit> = limits
            .iter()
            .filter(is_over)
            .map(|(account, limit)| {
                let Balance { spent, reserved, raised } = accounts.get(account).copied().unwrap_or_default();
                ExceededLimit { account: account.clone(), limit: *limit, raised, used: spent + reserved }
            })
            .collect();
        if over.is_empty() {
            for (account, _) in &limits {
                let balance = accounts.entry(account.clone()).or_default();
                balance.reserved = balance.reserved + amount;
            }
            let accounts = limits.into_iter().map(|(account, _)| account).collect();
            return Ok(Reserve::Granted(Reservation {
                budgets: Arc::clone(self),
                payer: payer.clone(),
                model: model.clone(),
                day: self.today(),
                accounts,
                amount,
                prompt,
                answer,
                stage: Stage::Planned,
            }));
        }
        drop(accounts);
        match (self.config.at_limit, &payer.session) {
            (AtLimit::Ask, Some(session)) => Ok(Reserve::Ask(self.question(session, &over, amount))),
            (AtLimit::Ask | AtLimit::Stop, _) => {
                Err(RuntimeError::new(ErrorKind::SpendLimit, refusal(&over, amount)))
            }
        }
    }

    /// The limits that apply to a payer, with their accounts.
    fn limits_of(&self, payer: &Payer) -> Vec<(Account, SpendLimit)> {
        let day = self.today();
        let limits = &self.config.limits;
        let agent = Account::Agent { agent: payer.agent.clone(), day: day.clone() };
        let mut all = vec![(agent, limits.agent), (Account::Day(day), limits.day)];
        all.extend(payer.session.clone().map(|session| (Account::Session(session), limits.session)));
        all.retain(|(_, limit)| !limit.is_none());
        all
    }

    fn today(&self) -> String {
        self.clock.now().to_string().chars().take(10).collect()
    }

    /// Loads the balances of accounts that are not in the cache from the ledger.
    async fn load(&self, limits: &[(Account, SpendLimit)]) -> Result<(), StoreError> {
        let unknown: Vec<Account> = {
            let accounts = self.accounts();
            let is_new = |account: &&Account| !accounts.contains_key(*account);
            limits.iter().map(|(account, _)| account).filter(is_new).cloned().collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let read = move |reader: &tribune_storage::store::Reader| {
            let mut found = Vec::new();
            for account in unknown {
                let (scope, name, day) = account.names();
                let spent = reader.spent(scope, name, day)?;
                let raised = reader.raised(scope, name, day)?;
                found.push((account, Balance { spent, raised, reserved: Amount::default() }));
            }
            Ok(found)
        };
        let found = self.readers.read(read).await?;
        let mut accounts = self.accounts();
        if accounts.len() > MAX_ACCOUNTS {
            accounts.retain(|_, balance| balance.reserved != Amount::default());
        }
        for (account, balance) in found {
            accounts.entry(account).or_insert(balance);
        }
        Ok(())
    }

    /// Raises the limits that a person allowed to raise. The changes are durable when this returns.
    pub async fn raise(&self, session: &str, input: &Value) -> Result<(), StoreError> {
        for one in input["raise"].as_array().into_iter().flatten() {
            let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            let by = Amount {
                tokens: one["tokens"].as_u64().unwrap_or_default(),
                cost: word("cost").parse().unwrap_or_default(),
            };
            let day = one["day"].as_str().map(str::to_owned);
            let raised = Raised { scope: word("scope"), name: word("name"), day, by };
            let account = Account::named(&raised);
            let draft = self.entry(session, "house", SpendRecord::Raised(raised), None);
            self.ledger.append(&draft).await?;
            // An account that is not in the cache is loaded later with this increase included.
            if let Some(account) = account
                && let Some(balance) = self.accounts().get_mut(&account)
            {
                balance.raised = balance.raised + by;
            }
        }
        Ok(())
    }

    /// Bills a request that an earlier daemon started and never finished: in full, and once, because the entry that bills it
    /// also ends it.
    pub(crate) async fn bill_unfinished(&self, begun: Cid, reserved: SpendRecord) -> Result<(), StoreError> {
        let SpendRecord::Reserved(spent) = reserved else { return Ok(()) };
        let payer = Payer { agent: spent.agent.clone(), session: spent.session.clone() };
        let draft = self.draft(&payer, SpendRecord::Spent(spent), Some(begun));
        self.ledger.append(&draft).await.map(drop)
    }

    /// An entry about spending of a payer. An entry that ends a request has the entry that began it as parent.
    pub(super) fn draft(&self, payer: &Payer, record: SpendRecord, begun: Option<Cid>) -> Draft {
        let who = payer.session.as_deref().unwrap_or(&payer.agent);
        self.entry(who, &payer.agent, record, begun)
    }

    fn entry(&self, who: &str, actor: &str, record: SpendRecord, begun: Option<Cid>) -> Draft {
        let entity = spend_entity(who);
        Draft {
            entity_id: entity.clone(),
            target: entity,
            quality: EntryQuality::Change,
            timestamp: self.clock.now(),
            source: "purse".to_owned(),
            actor: actor.to_owned(),
            parents: begun.into_iter().collect(),
            tags: Vec::new(),
            payload: payload(&record),
            attested_by: None,
            envelope: None,
        }
    }
}

impl Account {
    pub(super) fn names(&self) -> (&'static str, &str, Option<&str>) {
        match self {
            Self::Session(session) => ("session", session, None),
            Self::Agent { agent, day } => ("agent", agent, Some(day)),
            Self::Day(day) => ("day", "", Some(day)),
        }
    }

    fn named(raised: &Raised) -> Option<Self> {
        match (raised.scope.as_str(), &raised.day) {
            ("session", None) => Some(Self::Session(raised.name.clone())),
            ("agent", Some(day)) => Some(Self::Agent { agent: raised.name.clone(), day: day.clone() }),
            ("day", Some(day)) => Some(Self::Day(day.clone())),
            _ => None,
        }
    }
}
