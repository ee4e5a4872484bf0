//! The Merkle log: an RFC 6962 SHA-256 tree over CIDs, so that any C2SP tool can read it.
//!
//! [`Frontier`] appends and computes the root; [`tile`] splits the tree into tiles of 256 hashes for storage and
//! publication; [`prove`] makes inclusion and consistency proofs from tiles, and checks them.

pub mod prove;
pub mod tile;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};

use crate::cid::Cid;

/// A node of the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The root of the tree without leaves: SHA-256 of nothing.
    pub fn empty() -> Self {
        Self(Sha256::digest([]).into())
    }

    /// A leaf. Its data is the 32 bytes of a CID.
    pub fn leaf(cid: &Cid) -> Self {
        let mut block = [0; 64];
        block[1..33].copy_from_slice(cid.as_bytes());
        sha256_of(&mut [block], 33)
    }

    /// An inner node.
    pub fn node(left: &Self, right: &Self) -> Self {
        let mut blocks = [[0; 64]; 2];
        blocks[0][0] = 1;
        blocks[0][1..33].copy_from_slice(&left.0);
        blocks[0][33..].copy_from_slice(&right.0[..31]);
        blocks[1][0] = right.0[31];
        sha256_of(&mut blocks, 65)
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads standard base64 of exactly 32 bytes.
    pub fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

/// SHA-256 of the first `length` bytes of `blocks`, which must have space for the padding. Leaves and nodes have fixed
/// lengths, so no general buffer is needed.
fn sha256_of(blocks: &mut [[u8; 64]], length: usize) -> Hash {
    const START: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    blocks[length / 64][length % 64] = 0x80;
    if let Some(last) = blocks.last_mut() {
        last[56..].copy_from_slice(&(length as u64 * 8).to_be_bytes());
    }
    let mut state = START;
    compress256(&mut state, blocks);
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    Hash(hash)
}

/// Base64, as checkpoints and proofs print it.
impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The right edge of a growing tree: the roots of its perfect subtrees, largest first. Appending costs one hash on
/// average and the root at most one per level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends one leaf.
    pub fn push(&mut self, leaf: Hash) {
        self.push_perfect(leaf, 0);
    }

    /// Appends the root of a perfect subtree of 2^`height` leaves. The size must be a multiple of that.
    pub fn push_perfect(&mut self, mut node: Hash, height: u32) {
        debug_assert!(self.size.trailing_zeros() >= height || self.size == 0);
        let mut position = self.size >> height;
        while position & 1 == 1 {
            if let Some(left) = self.peaks.pop() {
                node = Hash::node(&left, &node);
            }
            position >>= 1;
        }
        self.peaks.push(node);
        self.size += 1 << height;
    }

    /// The RFC 6962 root of everything appended so far.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return Hash::empty() };
        peaks.fold(*last, |right, left| Hash::node(left, &right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition in RFC 6962 section 2.1.
    pub(crate) fn merkle_tree_hash(leaves: &[Hash]) -> Hash {
        match leaves.len() {
            0 => Hash::empty(),
            1 => leaves[0],
            n => {
                let k = n.next_power_of_two() / 2;
                Hash::node(&merkle_tree_hash(&leaves[..k]), &merkle_tree_hash(&leaves[k..]))
            }
        }
    }

    pub(crate) fn leaves(n: u64) -> Vec<Hash> {
        (0..n).map(|i| Hash::leaf(&Cid::of_entry(&[&i.to_be_bytes()]))).collect()
    }

    #[test]
    fn frontier_root_equals_the_definition() {
        let leaves = leaves(600);
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root(), Hash::empty());
        for (i, leaf) in leaves.iter().enumerate() {
            frontier.push(*leaf);
            assert_eq!(frontier.root(), merkle_tree_hash(&leaves[..=i]), "size {}", i + 1);
        }
    }

    #[test]
    fn appending_a_subtree_equals_appending_its_leaves() {
        let leaves = leaves(256 + 3);
        let mut by_leaf = Frontier::default();
        leaves.iter().for_each(|leaf| by_leaf.push(*leaf));
        let mut by_tile = Frontier::default();
        by_tile.push_perfect(merkle_tree_hash(&leaves[..256]), 8);
        leaves[256..].iter().for_each(|leaf| by_tile.push(*leaf));
        assert_eq!(by_tile, by_leaf);
    }

    #[test]
    fn leaves_and_nodes_are_plain_sha_256() {
        let cid = Cid::of_entry(&[b"x"]);
        let leaf = Hash::leaf(&cid);
        let plain = |parts: &[&[u8]]| Hash(Sha256::digest(parts.concat()).into());
        assert_eq!(leaf, plain(&[&[0], cid.as_bytes()]));
        assert_eq!(Hash::node(&leaf, &Hash::empty()), plain(&[&[1], &leaf.0, &Hash::empty().0]));
    }

    #[test]
    fn the_empty_root_is_the_published_one() {
        assert_eq!(Hash::empty().to_string(), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
