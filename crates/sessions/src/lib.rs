//! Sessions: one serial queue each, the programs that an operator runs in a sandbox, CLI agents in theirs, and the canaries that
//! try whether the gate holds a backend.

pub mod canary;
pub mod cli_agents;
pub mod run;
pub mod session;
