//! The purse: what was spent, what is set aside, and whether there is enough for one more request.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tribune_agents::provider::{ModelRef, TokenUsage};
use tribune_agents::{RuntimeError, ToolCall};
use tribune_constitution::SPEND;
use tribune_ledger::{Draft, EntryQuality};

use super::amount::{Amount, Limit};
use super::money::Money;
use super::record::{Raised, SpendRecord, Spent, spend_entity};
use crate::clock::Clock;
use crate::config::{AtLimit, SpendConfig};
use crate::record::payload;
use crate::store::{LedgerWriter, Readers, StoreError};

/// Accounts that are remembered. What is forgotten is in the log.
const MAX_ACCOUNTS: usize = 100_000;

/// Questions that were made and not yet asked. A turn that ends in between leaves one.
const MAX_QUESTIONS: usize = 10_000;

/// Who is about to spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payer {
    pub(crate) agent: String,
    pub(crate) session: Option<String>,
}

/// Something that has a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Account {
    Session(String),
    Agent { agent: String, day: String },
    Day(String),
}

/// A limit that a request would go beyond.
struct Over {
    account: Account,
    limit: Limit,
    raised: Amount,
    used: Amount,
}

#[derive(Debug, Clone, Copy, Default)]
struct Balance {
    spent: Amount,
    reserved: Amount,
    raised: Amount,
}

/// Whether there is enough.
#[derive(Debug)]
pub(crate) enum Reserve {
    Granted(Reservation),
    /// Only if a person allows this call.
    Ask(ToolCall),
}

/// What a provider told of the tokens of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    All(TokenUsage),
    /// The answer was not heard to its end; at least these.
    Some(TokenUsage),
}

/// The purse of a daemon.
pub(crate) struct Purse {
    config: SpendConfig,
    ledger: LedgerWriter,
    readers: Readers,
    clock: Arc<dyn Clock>,
    accounts: Mutex<HashMap<Account, Balance>>,
    /// Calls that the house itself makes, by session and id. Nobody else may make one.
    asking: Mutex<HashSet<(String, String)>>,
}

impl fmt::Debug for Purse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Purse")
    }
}

impl Purse {
    pub(crate) fn new(
        config: SpendConfig,
        (ledger, readers, clock): (LedgerWriter, Readers, Arc<dyn Clock>),
    ) -> Self {
        Self { config, ledger, readers, clock, accounts: Mutex::default(), asking: Mutex::default() }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<Account, Balance>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets aside the most that a request can cost. An error says which limit is in the way.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        payer: &Payer,
        model: &ModelRef,
        (prompt, answer): (u64, u64),
    ) -> Result<Reserve, RuntimeError> {
        let price = self.config.prices.get(model);
        let limits = self.limits_of(payer);
        if price.is_none() && limits.iter().any(|(_, limit)| limit.cost.is_some()) {
            let what = format!(
                "{model} has no price, and what it costs is limited: add it to spend.prices in config.json5 (0 if it is free)"
            );
            return Err(RuntimeError::new("no_price", what));
        }
        let cost = price.map(|price| price.at_most(prompt, answer)).unwrap_or_default();
        let amount = Amount { tokens: prompt.saturating_add(answer), cost };
        self.load(&limits).await.map_err(crate::governed::failed)?;
        let mut accounts = self.accounts();
        let is_over = |(account, limit): &&(Account, Limit)| {
            let balance = accounts.get(account).copied().unwrap_or_default();
            !limit.holds(balance.spent + balance.reserved + amount, balance.raised)
        };
        let over: Vec<Over> = limits
            .iter()
            .filter(is_over)
            .map(|(account, limit)| {
                let Balance { spent, reserved, raised } = accounts.get(account).copied().unwrap_or_default();
                Over { account: account.clone(), limit: *limit, raised, used: spent + reserved }
            })
            .collect();
        if over.is_empty() {
            for (account, _) in &limits {
                let balance = accounts.entry(account.clone()).or_default();
                balance.reserved = balance.reserved + amount;
            }
            let accounts = limits.into_iter().map(|(account, _)| account).collect();
            let purse = Arc::clone(self);
            let reservation = Reservation { purse, accounts, amount, prompt, answer, is_settled: false };
            return Ok(Reserve::Granted(reservation));
        }
        drop(accounts);
        match (self.config.at_limit, &payer.session) {
            (AtLimit::Ask, Some(session)) => Ok(Reserve::Ask(self.question(session, &over, amount))),
            (AtLimit::Ask | AtLimit::Stop, _) => {
                Err(RuntimeError::new("spend_limit", sentence(&over, amount)))
            }
        }
    }

