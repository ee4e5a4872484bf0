//! Checkpoints (C2SP tlog-checkpoint): the signed origin, size and root of a log.

use crate::note::{self, NoteError, NoteSigner, SignError, SignedNote, VerifierKey};
use crate::tree::Hash;

/// The content of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name, which never changes.
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

/// A note whose text is not a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("it is not a checkpoint: {0}")]
    Malformed(&'static str),
    #[error("it is for the log `{found}`, not `{wanted}`")]
    OtherLog { wanted: String, found: String },
}

impl Checkpoint {
    /// The signed note.
    pub fn sign(&self, signer: &dyn NoteSigner) -> Result<String, SignError> {
        note::sign(&format!("{}\n{}\n{}\n", self.origin, self.size, self.root), signer)
    }

    /// Parses a checkpoint without checking a signature.
    pub fn parse(note: &str) -> Result<Self, CheckpointError> {
        let note = SignedNote::parse(note)?;
        let mut lines = note.text.lines();
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(CheckpointError::Malformed("it has fewer than three lines"));
        };
        if origin.is_empty() || lines.any(str::is_empty) {
            return Err(CheckpointError::Malformed("it has an empty line"));
        }
        let plain = !size.starts_with('0') || size == "0";
        let size = size
            .parse()
            .ok()
            .filter(|_| plain && size.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or(CheckpointError::Malformed("its size is not a decimal number"))?;
        let root = Hash::from_base64(root)
            .ok_or(CheckpointError::Malformed("its root is not 32 bytes in base64"))?;
        Ok(Self { origin: origin.to_owned(), size, root })
    }

    /// Parses a checkpoint and checks that `key`, which must have the log's name, signed it.
    pub fn open(note: &str, key: &VerifierKey) -> Result<Self, CheckpointError> {
        let checkpoint = Self::parse(note)?;
        if checkpoint.origin != key.name() {
            return Err(CheckpointError::OtherLog {
                wanted: key.name().to_owned(),
                found: checkpoint.origin,
            });
        }
        SignedNote::parse(note)?.check(key)?;
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Ed25519Signer;

    #[test]
    fn checkpoint_round_trips_with_its_key_and_name() {
        let signer = Ed25519Signer::from_seed("log.example", &[1; 32]).unwrap();
        let checkpoint = Checkpoint { origin: "log.example".into(), size: 7, root: Hash::empty() };
        let note = checkpoint.sign(&signer).unwrap();
        assert!(
            note.starts_with(
                "log.example\n7\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— log.example "
            )
        );
        assert_eq!(Checkpoint::open(&note, signer.verifier_key()), Ok(checkpoint));
        let other = Ed25519Signer::from_seed("other.example", &[1; 32]).unwrap();
        assert!(matches!(
            Checkpoint::open(&note, other.verifier_key()),
            Err(CheckpointError::OtherLog { .. })
        ));
    }

    #[test]
    fn non_canonical_numbers_and_missing_lines_are_refused() {
        let signer = Ed25519Signer::from_seed("x", &[1; 32]).unwrap();
        let root = Hash::empty();
        for text in [
            format!("x\n007\n{root}\n"),
            format!("x\n+7\n{root}\n"),
            format!("x\n-7\n{root}\n"),
            format!("x\n7 \n{root}\n"),
            format!("x\n99999999999999999999\n{root}\n"),
            format!("x\n7\n{}\n", &root.to_string()[..40]),
            "x\n7\n".to_owned(),
            format!("\n7\n{root}\n"),
            format!("x\n7\n{root}\n\nmore\n"),
        ] {
            let note = note::sign(&text, &signer).unwrap();
            assert!(Checkpoint::open(&note, signer.verifier_key()).is_err(), "{text:?}");
        }
    }
}
