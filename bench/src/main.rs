//! Benchmarks of the ledger, the law, the redactor, the sandbox and the daemon. Run all of them with
//! `cargo run --release -p tribune-bench`, or some of them by name.
//!
//! Every figure is a ratio to a baseline of the same run, or is printed with its goal. Nothing here asserts: a slow
//! machine is not broken. The data is written below `target`, so that the benchmarks use a real disk.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]
#![expect(clippy::disallowed_methods, reason = "it starts the programs it compares with")]

mod acp;
mod admit;
mod agents;
mod append;
mod egress;
mod first_instruction;
mod footprint;
mod growth;
mod log;
mod prove;
mod redact;
mod sandbox;
mod server;
mod streams;
mod turns;
mod verdict;
mod verify;

use std::error::Error;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The name of a benchmark, and the function that runs it.
type Measurement = (&'static str, fn() -> Result<(), Box<dyn Error>>);

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("sandbox-enter") {
        return Ok(tribune_sandbox::enter()?);
    }
    if let (Some("sandbox-bare"), Some(folder)) =
        (std::env::args().nth(1).as_deref(), std::env::args().nth(2))
    {
        return sandbox::bare(folder.as_ref());
    }
    if let (Some("sandbox-fetch"), Some(server)) =
        (std::env::args().nth(1).as_deref(), std::env::args().nth(2))
    {
        return egress::fetch(&server);
    }
    if std::env::args().nth(1).as_deref() == Some(agents::AGENT) {
        return agents::run_fake_agent();
    }
    // As `tribune` does.
    rustix::thread::disable_transparent_huge_pages(true)?;
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, home] = names.as_slice()
        && serve == "serve"
    {
        return server::serve(home);
    }
    let all: [Measurement; 14] = [
        ("append", append::run),
        ("verify", verify::run),
        ("prove", prove::run),
        ("growth", growth::run),
        ("verdict", verdict::run),
        ("admit", admit::run),
        ("redact", redact::run),
        ("sandbox", sandbox::run),
        ("egress", egress::run),
        ("streams", streams::run),
        ("turns", turns::run),
        ("acp", acp::run),
        ("agents", agents::run),
        ("footprint", footprint::run),
    ];
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        return Err(format!("unknown benchmark `{unknown}`; choose from: {}", known.join(", ")).into());
    }
    for (name, run) in all {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            run()?;
            println!();
        }
    }
    Ok(())
}