    /// The limits that apply, with what they apply to.
    fn limits_of(&self, payer: &Payer) -> Vec<(Account, Limit)> {
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

    /// Reads what the log knows of accounts that were not looked at before.
    async fn load(&self, limits: &[(Account, Limit)]) -> Result<(), StoreError> {
        let unknown: Vec<Account> = {
            let accounts = self.accounts();
            let is_new = |account: &&Account| !accounts.contains_key(*account);
            limits.iter().map(|(account, _)| account).filter(is_new).cloned().collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let read = move |reader: &crate::store::Reader| {
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

    /// The call that asks a person for more: as much again as each limit is, or what is missing if that is more.
    fn question(&self, session: &str, over: &[Over], amount: Amount) -> ToolCall {
        let more = |over: &Over| {
            let Over { account, limit, raised, used } = over;
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
            json!({ "why": sentence(over, amount), "raise": over.iter().map(more).collect::<Vec<_>>() });
        let id = format!("spend-{:016x}", random());
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.len() >= MAX_QUESTIONS {
            asking.clear();
        }
        asking.insert((session.to_owned(), id.clone()));
        ToolCall { id, name: SPEND.to_owned(), input }
    }

    /// Whether the house makes this call. Says so once.
    pub(crate) fn is_asking(&self, session: &str, call: &str) -> bool {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.remove(&(session.to_owned(), call.to_owned()))
    }

    /// Raises the limits that a person allowed to be raised. They are on record when this returns.
    pub(crate) async fn raise(&self, session: &str, input: &Value) -> Result<(), StoreError> {
        for one in input["raise"].as_array().into_iter().flatten() {
            let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            let by = Amount {
                tokens: one["tokens"].as_u64().unwrap_or_default(),
                cost: word("cost").parse().unwrap_or_default(),
            };
            let day = one["day"].as_str().map(str::to_owned);
            let raised = Raised { scope: word("scope"), name: word("name"), day, by };
            let account = Account::named(&raised);
            self.write(session, "house", SpendRecord::Raised(raised)).await?;
            // One that was not looked at yet is read with this in it.
            if let Some(account) = account
                && let Some(balance) = self.accounts().get_mut(&account)
            {
                balance.raised = balance.raised + by;
            }
        }
        Ok(())
    }

    /// Counts what a request cost, and puts it on record.
    pub(crate) async fn settle(&self, reservation: Reservation, payer: &Payer, model: &ModelRef, told: Told) {
        let price = self.config.prices.get(model);
        let (usage, estimated) = reservation.usage(told);
        let cost = price.map(|price| price.of(&usage));
        let tokens = usage.prompt().saturating_add(usage.output);
        reservation.count(Amount { tokens, cost: cost.unwrap_or_default() });
        let spent = Spent {
            agent: payer.agent.clone(),
            session: payer.session.clone(),
            provider: model.provider().to_owned(),
            model: model.model().to_owned(),
            usage,
            cost,
            estimated,
        };
        let who = payer.session.as_deref().unwrap_or(&payer.agent);
        if let Err(error) = self.write(who, &payer.agent, SpendRecord::Spent(spent)).await {
            tracing::error!(%error, "what a request cost could not be written down");
        }
    }

    async fn write(&self, who: &str, actor: &str, record: SpendRecord) -> Result<(), StoreError> {
        let entity = spend_entity(who);
        let draft = Draft {
            entity_id: entity.clone(),
            target: entity,
            quality: EntryQuality::Change,
            timestamp: self.clock.now(),
            source: "purse".to_owned(),
            actor: actor.to_owned(),
            parents: Vec::new(),
            tags: Vec::new(),
            payload: payload(&record),
            attested_by: None,
            envelope: None,
        };
        self.ledger.append(&draft).await.map(drop)
    }
}

impl Account {
    fn names(&self) -> (&'static str, &str, Option<&str>) {
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

/// What is set aside for one request. One that is dropped unsettled counts in full: nobody knows what it cost.
pub(crate) struct Reservation {
    purse: Arc<Purse>,
    accounts: Vec<Account>,
    amount: Amount,
    /// The tokens of both ends, at most.
    prompt: u64,
    answer: u64,
    is_settled: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl Reservation {
    /// The tokens that count, and whether that is an estimate: what nobody told is taken to be all that was set aside.
    fn usage(&self, told: Told) -> (TokenUsage, bool) {
        match told {
            Told::All(usage) if usage != TokenUsage::default() => (usage, false),
            Told::All(usage) | Told::Some(usage) => {
                let input = if usage.prompt() == 0 { self.prompt } else { usage.input };
                (TokenUsage { input, output: usage.output.max(self.answer), ..usage }, true)
            }
        }
    }

    /// Nothing was sent.
    pub(crate) fn release(self) {
        self.count(Amount::default());
    }

    fn count(mut self, spent: Amount) {
        self.is_settled = true;
        self.move_to(spent);
    }

    fn move_to(&self, spent: Amount) {
        let mut accounts = self.purse.accounts();
        for account in &self.accounts {
            if let Some(balance) = accounts.get_mut(account) {
                balance.reserved = balance.reserved.saturating_sub(self.amount);
                balance.spent = balance.spent + spent;
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_settled {
            self.move_to(self.amount);
        }
    }
}

/// Which limits are in the way.
fn sentence(over: &[Over], amount: Amount) -> String {
    let one = |over: &Over| {
        let Over { account, limit, used, .. } = over;
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
    format!(
        "the next request, with up to {} tokens, would go beyond {}: raise it in config.json5, begin a new session if it is a session's, or wait for tomorrow if it is a day's",
        amount.tokens,
        all.join(" and ")
    )
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // A name that is not unique is refused; nothing depends on its being secret.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
