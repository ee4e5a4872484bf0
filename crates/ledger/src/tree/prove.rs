//! Inclusion and consistency proofs (RFC 6962 sections 2.1.1 and 2.1.2). Proofs are made from tiles and checked from
//! hashes only.

use super::tile::{self, HEIGHT, TileId, WIDTH};
use super::{Frontier, Hash};

/// Provides the tiles of the tree to the prover.
pub trait TileSource {
    type Error: std::error::Error;

    /// The first `width` hashes of a tile.
    fn tile(&self, id: TileId, width: u64) -> Result<Vec<Hash>, Self::Error>;
}

/// Why a proof cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ProveError<E: std::error::Error> {
    #[error("there is no entry {index} in a log of {size}")]
    NoSuchEntry { index: u64, size: u64 },
    #[error("a log of {new} entries cannot extend one of {old}")]
    Shrunk { old: u64, new: u64 },
    #[error("{0}")]
    Tiles(E),
    #[error("tile {}/{} has fewer hashes than the log's size needs", .0.level, .0.index)]
    ShortTile(TileId),
}

/// The inclusion proof of leaf `index` in the tree of `size`: sibling hashes, lowest first.
pub fn inclusion<S: TileSource>(
    source: &S,
    index: u64,
    size: u64,
) -> Result<Vec<Hash>, ProveError<S::Error>> {
    if index >= size {
        return Err(ProveError::NoSuchEntry { index, size });
    }
    let (mut low, mut high) = (0, size);
    let mut path = Vec::new();
    while high - low > 1 {
        let middle = low + split(high - low);
        if index < middle {
            path.push(range_root(source, middle, high, size)?);
            high = middle;
        } else {
            path.push(range_root(source, low, middle, size)?);
            low = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The consistency proof that the tree of `old` leaves is a prefix of the tree of `new`.
pub fn consistency<S: TileSource>(source: &S, old: u64, new: u64) -> Result<Vec<Hash>, ProveError<S::Error>> {
    if old > new {
        return Err(ProveError::Shrunk { old, new });
    }
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let (mut low, mut high) = (0, new);
    let mut path = Vec::new();
    while old != high {
        let middle = low + split(high - low);
        if old <= middle {
            path.push(range_root(source, middle, high, new)?);
            high = middle;
        } else {
            path.push(range_root(source, low, middle, new)?);
            low = middle;
        }
    }
    // The verifier knows the old root. It needs the last subtree only if that is not the whole old tree.
    if low > 0 {
        path.push(range_root(source, low, high, new)?);
    }
    path.reverse();
    Ok(path)
}

/// The root of the tree when it had `size` leaves.
pub fn root_at<S: TileSource>(source: &S, size: u64) -> Result<Hash, ProveError<S::Error>> {
    range_root(source, 0, size, size)
}

/// The largest power of two smaller than `n`.
const fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// The root over leaves `low..high` of a tree of `size`. The proof algorithms request ranges that are subtrees only.
fn range_root<S: TileSource>(
    source: &S,
    low: u64,
    high: u64,
    size: u64,
) -> Result<Hash, ProveError<S::Error>> {
    let mut at = low;
    let mut frontier = Frontier::default();
    while at < high {
        let aligned = if at == 0 { 63 } else { at.trailing_zeros() };
        let height = aligned.min(63 - (high - at).leading_zeros());
        frontier.push_perfect(perfect(source, at >> height, height, size)?, height);
        at += 1 << height;
    }
    Ok(frontier.root())
}

/// Node `index` at `height`, from the tile that contains it.
fn perfect<S: TileSource>(
    source: &S,
    index: u64,
    height: u32,
    size: u64,
) -> Result<Hash, ProveError<S::Error>> {
    let (level, rest) = (height / HEIGHT, height % HEIGHT);
    let first = index << rest;
    let id = TileId { level, index: first / WIDTH };
    let on_level = size >> (level * HEIGHT);
    let width = (on_level - id.index * WIDTH).min(WIDTH);
    let hashes = source.tile(id, width).map_err(ProveError::Tiles)?;
    let start = (first % WIDTH) as usize;
    let hashes = hashes.get(start..start + (1 << rest)).ok_or(ProveError::ShortTile(id))?;
    Ok(tile::perfect_root(hashes))
}

/// Why a proof is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeProofError {
    #[error("the proof does not lead to the root")]
    WrongRoot,
    #[error("the proof has {found} hashes where the log's size needs {needed}")]
    WrongLength { found: usize, needed: usize },
    #[error("the index is not below the log's size")]
    OutOfRange,
}

/// Checks that `leaf` is at `index` in the tree of `size` with `root`.
pub fn check_inclusion(
    leaf: Hash,
    index: u64,
    size: u64,
    root: &Hash,
    path: &[Hash],
) -> Result<(), TreeProofError> {
    if index >= size {
        return Err(TreeProofError::OutOfRange);
    }
    // The levels where the path of the leaf differs from the right edge, then one hash per 1 bit above.
    let inner = 64 - (index ^ (size - 1)).leading_zeros();
    let needed = (inner + (index >> inner.min(63)).count_ones()) as usize;
    if path.len() != needed {
        return Err(TreeProofError::WrongLength { found: path.len(), needed });
    }
    let (below, border) = path.split_at(inner as usize);
    let node = below.iter().enumerate().fold(leaf, |node, (height, sibling)| {
        if index >> height & 1 == 0 { Hash::node(&node, sibling) } else { Hash::node(sibling, &node) }
    });
    let computed = border.iter().fold(node, |node, sibling| Hash::node(sibling, &node));
    if computed == *root { Ok(()) } else { Err(TreeProofError::WrongRoot) }
}

/// Checks that the tree of `old` leaves with `old_root` is a prefix of the tree of `new` with `new_root`.
pub fn check_consistency(
    old: u64,
    old_root: &Hash,
    new: u64,
    new_root: &Hash,
    path: &[Hash],
) -> Result<(), TreeProofError> {
    if old > new {
        return Err(TreeProofError::OutOfRange);
    }
    if old == 0 || old == new {
        let known = if old == 0 { &Hash::empty() } else { new_root };
        return match path.len() {
            0 if old_root == known => Ok(()),
            0 => Err(TreeProofError::WrongRoot),
            found => Err(TreeProofError::WrongLength { found, needed: 0 }),
        };
    }
    // RFC 9162 section 2.1.4.2.
    let short = TreeProofError::WrongLength { found: path.len(), needed: path.len() + 1 };
    let mut path = path.iter();
    let (mut fn_, mut sn) = (old - 1, new - 1);
    let shift = fn_.trailing_ones();
    (fn_, sn) = (fn_ >> shift, sn >> shift);
    let seed = if old.is_power_of_two() { old_root } else { path.next().ok_or(short)? };
    let (mut fr, mut sr) = (*seed, *seed);
    for hash in path.by_ref() {
        if sn == 0 {
            return Err(TreeProofError::WrongRoot);
        }
        if fn_ & 1 == 1 || fn_ == sn {
            fr = Hash::node(hash, &fr);
            sr = Hash::node(hash, &sr);
            while fn_ & 1 == 0 && fn_ != 0 {
                fn_ >>= 1;
                sn >>= 1;
            }
        } else {
            sr = Hash::node(&sr, hash);
        }
        fn_ >>= 1;
        sn >>= 1;
    }
    if sn != 0 {
        return Err(short);
    }
    if fr == *old_root && sr == *new_root { Ok(()) } else { Err(TreeProofError::WrongRoot) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;

    use super::super::tests::{leaves, merkle_tree_hash};
    use super::*;
    use crate::tree::tile::TileEdge;

    struct MemoryTiles(HashMap<TileId, Vec<Hash>>);

    impl TileSource for MemoryTiles {
        type Error = Infallible;

        fn tile(&self, id: TileId, width: u64) -> Result<Vec<Hash>, Infallible> {
            Ok(self.0[&id][..width as usize].to_vec())
        }
    }

    fn memory(leaves: &[Hash]) -> MemoryTiles {
        let mut edge = TileEdge::default();
        let mut tiles = HashMap::new();
        for leaf in leaves {
            for full in edge.push(*leaf) {
                tiles.insert(full.id, full.hashes);
            }
        }
        for (id, hashes) in edge.partial() {
            tiles.insert(id, hashes.to_vec());
        }
        MemoryTiles(tiles)
    }

    #[test]
    fn inclusion_proofs_of_small_trees_hold_and_no_others() {
        for size in 1..=40_u64 {
            let leaves = leaves(size);
            let (source, root) = (memory(&leaves), merkle_tree_hash(&leaves));
            for index in 0..size {
                let path = inclusion(&source, index, size).unwrap();
                let leaf = leaves[index as usize];
                assert_eq!(check_inclusion(leaf, index, size, &root, &path), Ok(()));
                for other in 0..size {
                    let held = check_inclusion(leaf, other, size, &root, &path).is_ok();
                    assert_eq!(held, other == index, "leaf {index} at {other} of {size}");
                }
                let mut longer = path.clone();
                longer.push(root);
                assert!(check_inclusion(leaf, index, size, &root, &longer).is_err());
                if let Some((_, shorter)) = path.split_last() {
                    assert!(check_inclusion(leaf, index, size, &root, shorter).is_err());
                }
            }
            assert!(inclusion(&source, size, size).is_err());
        }
    }

    #[test]
    fn consistency_proofs_of_small_trees_hold_and_no_others() {
        let leaves = leaves(40);
        let root = |n: u64| merkle_tree_hash(&leaves[..n as usize]);
        for new in 0..=40_u64 {
            let source = memory(&leaves[..new as usize]);
            for old in 0..=new {
                let path = consistency(&source, old, new).unwrap();
                assert_eq!(
                    check_consistency(old, &root(old), new, &root(new), &path),
                    Ok(()),
                    "{old} to {new}"
                );
                for i in 0..path.len() {
                    let mut wrong = path.clone();
                    wrong[i] = Hash::empty();
                    assert!(check_consistency(old, &root(old), new, &root(new), &wrong).is_err());
                    assert!(check_consistency(old, &root(old), new, &root(new), &path[..i]).is_err());
                }
                if old > 0 && old < new {
                    assert!(check_consistency(old, &root(new), new, &root(new), &path).is_err());
                    assert!(check_consistency(old, &root(old), new, &root(old), &path).is_err());
                    let longer = [path.as_slice(), &[root(1)]].concat();
                    assert!(check_consistency(old, &root(old), new, &root(new), &longer).is_err());
                }
            }
            assert!(consistency(&source, new + 1, new).is_err());
        }
    }

    #[test]
    fn proofs_cross_tile_borders() {
        let leaves = leaves(70_000);
        let (source, root) = (memory(&leaves), merkle_tree_hash(&leaves));
        for index in [0, 1, 255, 256, 65_535, 65_536, 69_887, 69_888, 69_999] {
            let path = inclusion(&source, index, 70_000).unwrap();
            assert_eq!(check_inclusion(leaves[index as usize], index, 70_000, &root, &path), Ok(()));
        }
        for old in [1, 255, 256, 257, 65_535, 65_536, 65_537, 69_888, 69_999] {
            let path = consistency(&source, old, 70_000).unwrap();
            let old_root = merkle_tree_hash(&leaves[..old as usize]);
            assert_eq!(check_consistency(old, &old_root, 70_000, &root, &path), Ok(()));
        }
    }
}
