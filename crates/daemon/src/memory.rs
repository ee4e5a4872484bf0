//! Keeps the memory of an idle daemon small, and its content from other programs.

use std::fs;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Disables transparent huge pages, which would multiply the resident memory of a daemon that is mostly idle. Call it first.
pub fn disable_huge_pages() {
    // Best effort: a failure only costs memory.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Keeps the memory of this process, with its keys, from other programs of its user: no core dumps, and no access through
/// `/proc` or a debugger. Call it before a key is read.
pub fn forbid_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Best effort: both only restrict this process, so the kernel does not refuse.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Drops the resident pages of the program's code and constants, most of which only the start needs. Pages that are used again
/// are loaded from the page cache.
pub fn drop_code_pages() {
    // Best effort: a failure only costs memory.
    let (Ok(maps), Ok(program)) = (fs::read_to_string("/proc/self/smaps"), fs::read_link("/proc/self/exe"))
    else {
        return;
    };
    for (start, length) in program.to_str().map(|program| unwritten(&maps, program)).unwrap_or_default() {
        drop_pages(start, length);
    }
}

/// The mappings of `program` that are identical to its file: address and length of every read-only mapping without a modified
/// page. The dynamic linker writes into some mappings before it makes them read-only.
fn unwritten(maps: &str, program: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut last = None;
    for line in maps.lines() {
        if let Some(bytes) = line.strip_prefix("Anonymous:") {
            found.extend(last.take().filter(|_| bytes.trim() == "0 kB"));
        } else if let Some((range, rest)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
        {
            let is_fixed = ["r--p ", "r-xp "].iter().any(|rights| rest.starts_with(rights));
            let is_own = is_fixed && rest.ends_with(&format!(" {program}"));
            let range = usize::from_str_radix(start, 16).ok().zip(usize::from_str_radix(end, 16).ok());
            last = range.filter(|_| is_own).and_then(|(start, end)| Some((start, end.checked_sub(start)?)));
        }
    }
    found
}

#[expect(unsafe_code, reason = "there is no safe way to advise the kernel about memory")]
fn drop_pages(start: usize, length: usize) {
    let address = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is a private, read-only mapping of the running program's file without a modified page, so the kernel
    // restores every page unchanged from that file, which cannot be written while it runs.
    let _ = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_mappings_are_dropped() {
        let maps = "\
            55d000000000-55d000100000 r--p 00000000 fe:00 7    /usr/bin/tribune\n\
            Rss:                 512 kB\n\
            Anonymous:             0 kB\n\
            55d000100000-55d000300000 r-xp 00100000 fe:00 7    /usr/bin/tribune\n\
            Anonymous:             0 kB\n\
            55d000300000-55d000400000 r--p 00300000 fe:00 7    /usr/bin/tribune\n\
            Anonymous:             4 kB\n\
            55d000400000-55d000500000 rw-p 00400000 fe:00 7    /usr/bin/tribune\n\
            Anonymous:             0 kB\n\
            55d000500000-55d000600000 rwxp 00000000 00:00 0    /usr/bin/tribune\n\
            Anonymous:             0 kB\n\
            7f0000000000-7f0000100000 r-xp 00000000 fe:00 9    /usr/lib/libc.so.6\n\
            Anonymous:             0 kB\n\
            7f0000200000-7f0000300000 r-xp 00000000 00:00 0 \n\
            Anonymous:             0 kB\n\
            nonsense\n";
        let expected = [(0x55d0_0000_0000, 0x10_0000), (0x55d0_0010_0000, 0x20_0000)];
        assert_eq!(unwritten(maps, "/usr/bin/tribune"), expected);
        assert!(unwritten(maps, "tribune").is_empty() && unwritten("", "/usr/bin/tribune").is_empty());
    }

    #[test]
    fn memory_of_the_daemon_cannot_be_dumped() {
        forbid_dumps();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        assert_eq!(rustix::process::getrlimit(Resource::Core).maximum, Some(0));
    }

    #[test]
    fn the_program_still_runs_after_dropping_its_code() {
        drop_code_pages();
        assert!(fs::read_to_string("/proc/self/maps").unwrap().lines().count() > 3);
    }
}
