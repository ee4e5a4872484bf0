//! Finds every secret of a text in a single pass.
//!
//! An automaton finds the literals that the shapes contain; a matcher then examines the text around each hit. All
//! matching runs on the original text, because removing one secret must not hide another.

use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, StartKind};

use crate::bytes::{InputText, MatchResult, NoMatch};
use crate::exact_values::EncodedValue;
use crate::named_values::{NAMES, SecretName};
use crate::partial_match::LiteralSet;
use crate::prefixes::{KeyPrefix, PREFIXES};
use crate::secret::{Core, Secret};
use crate::tail_ends::TailEnds;
use crate::{contact, cookies, curl, pem, structured_tokens, url};

/// Which contact data is redacted too.
#[derive(Clone, Copy, Default)]
pub(crate) struct Contacts {
    pub(crate) emails: bool,
    pub(crate) phones: bool,
}

/// The result of a pass.
pub(crate) struct Scan {
    /// Ordered by start. Of those with the same start the most specific comes first, because its kind is the best name.
    pub(crate) secrets: Vec<Secret>,
    /// Every secret that starts before this offset is in the list, whatever text follows.
    pub(crate) decided: usize,
}

/// What to match where a literal was found.
enum Anchor {
    Prefix(&'static KeyPrefix),
    Jwt,
    Pem,
    Telegram,
    Discord,
    Mailchimp,
    Url,
    Bearer,
    Basic,
    Name(SecretName),
    Curl,
    Cookie,
    ExactValue(EncodedValue),
}

/// The literals, and what each may be part of.
pub(crate) struct Anchors {
    finder: AhoCorasick,
    /// Indexed by pattern id; the most specific come first.
    anchors: Vec<Anchor>,
    /// The literals that start a secret.
    secret_starts: LiteralSet,
}

static OF_SHAPES: LazyLock<Arc<Anchors>> = LazyLock::new(|| Arc::new(Anchors::with_exact_values(&[])));

/// Everything that is found by its shape or name.
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
    all.extend(curl::ANCHORS.map(|anchor| (anchor, Anchor::Curl)));
    all.push((cookies::ANCHOR, Anchor::Cookie));
    all
}

impl Anchor {
    /// Whether a secret may start before its literal is complete.
    fn starts_secret(&self) -> bool {
        match self {
            Self::Prefix(prefix) => !prefix.is_label,
            Self::Jwt | Self::Pem | Self::Telegram | Self::ExactValue(_) => true,
            Self::Discord
            | Self::Mailchimp
            | Self::Url
            | Self::Bearer
            | Self::Basic
            | Self::Name(_)
            | Self::Curl
            | Self::Cookie => false,
        }
    }

    fn secret(
        &self,
        input: InputText<'_>,
        start: usize,
        end: usize,
        ends: &mut TailEnds<'_>,
    ) -> MatchResult<Core> {
        let is_after =
            |letter: u8| input.byte_before(start).is_some_and(|before| before.eq_ignore_ascii_case(&letter));
        match self {
            Self::Prefix(prefix) => prefix.secret(input, start),
            Self::Jwt => structured_tokens::jwt(input, start, ends),
            Self::Pem => pem::begin(input, start),
            Self::Telegram => structured_tokens::telegram(input, start),
            Self::Discord => structured_tokens::discord(input, start),
            Self::Mailchimp => structured_tokens::mailchimp(input, start),
            Self::Url => url::credentials(input, end),
            Self::Bearer | Self::Basic if !is_after(b'b') => Err(NoMatch::Never),
            Self::Bearer => structured_tokens::bearer(input, end),
            Self::Basic => structured_tokens::basic(input, end),
            Self::Name(name) => name.value(input, start),
            Self::Curl => curl::password(input, start, end),
            Self::Cookie => cookies::value(input, start),
            Self::ExactValue(value) => value.secret(input, start),
        }
    }
}

impl Anchors {
    /// For shapes and names only; built once.
    pub(crate) fn of_shapes() -> Arc<Self> {
        OF_SHAPES.clone()
    }

    /// For shapes, names and these exact values.
    #[expect(
        clippy::expect_used,
        reason = "building fails only with too many literals, about two billion bytes of them"
    )]
    pub(crate) fn with_exact_values(values: &[String]) -> Self {
        let shapes = shapes().into_iter().map(|(literal, anchor)| (literal.as_bytes().to_vec(), anchor));
        let values = EncodedValue::all(values)
            .into_iter()
            .map(|value| (value.anchor().to_vec(), Anchor::ExactValue(value)));
        let (literals, anchors): (Vec<Vec<u8>>, Vec<Anchor>) = shapes.chain(values).unzip();
        let finder = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .start_kind(StartKind::Unanchored)
            .build(&literals)
            .expect("the literals fit an automaton");
        let starts = literals.into_iter().zip(&anchors).filter(|(_, anchor)| anchor.starts_secret());
        let secret_starts = LiteralSet::new(starts.map(|(literal, _)| literal));
        Self { finder, anchors, secret_starts }
    }

    /// Finds every secret of a text.
    pub(crate) fn scan(&self, input: InputText<'_>, contacts: Contacts) -> Scan {
        let bytes = input.bytes;
        let mut ends = TailEnds::new(input);
        let mut matches = Matches { secrets: Vec::new(), decided: bytes.len() };
        for hit in self.finder.find_overlapping_iter(bytes) {
            let rank = hit.pattern().as_usize();
            let result = self.anchors[rank].secret(input, hit.start(), hit.end(), &mut ends);
            matches.add(rank, result, &mut ends);
        }
        if contacts.emails {
            for at in memchr::memchr_iter(b'@', bytes) {
                matches.add(usize::MAX, contact::email(input, at), &mut ends);
            }
        }
        if contacts.phones {
            for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| contact::may_start_phone(**byte)) {
                matches.add(usize::MAX, contact::phone(input, at), &mut ends);
            }
        }
        let Matches { mut secrets, mut decided } = matches;
        if !input.is_complete {
            decided = decided
                .min(self.secret_starts.partial_start(bytes))
                .min(structured_tokens::partial_mailchimp_start(bytes));
            if contacts.emails {
                decided = decided.min(contact::partial_email_start(input));
            }
        }
        secrets.sort_by_key(|ranked| (ranked.secret.start, ranked.rank));
        Scan { secrets: secrets.into_iter().map(|ranked| ranked.secret).collect(), decided }
    }
}

/// A secret, and the pattern id of the literal that led to it.
struct RankedSecret {
    rank: usize,
    secret: Secret,
}

/// The matches of a pass so far.
struct Matches {
    secrets: Vec<RankedSecret>,
    decided: usize,
}

impl Matches {
    fn add(&mut self, rank: usize, result: MatchResult<Core>, ends: &mut TailEnds<'_>) {
        match result {
            Ok(core) => self.secrets.push(RankedSecret { rank, secret: ends.extend(core) }),
            Err(NoMatch::NeedsMore(from)) => self.decided = self.decided.min(from),
            Err(NoMatch::Never) => {}
        }
    }
}
