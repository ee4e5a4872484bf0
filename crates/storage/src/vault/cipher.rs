//! Seals content under the key of its session, with XChaCha20-Poly1305.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The key under which all content of one session is sealed. Deleting it shreds the session's content.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ContentKey([u8; 32]);

/// Bytes of the nonce before the sealed text. It is random; 24 bytes are long enough for that.
const NONCE: usize = 24;

/// Why content cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error("the system has no random bytes available: try again later")]
    NoRandomness,
    #[error("the session has reached the largest number of events: go on in another session")]
    TooManyEvents,
    #[error("sealed content does not open: it was altered, or belongs to another place or session")]
    DoesNotOpen,
}

impl ContentKey {
    pub fn generate() -> Result<Self, CipherError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|_| CipherError::NoRandomness)?;
        Ok(Self(key))
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Seals `text`, with `place` as associated data: it opens only with the same `place`, so that sealed texts cannot be
    /// swapped.
    pub fn seal(&self, text: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| CipherError::NoRandomness)?;
        let sealed = XChaCha20Poly1305::new(&self.0.into())
            .encrypt(&XNonce::from(nonce), Payload { msg: text, aad: place })
            .map_err(|_| CipherError::DoesNotOpen)?;
        let mut out = Vec::with_capacity(NONCE + sealed.len());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    pub fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE>().ok_or(CipherError::DoesNotOpen)?;
        XChaCha20Poly1305::new(&self.0.into())
            .decrypt(&XNonce::from(*nonce), Payload { msg: body, aad: place })
            .map_err(|_| CipherError::DoesNotOpen)
    }
}

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_opens_only_whole_in_its_place_and_under_its_key() {
        let (key, other) = (ContentKey::generate().unwrap(), ContentKey::generate().unwrap());
        let sealed = key.seal(b"words", b"place").unwrap();
        assert_eq!(key.open(&sealed, b"place").unwrap(), b"words");
        assert_eq!(key.open(&sealed, b"elsewhere"), Err(CipherError::DoesNotOpen));
        assert_eq!(other.open(&sealed, b"place"), Err(CipherError::DoesNotOpen));
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert_eq!(key.open(&altered, b"place"), Err(CipherError::DoesNotOpen), "byte {at}");
            assert_eq!(key.open(&sealed[..at], b"place"), Err(CipherError::DoesNotOpen), "cut at {at}");
        }
        assert_ne!(key.seal(b"words", b"place").unwrap(), sealed, "every seal draws a new nonce");
        assert_eq!(format!("{key:?}"), "ContentKey(…)", "the key never reaches a log");
    }
}
