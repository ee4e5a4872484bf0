//! The installed programs of profiles: `programs/ID` in the state folder holds what npm installed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tribune_cli_agents::Profile;
use tribune_storage::home::Home;

/// Paths of a system Node.js that every sandbox can see.
const NODE_PLACES: [&str; 2] = ["/usr/local/bin/node", "/usr/bin/node"];

/// npm's name of the machine architecture.
pub const ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };

/// The installation state of a profile's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// In the version that the profile names, or the profile names no package.
    Yes,
    No,
    /// Another version.
    Other(String),
}

/// The installation folder of a profile's program.
pub fn program_folder(home: &Home, profile: &Profile) -> PathBuf {
    let shared = profile.install().and_then(|package| package.shared_with.as_deref());
    home.programs().join(shared.unwrap_or(profile.id()))
}

/// Whether a profile's program is installed in the version that the profile names.
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

/// An error message if the program is not installed in the right version; `None` if it is.
pub fn missing(home: &Home, profile: &Profile) -> Option<String> {
    let package = profile.install()?;
    let (title, id, npm, wanted) = (profile.title(), profile.id(), &package.npm, &package.version);
    match installed(home, profile) {
        Installed::Yes => None,
        Installed::No => Some(format!(
            "{title} is not installed: `tribune agents install {id}` installs {npm} {wanted} from npm"
        )),
        Installed::Other(version) => Some(format!(
            "{title} is installed in version {version}, but the profile `{id}` needs {wanted}: \
             `tribune agents install {id}` installs {npm} {wanted} from npm"
        )),
    }
}

/// The version of a package in an npm folder.
pub(super) fn version(folder: &Path, npm: &str) -> Option<String> {
    let text = fs::read(folder.join("node_modules").join(npm).join("package.json")).ok()?;
    let package: Value = serde_json::from_slice(&text).ok()?;
    package["version"].as_str().map(str::to_owned)
}

/// Path of the Node.js that is installed with a program, relative to its folder.
fn own_node() -> PathBuf {
    Path::new("node_modules").join(format!("node-linux-{ARCH}")).join("bin/node")
}

/// The Node.js that runs a program: `Ok` with a path below the program's folder if it has its own, `Err` with the system's.
pub fn node(program: &Path) -> Result<PathBuf, PathBuf> {
    let own = own_node();
    if program.join(&own).is_file() {
        return Ok(own);
    }
    Err(system_node().unwrap_or_else(|| PathBuf::from(NODE_PLACES[1])))
}

/// A system Node.js that a sandbox can run.
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
            "Gemini CLI is not installed: `tribune agents install gemini` installs @google/gemini-cli 0.61.0 from npm"
        );
        let package = program_folder(&home, profile).join("node_modules/@google/gemini-cli");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("package.json"), "{\"version\":\"0.60.0\"}").unwrap();
        assert_eq!(installed(&home, profile), Installed::Other("0.60.0".into()));
        let said = missing(&home, profile).unwrap();
        assert!(said.contains("in version 0.60.0, but the profile `gemini` needs 0.61.0"), "{said}");
        fs::write(package.join("package.json"), "{\"version\":\"0.61.0\"}").unwrap();
        assert_eq!((installed(&home, profile), missing(&home, profile)), (Installed::Yes, None));
        fs::write(package.join("package.json"), "{").unwrap();
        assert_eq!(installed(&home, profile), Installed::No);
        // Two profiles of one program share its folder.
        let [acp, own] = ["claude", "claude-code"].map(|id| profiles.get(id).unwrap());
        assert_eq!(program_folder(&home, acp), program_folder(&home, own));
        let package = |profile: &Profile| {
            (profile.install().unwrap().npm.clone(), profile.install().unwrap().version.clone())
        };
        assert_eq!(package(acp), package(own), "profiles that share a folder need the same version");
        let generic = profiles.get("generic").unwrap();
        assert_eq!((installed(&home, generic), missing(&home, generic)), (Installed::Yes, None));
    }
}
