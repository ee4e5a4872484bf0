//! What is fixed of a command that an agent runs.

/// The tool that runs commands.
pub const EXEC: &str = "exec";

/// Where commands are looked for. Fixed, so that the program that was approved is the one that is found.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a sandbox mounts the workspace.
pub const WORKSPACE: &str = "/workspace";
