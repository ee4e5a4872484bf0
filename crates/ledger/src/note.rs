//! Signed notes (C2SP signed-note): a text, an empty line, and signature lines.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::cid::to_hex;
use crate::limits::{MAX_KEY_NAME_BYTES, MAX_NOTE_BYTES, MAX_NOTE_SIGNATURES};
use crate::proof::AttestationKey;

/// Signature type byte of plain Ed25519.
const ED25519: u8 = 0x01;

/// Signs notes under a key name. Today a key in memory; a hardware token or a post-quantum key can implement it too.
pub trait NoteSigner: Send + Sync {
    /// The key that verifies what this signs.
    fn verifier_key(&self) -> &VerifierKey;

    /// The signature over the note's text.
    fn sign(&self, text: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// The signer could not sign. The message is the signer's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the signer refused: {0}")]
pub struct SignError(pub String);

/// A public key under a name, in the text form `name+hash+key` that Go's `sumdb/note` and every C2SP tool reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: VerifyingKey,
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key name has 1 to {MAX_KEY_NAME_BYTES} bytes and no spaces, control characters or `+`")]
    Name,
    #[error("a verifier key has the form name+hash+base64")]
    Form,
    #[error("the hash in the key does not match its name and bytes: it was mistyped or cut")]
    Hash,
    #[error("only Ed25519 keys (type 1) are supported here")]
    Type,
    #[error("the key bytes are not a valid Ed25519 public key")]
    Bytes,
}

impl VerifierKey {
    pub fn new(name: &str, key: VerifyingKey) -> Result<Self, KeyError> {
        let fits = (1..=MAX_KEY_NAME_BYTES).contains(&name.len())
            && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '+');
        if !fits {
            return Err(KeyError::Name);
        }
        if key.is_weak() {
            return Err(KeyError::Bytes);
        }
        Ok(Self { name: name.to_owned(), key })
    }

    /// The key's name, which is the log's origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same key as an attestation key.
    pub fn attestation_key(&self) -> AttestationKey {
        AttestationKey::of(&self.key)
    }

    fn id(&self) -> [u8; 4] {
        key_id(&self.name, self.key.as_bytes())
    }

    fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(text, &signature).is_ok())
    }
}

fn key_id(name: &str, public: &[u8; 32]) -> [u8; 4] {
    let hash =
        Sha256::new().chain_update(name).chain_update([b'\n', ED25519]).chain_update(public).finalize();
    [hash[0], hash[1], hash[2], hash[3]]
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&[ED25519], self.key.as_bytes().as_slice()].concat();
        write!(f, "{}+{}+{}", self.name, to_hex(&self.id()), STANDARD.encode(bytes))
    }
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (name, id, bytes) = split_key(text)?;
        let bytes = key_bytes(&bytes)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Bytes)?;
        let verifier = Self::new(name, key)?;
        if to_hex(&verifier.id()) == id { Ok(verifier) } else { Err(KeyError::Hash) }
    }
}

/// Splits `name+hash+base64`.
fn split_key(text: &str) -> Result<(&str, &str, Zeroizing<Vec<u8>>), KeyError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(KeyError::Form);
    };
    let bytes = STANDARD.decode(bytes).map_err(|_| KeyError::Form)?;
    Ok((name, id, Zeroizing::new(bytes)))
}

fn key_bytes(bytes: &[u8]) -> Result<[u8; 32], KeyError> {
    match bytes.split_first() {
        Some((&ED25519, rest)) => rest.try_into().map_err(|_| KeyError::Bytes),
        Some(_) => Err(KeyError::Type),
        None => Err(KeyError::Form),
    }
}

/// An Ed25519 key in memory, zeroized on drop.
pub struct Ed25519Signer {
    key: SigningKey,
    verifier: VerifierKey,
}

impl fmt::Debug for Ed25519Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ed25519Signer({})", self.verifier)
    }
}

