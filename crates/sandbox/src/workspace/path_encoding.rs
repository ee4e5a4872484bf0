//! Paths in our own files. A path may hold any byte but NUL; a word holds no blank and no end of line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// A path as a word.
pub(super) fn encode(path: &Path) -> String {
    let mut word = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_graphic() && *byte != b'%' {
            word.push(char::from(*byte));
        } else {
            // A string takes everything.
            let _ = write!(word, "%{byte:02x}");
        }
    }
    word
}

/// The path that a word stands for, if it is one.
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

/// For members with paths as names.
pub(super) fn serialize<S: Serializer>(map: &BTreeMap<PathBuf, i128>, to: S) -> Result<S::Ok, S::Error> {
    map.iter().map(|(path, at)| (encode(path), *at)).collect::<BTreeMap<String, i128>>().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<PathBuf, i128>, D::Error> {
    let map = BTreeMap::<String, i128>::deserialize(from)?;
    let read = |(word, at): (String, i128)| {
        decode(&word).map(|path| (path, at)).ok_or_else(|| serde::de::Error::custom("a path is no word"))
    };
    map.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back() {
        for bytes in [&b""[..], b"a/b", b"a b\n%41", b"\xff\x01/\xc3\xa4"] {
            let whole = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let word = encode(&whole);
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic()), "{word}");
            assert_eq!(decode(&word), Some(whole));
        }
        assert_eq!((decode("%4"), decode("%zz")), (None, None));
    }
}
