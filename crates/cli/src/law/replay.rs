//! `tribune law replay`: decides every recorded verdict again.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tribune_constitution::{Constitution, ConstitutionHash};
use tribune_governance::policy_files;
use tribune_governance::policy_files::LawError;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::{VerdictOf, Verdicts};

use super::{brief, line};
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean, count, short_cid};
use crate::progress::EntryProgress;

/// Differences that are shown: enough to find the cause.
const MAX_SHOWN: usize = 5;

/// Laws that are loaded at a time. Verdicts are read in ledger order, so those of one law are mostly adjacent.
const MAX_LOADED: usize = 8;

/// The result of a replay.
#[derive(Debug, Default)]
struct ReplayReport {
    verdicts: u64,
    identical: u64,
    different: u64,
    /// The first differences.
    differences: Vec<Value>,
    /// Verdicts of another version.
    unreadable: u64,
    laws: BTreeMap<String, LawVerdicts>,
}

/// The verdicts under one law.
#[derive(Debug, Default)]
struct LawVerdicts {
    verdicts: u64,
    /// Why they could not be decided again.
    problem: Option<LawProblem>,
}

#[derive(Debug, Clone)]
struct LawProblem {
    sentence: String,
    /// The kept texts exist, but no longer match their hash.
    is_altered: bool,
}

/// The laws that verdicts name, loaded when needed.
struct LawCache<'a> {
    home: &'a Home,
    /// The law of the home, for ledgers from before laws were kept.
    present: Option<Constitution>,
    loaded: Vec<(String, Constitution)>,
}

pub(super) fn run(home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let reader = Reader::open(home)?;
    let mut laws = LawCache {
        home,
        present: policy_files::load(home.root(), &tribune_tools::NAMES).ok(),
        loaded: Vec::new(),
    };
    let mut replay = ReplayReport::default();
    let mut progress = EntryProgress::new("deciding", reader.size()?);
    for judged in Verdicts::from(&reader, 0) {
        let judged = judged?;
        progress.set(judged.stored.index);
        replay.take(&judged, &mut laws);
    }
    drop(progress);
    let present = laws.present.as_ref().map(Constitution::hash);
    output.verdict(|paint| replay.text(present, paint), &replay.value(present))?;
    Ok(replay.outcome())
}

impl LawCache<'_> {
    fn law(&mut self, name: &str) -> Result<&Constitution, LawProblem> {
        if let Some(at) = self.loaded.iter().position(|(own, _)| own == name) {
            return Ok(&self.loaded[at].1);
        }
        let law = self.find(name)?;
        if self.loaded.len() == MAX_LOADED {
            self.loaded.remove(0);
        }
        self.loaded.push((name.to_owned(), law));
        Ok(&self.loaded[self.loaded.len() - 1].1)
    }

    fn find(&self, name: &str) -> Result<Constitution, LawProblem> {
        let plain = |sentence: String| LawProblem { sentence, is_altered: false };
        let hash: ConstitutionHash = name.parse().map_err(|error| plain(format!("{error}")))?;
        match policy_files::kept(self.home.root(), hash, &tribune_tools::NAMES) {
            Ok(law) => Ok(law),
            Err(LawError::NotKept(_)) if self.present.as_ref().is_some_and(|law| law.hash() == hash) => {
                self.present.clone().ok_or_else(|| plain(String::new()))
            }
            Err(error) => {
                let is_altered = matches!(error, LawError::Altered { .. });
                Err(LawProblem { sentence: error.to_string(), is_altered })
            }
        }
    }
}

