//! The `proof` of an entry: nothing, a signature, or in a later version a zero-knowledge proof.
//!
//! `proof` is outside the CID, because a signature over the CID cannot be part of it. Therefore the hashed part of an
//! entry names the key that must attest it (`attested_by`), and a comparison of the two detects a removed or replaced
//! proof.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cid::{Cid, hex32, to_hex};

/// The public key of an agent, an approver or the log itself: `ed25519:` and 64 lowercase hex digits.
///
/// Stored compressed. A value of this type is always a valid point.
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

    /// Whether this key made the signature, by the strict rules: no small-order keys, no second encoding.
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
        // A weak key verifies any message; a non-canonical encoding would give one key two texts.
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

/// The proof of an entry. `Null` is JSON `null`.
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

/// A zero-knowledge proof. The type is defined so that the format does not have to change; no verifier accepts one yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZkStark {
    /// Proof system and parameters.
    pub system: String,
    /// The name of the proven statement.
    pub statement: String,
    /// The proof, base64.
    pub proof: String,
}

/// Why a proof is not the one that its entry requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("it requires an attestation by {0} and has none")]
    Missing(AttestationKey),
    #[error("it carries a proof, but `attested_by` names no key")]
    Unexpected,
    #[error("it requires an attestation by {required} but has one by {found}")]
    WrongKey { required: AttestationKey, found: AttestationKey },
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

/// The bytes that an attestation signs. The first line separates these signatures from those over checkpoints and login
/// challenges with the same key.
fn attestation_message(cid: &Cid) -> Vec<u8> {
    format!("tribune/attestation/v1\n{cid}\n").into_bytes()
}

impl Proof {
    /// Checks this proof against the key that the hashed part of the entry names.
    pub fn check(&self, required: Option<&AttestationKey>, cid: &Cid) -> Result<(), ProofError> {
        match (self, required) {
            (Self::Null, None) => Ok(()),
            (Self::Null, Some(required)) => Err(ProofError::Missing(*required)),
            (Self::ZkStark(_), _) => Err(ProofError::ZkStarkUnsupported),
            (Self::Attestation(_), None) => Err(ProofError::Unexpected),
            (Self::Attestation(found), Some(required)) if found.key != *required => {
                Err(ProofError::WrongKey { required: *required, found: found.key })
            }
            (Self::Attestation(found), Some(required)) => {
                match required.verifies(&attestation_message(cid), &found.signature) {
                    true => Ok(()),
                    false => Err(ProofError::BadSignature(*required)),
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
    fn attestation_is_valid_for_one_cid_and_one_key() {
        let (cid, other) = (Cid::of_entry(&[b"a"]), Cid::of_entry(&[b"b"]));
        let proof = Proof::Attestation(Attestation::sign(&cid, &key(1)));
        assert_eq!(proof.check(Some(&public(1)), &cid), Ok(()));
        assert_eq!(proof.check(Some(&public(1)), &other), Err(ProofError::BadSignature(public(1))));
        assert_eq!(
            proof.check(Some(&public(2)), &cid),
            Err(ProofError::WrongKey { required: public(2), found: public(1) })
        );
        assert_eq!(proof.check(None, &cid), Err(ProofError::Unexpected));
        assert_eq!(Proof::Null.check(Some(&public(1)), &cid), Err(ProofError::Missing(public(1))));
        assert_eq!(Proof::Null.check(None, &cid), Ok(()));
    }

    #[test]
    fn zk_stark_is_parsed_and_refused() {
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
