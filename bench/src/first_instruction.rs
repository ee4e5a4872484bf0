//! A program whose first instructions ask for the time and say it: how long a start took is then the same question for whoever
//! started it, whatever a launcher does before or after.

use std::error::Error;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Where its folder is mounted.
pub(crate) const FOLDER: &str = "/first";

pub(crate) const NAME: &str = "instruction";

/// `clock_gettime(CLOCK_MONOTONIC, stack)`, `write(1, stack, 16)`, `exit(0)`.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[
    0x48, 0x83, 0xEC, 0x10, // sub rsp, 16
    0xB8, 0xE4, 0, 0, 0, // mov eax, 228
    0xBF, 0x01, 0, 0, 0, // mov edi, 1
    0x48, 0x89, 0xE6, // mov rsi, rsp
    0x0F, 0x05, // syscall
    0xB8, 0x01, 0, 0, 0, // mov eax, 1
    0xBF, 0x01, 0, 0, 0, // mov edi, 1
    0x48, 0x89, 0xE6, // mov rsi, rsp
    0xBA, 0x10, 0, 0, 0, // mov edx, 16
    0x0F, 0x05, // syscall
    0xB8, 0x3C, 0, 0, 0, // mov eax, 60
    0x31, 0xFF, // xor edi, edi
    0x0F, 0x05, // syscall
];

#[cfg(not(target_arch = "x86_64"))]
const CODE: &[u8] = &[];

/// Writes it into a folder. It is a file of one segment, without a loader, so that nothing runs before it.
pub(crate) fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    const AT: u64 = 0x0040_0000;
    const HEADERS: u64 = 64 + 56;
    if CODE.is_empty() {
        return Err("starts are measured on x86-64 alone, because the program is written for it".into());
    }
    let length = HEADERS + CODE.len() as u64;
    // The file: 64 bits, little-endian, an executable for x86-64 that begins behind its two headers.
    let mut file = vec![0x7F, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0];
    for word in [AT + HEADERS, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [0_u16, 0, 64, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // Its segment: loaded from the beginning, to be read and run.
    file.extend([1_u32, 5].into_iter().flat_map(u32::to_le_bytes));
    for word in [0, AT, AT, length, length, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(CODE);
    let path = folder.join(NAME);
    std::fs::write(&path, file)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// A moment of the clock that the program asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
        Self::of(tv_sec, tv_nsec)
    }

    fn of(seconds: i64, nanos: i64) -> Self {
        Self(Duration::new(seconds.cast_unsigned(), u32::try_from(nanos).unwrap_or(0)))
    }

    /// What the program said.
    pub(crate) fn said(from: &mut impl Read) -> io::Result<Self> {
        let mut words = [[0; 8]; 2];
        from.read_exact(words.as_flattened_mut())?;
        let [seconds, nanos] = words.map(i64::from_le_bytes);
        Ok(Self::of(seconds, nanos))
    }

    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
