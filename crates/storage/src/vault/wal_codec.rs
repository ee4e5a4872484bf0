//! The encoding of vault operations as WAL records. Records are sealed, because they contain session names and keys.

use zeroize::Zeroizing;

use super::cipher::{CipherError, ContentKey};
use super::conversation::ConversationLimits;
use super::titles::TitleUpdate;
use super::writer::VaultOp;
use super::{StoredContent, VaultBatch};

/// Associated data that binds a sealed record to the WAL.
const CONTEXT: &[u8] = b"daybook";

const BATCH: u8 = 0;
const APPEND_CONVERSATION: u8 = 1;
const SET_TITLE: u8 = 2;

/// Derives the key under which records are sealed from the vault's key.
pub(super) fn key(vault: &str) -> ContentKey {
    ContentKey::from_bytes(blake3::derive_key("tribune 2026 daybook", vault.as_bytes()))
}

/// Encodes and seals an operation: a batch, conversation messages or a title. The other operations bypass the WAL.
pub(super) fn write(key: &ContentKey, work: &VaultOp) -> Result<Vec<u8>, CipherError> {
    let mut out = Zeroizing::new(Vec::with_capacity(4096));
    match work {
        VaultOp::Batch(batch) => {
            out.push(BATCH);
            text(&mut out, batch.session_id.as_bytes());
            text(&mut out, batch.key.as_ref().map_or(&[][..], |key| key.expose()));
            number(&mut out, batch.drop_below.unwrap_or(0));
            number(&mut out, batch.contents.len() as u64);
            for content in &batch.contents {
                text(&mut out, content.commitment.to_string().as_bytes());
                text(&mut out, &content.sealed);
            }
            number(&mut out, batch.events.len() as u64);
            for (seq, after_entry, sealed) in &batch.events {
                number(&mut out, *seq);
                number(&mut out, *after_entry);
                text(&mut out, sealed);
            }
        }
        VaultOp::AppendConversation(own) => {
            out.push(APPEND_CONVERSATION);
            text(&mut out, own.session_id.as_bytes());
            text(&mut out, own.turn.as_bytes());
            number(&mut out, own.replaces as u64);
            number(&mut out, own.said.len() as u64);
            own.said.iter().for_each(|message| text(&mut out, message));
        }
        VaultOp::SetTitle(own) => {
            out.push(SET_TITLE);
            text(&mut out, own.session_id.as_bytes());
            text(&mut out, &own.body);
        }
        VaultOp::TruncateEvents { .. } | VaultOp::Forget(_) | VaultOp::Sync | VaultOp::Commit => {}
    }
    key.seal(&out, CONTEXT)
}

/// Opens and decodes an operation. None if the bytes are not one, or were sealed by another vault.
pub(super) fn read(key: &ContentKey, sealed: &[u8]) -> Option<VaultOp> {
    let plain = Zeroizing::new(key.open(sealed, CONTEXT).ok()?);
    let (kind, rest) = plain.split_first()?;
    let mut rest = WalReader(rest);
    match *kind {
        BATCH => {
            let session_id = rest.string()?;
            let key = match rest.text()? {
                [] => None,
                key => Some(ContentKey::from_bytes(key.try_into().ok()?)),
            };
            let drop_below = Some(rest.number()?).filter(|below| *below > 0);
            let mut contents = Vec::new();
            for _ in 0..rest.number()? {
                let commitment = rest.string()?.parse().ok()?;
                contents.push(StoredContent { commitment, sealed: rest.text()?.to_vec() });
            }
            let mut events = Vec::new();
            for _ in 0..rest.number()? {
                events.push((rest.number()?, rest.number()?, rest.text()?.to_vec()));
            }
            Some(VaultOp::Batch(Box::new(VaultBatch { session_id, key, contents, events, drop_below })))
        }
        APPEND_CONVERSATION => {
            let (session_id, turn) = (rest.string()?, rest.string()?);
            let replaces = usize::try_from(rest.number()?).ok()?;
            let mut messages = Vec::new();
            for _ in 0..rest.number()? {
                messages.push(rest.text()?.to_vec());
            }
            Some(VaultOp::AppendConversation(Box::new(ConversationLimits {
                session_id,
                turn,
                said: messages,
                replaces,
            })))
        }
        SET_TITLE => {
            let (session_id, body) = (rest.string()?, rest.text()?.to_vec());
            Some(VaultOp::SetTitle(Box::new(TitleUpdate { session_id, body })))
        }
        _ => None,
    }
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    number(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// The bytes that are still to be decoded.
struct WalReader<'a>(&'a [u8]);

impl<'a> WalReader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.text()?.to_vec()).ok()
    }
}
