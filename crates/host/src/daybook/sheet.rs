//! How a sheet looks on disk: what was written with one sync. It begins on a block of its own, so that writing it touches
//! nothing that was written before.

use super::{BookId, Record};

/// What a disk writes whole or not at all, at best.
pub(super) const BLOCK: usize = 4096;

/// How every sheet begins.
const MAGIC: &[u8; 8] = b"tribday1";

const HEADER: usize = MAGIC.len() + 16 + 8 + 4 + 4 + CHECK;

/// Bytes of the sum over a sheet.
const CHECK: usize = 16;

/// Begins a sheet; the header is filled in when it is finished.
pub(super) fn begin() -> Vec<u8> {
    vec![0; HEADER]
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
pub(super) fn finish(sheet: &mut Vec<u8>, book: &BookId, first: u64, count: u32) {
    let body = length(&sheet[HEADER..]);
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&book.0);
    header.extend_from_slice(&first.to_le_bytes());
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&body.to_le_bytes());
    let sum = check(&header, &sheet[HEADER..]);
    header.extend_from_slice(&sum);
    sheet[..HEADER].copy_from_slice(&header);
    sheet.resize(sheet.len().next_multiple_of(BLOCK), 0);
}

/// The records that a book holds, in order, and whose they are. What is behind the last whole sheet was never promised to
/// anyone, or is left from an earlier use of the same blocks.
pub(super) fn scan(book: &[u8]) -> Option<(BookId, Vec<Record>)> {
    let mut found: Option<(BookId, Vec<Record>)> = None;
    let mut rest = book;
    while let Some((id, first, records, size)) = read(rest) {
        match &mut found {
            None => found = Some((id, records)),
            Some((book, known)) => {
                let next = known.last().map_or(first, |last| last.number + 1);
                if *book != id || first != next {
                    break;
                }
                known.extend(records);
            }
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    found
}

fn read(bytes: &[u8]) -> Option<(BookId, u64, Vec<Record>, usize)> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (head, sum) = header.split_at(HEADER - CHECK);
    let (magic, head) = head.split_first_chunk::<8>()?;
    let (id, head) = head.split_first_chunk::<16>()?;
    let (first, head) = head.split_first_chunk::<8>()?;
    let (count, head) = head.split_first_chunk::<4>()?;
    let (size, _) = head.split_first_chunk::<4>()?;
    let body = rest.get(..u32::from_le_bytes(*size) as usize)?;
    if magic != MAGIC || check(&header[..HEADER - CHECK], body) != *sum {
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
        records.push(Record { number, ledger: ledger.to_vec(), vault: vault.to_vec() });
        left = after;
    }
    Some((BookId(*id), first, records, (HEADER + body.len()).next_multiple_of(BLOCK)))
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

    const BOOK: BookId = BookId([7; 16]);

    fn sheet(first: u64, records: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut sheet = begin();
        for (ledger, vault) in records {
            push(&mut sheet, ledger, vault);
        }
        finish(&mut sheet, &BOOK, first, u32::try_from(records.len()).unwrap());
        sheet
    }

    fn numbers(book: &[u8]) -> Vec<u64> {
        scan(book).map_or(Vec::new(), |(_, records)| records.iter().map(|record| record.number).collect())
    }

    #[test]
    fn what_was_written_is_read_again_in_order() {
        let mut book = sheet(5, &[(b"five", b""), (b"", b"six"), (b"seven", b"too")]);
        assert_eq!(book.len(), BLOCK);
        book.extend(sheet(8, &[(&[9; 5000], b"")]));
        book.resize(book.len() + 3 * BLOCK, 0);
        let (id, records) = scan(&book).unwrap();
        assert_eq!((id, numbers(&book)), (BOOK, vec![5, 6, 7, 8]));
        assert_eq!(records[2], Record { number: 7, ledger: b"seven".to_vec(), vault: b"too".to_vec() });
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
    fn anything_else_is_an_empty_book() {
        assert_eq!(scan(b""), None);
        assert_eq!(scan(&[0; 3 * BLOCK]), None);
        assert_eq!(scan(&vec![0xff; 3 * BLOCK]), None);
    }
}
