//! `tribune keys`.

use serde_json::json;
use tribune_client::ClientError;
use tribune_ledger::VerifierKey;
use tribune_storage::clock::SystemClock;
use tribune_storage::home::Home;
use tribune_storage::keys;
use tribune_storage::store::{Beginning, Reader, Store};

use crate::args::KeysCommand;
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::Output;

pub(crate) fn run(command: KeysCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    match command {
        KeysCommand::Init { name } => init(home, name.as_deref(), output)?,
        KeysCommand::Show => show(home, output)?,
        KeysCommand::Rotate => rotate(home, output)?,
    }
    Ok(Outcome::Done)
}

fn init(home: &Home, name: Option<&str>, output: &mut Output) -> Result<(), CliError> {
    let store = Store::open_named(home, &SystemClock, name)?;
    let key = Reader::open(home)?.key_in_force()?;
    if store.beginning() == Beginning::Found {
        let message =
            format!("this home has a log already, signed by {key}: `tribune keys rotate` replaces the key");
        return Err(CliError::Input(message));
    }
    store.close();
    let public = keys::public_path(home);
    let value = json!({ "key": key.to_string(), "name": key.name(), "public_key_file": public, "secret_key_file": keys::secret_path(home) });
    output.result(
        |_| format!("{key}\n\nThe log `{}` has begun. Its public key is also in {}: give it to whoever is to verify the log.", key.name(), public.display()),
        &value,
    )?;
    Ok(())
}

fn show(home: &Home, output: &mut Output) -> Result<(), CliError> {
    let key = Reader::open(home)?.key_in_force()?;
    let value =
        json!({ "key": key.to_string(), "name": key.name(), "attestation_key": key.attestation_key() });
    output.result(|_| key.to_string(), &value)?;
    Ok(())
}

fn rotate(home: &Home, output: &mut Output) -> Result<(), CliError> {
    // Without a log there is nothing to tell, and nothing to rotate.
    Reader::open(home)?;
    let rotated = match daemon::is_running(home) {
        Some(_) => rotate_by_daemon(home)?,
        None => {
            let store = Store::open(home, &SystemClock)?;
            let (key, appended) = store.rotate_key(&SystemClock)?;
            store.close();
            Rotated { key, index: appended.index, cid: appended.cid.to_string() }
        }
    };
    let Rotated { key, index, cid } = rotated;
    let value = json!({ "key": key.to_string(), "name": key.name(), "index": index, "cid": cid });
    output.result(
        |_| format!("{key}\n\nEntry {index} ({cid}) tells the log. The old secret is gone; whoever trusts the old key can still verify."),
        &value,
    )?;
    Ok(())
}

/// The new key, and where the log says so.
struct Rotated {
    key: VerifierKey,
    index: u64,
    cid: String,
}

fn rotate_by_daemon(home: &Home) -> Result<Rotated, CliError> {
    let answer = daemon::ask(home, "keys.rotate", &json!({}))?;
    let read = || {
        Some(Rotated {
            key: answer["key"].as_str()?.parse().ok()?,
            index: answer["entry"]["index"].as_u64()?,
            cid: answer["entry"]["cid"].as_str()?.to_owned(),
        })
    };
    read().ok_or(CliError::Daemon(ClientError::Garbled))
}
