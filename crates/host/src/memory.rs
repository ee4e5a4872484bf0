//! A daemon that waits should be small.

use std::fs;

/// Asks for pages of the usual size. Called first: huge ones would give a daemon that mostly waits several times the
/// memory it uses.
pub fn ask_for_small_pages() {
    // Best effort: it costs memory, nothing else.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Lets go of the program's code, most of which only the start needed. What is called again is mapped again, from the page
/// cache.
pub fn let_go_of_code() {
    // Best effort likewise.
    let (Ok(maps), Ok(program)) = (fs::read_to_string("/proc/self/maps"), fs::read_link("/proc/self/exe"))
    else {
        return;
    };
    for (start, length) in program.to_str().map(|program| code(&maps, program)).unwrap_or_default() {
        drop_pages(start, length);
    }
}

/// Where the code of `program` lies: address and length of every mapping that is run and cannot be written.
fn code(maps: &str, program: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let is_code = rest.starts_with("r-xp ") && rest.ends_with(&format!(" {program}"));
        let (start, end) = range.split_once('-').filter(|_| is_code)?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        Some((start, end.checked_sub(start)?))
    };
    maps.lines().filter_map(range).collect()
}

#[expect(unsafe_code, reason = "there is no safe way to advise the kernel about memory")]
fn drop_pages(start: usize, length: usize) {
    let address = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is a private mapping of the running program's file that cannot be written and never was, so the
    // kernel restores every page as it is from that file, which nobody can write while it runs.
    let _ = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_the_program_itself_is_let_go() {
        let maps = "\
            55d000000000-55d000100000 r--p 00000000 fe:00 7    /usr/bin/tribune\n\
            55d000100000-55d000300000 r-xp 00100000 fe:00 7    /usr/bin/tribune\n\
            55d000300000-55d000400000 rw-p 00300000 fe:00 7    /usr/bin/tribune\n\
            55d000500000-55d000600000 rwxp 00000000 00:00 0    /usr/bin/tribune\n\
            7f0000000000-7f0000100000 r-xp 00000000 fe:00 9    /usr/lib/libc.so.6\n\
            7f0000200000-7f0000300000 r-xp 00000000 00:00 0 \n\
            nonsense\n";
        assert_eq!(code(maps, "/usr/bin/tribune"), [(0x55d0_0010_0000, 0x20_0000)]);
        assert!(code(maps, "tribune").is_empty() && code("", "/usr/bin/tribune").is_empty());
    }

    #[test]
    fn a_program_that_let_go_of_its_code_goes_on() {
        let_go_of_code();
        assert!(fs::read_to_string("/proc/self/maps").unwrap().lines().count() > 3);
    }
}
