//! The tree as tiles (C2SP tlog-tiles) of 256 hashes of one level each. A full tile never changes, so tiles are the
//! unit of storage, export and download.

use super::{Frontier, Hash};
use crate::cid::Cid;

/// Hashes in a full tile.
pub const WIDTH: u64 = 256;
/// Tree levels a tile spans.
pub const HEIGHT: u32 = 8;

/// The position of a tile in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId {
    /// 0 holds leaf hashes; each hash of a higher level is the root of a full tile below.
    pub level: u32,
    pub index: u64,
}

/// A tile that became full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullTile {
    pub id: TileId,
    /// 256 hashes.
    pub hashes: Vec<Hash>,
    /// Their root, which is one hash of the next level.
    pub root: Hash,
}

/// The partial tiles at the right edge of the tree, one per level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TileEdge {
    size: u64,
    levels: Vec<Vec<Hash>>,
}

impl TileEdge {
    /// The edge of a tree of `size` leaves. `levels[l]` holds the hashes of its partial tile at level `l`.
    /// `None` if the counts do not match the size.
    pub fn restore(size: u64, levels: Vec<Vec<Hash>>) -> Option<Self> {
        let fits = levels.len() == levels_of(size)
            && levels
                .iter()
                .zip(0..)
                .all(|(hashes, level)| hashes.len() as u64 == partial_width(size, level));
        fits.then_some(Self { size, levels })
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf and returns every tile that it fills, lowest level first.
    pub fn push(&mut self, leaf: Hash) -> Vec<FullTile> {
        let mut full = Vec::new();
        let mut hash = leaf;
        self.size += 1;
        for level in 0_u32.. {
            let at = level as usize;
            if at == self.levels.len() {
                self.levels.push(Vec::new());
            }
            self.levels[at].push(hash);
            if (self.levels[at].len() as u64) < WIDTH {
                break;
            }
            let hashes = std::mem::take(&mut self.levels[at]);
            hash = perfect_root(&hashes);
            let span = u64::from(level + 1) * u64::from(HEIGHT);
            full.push(FullTile { id: TileId { level, index: (self.size >> span) - 1 }, hashes, root: hash });
        }
        full
    }

    /// The frontier of the same tree.
    pub fn frontier(&self) -> Frontier {
        let mut frontier = Frontier::default();
        for (level, hashes) in self.levels.iter().enumerate().rev() {
            for hash in hashes {
                frontier.push_perfect(*hash, HEIGHT * level as u32);
            }
        }
        frontier
    }

    /// The partial tiles that are not empty, lowest level first.
    pub fn partial(&self) -> impl Iterator<Item = (TileId, &[Hash])> {
        self.levels.iter().zip(0_u32..).filter(|(hashes, _)| !hashes.is_empty()).map(|(hashes, level)| {
            (TileId { level, index: self.size >> (HEIGHT * (level + 1)).min(63) }, hashes.as_slice())
        })
    }
}

/// Levels with at least one hash in a tree of `size` leaves.
pub fn levels_of(size: u64) -> usize {
    (0..8).take_while(|level| size >> (HEIGHT * level) > 0).count()
}

/// Hashes in the partial tile at the right edge of `level`.
pub fn partial_width(size: u64, level: u32) -> u64 {
    size.checked_shr(HEIGHT * level).unwrap_or(0) % WIDTH
}

/// The root over a power of two of hashes.
pub fn perfect_root(hashes: &[Hash]) -> Hash {
    let mut level = hashes.to_vec();
    while level.len() > 1 {
        for i in 0..level.len() / 2 {
            level[i] = Hash::node(&level[2 * i], &level[2 * i + 1]);
        }
        level.truncate(level.len() / 2);
    }
    level.first().copied().unwrap_or_else(Hash::empty)
}

/// The path of a tile in an export: `tile/0/x001/067`. A partial tile has its width as a suffix.
pub fn path(id: TileId, width: u64) -> String {
    format!("tile/{}/{}", id.level, index_path(id.index, width))
}

/// The path in an export of the bundle with the CIDs of level-0 tile `index`.
pub fn bundle_path(index: u64, width: u64) -> String {
    format!("tile/entries/{}", index_path(index, width))
}

fn index_path(index: u64, width: u64) -> String {
    let mut path = format!("{:03}", index % 1000);
    let mut rest = index / 1000;
    while rest > 0 {
        path = format!("x{:03}/{path}", rest % 1000);
        rest /= 1000;
    }
    if width < WIDTH { format!("{path}.p/{width}") } else { path }
}

/// The bytes of a tile file.
pub fn to_bytes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Reads a tile file; `None` unless it holds whole hashes.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<Hash>> {
    let chunks = bytes.chunks_exact(32);
    if !chunks.remainder().is_empty() {
        return None;
    }
    chunks.map(|chunk| chunk.try_into().ok().map(Hash::from_bytes)).collect()
}

/// The bytes of an entry bundle: each CID after its length, as tlog-tiles requires.
pub fn bundle_bytes(cids: &[Cid]) -> Vec<u8> {
    cids.iter().flat_map(|cid| [0, 32].into_iter().chain(*cid.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaves;
    use super::*;

    #[test]
    fn tile_paths_match_the_specification() {
        let tile = |level, index| TileId { level, index };
        assert_eq!(path(tile(0, 1_234_067), WIDTH), "tile/0/x001/x234/067");
        assert_eq!(path(tile(2, 0), 1), "tile/2/000.p/1");
        assert_eq!(path(tile(1, 999), 17), "tile/1/999.p/17");
        assert_eq!(bundle_path(1000, WIDTH), "tile/entries/x001/000");
    }

    #[test]
    fn tiles_of_70000_leaves_match_the_specification() {
        let mut edge = TileEdge::default();
        let mut full = [0_u64; 3];
        for leaf in leaves(70_000) {
            for tile in edge.push(leaf) {
                assert_eq!(tile.id.index, full[tile.id.level as usize]);
                full[tile.id.level as usize] += 1;
            }
        }
        assert_eq!(full, [273, 1, 0]);
        let partial: Vec<_> = edge.partial().map(|(id, hashes)| (id.level, id.index, hashes.len())).collect();
        assert_eq!(partial, [(0, 273, 112), (1, 1, 17), (2, 0, 1)]);
        assert_eq!(levels_of(70_000), 3);
        assert_eq!([0, 1, 2].map(|level| partial_width(70_000, level)), [112, 17, 1]);
    }

    #[test]
    fn edge_restores_and_agrees_with_the_frontier() {
        let mut edge = TileEdge::default();
        let mut frontier = Frontier::default();
        for leaf in leaves(66_000) {
            edge.push(leaf);
            frontier.push(leaf);
        }
        assert_eq!(edge.frontier(), frontier);
        assert_eq!(TileEdge::restore(edge.size, edge.levels.clone()), Some(edge.clone()));
        assert_eq!(TileEdge::restore(edge.size + 1, edge.levels.clone()), None);
        assert_eq!(TileEdge::restore(0, Vec::new()), Some(TileEdge::default()));
    }
}
