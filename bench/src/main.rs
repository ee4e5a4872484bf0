//! Measurements of the ledger, the law, the redactor, the sandbox and the daemon. Run with `cargo run --release -p tribune-bench`, or with names of single ones.
//!
//! Every figure is a ratio to a baseline taken in the same run, or stands beside the goal it is meant to reach. Nothing
//! here asserts: a slow machine is not a broken one. The work goes to a folder below the present one, so that the disk
//! measured is a real one.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it starts what it compares with")]

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

/// What a measurement is called, and what it does.
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
        return agents::play();
    }
    // As the program itself does.
    rustix::thread::disable_transparent_huge_pages(true)?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, home] = wanted.as_slice()
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
    if let Some(unknown) = wanted.iter().find(|name| all.iter().all(|(known, _)| known != name)) {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{unknown}` is not a measurement; there are: {}", names.join(", ")).into());
    }
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run()?;
            println!();
        }
    }
    Ok(())
}
