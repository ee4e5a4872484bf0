//! The names of the members by which agents report a call's input, for `call_report`. A member that is in no list makes a
//! call one that is not understood.

/// Members that agents use for the path of a call.
pub(super) const PATHS: [&str; 9] = [
    "file_path",
    "filePath",
    "filepath",
    "path",
    "absolute_path",
    "abs_path",
    "notebook_path",
    "target_file",
    "dir_path",
];

/// Members for a command, and for the folder that it runs in.
pub(super) const COMMANDS: [&str; 2] = ["command", "cmd"];
pub(super) const FOLDERS: [&str; 5] = ["cwd", "workdir", "working_directory", "directory", "dir_path"];

/// Members beside a command that are not part of what runs.
pub(super) const BESIDE_COMMANDS: [&str; 10] = [
    "description",
    "timeout",
    "timeout_ms",
    "run_in_background",
    "is_background",
    "justification",
    "sandbox_permissions",
    "max_output_tokens",
    "yield_time_ms",
    "dangerouslyDisableSandbox",
];

/// Members beside a path that is read: which piece of it, and how much at once.
pub(super) const BESIDE_READS: [&str; 9] =
    ["offset", "limit", "start_line", "end_line", "line", "pages", "allow_large", "encoding", "description"];

/// Members for a search query, and those beside it that lead nowhere else.
pub(super) const QUERIES: [&str; 4] = ["pattern", "query", "q", "regex"];
pub(super) const BESIDE_QUERIES: [&str; 24] = [
    "include",
    "include_pattern",
    "exclude",
    "exclude_pattern",
    "glob",
    "type",
    "case_sensitive",
    "ignore_case",
    "multiline",
    "output_mode",
    "names_only",
    "respect_git_ignore",
    "respect_gemini_ignore",
    "max_matches_per_file",
    "total_max_matches",
    "head_limit",
    "limit",
    "offset",
    "context",
    "-A",
    "-B",
    "-C",
    "-i",
    "-n",
];

/// Members for the content of a file, for the text that is replaced and its replacement, and for a replacement
/// everywhere.
pub(super) const CONTENTS: [&str; 2] = ["content", "file_text"];
pub(super) const OLD: [&str; 2] = ["old_string", "oldString"];
pub(super) const NEW: [&str; 2] = ["new_string", "newString"];
pub(super) const EVERYWHERE: [&str; 2] = ["replace_all", "replaceAll"];

/// The change once more, as a patch.
pub(super) const PATCH: &str = "diff";

/// Members for the source and the target of a move.
pub(super) const MOVES: [(&str, &str); 5] = [
    ("source", "destination"),
    ("from", "to"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
    ("path", "destination"),
];

/// Members beside an address that do not change the request.
pub(super) const BESIDE_ADDRESSES: [&str; 7] =
    ["url", "uri", "prompt", "format", "timeout", "offset", "description"];

/// Members beside a web query.
pub(super) const BESIDE_WEB_QUERIES: [&str; 4] =
    ["query", "allowed_domains", "blocked_domains", "description"];

/// Fields of a report that are added to the input of a call that is not understood.
pub(super) const BESIDE_OWN: [&str; 3] = ["_kind", "_locations", "_content"];
