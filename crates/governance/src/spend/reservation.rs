//! What is set aside for one request, from before it is sent until it is known what it cost.
//!
//! Before a request is sent, the most that it can cost is in the log. One that ends without a word of what it cost, because its
//! turn was dropped or the daemon was killed, counts as that: at once if there is a daemon, at the next start if there is none.

use std::fmt;
use std::sync::Arc;

use tribune_ledger::Cid;
use tribune_providers::{ModelRef, TokenUsage};
use tribune_records::spend::amount::Amount;
use tribune_records::spend::record::{SpendRecord, Spent};
use tribune_storage::store::{Receipt, StoreError};

use super::budgets::{Account, Budgets, Payer};

/// What a provider told of the tokens of a request.
#[derive(Debug, Clone, Copy)]
pub enum Told {
    All(TokenUsage),
    /// The answer was not heard to its end; at least these.
    Some(TokenUsage),
}

/// What is set aside for one request.
pub struct Reservation {
    pub(super) purse: Arc<Budgets>,
    pub(super) payer: Payer,
    pub(super) model: ModelRef,
    /// The day that it counts for, however late it ends.
    pub(super) day: String,
    pub(super) accounts: Vec<Account>,
    pub(super) amount: Amount,
    /// The tokens of both ends, at most.
    pub(super) prompt: u64,
    pub(super) answer: u64,
    pub(super) stage: Stage,
}

/// How far a request is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing was sent yet.
    Planned,
    /// It may be sent; the entry says what it costs at most.
    OnRecord(Begun),
    /// What it cost is counted.
    Settled,
}

/// The entry that says what a request costs at most.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is on disk. Nobody has asked yet which place it got.
    Durable(Receipt),
    Placed(Cid),
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("amount", &self.amount)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl Reservation {
    /// The tokens of the prompt and of the answer, at most.
    pub const fn tokens(&self) -> (u64, u64) {
        (self.prompt, self.answer)
    }

    /// Writes down what is set aside. Nothing may be sent before this returns.
    pub async fn put_on_record(&mut self) -> Result<(), StoreError> {
        let draft = self.purse.draft(&self.payer, SpendRecord::Reserved(self.in_full()), None);
        self.stage = Stage::OnRecord(Begun::Durable(self.purse.ledger.append_early(&draft).await?));
        Ok(())
    }

    /// Counts what the request cost, and puts it on record.
    pub async fn settle(mut self, told: Told) {
        self.place().await;
        let (usage, estimated) = self.usage(told);
        let price = self.purse.config.prices.get(&self.model);
        let cost = price.map(|price| price.of(&usage));
        let tokens = usage.prompt().saturating_add(usage.output);
        let spent = Spent { usage, cost, estimated, ..self.in_full() };
        let begun = self.count(Amount { tokens, cost: cost.unwrap_or_default() });
        self.write(SpendRecord::Spent(spent), begun).await;
    }

    /// Nothing was sent, or the provider refused it.
    pub async fn release(mut self) {
        self.place().await;
        let begun = self.count(Amount::default());
        if begun.is_some() {
            self.write(SpendRecord::Released {}, begun).await;
        }
    }

    /// Learns the place of the entry that began it, before anything is counted: whoever gives up here counts in full.
    async fn place(&mut self) {
        if let Stage::OnRecord(Begun::Durable(receipt)) = &mut self.stage
            && let Ok(placed) = self.purse.ledger.append_with_position(receipt).await
        {
            self.stage = Stage::OnRecord(Begun::Placed(placed.cid));
        }
    }

    async fn write(&self, record: SpendRecord, begun: Option<Cid>) {
        let draft = self.purse.draft(&self.payer, record, begun);
        if let Err(error) = self.purse.ledger.append(&draft).await {
            tracing::error!(%error, "what a request cost could not be written down");
        }
    }

    /// The most that it can cost, as it is written down.
    fn in_full(&self) -> Spent {
        let has_price = self.purse.config.prices.contains_key(&self.model);
        Spent {
            agent: self.payer.agent.clone(),
            session: self.payer.session.clone(),
            provider: self.model.provider().to_owned(),
            model: self.model.model().to_owned(),
            day: Some(self.day.clone()),
            usage: TokenUsage { input: self.prompt, output: self.answer, ..TokenUsage::default() },
            cost: has_price.then_some(self.amount.cost),
            estimated: true,
        }
    }

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

    /// Counts this much instead of what was set aside. Gives the entry that said so, if there is one.
    fn count(&mut self, spent: Amount) -> Option<Cid> {
        let mut accounts = self.purse.accounts();
        for account in &self.accounts {
            if let Some(balance) = accounts.get_mut(account) {
                balance.reserved = balance.reserved.saturating_sub(self.amount);
                balance.spent = balance.spent + spent;
            }
        }
        drop(accounts);
        match std::mem::replace(&mut self.stage, Stage::Settled) {
            Stage::OnRecord(Begun::Placed(begun)) => Some(begun),
            Stage::OnRecord(Begun::Durable(mut receipt)) => {
                self.purse.ledger.append_with_position_blocking(&mut receipt).ok().map(|placed| placed.cid)
            }
            Stage::Planned | Stage::Settled => None,
        }
    }
}

impl Drop for Reservation {
    /// One that was planned was not sent. One that was sent counts in full: nobody knows what it cost.
    fn drop(&mut self) {
        match self.stage {
            Stage::Settled => {}
            Stage::Planned => {
                self.count(Amount::default());
            }
            Stage::OnRecord(_) => {
                let spent = SpendRecord::Spent(self.in_full());
                let begun = self.count(self.amount);
                let draft = self.purse.draft(&self.payer, spent, begun);
                if let Err(error) = self.purse.ledger.submit(&draft) {
                    // The next start finds it without its end.
                    tracing::warn!(%error, "what a request cost will be written down at the next start");
                }
            }
        }
    }
}
