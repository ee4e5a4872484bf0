//! What an entry carries beside its hash: nothing, a signature, or one day a zero-knowledge proof.
//!
//! `proof` is outside the CID, because a signature over the CID cannot be inside it. So the hashed part of an entry
//! says whose attestation it owes (`attested_by`); a proof that was stripped or swapped is found by comparing the two.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cid::{Cid, hex32, to_hex};

/// The public key of an agent, an approver or the log itself: `ed25519:` and 64 lowercase hex digits.
///
/// Kept compressed; a value of this type is always a sound point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AttestationKey([u8; 32]);

/// A text that is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an attestation key is `ed25519:` followed by 64 lowercase hex digits of a valid public key")]
pub struct NotAKey;

impl AttestationKey {
    pub fn of(key: &VerifyingKey) -> Self {
        Self(key.to_bytes())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether this key made the signature, by the strict rules: no small-order keys, no second form.
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Display for AttestationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", to_hex(&self.0))
    }
}

impl fmt::Debug for AttestationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AttestationKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let hex = text.strip_prefix("ed25519:").ok_or(NotAKey)?;
        let bytes = hex32(hex.as_bytes()).ok_or(NotAKey)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| NotAKey)?;
        // A weak key verifies any message; a non-canonical one would give one key two names.
        if key.is_weak() || key.to_bytes() != bytes { Err(NotAKey) } else { Ok(Self(bytes)) }
    }
}

impl Serialize for AttestationKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AttestationKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The proof beside an entry. `Null` is JSON `null`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proof {
    #[default]
    Null,
    Attestation(Attestation),
    ZkStark(ZkStark),
}

/// An Ed25519 signature over the CID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attestation {
    pub key: AttestationKey,
    pub signature: [u8; 64],
}

/// A zero-knowledge proof. The type is here so that the format need not change; no verifier accepts one yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZkStark {
    /// Proof system and parameters.
    pub system: String,
    /// What is proven, by name.
    pub statement: String,
    /// The proof, base64.
    pub proof: String,
}

/// Why a proof does not satisfy what its entry owes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("it owes an attestation by {0} and carries none")]
    Missing(AttestationKey),
    #[error("it carries a proof that nobody owes")]
    Unowed,
    #[error("it owes an attestation by {owed} but carries one by {found}")]
    WrongKey { owed: AttestationKey, found: AttestationKey },
    #[error("the signature by {0} does not fit this entry")]
    BadSignature(AttestationKey),
    #[error("it carries a ZkStark proof, which this version cannot check, so it is not accepted")]
    ZkStarkUnsupported,
}

impl Attestation {
    /// Signs `cid` with `key`.
    pub fn sign(cid: &Cid, key: &SigningKey) -> Self {
        Self {
            key: AttestationKey::of(&key.verifying_key()),
            signature: key.sign(&attestation_message(cid)).to_bytes(),
        }
    }
}

/// The bytes an attestation signs. The first line keeps these signatures apart from those over checkpoints and
/// login challenges made with the same key.
fn attestation_message(cid: &Cid) -> Vec<u8> {
    format!("tribune/attestation/v1\n{cid}\n").into_bytes()
}

impl Proof {
    /// Checks this proof against what the hashed part of the entry owes.
    pub fn check(&self, owed: Option<&AttestationKey>, cid: &Cid) -> Result<(), ProofError> {
        match (self, owed) {
            (Self::Null, None) => Ok(()),
            (Self::Null, Some(owed)) => Err(ProofError::Missing(*owed)),
            (Self::ZkStark(_), _) => Err(ProofError::ZkStarkUnsupported),
            (Self::Attestation(_), None) => Err(ProofError::Unowed),
            (Self::Attestation(found), Some(owed)) if found.key != *owed => {
                Err(ProofError::WrongKey { owed: *owed, found: found.key })
            }
            (Self::Attestation(found), Some(owed)) => {
                match owed.verifies(&attestation_message(cid), &found.signature) {
                    true => Ok(()),
                    false => Err(ProofError::BadSignature(*owed)),
                }
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ProofWire {
    Attestation { key: AttestationKey, signature: String },
    ZkStark { system: String, statement: String, proof: String },
}

impl Serialize for Proof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.clone() {
            Self::Null => serializer.serialize_none(),
            Self::Attestation(Attestation { key, signature }) => {
                ProofWire::Attestation { key, signature: STANDARD.encode(signature) }.serialize(serializer)
            }
            Self::ZkStark(ZkStark { system, statement, proof }) => {
                ProofWire::ZkStark { system, statement, proof }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Proof {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        Ok(match Option::<ProofWire>::deserialize(deserializer)? {
            None => Self::Null,
            Some(ProofWire::Attestation { key, signature }) => Self::Attestation(Attestation {
                key,
                signature: STANDARD
                    .decode(signature)
                    .ok()
                    .and_then(|bytes| bytes.try_into().ok())
                    .ok_or_else(|| D::Error::custom("an Ed25519 signature is 64 bytes in base64"))?,
            }),
            Some(ProofWire::ZkStark { system, statement, proof }) => {
                Self::ZkStark(ZkStark { system, statement, proof })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn public(seed: u8) -> AttestationKey {
        AttestationKey::of(&key(seed).verifying_key())
    }

    #[test]
    fn an_attestation_fits_one_cid_and_one_key() {
        let (cid, other) = (Cid::of_entry(&[b"a"]), Cid::of_entry(&[b"b"]));
        let proof = Proof::Attestation(Attestation::sign(&cid, &key(1)));
        assert_eq!(proof.check(Some(&public(1)), &cid), Ok(()));
        assert_eq!(proof.check(Some(&public(1)), &other), Err(ProofError::BadSignature(public(1))));
        assert_eq!(
            proof.check(Some(&public(2)), &cid),
            Err(ProofError::WrongKey { owed: public(2), found: public(1) })
        );
        assert_eq!(proof.check(None, &cid), Err(ProofError::Unowed));
        assert_eq!(Proof::Null.check(Some(&public(1)), &cid), Err(ProofError::Missing(public(1))));
        assert_eq!(Proof::Null.check(None, &cid), Ok(()));
    }

    #[test]
    fn a_zk_stark_is_typed_and_refused() {
        let text = r#"{"type":"zk_stark","system":"winterfell","statement":"none","proof":"AA=="}"#;
        let proof: Proof = serde_json::from_str(text).unwrap();
        let error = proof.check(None, &Cid::of_entry(&[b"a"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it carries a ZkStark proof, which this version cannot check, so it is not accepted"
        );
    }

    #[test]
    fn unknown_proofs_weak_keys_and_loose_encodings_are_refused() {
        for text in [
            r#"{"type":"trust_me"}"#,
            r#"{"type":"attestation","key":"ed25519:00","signature":""}"#,
            r#"{"type":"zk_stark","system":"x","statement":"x","proof":"x","more":1}"#,
            "true",
        ] {
            assert!(serde_json::from_str::<Proof>(text).is_err(), "{text}");
        }
        let identity_point = format!("ed25519:01{}", "00".repeat(31));
        assert_eq!(identity_point.parse::<AttestationKey>(), Err(NotAKey));
        let proof = Proof::Attestation(Attestation::sign(&Cid::of_entry(&[b"a"]), &key(1)));
        let text = serde_json::to_string(&proof).unwrap();
        assert_eq!(serde_json::from_str::<Proof>(&text).unwrap(), proof);
    }
}
