//! Compares the base prompt with its declared hash and fails the build if they differ: an edit of the prompt must
//! also edit the hash, so that one version of the prompt never means two texts.
#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

use std::fs;

use sha2::{Digest as _, Sha256};

const PROMPT: &str = "prompts/tribune_base_prompt_v2.txt";
const DECLARED: &str = "prompts/tribune_base_prompt_v2.sha256";

fn main() {
    for file in [PROMPT, DECLARED] {
        println!("cargo::rerun-if-changed={file}");
    }
    if let Err(sentence) = check() {
        println!("cargo::error={sentence}");
    }
}

fn check() -> Result<(), String> {
    let read = |file: &str| {
        fs::read(file).map_err(|error| {
            format!("crates/constitution/{file} cannot be read ({error}): restore it from version control")
        })
    };
    let digest = Sha256::digest(read(PROMPT)?);
    let actual: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let declared = read(DECLARED)?;
    if declared.trim_ascii_end() == actual.as_bytes() {
        return Ok(());
    }
    Err(format!(
        "crates/constitution/{PROMPT} has the sha256 {actual}, which crates/constitution/{DECLARED} does not declare: undo the \
         edit, or make a new version of the prompt and declare its hash"
    ))
}
