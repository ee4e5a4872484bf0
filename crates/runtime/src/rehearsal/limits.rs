//! The limits of a script and of a turn that plays one, each with its reason. Anyone who may talk to the agent may write
//! a script, so none of them may cost more than the daemon can spare.

use std::time::Duration;

/// Bytes of one script: thousands of lines of dialogue, and still parsed in milliseconds.
pub(super) const MAX_SCRIPT_BYTES: usize = 64 * 1024;

/// Lines of one script: longer ones are better written with `repeat`.
pub(super) const MAX_LINES: usize = 2_000;

/// How deep `repeat` may nest: deeper ones only reach the limit of the turn sooner.
pub(super) const MAX_REPEAT_DEPTH: usize = 4;

/// How often one `repeat` repeats.
pub(super) const MAX_REPEATS: u32 = 1_000;

/// Calls of one `together`: more than any model asks for at once.
pub(super) const MAX_TOGETHER: usize = 64;

/// Deltas of one `flood`: enough to fill every queue behind the turn.
pub(super) const MAX_FLOOD_DELTAS: u32 = 100_000;

/// Bytes of one delta of a `flood`.
pub(super) const MAX_FLOOD_BYTES: u32 = 64 * 1024;

/// Bytes of one delta of a `flood` that names none: about what a model sends.
pub(super) const DEFAULT_FLOOD_BYTES: u32 = 8;

/// The longest `wait`, and the longest pause of `slowly`.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// How long `deaf` ignores a cancel: longer than a host waits before it ends a turn by force.
pub(super) const DEAF_FOR: Duration = Duration::from_secs(60);

/// Bytes of a text after `$result` and the like are filled in: a line may name a large result many times.
pub(super) const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Events, waits and steps of one turn, together: nested repeats would go on for years without it.
pub(super) const MAX_STEPS: u32 = 200_000;

/// Bytes of output of one turn: beyond this a flood only wears out the disk of the host that records it.
pub(super) const MAX_TURN_BYTES: u64 = 256 * 1024 * 1024;

/// After this many steps the turn yields to other tasks: a flood would keep its thread otherwise.
pub(super) const STEPS_PER_YIELD: u32 = 64;

/// Bytes of one piece of a call's input that `arguments` streams: about what a model sends.
pub(super) const ARGUMENT_PIECE_BYTES: usize = 12;

/// Bytes of a tool's name, a scene's name, or the code of a `fail`: words, not sentences.
pub(super) const MAX_WORD_BYTES: usize = 64;

/// Scene files of one folder: a person has to find theirs in the list.
pub(super) const MAX_SCENE_FILES: usize = 256;

/// Characters of a scene's description: it is one line of a list.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 120;

/// Characters of the user's text that the ordinary answer repeats.
pub(super) const ECHO_CHARS: usize = 500;

/// Characters of each mailbox message that the ordinary answer shows.
pub(super) const MAIL_CHARS: usize = 200;

/// Mailbox messages that the ordinary answer shows; it counts the others.
pub(super) const MAIL_SHOWN: usize = 10;

/// Words of one delta of the ordinary answer.
pub(super) const WORDS_PER_DELTA: usize = 4;
