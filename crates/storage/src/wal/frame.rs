//! How a sheet looks on disk: what was written with one sync. It begins on a block of its own, so that writing it touches
//! nothing that was written before.

use super::{UnappliedRecord, WalEpoch};

/// What a disk writes whole or not at all, at best.
pub(super) const BLOCK: usize = 4096;

/// How every sheet begins.
const MAGIC: &[u8; 8] = b"tribday2";

/// How sheets of other versions begin.
const ANY_MAGIC: &[u8] = b"tribday";

const HEADER: usize = MAGIC.len() + 16 + 8 + 8 + 8 + 4 + 4 + CHECK;

/// Bytes of the sum over a sheet.
const CHECK: usize = 16;

/// The newest record that each side had on disk when the book was begun at its front. A database that has less is older
/// than the book.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CheckpointBase {
    pub(super) ledger: u64,
    pub(super) vault: u64,
}

/// Begins a sheet of so many records with so many bytes; the header is filled in when it is finished.
pub(super) fn begin(records: usize, bytes: usize) -> Vec<u8> {
    let mut sheet = Vec::with_capacity((HEADER + 8 * records + bytes).next_multiple_of(BLOCK));
    sheet.resize(HEADER, 0);
    sheet
}

/// Puts a record on the sheet.
pub(super) fn push(sheet: &mut Vec<u8>, ledger: &[u8], vault: &[u8]) {
    for part in [ledger, vault] {
        sheet.extend_from_slice(&length(part).to_le_bytes());
    }
    sheet.extend_from_slice(ledger);
    sheet.extend_from_slice(vault);
}

/// Fills in the header, and the rest of the last block.
pub(super) fn finish(sheet: &mut Vec<u8>, book: &WalEpoch, base: CheckpointBase, first: u64, count: u32) {
    let body = length(&sheet[HEADER..]);
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&book.0);
    for number in [base.ledger, base.vault, first] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&body.to_le_bytes());
    let sum = check(&header, &sheet[HEADER..]);
    header.extend_from_slice(&sum);
    sheet[..HEADER].copy_from_slice(&header);
    sheet.resize(sheet.len().next_multiple_of(BLOCK), 0);
}

/// What a book holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScanResult {
    /// Whose it is, and since when; none if it does not begin with a whole sheet.
    pub(super) begun: Option<(WalEpoch, CheckpointBase)>,
    /// From its front on, in order. What is behind the last whole sheet was never promised to anyone, or is left from an
    /// earlier use of the same blocks, or is a stray.
    pub(super) records: Vec<UnappliedRecord>,
    /// Whole sheets elsewhere. Those that are newer than everything else tell of one that went bad before them: a sheet is
    /// written when the one before is on disk.
    pub(super) strays: Vec<(WalEpoch, UnappliedRecord)>,
    /// It was written by another version.
    pub(super) foreign: bool,
    /// Nothing is written at its front.
    pub(super) blank: bool,
}

impl ScanResult {
    /// Whether records of `book` behind `known` that `matter` are where they cannot be read from.
    pub(super) fn has_lost(
        &self,
        book: WalEpoch,
        known: u64,
        matter: impl Fn(&UnappliedRecord) -> bool,
    ) -> bool {
        let last = self.records.last().map_or(known, |last| last.number.max(known));
        self.strays.iter().any(|(of, record)| *of == book && record.number > last && matter(record))
    }
}

/// Reads a book.
pub(super) fn scan(book: &[u8]) -> ScanResult {
    let front = &book[..book.len().min(BLOCK)];
    let blank = front.iter().all(|byte| *byte == 0);
    let foreign = front.starts_with(ANY_MAGIC) && !front.starts_with(MAGIC);
    let mut held = ScanResult { blank, foreign, ..ScanResult::default() };
    let mut at = 0;
    while let Some(sheet) = book.get(at..).and_then(read) {
        let next = held.records.last().map_or(sheet.first, |last| last.number + 1);
        let (id, base) = *held.begun.get_or_insert((sheet.book, sheet.base));
        if (id, base, next) != (sheet.book, sheet.base, sheet.first) {
            break;
        }
        held.records.extend(sheet.records);
        at += sheet.size;
    }
    while let Some(rest) = book.get(at..).filter(|rest| !rest.is_empty()) {
        let sheet = read(rest);
        at += sheet.as_ref().map_or(BLOCK, |sheet| sheet.size);
        let strays = sheet.into_iter().flat_map(|sheet| {
            let book = sheet.book;
            sheet.records.into_iter().map(move |record| (book, record))
        });
        held.strays.extend(strays);
    }
    held
}

