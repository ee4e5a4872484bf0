//! The filter as a program that finds the answer to a call by halves.
//!
//! The kernel walks a filter once for every call there is when it takes it, so the way to each answer is what a start pays for.

use seccompiler::{BpfProgram, sock_filter};

/// What a call gets. One that has no answer is allowed.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// EPERM, whatever its arguments.
    Refused,
    /// ENOSYS: programs use an older sibling.
    NotThere,
    /// EPERM if one of the rules holds.
    Judged(Vec<Rule>),
}

/// Holds if all of its tests do.
pub(super) type Rule = Vec<Test>;

/// Looks at one argument by its place. The kernel reads 32 bits of the arguments that rules look at, and so do they.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// It has one of these bits.
    Any(usize, u32),
    Is(usize, u32),
    Not(usize, u32),
    /// What is left of it under the mask, which comes first, is the value.
    Masked(usize, u32, u32),
}

/// Calls at the end of a way, which are compared one by one.
const CALLS_IN_A_LEAF: usize = 3;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xC000_00F3;

const LOAD_NUMBER: sock_filter = op(0x20, 0);
const LOAD_ARCHITECTURE: sock_filter = op(0x20, 4);
const ALLOWED: sock_filter = op(0x06, libc::SECCOMP_RET_ALLOW);
const REFUSED: sock_filter = op(0x06, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
const NOT_THERE: sock_filter = op(0x06, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned());
const KILLED: sock_filter = op(0x06, libc::SECCOMP_RET_KILL_PROCESS);

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips the next instruction if what was loaded is not this.
const fn unless_skip(value: u32) -> sock_filter {
    sock_filter { code: 0x15, jt: 0, jf: 1, k: value }
}

/// Skips the next instruction if what was loaded is this.
const fn if_skip(value: u32) -> sock_filter {
    sock_filter { code: 0x15, jt: 1, jf: 0, k: value }
}

/// Skips the next instruction if what was loaded is below this.
const fn below_skip(value: u32) -> sock_filter {
    sock_filter { code: 0x35, jt: 0, jf: 1, k: value }
}

/// Goes on behind a part of the program. Its length is that of a list in memory, of a few hundred instructions.
fn past(part: &[sock_filter]) -> sock_filter {
    op(0x05, u32::try_from(part.len()).unwrap_or(u32::MAX))
}

/// The whole program, for answers in the order of their calls.
pub(super) fn program(answers: &[(u32, Answer)]) -> BpfProgram {
    /// On x86-64 each call has a second number, with a bit that the answers do not have.
    const X32_BIT: u32 = 0x4000_0000;
    // Numbers mean something for one architecture alone.
    let mut program = vec![LOAD_ARCHITECTURE, if_skip(ARCHITECTURE), KILLED, LOAD_NUMBER];
    if cfg!(target_arch = "x86_64") {
        program.extend([below_skip(X32_BIT), NOT_THERE]);
    }
    program.extend(half(answers));
    program
}

/// INVARIANT: every way through it ends in an answer, so nothing goes on into what stands behind it.
fn half(answers: &[(u32, Answer)]) -> BpfProgram {
    if answers.len() <= CALLS_IN_A_LEAF {
        return leaf(answers);
    }
    let (lower, upper) = answers.split_at(answers.len() / 2);
    let first_above = upper.first().map_or(u32::MAX, |(number, _)| *number);
    let (lower, upper) = (half(lower), half(upper));
    let mut program = vec![below_skip(first_above), past(&lower)];
    program.extend(lower);
    program.extend(upper);
    program
}

fn leaf(answers: &[(u32, Answer)]) -> BpfProgram {
    let mut program = Vec::new();
    for (number, answer) in answers {
        match answer {
            Answer::Refused => program.extend([unless_skip(*number), REFUSED]),
            Answer::NotThere => program.extend([unless_skip(*number), NOT_THERE]),
            Answer::Judged(rules) => {
                let judge = judge(rules);
                program.extend([if_skip(*number), past(&judge)]);
                program.extend(judge);
            }
        }
    }
    program.push(ALLOWED);
    program
}

/// The rules one after the other, each left at its first test that does not hold.
fn judge(rules: &[Rule]) -> BpfProgram {
    let mut program = Vec::new();
    for rule in rules {
        let mut rest = vec![REFUSED];
        for test in rule.iter().rev() {
            let mut tested = test.instructions(&rest);
            tested.append(&mut rest);
            rest = tested;
        }
        program.extend(rest);
    }
    program.push(ALLOWED);
    program
}

impl Test {
    /// Goes on into `rest` if it holds, and behind it if not.
    fn instructions(self, rest: &[sock_filter]) -> BpfProgram {
        // Where the arguments are in what a filter sees, the low half of each first.
        let load = |arg: usize| op(0x20, u32::try_from(16 + 8 * arg).unwrap_or(u32::MAX));
        let behind = past(rest);
        match self {
            Self::Any(arg, bits) => {
                vec![load(arg), sock_filter { code: 0x45, jt: 1, jf: 0, k: bits }, behind]
            }
            Self::Is(arg, value) => vec![load(arg), if_skip(value), behind],
            Self::Not(arg, value) => vec![load(arg), unless_skip(value), behind],
            Self::Masked(arg, mask, value) => {
                vec![load(arg), op(0x54, mask), if_skip(value), behind]
            }
        }
    }
}
