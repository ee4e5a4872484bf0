//! Masks the API key in a response that arrives in chunks.
//!
//! A provider has no reason to send the key back, but a debugging server or an error page of a gateway may. Every byte
//! of the key becomes `*`, so that lengths stay correct. Bytes are held back only while they may be the start of the
//! key.

use crate::key::ApiKey;

/// Shorter keys are not masked: masking them would hide ordinary words.
pub(super) const MIN_KEY_BYTES: usize = 8;

/// Replaces each byte of the key.
const MASK: u8 = b'*';

/// Masks the key in the bytes of one response.
pub struct KeyMask {
    key: Option<ApiKey>,
    /// The end of the received bytes, if it may be the start of the key.
    held: Vec<u8>,
}

impl std::fmt::Debug for KeyMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Veil")
    }
}

impl KeyMask {
    pub(super) fn new(key: Option<&ApiKey>) -> Self {
        let key = key.filter(|key| key.bytes().len() >= MIN_KEY_BYTES).cloned();
        Self { key, held: Vec::new() }
    }

    /// Takes the next bytes and returns those that can be passed on.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.key.as_ref().map(ApiKey::bytes) else { return bytes };
        let mut all = bytes;
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            all.splice(0..0, held);
        }
        let mut at = 0;
        while let Some(found) = all[at..].iter().position(|byte| *byte == key[0]) {
            at += found;
            let rest = &all[at..];
            if rest.starts_with(key) {
                all[at..at + key.len()].fill(MASK);
                at += key.len();
            } else if key.starts_with(rest) {
                self.held = all.split_off(at);
                break;
            } else {
                at += 1;
            }
        }
        all
    }

    /// Handles the end of the response: returns the bytes that were held back.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(chunks: &[&[u8]]) -> Vec<u8> {
        let mut veil = KeyMask::new(ApiKey::new("aabaabaac").as_ref());
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend(veil.push(chunk.to_vec()));
        }
        out.extend(veil.finish());
        out
    }

    #[test]
    fn key_is_masked_wherever_it_is_split() {
        let text = b"x aabaabaabaac aabaabaacaabaabaac aabaabaa";
        let whole = masked(&[text]);
        assert_eq!(whole, b"x aab********* ****************** aabaabaa");
        for cut in 0..text.len() {
            assert_eq!(masked(&[&text[..cut], &text[cut..]]), whole, "{cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(masked(&single), whole);
    }

    #[test]
    fn nothing_is_held_back_without_a_key() {
        let mut veil = KeyMask::new(None);
        assert_eq!(veil.push(b"aab".to_vec()), b"aab");
        let mut veil = KeyMask::new(ApiKey::new("short").as_ref());
        assert_eq!(veil.push(b"short".to_vec()), b"short");
    }

    proptest! {
        #[test]
        fn masking_hides_the_key_and_changes_nothing_else(
            text in "[abc]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut veil = KeyMask::new(ApiKey::new("aabaabaac").as_ref());
            let mut out = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                out.extend(veil.push(text.as_bytes()[from..cut].to_vec()));
                from = cut;
            }
            out.extend(veil.finish());
            let out = String::from_utf8(out).unwrap();
            prop_assert_eq!(out, text.replace("aabaabaac", "*********"));
        }
    }
}
