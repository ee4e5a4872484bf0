//! The box that agents and their commands run in.
//!
//! The host half ([`Launcher`]) re-executes its own program as the entering half ([`enter`]), which builds namespaces, a root
//! of its own, limits, Landlock and seccomp around one program, as the profile says. It needs no other program, no daemon
//! and no rights that an ordinary user has not. A mechanism that is missing is a failure with its cause and its remedy;
//! nothing is left out quietly.
//!
//! What it does not do: decide who may run what (the gate does), speak for the sandbox to the outside (brokers do, over
//! sockets that a profile names), or protect from errors in the kernel.
//!
//! Where to start reading: `enter/mod.rs` for the order of things, `enter/plan.rs` for what is mounted, `enter/filter.rs` for
//! the calls that are refused, `host/launcher.rs` for the other side.

mod dir_entries;
mod enter;
mod host;
mod isolation;
mod self_test;
mod sys;
mod wire;
pub mod workspace;

#[cfg(feature = "bare")]
pub use enter::bare;
#[cfg(feature = "controls")]
pub use enter::enter_without;
pub use enter::{enter, hidden_in};
pub use host::{
    Child, CleanupReport, House, LaunchError, Launcher, Stream, Streams, fresh_user, sweep, sweep_cgroups,
};
pub use isolation::Isolation;
pub use self_test::{SelfTest, SelfTestError, self_test};
