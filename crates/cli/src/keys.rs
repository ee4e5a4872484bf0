//! `tribune keys`.

use clap::Subcommand;
use serde_json::json;
use tribune_client::ClientError;
use tribune_ledger::VerifierKey;
use tribune_storage::clock::SystemClock;
use tribune_storage::home::Home;
use tribune_storage::keys;
use tribune_storage::store::{Reader, Store, StoreOrigin};

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create the first key, and start the ledger with it.
    ///
    /// The secret key goes to keys/ledger.key (mode 0600), the public key to keys/ledger.vkey. The first write to a
    /// home does this by itself; run this command to choose the ledger's name.
    Init {
        /// The permanent name of the ledger, such as example.com/agents [default: derived from the key].
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the public key. People who verify the ledger need it.
    Show,
    /// Replace the key. The ledger records the change, signed with the old key, so that holders of either key can
    /// follow it.
    Rotate,
}

pub(crate) fn run(
    command: KeysCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        KeysCommand::Init { name } => init(home, name.as_deref(), output)?,
        KeysCommand::Show => show(home, output)?,
        KeysCommand::Rotate => rotate(home, output)?,
    }
    Ok(CommandOutcome::Done)
}

fn init(home: &Home, name: Option<&str>, output: &mut Output) -> Result<(), CliError> {
    let store = Store::open_named(home, &SystemClock, name)?;
    let key = Reader::open(home)?.key_in_force()?;
    if store.beginning() == StoreOrigin::Found {
        let message = format!(
            "this home already has a ledger, signed by {key}: replace the key with `tribune keys rotate`"
        );
        return Err(CliError::Input(message));
    }
    store.close();
    let public = keys::public_path(home);
    let value = json!({ "key": key.to_string(), "name": key.name(), "public_key_file": public, "secret_key_file": keys::secret_path(home) });
    output.result(
        |_| format!("{key}\n\nThe ledger `{}` is started. Its public key is also in {}: give it to the people who verify the ledger.", key.name(), public.display()),
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
    // Without a ledger there is no key to rotate.
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
        |_| format!("{key}\n\nEntry {index} ({cid}) records the change. The old secret key is deleted; holders of the old public key can still verify."),
        &value,
    )?;
    Ok(())
}

/// The new key, and the ledger entry that records it.
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
    read().ok_or(CliError::Daemon(ClientError::InvalidMessage))
}
