//! The reservation of one request, from before it is sent until its cost is known.
//!
//! Before a request is sent, the most that it can cost is recorded in the ledger. A request whose cost never becomes known,
//! because its turn was dropped or the daemon was killed, is billed at that amount: immediately if the daemon runs, otherwise
//! at the next start.

use std::fmt;
use std::sync::Arc;

use tribune_ledger::Cid;
use tribune_providers::{ModelRef, TokenUsage};
use tribune_records::spend::amount::Amount;
use tribune_records::spend::record::{SpendRecord, Spent};
use tribune_storage::store::{Receipt, StoreError};

use super::budgets::{Account, Budgets, Payer};

/// The token usage that a provider reported for a request.
#[derive(Debug, Clone, Copy)]
pub enum ReportedUsage {
    All(TokenUsage),
    /// The response was incomplete, so the usage is at least this.
    Some(TokenUsage),
}

/// The budget reserved for one request.
pub struct Reservation {
    pub(super) budgets: Arc<Budgets>,
    pub(super) payer: Payer,
    pub(super) model: ModelRef,
    /// The day that it is charged to, even if it ends later.
    pub(super) day: String,
    pub(super) accounts: Vec<Account>,
    pub(super) amount: Amount,
    /// The most tokens of the prompt and of the response.
    pub(super) prompt: u64,
    pub(super) answer: u64,
    pub(super) stage: Stage,
}

/// The progress of a request.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing was sent yet.
    Planned,
    /// The reservation is recorded, so the request may be sent.
    OnRecord(ReservationEntry),
    /// The cost is counted.
    Settled,
}

/// The ledger entry of the reservation.
#[derive(Debug)]
pub(super) enum ReservationEntry {
    /// It is durable; its position is not known yet.
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
    /// The most tokens of the prompt and of the response.
    pub const fn tokens(&self) -> (u64, u64) {
        (self.prompt, self.answer)
    }

    /// Records the reservation. Nothing may be sent before this returns.
    pub async fn put_on_record(&mut self) -> Result<(), StoreError> {
        let draft = self.budgets.draft(&self.payer, SpendRecord::Reserved(self.in_full()), None);
        self.stage =
            Stage::OnRecord(ReservationEntry::Durable(self.budgets.ledger.append_early(&draft).await?));
        Ok(())
    }

    /// Counts the actual cost and records it.
    pub async fn settle(mut self, reported: ReportedUsage) {
        self.place().await;
        let (usage, estimated) = self.usage(reported);
        let price = self.budgets.config.prices.get(&self.model);
        let cost = price.map(|price| price.of(&usage));
        let tokens = usage.prompt().saturating_add(usage.output);
        let spent = Spent { usage, cost, estimated, ..self.in_full() };
        let begun = self.count(Amount { tokens, cost: cost.unwrap_or_default() });
        self.write(SpendRecord::Spent(spent), begun).await;
    }

    /// Releases the reservation: nothing was sent, or the provider rejected the request.
    pub async fn release(mut self) {
        self.place().await;
        let begun = self.count(Amount::default());
        if begun.is_some() {
            self.write(SpendRecord::Released {}, begun).await;
        }
    }

    /// Resolves the position of the reservation's entry before anything is counted. A request cancelled here is billed in full.
    async fn place(&mut self) {
        if let Stage::OnRecord(ReservationEntry::Durable(receipt)) = &mut self.stage
            && let Ok(placed) = self.budgets.ledger.append_with_position(receipt).await
        {
            self.stage = Stage::OnRecord(ReservationEntry::Placed(placed.cid));
        }
    }

    async fn write(&self, record: SpendRecord, begun: Option<Cid>) {
        let draft = self.budgets.draft(&self.payer, record, begun);
        if let Err(error) = self.budgets.ledger.append(&draft).await {
            tracing::error!(%error, "the cost of a request could not be recorded");
        }
    }

    /// The record of the most that the request can cost.
    fn in_full(&self) -> Spent {
        let has_price = self.budgets.config.prices.contains_key(&self.model);
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

    /// The billed usage, and whether it is an estimate: unreported tokens count as the whole reservation.
    fn usage(&self, reported: ReportedUsage) -> (TokenUsage, bool) {
        match reported {
            ReportedUsage::All(usage) if usage != TokenUsage::default() => (usage, false),
            ReportedUsage::All(usage) | ReportedUsage::Some(usage) => {
                let input = if usage.prompt() == 0 { self.prompt } else { usage.input };
                (TokenUsage { input, output: usage.output.max(self.answer), ..usage }, true)
            }
        }
    }

    /// Replaces the reservation by this amount. Returns the reservation's entry, if it was recorded.
    fn count(&mut self, spent: Amount) -> Option<Cid> {
        let mut accounts = self.budgets.accounts();
        for account in &self.accounts {
            if let Some(balance) = accounts.get_mut(account) {
                balance.reserved = balance.reserved.saturating_sub(self.amount);
                balance.spent = balance.spent + spent;
            }
        }
        drop(accounts);
        match std::mem::replace(&mut self.stage, Stage::Settled) {
            Stage::OnRecord(ReservationEntry::Placed(begun)) => Some(begun),
            Stage::OnRecord(ReservationEntry::Durable(mut receipt)) => {
                self.budgets.ledger.append_with_position_blocking(&mut receipt).ok().map(|placed| placed.cid)
            }
            Stage::Planned | Stage::Settled => None,
        }
    }
}

impl Drop for Reservation {
    /// A planned request was not sent and costs nothing. A recorded one is billed in full, because its cost is unknown.
    fn drop(&mut self) {
        match self.stage {
            Stage::Settled => {}
            Stage::Planned => {
                self.count(Amount::default());
            }
            Stage::OnRecord(_) => {
                let spent = SpendRecord::Spent(self.in_full());
                let begun = self.count(self.amount);
                let draft = self.budgets.draft(&self.payer, spent, begun);
                if let Err(error) = self.budgets.ledger.submit(&draft) {
                    // The next start finds the unfinished reservation and bills it.
                    tracing::warn!(%error, "the cost of a request will be recorded at the next start");
                }
            }
        }
    }
}
