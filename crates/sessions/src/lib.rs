//! Sessions and what runs in them: one serial turn queue per session, programs that an operator runs in a sandbox
//! (`tribune run`), CLI agents in their sandboxes, and canaries, which test whether the gate holds a backend.

pub mod canary;
pub mod cli_agents;
pub mod run;
pub mod session;
