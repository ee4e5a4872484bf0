//! Programs of profiles as they lie on the disk: `programs/ID` in the home folder holds what npm installed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tribune_cli_agents::Profile;
use tribune_storage::home::Home;

/// Where a Node of this machine is looked for: places that every box shows.
const NODE_PLACES: [&str; 2] = ["/usr/local/bin/node", "/usr/bin/node"];

/// The machine, as npm calls it.
pub const ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };

/// What is there of a profile's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// Just what the profile names, or the profile names nothing that could be installed.
    Yes,
    No,
    /// Another version.
    Other(String),
}

/// The folder that a profile's program is installed in.
pub fn program_folder(home: &Home, profile: &Profile) -> PathBuf {
    let shared = profile.install().and_then(|package| package.shared_with.as_deref());
    home.programs().join(shared.unwrap_or(profile.id()))
}

/// Whether a profile's program is there, in the version that it names.
pub fn installed(home: &Home, profile: &Profile) -> Installed {
    match profile.install() {
        None => Installed::Yes,
        Some(package) => match version(&program_folder(home, profile), &package.npm) {
            None => Installed::No,
            Some(version) if version == package.version.as_str() => Installed::Yes,
            Some(version) => Installed::Other(version),
        },
    }
}

/// What to tell whoever needs a program that is not there; nothing if it is.
pub fn missing(home: &Home, profile: &Profile) -> Option<String> {
    let package = profile.install()?;
    let (title, id, npm, wanted) = (profile.title(), profile.id(), &package.npm, &package.version);
    match installed(home, profile) {
        Installed::Yes => None,
        Installed::No => Some(format!(
            "{title} is not installed: `tribune agents install {id}` gets {npm} {wanted} from npm"
        )),
        Installed::Other(version) => Some(format!(
            "{title} is installed in version {version}, and the profile `{id}` wants {wanted}: \
             `tribune agents install {id}` gets {npm} {wanted} from npm"
        )),
    }
}

/// The version of a package that npm installed in a folder.
pub(super) fn version(folder: &Path, npm: &str) -> Option<String> {
    let text = fs::read(folder.join("node_modules").join(npm).join("package.json")).ok()?;
    let package: Value = serde_json::from_slice(&text).ok()?;
    package["version"].as_str().map(str::to_owned)
}

/// The Node that came with a program, beneath its folder.
fn own_node() -> PathBuf {
    Path::new("node_modules").join(format!("node-linux-{ARCH}")).join("bin/node")
}

/// The Node that runs a program: `Ok` beneath the program's folder if it brought one, `Err` one of this machine.
pub fn node(program: &Path) -> Result<PathBuf, PathBuf> {
    let own = own_node();
    if program.join(&own).is_file() {
        return Ok(own);
    }
    Err(system_node().unwrap_or_else(|| PathBuf::from(NODE_PLACES[1])))
}

/// A Node of this machine that a box can run.
pub(super) fn system_node() -> Option<PathBuf> {
    NODE_PLACES.iter().map(PathBuf::from).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profiles;

    #[test]
    fn the_installed_version_is_compared_with_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let profiles = Profiles::built_in().unwrap();
        let profile = profiles.get("gemini").unwrap();
        assert_eq!(
            missing(&home, profile).unwrap(),
            "Gemini CLI is not installed: `tribune agents install gemini` gets @google/gemini-cli 0.61.0 from npm"
        );
        let package = program_folder(&home, profile).join("node_modules/@google/gemini-cli");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("package.json"), "{\"version\":\"0.60.0\"}").unwrap();
        assert_eq!(installed(&home, profile), Installed::Other("0.60.0".into()));
        let said = missing(&home, profile).unwrap();
        assert!(said.contains("in version 0.60.0, and the profile `gemini` wants 0.61.0"), "{said}");
        fs::write(package.join("package.json"), "{\"version\":\"0.61.0\"}").unwrap();
        assert_eq!((installed(&home, profile), missing(&home, profile)), (Installed::Yes, None));
        fs::write(package.join("package.json"), "{").unwrap();
        assert_eq!(installed(&home, profile), Installed::No);
        // Two profiles of one program have it in one place.
        let [acp, own] = ["claude", "claude-code"].map(|id| profiles.get(id).unwrap());
        assert_eq!(program_folder(&home, acp), program_folder(&home, own));
        let package = |profile: &Profile| {
            (profile.install().unwrap().npm.clone(), profile.install().unwrap().version.clone())
        };
        assert_eq!(package(acp), package(own), "or each would take it from the other");
        let generic = profiles.get("generic").unwrap();
        assert_eq!((installed(&home, generic), missing(&home, generic)), (Installed::Yes, None));
    }
}
