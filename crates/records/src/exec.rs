//! Constants of the commands that agents run.

/// The tool that runs commands.
pub const EXEC: &str = "exec";

/// The search path for programs. It is fixed, so that the program that was approved is the one that runs.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The path at which a sandbox mounts the workspace.
pub const WORKSPACE: &str = "/workspace";
