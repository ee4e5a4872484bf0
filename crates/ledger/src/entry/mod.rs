//! The ledger entry: one per turn, tool call, verdict, approval and change.

mod bounds;
mod read;
mod text;

pub use bounds::FieldError;
pub use read::EntryRef;
pub use text::{EntryText, UnsequencedEntry};

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::cid::Cid;
use crate::envelope::Envelope;
use crate::proof::{AttestationKey, Proof};

/// One entry. The field names are the wire format. The CID covers everything except `cid` and `proof`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    pub cid: Cid,
    /// The entity whose history this belongs to: a session key, or an entity of the daemon (`tribune:ledger`).
    pub entity_id: String,
    /// Position in that history, from 0, without gaps: `verify` reports the gap of a withheld entry.
    pub seq: u64,
    /// The subject: a session id, a tool, a key.
    pub target: String,
    pub quality: EntryQuality,
    pub timestamp: Timestamp,
    /// Session key of the agent that produced it.
    pub source: String,
    /// Roster id of the actor.
    pub actor: String,
    /// The causes: previous turn, tool call, approval. They precede this entry in the log.
    pub parents: Vec<Cid>,
    pub tags: Vec<String>,
    /// Facts, hashes and commitments; never message text or secrets.
    pub payload: Map<String, Value>,
    /// The key that must attest this entry. It is hashed, so that the removal of `proof` is detected.
    pub attested_by: Option<AttestationKey>,
    pub proof: Proof,
    pub envelope: Option<Envelope>,
}

/// An entry before the log assigns its `seq` and CID.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub entity_id: String,
    pub target: String,
    pub quality: EntryQuality,
    pub timestamp: Timestamp,
    pub source: String,
    pub actor: String,
    pub parents: Vec<Cid>,
    pub tags: Vec<String>,
    pub payload: Map<String, Value>,
    pub attested_by: Option<AttestationKey>,
    pub envelope: Option<Envelope>,
}

/// The kind of an entry. The set is closed: other words are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryQuality {
    Turn,
    ToolCall,
    ToolResult,
    PolicyVerdict,
    Approval,
    MailboxInject,
    SessionLifecycle,
    Change,
    Delivery,
    /// The first signing key of the log, or a change of it. Entry 0 of every log is one.
    KeyChange,
    Note,
}

impl EntryQuality {
    pub const ALL: [Self; 11] = [
        Self::Turn,
        Self::ToolCall,
        Self::ToolResult,
        Self::PolicyVerdict,
        Self::Approval,
        Self::MailboxInject,
        Self::SessionLifecycle,
        Self::Change,
        Self::Delivery,
        Self::KeyChange,
        Self::Note,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::PolicyVerdict => "policy_verdict",
            Self::Approval => "approval",
            Self::MailboxInject => "mailbox_inject",
            Self::SessionLifecycle => "session_lifecycle",
            Self::Change => "change",
            Self::Delivery => "delivery",
            Self::KeyChange => "key_change",
            Self::Note => "note",
        }
    }
}

/// A word that is no kind of entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of ledger entry")]
pub struct UnknownQuality(pub String);

impl FromStr for EntryQuality {
    type Err = UnknownQuality;

    fn from_str(text: &str) -> Result<Self, UnknownQuality> {
        Self::ALL
            .into_iter()
            .find(|quality| quality.as_str() == text)
            .ok_or_else(|| UnknownQuality(text.to_owned()))
    }
}

impl fmt::Display for EntryQuality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A point in time in UTC, to the microsecond, always printed as `2026-11-15T19:41:04.000000Z`. It has one text form
/// only, because a second one would have another CID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

/// A text that is not a timestamp in the canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a timestamp has the form 2026-11-15T19:41:04.000000Z")]
pub struct NotATimestamp;

impl Timestamp {
    pub const TEXT_BYTES: usize = 27;

    /// Truncates to microseconds.
    pub fn new(time: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
    }

    /// Appends the text.
    pub fn write(self, out: &mut Vec<u8>) {
        let datetime = jiff::tz::Offset::UTC.to_datetime(self.0);
        let Ok(year) = u32::try_from(datetime.year()) else {
            return out.extend_from_slice(format!("{:.6}", self.0).as_bytes());
        };
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let part = |number: i8| u32::from(number.unsigned_abs());
        let micros = datetime.subsec_nanosecond().unsigned_abs() / 1_000;
        for (to, number) in [
            (0..4, year),
            (5..7, part(datetime.month())),
            (8..10, part(datetime.day())),
            (11..13, part(datetime.hour())),
            (14..16, part(datetime.minute())),
            (17..19, part(datetime.second())),
            (20..26, micros),
        ] {
            let mut rest = number;
            for digit in text[to].iter_mut().rev() {
                *digit += (rest % 10) as u8;
                rest /= 10;
            }
        }
        out.extend_from_slice(&text);
    }

