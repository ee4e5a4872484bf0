//! Encodes paths as words without blanks or line ends, for this program's own files. A path may contain any byte but
//! NUL.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// Encodes a path.
pub(super) fn encode(path: &Path) -> String {
    let mut word = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && *byte != b'%' {
            word.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(word, "%{byte:02x}");
        }
    }
    word
}

/// Decodes a word. Returns `None` if it is malformed.
pub(super) fn decode(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut left = word.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        if *first == b'%' {
            let (digits, rest) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            left = rest;
        } else {
            bytes.push(*first);
            left = rest;
        }
    }
    Some(OsString::from_vec(bytes).into())
}

/// For struct fields that map paths.
pub(super) fn serialize<S: Serializer>(map: &BTreeMap<PathBuf, i128>, to: S) -> Result<S::Ok, S::Error> {
    map.iter().map(|(path, at)| (encode(path), *at)).collect::<BTreeMap<String, i128>>().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<PathBuf, i128>, D::Error> {
    let map = BTreeMap::<String, i128>::deserialize(from)?;
    let read = |(word, at): (String, i128)| {
        decode(&word)
            .map(|path| (path, at))
            .ok_or_else(|| serde::de::Error::custom("a path is not encoded correctly"))
    };
    map.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_a_round_trip() {
        for bytes in [&b""[..], b"a/b", b"a b\n%41", b"\xff\x01/\xc3\xa4"] {
            let whole = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let word = encode(&whole);
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic()), "{word}");
            assert_eq!(decode(&word), Some(whole));
        }
        assert_eq!((decode("%4"), decode("%zz")), (None, None));
    }
}
