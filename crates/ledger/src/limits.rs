//! The limits of the ledger format, each with its reason.

/// The canonical form of one entry. Entries hold hashes, commitments and facts, never content. So the largest
/// legitimate one (the facts of a verdict over a long command) is far smaller.
pub const MAX_ENTRY_BYTES: usize = 256 * 1024;

/// Nesting of JSON inside an entry: more than any facts need, and little enough for the stack of every parser.
pub const MAX_DEPTH: usize = 64;

/// Largest magnitude of an integer. A double cannot represent every larger integer, so implementations would disagree.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// `entity_id`, `target`, `source` and `actor`: session keys are the longest, at about 200 bytes.
pub const MAX_ID_BYTES: usize = 512;

/// Parents of one entry: a summary cites the turns it covers, and compaction covers at most this many.
pub const MAX_PARENTS: usize = 256;

/// Tags on one entry, and the bytes of each.
pub const MAX_TAGS: usize = 32;
/// See [`MAX_TAGS`].
pub const MAX_TAG_BYTES: usize = 128;

/// Recipients of one envelope.
pub const MAX_AUDIENCE: usize = 256;

/// A signed note. C2SP asks for at least 16 signatures; post-quantum ones take 5 kB each.
pub const MAX_NOTE_BYTES: usize = 128 * 1024;
/// Signature lines read from one note.
pub const MAX_NOTE_SIGNATURES: usize = 32;
/// Bytes of a key name, which is also the log's origin line.
pub const MAX_KEY_NAME_BYTES: usize = 255;

/// Hashes in one inclusion proof: the height of a tree of 2^63 leaves.
pub const MAX_PROOF_HASHES: usize = 63;

/// Findings that a verification lists; the first is the one that matters.
pub const MAX_FINDINGS: usize = 16;
