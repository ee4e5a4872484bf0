//! One pass over a text that finds every secret.
//!
//! An automaton finds the literals that every shape has somewhere; what stands around them is looked at only there. All
//! secrets are looked for in the text as it came, since taking out one must not hide another.

use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, StartKind};

use crate::bytes::{Step, Stop, View};
use crate::exact_values::Form;
use crate::named_values::{NAMES, Name};
use crate::partial_match::Literals;
use crate::prefixes::{PREFIXES, Prefix};
use crate::secret::{Core, Ends, Secret};
use crate::{contact, pem, structured_tokens, url};

/// What is looked for besides secrets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Contacts {
    pub(crate) emails: bool,
    pub(crate) phones: bool,
}

/// What a pass found.
pub(crate) struct Scan {
    /// In order of place. Of those that begin together the most particular comes first, whose name is the best.
    pub(crate) secrets: Vec<Secret>,
    /// Of every secret that begins before this place it is known that it is one, whatever follows.
    pub(crate) decided: usize,
}

/// What stands at a place where a literal was found.
enum Anchor {
    Prefix(&'static Prefix),
    Jwt,
    Pem,
    Telegram,
    Discord,
    Mailchimp,
    Url,
    Bearer,
    Basic,
    Name(Name),
    Known(Form),
}

/// The literals, and what each stands for.
pub(crate) struct Anchors {
    finder: AhoCorasick,
    /// By number of the literal, the most particular first.
    anchors: Vec<Anchor>,
    /// Those with which a secret begins.
    begins: Literals,
}

static OF_SHAPES: LazyLock<Arc<Anchors>> = LazyLock::new(|| Arc::new(Anchors::with_known(&[])));

/// Everything that is looked for by shape.
fn shapes() -> Vec<(&'static str, Anchor)> {
    let mut all: Vec<(&'static str, Anchor)> =
        PREFIXES.iter().map(|prefix| (prefix.text, Anchor::Prefix(prefix))).collect();
    all.extend([
        (pem::BEGIN, Anchor::Pem),
        ("eyJ", Anchor::Jwt),
        (":AA", Anchor::Telegram),
        (".", Anchor::Discord),
        ("-us", Anchor::Mailchimp),
        ("earer", Anchor::Bearer),
        ("EARER", Anchor::Bearer),
        ("asic", Anchor::Basic),
        ("ASIC", Anchor::Basic),
        (url::ANCHOR, Anchor::Url),
    ]);
    all.extend(NAMES.iter().map(|name| (name.anchor, Anchor::Name(*name))));
    all
}

impl Anchor {
    /// Whether a secret may begin before its literal is complete.
    fn begins_secret(&self) -> bool {
        match self {
            Self::Prefix(prefix) => !prefix.is_shown,
            Self::Jwt | Self::Pem | Self::Telegram | Self::Known(_) => true,
            Self::Discord | Self::Mailchimp | Self::Url | Self::Bearer | Self::Basic | Self::Name(_) => false,
        }
    }

    fn secret(&self, view: View<'_>, start: usize, end: usize, ends: &mut Ends<'_>) -> Step<Core> {
        let is_after =
            |letter: u8| view.before(start).is_some_and(|before| before.eq_ignore_ascii_case(&letter));
        match self {
            Self::Prefix(prefix) => prefix.secret(view, start),
            Self::Jwt => structured_tokens::jwt(view, start, ends),
            Self::Pem => pem::begin(view, start),
            Self::Telegram => structured_tokens::telegram(view, start),
            Self::Discord => structured_tokens::discord(view, start),
            Self::Mailchimp => structured_tokens::mailchimp(view, start),
            Self::Url => url::credentials(view, end),
            Self::Bearer | Self::Basic if !is_after(b'b') => Err(Stop::No),
            Self::Bearer => structured_tokens::bearer(view, end),
            Self::Basic => structured_tokens::basic(view, end),
            Self::Name(name) => name.value(view, start),
            Self::Known(form) => form.secret(view, start),
        }
    }
}

impl Anchors {
    /// Of shapes and nothing else; made once.
    pub(crate) fn of_shapes() -> Arc<Self> {
        OF_SHAPES.clone()
    }

    /// Of shapes and of these values.
    #[expect(
        clippy::expect_used,
        reason = "only too many literals fail, and two billion bytes of them are too many"
    )]
    pub(crate) fn with_known(values: &[String]) -> Self {
        let shapes = shapes().into_iter().map(|(literal, anchor)| (literal.as_bytes().to_vec(), anchor));
        let forms = Form::all(values).into_iter().map(|form| (form.anchor().to_vec(), Anchor::Known(form)));
        let (literals, anchors): (Vec<Vec<u8>>, Vec<Anchor>) = shapes.chain(forms).unzip();
        let finder = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .start_kind(StartKind::Unanchored)
            .build(&literals)
            .expect("the literals fit an automaton");
        let begins = literals.into_iter().zip(&anchors).filter(|(_, anchor)| anchor.begins_secret());
        let begins = Literals::new(begins.map(|(literal, _)| literal));
        Self { finder, anchors, begins }
    }

    /// Finds every secret of a text.
    pub(crate) fn scan(&self, view: View<'_>, contacts: Contacts) -> Scan {
        let bytes = view.bytes;
        let mut ends = Ends::new(view);
        let mut found = Found { secrets: Vec::new(), decided: bytes.len() };
        for place in self.finder.find_overlapping_iter(bytes) {
            let rank = place.pattern().as_usize();
            let step = self.anchors[rank].secret(view, place.start(), place.end(), &mut ends);
            found.take(rank, step, &mut ends);
        }
        if contacts.emails {
            for at in memchr::memchr_iter(b'@', bytes) {
                found.take(usize::MAX, contact::email(view, at), &mut ends);
            }
        }
        if contacts.phones {
            for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| contact::may_begin_phone(**byte)) {
                found.take(usize::MAX, contact::phone(view, at), &mut ends);
            }
        }
        let Found { mut secrets, mut decided } = found;
        if !view.is_whole {
            decided = decided.min(self.begins.begun(bytes)).min(structured_tokens::mailchimp_begun(bytes));
            if contacts.emails {
                decided = decided.min(contact::email_begun(view));
            }
        }
        secrets.sort_by_key(|(rank, secret)| (secret.start, *rank));
        Scan { secrets: secrets.into_iter().map(|(_, secret)| secret).collect(), decided }
    }
}

/// What a pass has found so far.
struct Found {
    /// With the number of the literal that led to each.
    secrets: Vec<(usize, Secret)>,
    decided: usize,
}

impl Found {
    fn take(&mut self, rank: usize, step: Step<Core>, ends: &mut Ends<'_>) {
        match step {
            Ok(core) => self.secrets.push((rank, ends.secret(core))),
            Err(Stop::More(from)) => self.decided = self.decided.min(from),
            Err(Stop::No) => {}
        }
    }
}
