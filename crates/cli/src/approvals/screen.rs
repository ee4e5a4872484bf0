//! The state of the live screen: what it shows, and what a key does. It does no I/O; [`super::watch`] does.
//!
//! Because one key decides, the screen makes sure that the person has seen the call: the selection stays with a call,
//! not with a line; nothing is decided right after the selection moved by itself; and a call whose card does not fit
//! must be scrolled to its end before it is allowed.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::keys::Key;
use super::{card, id_of};
use crate::output::{Paint, cell, clean, excerpt};
use crate::times;

/// How long decisions are blocked after the selection moved by itself: longer than a key repeat or a key press in
/// progress.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Lines of the list; the card gets the rest.
const MAX_LIST: usize = 12;

const HELP: &str =
    "j/k select  a allow once  s session  p pattern  d deny  D deny and stop  enter show all  q quit";
const CARD_HELP: &str =
    "j/k scroll  a allow once  s session  p pattern  d deny  D deny and stop  esc back  q quit";
const PATTERN_HELP: &str = "j/k choose  enter grant it  esc back";

/// What to do for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Quit,
    Decide { id: String, decision: &'static str, pattern: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ScreenMode {
    List,
    /// Only the card, scrolled to this line.
    Card {
        top: usize,
    },
    Patterns {
        chosen: usize,
    },
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScreenSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

#[derive(Debug)]
pub(super) struct Screen {
    rows: Vec<Value>,
    /// How many calls wait; may be more than the rows.
    pending: u64,
    selected: Option<String>,
    /// The selected call in full, once it is fetched.
    shown: Option<Value>,
    mode: ScreenMode,
    note: String,
    settled: Instant,
    size: ScreenSize,
    paint: Paint,
}

impl Screen {
    pub(super) fn new(paint: Paint, size: ScreenSize, now: Instant) -> Self {
        let (rows, mode) = (Vec::new(), ScreenMode::List);
        Self {
            rows,
            pending: 0,
            selected: None,
            shown: None,
            mode,
            note: String::new(),
            settled: now,
            size,
            paint,
        }
    }

    pub(super) const fn resize(&mut self, size: ScreenSize) {
        self.size = size;
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.note = note.into();
    }

    pub(super) fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }

    /// Updates the list. The selection stays with its call; if the call is gone, the next one is selected.
    pub(super) fn refresh(&mut self, rows: Vec<Value>, pending: u64, now: Instant) {
        let place = self.place();
        self.rows = rows;
        self.pending = pending;
        if self.place().is_none() {
            if self.selected.is_some() && self.note.is_empty() {
                self.note = "the selected call no longer waits".to_owned();
            }
            let next = place.unwrap_or(0).min(self.rows.len().saturating_sub(1));
            self.select(next);
            self.settled = now;
        }
    }

    /// The selected call in full.
    pub(super) fn show(&mut self, approval: Value) {
        if self.selected.as_deref() == Some(id_of(&approval)) {
            self.shown = Some(approval);
        }
    }

    fn place(&self) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        self.rows.iter().position(|row| id_of(row) == selected)
    }

    fn select(&mut self, place: usize) {
        self.selected = self.rows.get(place).map(|row| id_of(row).to_owned());
        self.shown = None;
        self.mode = ScreenMode::List;
    }

    pub(super) fn key(&mut self, key: Key, now: Instant) -> KeyAction {
        match (key, &self.mode) {
            (Key::Quit | Key::Char('q'), _) => return KeyAction::Quit,
            (Key::Up | Key::Char('k'), _) => self.step(-1),
            (Key::Down | Key::Char('j'), _) => self.step(1),
            (Key::Back, _) => self.mode = ScreenMode::List,
            (Key::Enter, ScreenMode::List) => self.mode = ScreenMode::Card { top: 0 },
            (Key::Enter, ScreenMode::Patterns { chosen }) => {
                let pattern = self.patterns().get(*chosen).cloned();
                return self.decide("allow_pattern", pattern, now);
            }
            (_, ScreenMode::Patterns { .. }) => {}
            (Key::Char('p'), _) if self.patterns().is_empty() => {
                self.note = "no pattern fits this call: allow it once or for the session".to_owned();
            }
            (Key::Char('p'), _) if self.is_seen() => self.mode = ScreenMode::Patterns { chosen: 0 },
            (Key::Char('a' | 's' | 'p'), _) if !self.is_seen() => {
                self.note = "the call is longer: scroll to its end with j, then decide".to_owned();
                if self.mode == ScreenMode::List && self.shown.is_some() {
                    self.mode = ScreenMode::Card { top: 0 };
                }
            }
            (Key::Char('a'), _) => return self.decide("allow_once", None, now),
            (Key::Char('s'), _) => return self.decide("allow_session", None, now),
            (Key::Char('d'), _) => return self.decide("deny", None, now),
            (Key::Char('D'), _) => return self.decide("deny_stop", None, now),
            (Key::Char(_) | Key::Enter, _) => {}
        }
        KeyAction::Nothing
    }

    fn step(&mut self, by: isize) {
        self.note.clear();
        let last = self.card_lines().len().saturating_sub(self.card_height());
        let patterns = self.patterns().len();
        match &mut self.mode {
            ScreenMode::List => {
                let place = self.place().unwrap_or(0).saturating_add_signed(by);
                if place < self.rows.len() && Some(place) != self.place() {
                    self.select(place);
                }
            }
            ScreenMode::Card { top } => *top = top.saturating_add_signed(by).min(last),
            ScreenMode::Patterns { chosen } => {
                *chosen = chosen.saturating_add_signed(by).min(patterns.saturating_sub(1));
            }
        }
    }

    fn decide(&mut self, decision: &'static str, pattern: Option<String>, now: Instant) -> KeyAction {
        let Some(id) = self.selected.clone() else { return KeyAction::Nothing };
        if now.duration_since(self.settled) < SETTLE_TIME {
            self.note = "the list just changed: look again".to_owned();
            return KeyAction::Nothing;
        }
        self.settled = now;
        KeyAction::Decide { id, decision, pattern }
    }

    fn patterns(&self) -> Vec<String> {
        let patterns = self.shown.as_ref().and_then(|shown| shown["patterns"].as_array());
        patterns.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether the whole card is on the screen or was scrolled to its end.
    fn is_seen(&self) -> bool {
        let lines = self.card_lines().len();
        match self.mode {
            _ if self.shown.is_none() => false,
            ScreenMode::List => lines <= self.card_height(),
            ScreenMode::Card { top } => top + self.card_height() >= lines,
            ScreenMode::Patterns { .. } => true,
        }
    }

    fn card_lines(&self) -> Vec<String> {
        let Some(shown) = &self.shown else { return Vec::new() };
        wrapped(&card::text(shown, Paint::OFF), self.size.columns)
    }

    fn list_height(&self) -> usize {
        self.rows.len().clamp(1, MAX_LIST).min(self.size.rows / 3)
    }

    /// Lines for the card: the screen without the title, the list, a gap and two footer lines.
    fn card_height(&self) -> usize {
        let others = match self.mode {
            ScreenMode::List => 4 + self.list_height(),
            ScreenMode::Card { .. } | ScreenMode::Patterns { .. } => 3,
        };
        self.size.rows.saturating_sub(others)
    }

    /// The lines of the screen: exactly its height, none wider.
    pub(super) fn lines(&self) -> Vec<String> {
        let ScreenSize { columns: width, rows: height } = self.size;
        let fit = |text: &str| wrapped(&clean(text), width).swap_remove(0);
        let paint = self.paint;
        let mut lines = vec![paint.faint(&fit(&format!("tribune approvals: {} waiting", self.pending)))];
        let (body, help) = match self.mode {
            ScreenMode::List => {
                lines.extend(self.list(&fit));
                lines.push(String::new());
                (self.card_lines(), HELP)
            }
            ScreenMode::Card { top } => {
                (self.card_lines().split_off(top.min(self.card_lines().len())), CARD_HELP)
            }
            ScreenMode::Patterns { chosen } => {
                let mark = |(n, pattern): (usize, &String)| {
                    let line = fit(&format!("{} {pattern}", if n == chosen { "›" } else { " " }));
                    if n == chosen { paint.good(&line) } else { line }
                };
                (self.patterns().iter().enumerate().map(mark).collect(), PATTERN_HELP)
            }
        };
        let room = self.card_height();
        let more = body.len().saturating_sub(room);
        lines.extend(body.into_iter().take(room));
        lines.resize(height.saturating_sub(2), String::new());
        lines.push(match (self.note.is_empty(), more) {
            (false, _) => paint.unsure(&fit(&self.note)),
            (true, 0) => String::new(),
            (true, more) => paint.unsure(&fit(&format!("{more} lines more: enter shows them"))),
        });
        lines.push(paint.faint(&fit(help)));
        lines.truncate(height);
        lines
    }

    fn list(&self, fit: &impl Fn(&str) -> String) -> Vec<String> {
        if self.rows.is_empty() {
            return vec![self.paint.faint("nothing waits for a decision")];
        }
        let height = self.list_height();
        let place = self.place().unwrap_or(0);
        let top = (place + 1).saturating_sub(height);
        let line = |(n, row): (usize, &Value)| {
            let word = |name: &str| row[name].as_str().unwrap_or_default();
            let text = fit(&format!(
                "{} {}  {:>4}  {} {}  {}  {}",
                if n == place { "›" } else { " " },
                cell(&row["id"]),
                times::age(word("created_at")),
                cell(&row["agent_id"]),
                cell(&row["tool"]),
                excerpt(word("what"), 60),
                times::time_left(word("expires_at")),
            ));
            if n == place { self.paint.good(&text) } else { text }
        };
        self.rows.iter().enumerate().skip(top).take(height).map(line).collect()
    }
}

/// Wraps a text at a width. Returns at least one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.saturating_sub(1).max(1);
    let mut lines = Vec::new();
    for line in text.lines() {
        let (mut own, mut columns) = (String::new(), 0);
        for c in line.replace('\t', "    ").chars() {
            // Some characters take two columns. Counting every non-ASCII one as two only wraps early.
            let needs = if c.is_ascii() { 1 } else { 2 };
            if columns + needs > width && !own.is_empty() {
                lines.push(std::mem::take(&mut own));
                columns = 0;
            }
            own.push(c);
            columns += needs;
        }
        lines.push(own);
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