impl Ed25519Signer {
    /// `seed` must come from the system's random source.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let key = SigningKey::from_bytes(seed);
        let verifier = VerifierKey::new(name, key.verifying_key())?;
        Ok(Self { key, verifier })
    }

    /// Reads the text form of Go's `sumdb/note`: `PRIVATE+KEY+name+hash+base64`.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let rest = text.strip_prefix("PRIVATE+KEY+").ok_or(KeyError::Form)?;
        let (name, id, bytes) = split_key(rest)?;
        let seed = Zeroizing::new(key_bytes(&bytes)?);
        let signer = Self::from_seed(name, &seed)?;
        if to_hex(&signer.verifier.id()) == id { Ok(signer) } else { Err(KeyError::Hash) }
    }

    /// The secret text form, for a file that only its owner can read.
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        let bytes = Zeroizing::new([&[ED25519], self.key.as_bytes().as_slice()].concat());
        let encoded = Zeroizing::new(STANDARD.encode(&*bytes));
        let id = to_hex(&self.verifier.id());
        Zeroizing::new(format!("PRIVATE+KEY+{}+{id}+{}", self.verifier.name, *encoded))
    }

    /// The signing key, for attestations.
    pub const fn signing_key(&self) -> &SigningKey {
        &self.key
    }
}

impl NoteSigner for Ed25519Signer {
    fn verifier_key(&self) -> &VerifierKey {
        &self.verifier
    }

    fn sign(&self, text: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(self.key.sign(text).to_bytes().to_vec())
    }
}

/// Signs `text`, which must end with a newline.
pub fn sign(text: &str, signer: &dyn NoteSigner) -> Result<String, SignError> {
    let key = signer.verifier_key();
    let signature = [key.id().as_slice(), &signer.sign(text.as_bytes())?].concat();
    Ok(format!("{text}\n— {} {}\n", key.name, STANDARD.encode(signature)))
}

/// Why a note is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("it has {0} bytes; the limit is {MAX_NOTE_BYTES}")]
    TooLarge(usize),
    #[error("it is not a signed note: {0}")]
    Malformed(&'static str),
    #[error("no signature on it is by {0}")]
    NotSigned(String),
    #[error("the signature by {0} does not match the text")]
    BadSignature(String),
}

/// A parsed note. No signature was checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedNote<'a> {
    /// The signed text, including its final newline.
    pub text: &'a str,
    signatures: &'a str,
}

/// One signature line of a note.
struct SignatureLine<'a> {
    name: &'a str,
    key_id: [u8; 4],
    signature: Vec<u8>,
}