impl ReplayReport {
    fn take(&mut self, judged: &VerdictOf, laws: &mut LawCache<'_>) {
        self.verdicts += 1;
        let Some(record) = &judged.record else {
            self.unreadable += 1;
            return;
        };
        let count = self.laws.entry(record.constitution_hash.clone()).or_default();
        count.verdicts += 1;
        if count.problem.is_some() {
            return;
        }
        let law = match laws.law(&record.constitution_hash) {
            Ok(law) => law,
            Err(problem) => return count.problem = Some(problem),
        };
        let again = law.decide(&record.facts);
        if judged.is_exactly(&again) {
            self.identical += 1;
            return;
        }
        self.different += 1;
        if self.differences.len() < MAX_SHOWN {
            self.differences.push(json!({
                "index": judged.stored.index, "cid": judged.stored.entry.cid, "call": brief(&record.facts),
                "constitution_hash": record.constitution_hash, "recorded": record.verdict, "again": again,
                "lines": [line(&record.verdict), line(&again)],
            }));
        }
    }

    fn undecided(&self) -> u64 {
        self.laws.values().filter(|count| count.problem.is_some()).map(|count| count.verdicts).sum()
    }

    fn outcome(&self) -> CommandOutcome {
        let altered = self.laws.values().flat_map(|count| &count.problem).any(|problem| problem.is_altered);
        if self.different > 0 || altered {
            CommandOutcome::Broken
        } else if self.undecided() + self.unreadable > 0 {
            CommandOutcome::Incomplete
        } else {
            CommandOutcome::Done
        }
    }

    fn value(&self, present: Option<ConstitutionHash>) -> Value {
        let law = |(hash, count): (&String, &LawVerdicts)| {
            let problem = count.problem.as_ref().map(|problem| &problem.sentence);
            json!({ "hash": hash, "verdicts": count.verdicts, "available": problem.is_none(), "problem": problem })
        };
        json!({
            "verdicts": self.verdicts, "identical": self.identical, "different": self.different,
            "unavailable": self.undecided(), "unreadable": self.unreadable, "differences": self.differences,
            "laws": self.laws.iter().map(law).collect::<Vec<Value>>(), "present": present,
        })
    }

    fn text(&self, present: Option<ConstitutionHash>, paint: Paint) -> String {
        let state = match self.outcome() {
            CommandOutcome::Done => paint.good("identical"),
            CommandOutcome::Incomplete => paint.unsure("INCOMPLETE"),
            CommandOutcome::Broken
            | CommandOutcome::Failed
            | CommandOutcome::Cancelled
            | CommandOutcome::Code(_) => paint.bad("BROKEN"),
        };
        let mut lines = vec![format!(
            "replay: {state}, {} of {} decided again with the same result",
            self.identical,
            count(self.verdicts, "verdict", "verdicts")
        )];
        if self.different > 0 {
            lines.push(format!("different: {}", self.different));
        }
        for difference in &self.differences {
            let word = |value: &Value| clean(value.as_str().unwrap_or_default());
            lines.push(format!(
                "  entry {} ({}), {}\n    recorded: {}\n    again:    {}",
                difference["index"],
                short_cid(&word(&difference["cid"])),
                word(&difference["call"]),
                word(&difference["lines"][0]),
                word(&difference["lines"][1])
            ));
        }
        if self.unreadable > 0 {
            lines.push(format!("not read: {}, written by another version", self.unreadable));
        }
        for (hash, own) in &self.laws {
            let verdicts = count(own.verdicts, "verdict", "verdicts");
            lines.push(match &own.problem {
                None => format!("law {}: {verdicts}", clean(hash)),
                Some(problem) => format!(
                    "law {}: {verdicts} {}: {}",
                    clean(hash),
                    paint.unsure("not decided again"),
                    clean(&problem.sentence)
                ),
            });
        }
        match present.map(|hash| hash.to_string()) {
            Some(hash) if !self.laws.contains_key(&hash) => {
                lines
                    .push(format!("the current law of the home is {hash}: no verdict was made under it yet"));
            }
            Some(_) => {}
            None => lines
                .push("the current law of the home has errors: `tribune law check` shows them".to_owned()),
        }
        lines.join("\n")
    }
}
