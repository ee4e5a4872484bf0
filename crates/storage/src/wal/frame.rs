//! The on-disk format of a frame: the records of one write and one sync, with a checksum. A frame starts on a block of its
//! own, so that writing it does not touch earlier frames.

use super::{UnappliedRecord, WalEpoch};

/// The largest unit that a disk may write atomically.
pub(super) const BLOCK: usize = 4096;

/// The first bytes of every frame, with the version of the format.
const MAGIC: &[u8; 8] = b"tribday2";

/// The first bytes of a frame of any version.
const ANY_MAGIC: &[u8] = b"tribday";

const HEADER: usize = MAGIC.len() + 16 + 8 + 8 + 8 + 4 + 4 + CHECK;

/// Bytes of the checksum of a frame.
const CHECK: usize = 16;

/// The newest record that each database had on disk when the WAL was last rewound. A database that has fewer is older than
/// the WAL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CheckpointBase {
    pub(super) ledger: u64,
    pub(super) vault: u64,
}

/// Begins a frame, with room for this many records and bytes. [`finish`] fills in the header.
pub(super) fn begin(records: usize, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity((HEADER + 8 * records + bytes).next_multiple_of(BLOCK));
    frame.resize(HEADER, 0);
    frame
}

/// Appends a record to the frame.
pub(super) fn push(frame: &mut Vec<u8>, ledger: &[u8], vault: &[u8]) {
    for part in [ledger, vault] {
        frame.extend_from_slice(&length(part).to_le_bytes());
    }
    frame.extend_from_slice(ledger);
    frame.extend_from_slice(vault);
}

/// Fills in the header and pads the last block.
pub(super) fn finish(frame: &mut Vec<u8>, epoch: &WalEpoch, base: CheckpointBase, first: u64, count: u32) {
    let body = length(&frame[HEADER..]);
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&epoch.0);
    for number in [base.ledger, base.vault, first] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&body.to_le_bytes());
    let sum = check(&header, &frame[HEADER..]);
    header.extend_from_slice(&sum);
    frame[..HEADER].copy_from_slice(&header);
    frame.resize(frame.len().next_multiple_of(BLOCK), 0);
}

/// What a scan of the WAL finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScanResult {
    /// Its epoch and checkpoint base; none if it does not begin with a valid frame.
    pub(super) begun: Option<(WalEpoch, CheckpointBase)>,
    /// The records from the start of the file on, in order. Bytes behind the last valid frame were never acknowledged, or
    /// are left from an earlier pass over the file, or are strays.
    pub(super) records: Vec<UnappliedRecord>,
    /// Records of valid frames behind the first invalid one. A stray newer than every record in order proves that a frame
    /// before it was damaged: a frame is written only when the one before it is on disk.
    pub(super) strays: Vec<(WalEpoch, UnappliedRecord)>,
    /// Another version wrote it.
    pub(super) foreign: bool,
    /// Its first block is zero: a clean shutdown, or a new file.
    pub(super) blank: bool,
}

impl ScanResult {
    /// Whether records of `epoch` newer than `known` that `matter` stand behind a damaged frame.
    pub(super) fn has_lost(
        &self,
        epoch: WalEpoch,
        known: u64,
        matter: impl Fn(&UnappliedRecord) -> bool,
    ) -> bool {
        let last = self.records.last().map_or(known, |last| last.number.max(known));
        self.strays.iter().any(|(of, record)| *of == epoch && record.number > last && matter(record))
    }
}

/// Reads the WAL from its bytes.
pub(super) fn scan(bytes: &[u8]) -> ScanResult {
    let front = &bytes[..bytes.len().min(BLOCK)];
    let blank = front.iter().all(|byte| *byte == 0);
    let foreign = front.starts_with(ANY_MAGIC) && !front.starts_with(MAGIC);
    let mut held = ScanResult { blank, foreign, ..ScanResult::default() };
    let mut at = 0;
    while let Some(frame) = bytes.get(at..).and_then(read) {
        let next = held.records.last().map_or(frame.first, |last| last.number + 1);
        let (id, base) = *held.begun.get_or_insert((frame.epoch, frame.base));
        if (id, base, next) != (frame.epoch, frame.base, frame.first) {
            break;
        }
        held.records.extend(frame.records);
        at += frame.size;
    }
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let frame = read(rest);
        at += frame.as_ref().map_or(BLOCK, |frame| frame.size);
        let strays = frame.into_iter().flat_map(|frame| {
            let epoch = frame.epoch;
            frame.records.into_iter().map(move |record| (epoch, record))
        });
        held.strays.extend(strays);
    }
    held
}

struct Frame {
    epoch: WalEpoch,
    base: CheckpointBase,
    first: u64,
    records: Vec<UnappliedRecord>,
    size: usize,
}