impl<'a> SignedNote<'a> {
    pub fn parse(note: &'a str) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE_BYTES {
            return Err(NoteError::TooLarge(note.len()));
        }
        if note.bytes().any(|byte| byte < 0x20 && byte != b'\n') {
            return Err(NoteError::Malformed("it has control characters"));
        }
        let split =
            note.rfind("\n\n").ok_or(NoteError::Malformed("there is no empty line before signatures"))?;
        let (text, signatures) = (&note[..=split], &note[split + 2..]);
        if !signatures.ends_with('\n') {
            return Err(NoteError::Malformed("the last signature line does not end"));
        }
        let parsed = Self { text, signatures };
        let mut count = 0;
        for line in parsed.lines() {
            line?;
            count += 1;
        }
        match count {
            0 => Err(NoteError::Malformed("there is no signature")),
            1..=MAX_NOTE_SIGNATURES => Ok(parsed),
            _ => Err(NoteError::Malformed("there are too many signatures")),
        }
    }

    fn lines(&self) -> impl Iterator<Item = Result<SignatureLine<'a>, NoteError>> {
        self.signatures.lines().map(|line| {
            let malformed = NoteError::Malformed("a signature line has another form");
            let (name, encoded) =
                line.strip_prefix("— ").and_then(|rest| rest.split_once(' ')).ok_or(malformed.clone())?;
            let bytes = STANDARD.decode(encoded).map_err(|_| malformed.clone())?;
            let (id, signature) = bytes.split_first_chunk::<4>().ok_or(malformed.clone())?;
            if name.is_empty() || signature.is_empty() {
                return Err(malformed);
            }
            Ok(SignatureLine { name, key_id: *id, signature: signature.to_vec() })
        })
    }

    /// Checks that `key` signed the text. It ignores signatures by other keys, but a wrong one by `key` is an error.
    pub fn check(&self, key: &VerifierKey) -> Result<(), NoteError> {
        let mut signed = false;
        for line in self.lines() {
            let SignatureLine { name, key_id, signature } = line?;
            if name != key.name || key_id != key.id() {
                continue;
            }
            if !key.verifies(self.text.as_bytes(), &signature) {
                return Err(NoteError::BadSignature(key.to_string()));
            }
            signed = true;
        }
        if signed { Ok(()) } else { Err(NoteError::NotSigned(key.to_string())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the C2SP signed-note specification.
    const SPEC_KEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    const SPEC_NOTE: &str = "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

    #[test]
    fn the_specification_example_verifies() {
        let key: VerifierKey = SPEC_KEY.parse().unwrap();
        assert_eq!(key.to_string(), SPEC_KEY);
        let note = SignedNote::parse(SPEC_NOTE).unwrap();
        assert_eq!(note.text, "This is an example message.\n");
        assert_eq!(note.check(&key), Ok(()));
    }

    #[test]
    fn signed_note_verifies_with_its_key_only() {
        let signer = Ed25519Signer::from_seed("log.example", &[1; 32]).unwrap();
        let other = Ed25519Signer::from_seed("log.example", &[2; 32]).unwrap();
        let note = sign("a\n\nb\n", &signer).unwrap();
        let parsed = SignedNote::parse(&note).unwrap();
        assert_eq!(parsed.text, "a\n\nb\n");
        assert_eq!(parsed.check(signer.verifier_key()), Ok(()));
        assert!(matches!(parsed.check(other.verifier_key()), Err(NoteError::NotSigned(_))));
        let altered = note.replacen('a', "A", 1);
        assert!(matches!(
            SignedNote::parse(&altered).unwrap().check(signer.verifier_key()),
            Err(NoteError::BadSignature(_))
        ));
    }

    #[test]
    fn signatures_by_others_are_ignored() {
        let signer = Ed25519Signer::from_seed("log.example", &[1; 32]).unwrap();
        let witness = Ed25519Signer::from_seed("witness.example", &[2; 32]).unwrap();
        let ours = sign("a\n", &signer).unwrap();
        let theirs = sign("a\n", &witness).unwrap();
        let both = format!("{ours}{}", theirs.split_once("\n\n").unwrap().1);
        let note = SignedNote::parse(&both).unwrap();
        assert_eq!(note.check(signer.verifier_key()), Ok(()));
        assert_eq!(note.check(witness.verifier_key()), Ok(()));
    }

    #[test]
    fn malformed_notes_and_keys_are_refused() {
        for note in [
            "",
            "a\n",
            "a\n\n",
            "a\n\nb\n",
            "a\n\n— x\n",
            "a\n\n— x !!\n",
            "a\n\n— x AAAA\n",
            "a\r\n\n— x AAAAAAA=\n",
        ] {
            assert!(SignedNote::parse(note).is_err(), "{note:?}");
        }
        assert!(matches!(SignedNote::parse(&"x".repeat(MAX_NOTE_BYTES + 1)), Err(NoteError::TooLarge(_))));
        assert_eq!(SPEC_KEY.replacen("foo", "fob", 1).parse::<VerifierKey>(), Err(KeyError::Hash));
        assert_eq!("x+y".parse::<VerifierKey>(), Err(KeyError::Form));
        assert_eq!("x+00000000+AgAA".parse::<VerifierKey>(), Err(KeyError::Type));
        for name in ["", "a b", "a+b", "a\nb"] {
            assert!(Ed25519Signer::from_seed(name, &[1; 32]).is_err(), "{name:?}");
        }
    }

    #[test]
    fn secret_text_round_trips_and_is_not_in_debug_output() {
        let signer = Ed25519Signer::from_seed("log.example", &[1; 32]).unwrap();
        let secret = signer.to_secret_text();
        let back = Ed25519Signer::from_text(&secret).unwrap();
        assert_eq!(back.verifier_key(), signer.verifier_key());
        assert!(!format!("{signer:?}").contains(secret.rsplit('+').next().unwrap()));
        let wrong_name = secret.replacen("log.example", "log.exampel", 1);
        assert!(matches!(Ed25519Signer::from_text(&wrong_name), Err(KeyError::Hash)));
    }
}