    /// This time minus a duration; saturates at the earliest timestamp.
    pub fn minus(self, time: std::time::Duration) -> Self {
        Self::new(self.0.checked_sub(time).unwrap_or(jiff::Timestamp::MIN))
    }

    /// This time plus a duration; saturates at the latest timestamp.
    pub fn plus(self, time: std::time::Duration) -> Self {
        Self::new(self.0.checked_add(time).unwrap_or(jiff::Timestamp::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(Self::TEXT_BYTES);
        self.write(&mut text);
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<Self, NotATimestamp> {
        // jiff accepts many forms; this check leaves one.
        let shape = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
        let fits = text.len() == Self::TEXT_BYTES
            && text
                .bytes()
                .zip(shape)
                .all(|(byte, &want)| if want == b'd' { byte.is_ascii_digit() } else { byte == want });
        // jiff reads a leap second as the second before it, which prints differently.
        if !fits || &text[17..19] == "60" {
            return Err(NotATimestamp);
        }
        text.parse().map(Self).map_err(|_| NotATimestamp)
    }
}

impl Timestamp {
    /// Checks that a text is a timestamp. A digit check decides most texts without parsing them.
    pub(crate) fn check(text: &str) -> Result<(), NotATimestamp> {
        let bytes = text.as_bytes();
        let number = |at: usize| (bytes[at].wrapping_sub(b'0'), bytes[at + 1].wrapping_sub(b'0'));
        let between = |at: usize, low: u8, high: u8| {
            let (tens, ones) = number(at);
            tens <= 9 && ones <= 9 && (low..=high).contains(&(tens * 10 + ones))
        };
        // The first 28 days of every month, in the years 0100 to 9899: valid in every calendar library.
        let plain = bytes.len() == Self::TEXT_BYTES
            && between(0, 1, 98)
            && between(2, 0, 99)
            && between(5, 1, 12)
            && between(8, 1, 28)
            && between(11, 0, 23)
            && between(14, 0, 59)
            && between(17, 0, 59)
            && [20, 22, 24].into_iter().all(|at| between(at, 0, 99))
            && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (26, b'Z')]
                .into_iter()
                .all(|(at, byte)| bytes[at] == byte);
        if plain { Ok(()) } else { text.parse::<Self>().map(drop) }
    }
}

macro_rules! serde_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
serde_as_text!(EntryQuality);
serde_as_text!(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_has_one_text_form() {
        let time: Timestamp = "2026-11-15T19:41:04.000000Z".parse().unwrap();
        assert_eq!(time.to_string(), "2026-11-15T19:41:04.000000Z");
        for bad in [
            "2026-11-15T19:41:04Z",
            "2026-11-15T19:41:04.000Z",
            "2026-11-15T19:41:04.000000+00:00",
            "2026-11-15t19:41:04.000000z",
            "2026-11-15 19:41:04.000000Z",
            "2026-02-30T19:41:04.000000Z",
            "2026-12-31T23:59:60.000000Z",
            "2026-11-15T24:00:00.000000Z",
        ] {
            assert_eq!(bad.parse::<Timestamp>(), Err(NotATimestamp), "{bad}");
            assert_eq!(Timestamp::check(bad), Err(NotATimestamp), "{bad}");
        }
        // The digit check and the parser agree on every text that differs in one byte from a valid one.
        let good = "2026-11-28T23:59:59.999999Z";
        for at in 0..good.len() {
            for byte in 0..128 {
                let mut text = good.as_bytes().to_vec();
                text[at] = byte;
                let text = String::from_utf8(text).unwrap();
                assert_eq!(Timestamp::check(&text).is_ok(), text.parse::<Timestamp>().is_ok(), "{text}");
            }
        }
        let fine = jiff::Timestamp::from_nanosecond(1_763_235_664_123_456_789).unwrap();
        let truncated = Timestamp::new(fine);
        assert_eq!(truncated.to_string().parse(), Ok(truncated));
    }

    #[test]
    fn unknown_quality_is_refused() {
        for quality in EntryQuality::ALL {
            assert_eq!(quality.as_str().parse(), Ok(quality));
        }
        assert_eq!("Turn".parse::<EntryQuality>(), Err(UnknownQuality("Turn".into())));
        assert!(serde_json::from_str::<EntryQuality>("\"gossip\"").is_err());
    }
}