fn read(bytes: &[u8]) -> Option<Frame> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (head, sum) = header.split_at(HEADER - CHECK);
    let (magic, head) = head.split_first_chunk::<8>()?;
    if magic != MAGIC {
        return None;
    }
    let (id, head) = head.split_first_chunk::<16>()?;
    let (ledger, head) = head.split_first_chunk::<8>()?;
    let (vault, head) = head.split_first_chunk::<8>()?;
    let (first, head) = head.split_first_chunk::<8>()?;
    let (count, head) = head.split_first_chunk::<4>()?;
    let (size, _) = head.split_first_chunk::<4>()?;
    let body = rest.get(..u32::from_le_bytes(*size) as usize)?;
    if check(&header[..HEADER - CHECK], body) != *sum {
        return None;
    }
    let first = u64::from_le_bytes(*first);
    let mut records = Vec::new();
    let mut left = body;
    for number in (first..).take(u32::from_le_bytes(*count) as usize) {
        let (ledger, after) = left.split_first_chunk::<4>()?;
        let (vault, after) = after.split_first_chunk::<4>()?;
        let (ledger, after) = after.split_at_checked(u32::from_le_bytes(*ledger) as usize)?;
        let (vault, after) = after.split_at_checked(u32::from_le_bytes(*vault) as usize)?;
        records.push(UnappliedRecord { number, ledger: ledger.to_vec(), vault: vault.to_vec() });
        left = after;
    }
    let base = CheckpointBase { ledger: u64::from_le_bytes(*ledger), vault: u64::from_le_bytes(*vault) };
    let size = (HEADER + body.len()).next_multiple_of(BLOCK);
    Some(Frame { epoch: WalEpoch(*id), base, first, records, size })
}

fn check(header: &[u8], body: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    let mut sum = [0; CHECK];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK]);
    sum
}

/// INVARIANT: the contents of a frame are bounded far below four gigabytes.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: WalEpoch = WalEpoch([7; 16]);
    const BASE: CheckpointBase = CheckpointBase { ledger: 3, vault: 4 };

    fn frame(first: u64, records: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut frame = begin(0, 0);
        for (ledger, vault) in records {
            push(&mut frame, ledger, vault);
        }
        finish(&mut frame, &EPOCH, BASE, first, u32::try_from(records.len()).unwrap());
        frame
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        scan(bytes).records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn written_records_are_read_back_in_order() {
        let mut wal = frame(5, &[(b"five", b""), (b"", b"six"), (b"seven", b"too")]);
        assert_eq!(wal.len(), BLOCK);
        wal.extend(frame(8, &[(&[9; 5000], b"")]));
        wal.resize(wal.len() + 3 * BLOCK, 0);
        let ScanResult { begun, records, strays, .. } = scan(&wal);
        assert_eq!((begun, numbers(&wal)), (Some((EPOCH, BASE)), vec![5, 6, 7, 8]));
        assert_eq!(strays, []);
        assert_eq!(
            records[2],
            UnappliedRecord { number: 7, ledger: b"seven".to_vec(), vault: b"too".to_vec() }
        );
        assert_eq!(records[3].ledger, vec![9; 5000]);
    }

    #[test]
    fn a_torn_or_altered_frame_ends_the_scan() {
        let (first, second) = (frame(1, &[(b"one", b"words")]), frame(2, &[(b"two", b"more words")]));
        let whole = [first.clone(), second].concat();
        assert_eq!(numbers(&whole), [1, 2]);
        for at in 0..HEADER + 8 + 13 {
            let mut altered = whole.clone();
            altered[first.len() + at] ^= 1;
            assert_eq!(numbers(&altered), [1], "byte {at} of the second frame");
        }
        for cut in 0..HEADER + 8 + 13 {
            assert_eq!(numbers(&whole[..first.len() + cut]), [1], "cut at {cut}");
        }
    }

    #[test]
    fn frames_of_an_earlier_pass_over_the_file_are_ignored() {
        let earlier = [frame(1, &[(b"one", b"")]), frame(2, &[(b"two", b"")]), frame(3, &[(b"three", b"")])];
        let mut wal = earlier.concat();
        wal[..BLOCK].copy_from_slice(&frame(4, &[(b"four", b"")]));
        assert_eq!(numbers(&wal), [4]);
        let mut others = frame(5, &[(b"five", b"")]);
        others[8] ^= 1;
        wal[BLOCK..2 * BLOCK].copy_from_slice(&others);
        assert_eq!(numbers(&wal), [4], "a frame of another epoch");
    }

    #[test]
    fn a_damaged_frame_before_others_is_distinguished_from_an_unfinished_one() {
        let frames =
            [frame(7, &[(b"seven", b"")]), frame(8, &[(b"eight", b"")]), frame(9, &[(b"", b"nine")])];
        let whole = frames.concat();
        let bad = |place: usize| {
            let mut wal = whole.clone();
            wal[place * BLOCK + HEADER + 9] ^= 1;
            scan(&wal)
        };
        let of_ledger = |record: &UnappliedRecord| !record.ledger.is_empty();
        assert!(!scan(&whole).has_lost(EPOCH, 6, |_| true));
        assert!(bad(0).has_lost(EPOCH, 6, of_ledger), "eight is there and cannot follow");
        assert!(!bad(0).has_lost(EPOCH, 8, of_ledger), "the ledger has it already");
        assert!(bad(0).has_lost(EPOCH, 8, |record| !record.vault.is_empty()));
        assert!(bad(1).has_lost(EPOCH, 6, |_| true));
        assert!(!bad(2).has_lost(EPOCH, 6, |_| true), "the last record may never have been acknowledged");
        assert!(!bad(0).has_lost(WalEpoch([8; 16]), 6, |_| true));
    }

    #[test]
    fn other_bytes_are_an_empty_wal() {
        let blank = ScanResult { blank: true, ..ScanResult::default() };
        assert_eq!(scan(b""), blank);
        assert_eq!(scan(&[0; 3 * BLOCK]), blank);
        assert_eq!(scan(&vec![0xff; 3 * BLOCK]), ScanResult::default());
        assert!(scan(b"tribday1 and its contents").foreign);
    }
}
