//! A program whose first instructions read the clock and write the time. So the time to the first instruction is
//! comparable for every launcher, whatever it does before or after.

use std::error::Error;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Where the folder of the program is mounted.
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

/// Writes the program into a folder. It is an ELF file of one segment without a loader, so that nothing runs before it.
pub(crate) fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    const AT: u64 = 0x0040_0000;
    const HEADERS: u64 = 64 + 56;
    if CODE.is_empty() {
        return Err("starts are measured on x86-64 only, because the program is machine code for it".into());
    }
    let length = HEADERS + CODE.len() as u64;
    // ELF header: 64 bits, little-endian, an executable for x86-64 whose entry point follows the two headers.
    let mut file = vec![0x7F, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0];
    for word in [AT + HEADERS, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [0_u16, 0, 64, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // Program header: the whole file, readable and executable.
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

/// A time of the monotonic clock, which the program reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MonotonicTime(Duration);

impl MonotonicTime {
    pub(crate) fn now() -> Self {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
        Self::of(tv_sec, tv_nsec)
    }

    fn of(seconds: i64, nanos: i64) -> Self {
        Self(Duration::new(seconds.cast_unsigned(), u32::try_from(nanos).unwrap_or(0)))
    }

    /// Reads the time that the program wrote.
    pub(crate) fn read_from(source: &mut impl Read) -> io::Result<Self> {
        let mut words = [[0; 8]; 2];
        source.read_exact(words.as_flattened_mut())?;
        let [seconds, nanos] = words.map(i64::from_le_bytes);
        Ok(Self::of(seconds, nanos))
    }

    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