struct Frame {
    book: WalEpoch,
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
    Some(Frame { book: WalEpoch(*id), base, first, records, size })
}

fn check(header: &[u8], body: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    let mut sum = [0; CHECK];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK]);
    sum
}

/// INVARIANT: what is put on a sheet is bounded far below four gigabytes.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOK: WalEpoch = WalEpoch([7; 16]);
    const BASE: CheckpointBase = CheckpointBase { ledger: 3, vault: 4 };

    fn sheet(first: u64, records: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut sheet = begin(0, 0);
        for (ledger, vault) in records {
            push(&mut sheet, ledger, vault);
        }
        finish(&mut sheet, &BOOK, BASE, first, u32::try_from(records.len()).unwrap());
        sheet
    }

    fn numbers(book: &[u8]) -> Vec<u64> {
        scan(book).records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn what_was_written_is_read_again_in_order() {
        let mut book = sheet(5, &[(b"five", b""), (b"", b"six"), (b"seven", b"too")]);
        assert_eq!(book.len(), BLOCK);
        book.extend(sheet(8, &[(&[9; 5000], b"")]));
        book.resize(book.len() + 3 * BLOCK, 0);
        let ScanResult { begun, records, strays, .. } = scan(&book);
        assert_eq!((begun, numbers(&book)), (Some((BOOK, BASE)), vec![5, 6, 7, 8]));
        assert_eq!(strays, []);
        assert_eq!(
            records[2],
            UnappliedRecord { number: 7, ledger: b"seven".to_vec(), vault: b"too".to_vec() }
        );
        assert_eq!(records[3].ledger, vec![9; 5000]);
    }

    #[test]
    fn a_sheet_that_is_torn_or_altered_ends_the_book() {
        let (first, second) = (sheet(1, &[(b"one", b"words")]), sheet(2, &[(b"two", b"more words")]));
        let whole = [first.clone(), second].concat();
        assert_eq!(numbers(&whole), [1, 2]);
        for at in 0..HEADER + 8 + 13 {
            let mut altered = whole.clone();
            altered[first.len() + at] ^= 1;
            assert_eq!(numbers(&altered), [1], "byte {at} of the second sheet");
        }
        for cut in 0..HEADER + 8 + 13 {
            assert_eq!(numbers(&whole[..first.len() + cut]), [1], "cut at {cut}");
        }
    }

    #[test]
    fn what_an_earlier_use_of_the_blocks_left_is_not_taken_for_more() {
        let earlier = [sheet(1, &[(b"one", b"")]), sheet(2, &[(b"two", b"")]), sheet(3, &[(b"three", b"")])];
        let mut book = earlier.concat();
        book[..BLOCK].copy_from_slice(&sheet(4, &[(b"four", b"")]));
        assert_eq!(numbers(&book), [4]);
        let mut others = sheet(5, &[(b"five", b"")]);
        others[8] ^= 1;
        book[BLOCK..2 * BLOCK].copy_from_slice(&others);
        assert_eq!(numbers(&book), [4], "a sheet of another book");
    }

    #[test]
    fn a_sheet_that_went_bad_before_others_is_told_from_one_that_was_never_finished() {
        let sheets =
            [sheet(7, &[(b"seven", b"")]), sheet(8, &[(b"eight", b"")]), sheet(9, &[(b"", b"nine")])];
        let whole = sheets.concat();
        let bad = |place: usize| {
            let mut book = whole.clone();
            book[place * BLOCK + HEADER + 9] ^= 1;
            scan(&book)
        };
        let of_ledger = |record: &UnappliedRecord| !record.ledger.is_empty();
        assert!(!scan(&whole).has_lost(BOOK, 6, |_| true));
        assert!(bad(0).has_lost(BOOK, 6, of_ledger), "eight is there and cannot follow");
        assert!(!bad(0).has_lost(BOOK, 8, of_ledger), "the ledger has it already");
        assert!(bad(0).has_lost(BOOK, 8, |record| !record.vault.is_empty()));
        assert!(bad(1).has_lost(BOOK, 6, |_| true));
        assert!(
            !bad(2).has_lost(BOOK, 6, |_| true),
            "the last one was not promised, for all that can be told"
        );
        assert!(!bad(0).has_lost(WalEpoch([8; 16]), 6, |_| true));
    }

    #[test]
    fn anything_else_is_an_empty_book() {
        let blank = ScanResult { blank: true, ..ScanResult::default() };
        assert_eq!(scan(b""), blank);
        assert_eq!(scan(&[0; 3 * BLOCK]), blank);
        assert_eq!(scan(&vec![0xff; 3 * BLOCK]), ScanResult::default());
        assert!(scan(b"tribday1 and whatever it had").foreign);
    }
}
