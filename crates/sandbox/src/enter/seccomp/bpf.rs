//! Compiles the filter to classic BPF, as a binary search over the system call numbers.
//!
//! When it installs a filter, the kernel simulates it once for every system call, so the path length determines the
//! start time.

use seccompiler::{BpfProgram, sock_filter};

/// What happens to a call. A call without an action is allowed.
#[derive(Debug, Clone)]
pub(super) enum SyscallAction {
    /// EPERM, whatever the arguments.
    Deny,
    /// ENOSYS: programs use an older variant.
    NoSys,
    /// EPERM if one of the rules matches.
    DenyIf(Vec<Rule>),
}

/// Matches if all of its tests match.
pub(super) type Rule = Vec<ArgTest>;

/// A test of one argument, by index. The kernel reads only 32 bits of the arguments tested here, and so does the
/// filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgTest {
    /// At least one of these bits is set.
    HasAnyBit(usize, u32),
    Equals(usize, u32),
    Differs(usize, u32),
    /// The argument under the mask, which comes first, equals the value.
    MaskedEquals(usize, u32, u32),
    /// The argument under the mask, which comes first, is another value.
    MaskedDiffers(usize, u32, u32),
}

/// Maximum number of calls that are compared one by one at the end of the search.
const MAX_LEAF_CALLS: usize = 3;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const AUDIT_ARCH: u32 = 0xC000_00F3;

const LOAD_NR: sock_filter = op(0x20, 0);
const LOAD_ARCH: sock_filter = op(0x20, 4);
const RET_ALLOW: sock_filter = op(0x06, libc::SECCOMP_RET_ALLOW);
const RET_EPERM: sock_filter = op(0x06, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
const RET_ENOSYS: sock_filter = op(0x06, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned());
const RET_KILL: sock_filter = op(0x06, libc::SECCOMP_RET_KILL_PROCESS);

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips the next instruction if the accumulator does not equal the value.
const fn skip_if_not_equal(value: u32) -> sock_filter {
    sock_filter { code: 0x15, jt: 0, jf: 1, k: value }
}

/// Skips the next instruction if the accumulator equals the value.
const fn skip_if_equal(value: u32) -> sock_filter {
    sock_filter { code: 0x15, jt: 1, jf: 0, k: value }
}

/// Skips the next instruction if the accumulator is below the value.
const fn skip_if_below(value: u32) -> sock_filter {
    sock_filter { code: 0x35, jt: 0, jf: 1, k: value }
}

/// Jumps over a part of the program. A part has at most a few hundred instructions.
fn jump_over(part: &[sock_filter]) -> sock_filter {
    op(0x05, u32::try_from(part.len()).unwrap_or(u32::MAX))
}

/// The whole program. `actions` must be sorted by call number.
pub(super) fn program(actions: &[(u32, SyscallAction)]) -> BpfProgram {
    /// On x86-64 every call has a second number with this bit, which the actions do not cover.
    const X32_BIT: u32 = 0x4000_0000;
    // Call numbers are only meaningful for one architecture.
    let mut program = vec![LOAD_ARCH, skip_if_equal(AUDIT_ARCH), RET_KILL, LOAD_NR];
    if cfg!(target_arch = "x86_64") {
        program.extend([skip_if_below(X32_BIT), RET_ENOSYS]);
    }
    program.extend(binary_search(actions));
    program
}

/// INVARIANT: every path through it returns, so control never falls through into the code behind it.
fn binary_search(actions: &[(u32, SyscallAction)]) -> BpfProgram {
    if actions.len() <= MAX_LEAF_CALLS {
        return leaf(actions);
    }
    let (lower, upper) = actions.split_at(actions.len() / 2);
    let first_above = upper.first().map_or(u32::MAX, |(number, _)| *number);
    let (lower, upper) = (binary_search(lower), binary_search(upper));
    let mut program = vec![skip_if_below(first_above), jump_over(&lower)];
    program.extend(lower);
    program.extend(upper);
    program
}

fn leaf(actions: &[(u32, SyscallAction)]) -> BpfProgram {
    let mut program = Vec::new();
    for (number, action) in actions {
        match action {
            SyscallAction::Deny => program.extend([skip_if_not_equal(*number), RET_EPERM]),
            SyscallAction::NoSys => program.extend([skip_if_not_equal(*number), RET_ENOSYS]),
            SyscallAction::DenyIf(rules) => {
                let chain = rule_chain(rules);
                program.extend([skip_if_equal(*number), jump_over(&chain)]);
                program.extend(chain);
            }
        }
    }
    program.push(RET_ALLOW);
    program
}

/// The rules one after the other; a rule ends at its first test that does not match.
fn rule_chain(rules: &[Rule]) -> BpfProgram {
    let mut program = Vec::new();
    for rule in rules {
        let mut rest = vec![RET_EPERM];
        for test in rule.iter().rev() {
            let mut tested = test.instructions(&rest);
            tested.append(&mut rest);
            rest = tested;
        }
        program.extend(rest);
    }
    program.push(RET_ALLOW);
    program
}

impl ArgTest {
    /// Continues with `rest` if the test matches, and jumps over it otherwise.
    fn instructions(self, rest: &[sock_filter]) -> BpfProgram {
        // The offset of an argument in `seccomp_data`; the low half comes first.
        let load = |arg: usize| op(0x20, u32::try_from(16 + 8 * arg).unwrap_or(u32::MAX));
        let behind = jump_over(rest);
        match self {
            Self::HasAnyBit(arg, bits) => {
                vec![load(arg), sock_filter { code: 0x45, jt: 1, jf: 0, k: bits }, behind]
            }
            Self::Equals(arg, value) => vec![load(arg), skip_if_equal(value), behind],
            Self::Differs(arg, value) => vec![load(arg), skip_if_not_equal(value), behind],
            Self::MaskedEquals(arg, mask, value) => {
                vec![load(arg), op(0x54, mask), skip_if_equal(value), behind]
            }
            Self::MaskedDiffers(arg, mask, value) => {
                vec![load(arg), op(0x54, mask), skip_if_not_equal(value), behind]
            }
        }
    }
}
