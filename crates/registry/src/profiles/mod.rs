//! The profiles of CLI agents: the built-in ones, and those in `profiles/*.json5` of the state folder, which take precedence.
//!
//! All are loaded at the start, so that an invalid profile is reported when the daemon starts, not when it is first used.

mod install;
mod programs;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use tribune_cli_agents::Profile;
use tribune_cli_agents::profile::BUILT_IN;
use tribune_constitution::suggest_name::nearest;

pub use self::install::{InstallError, Plan};
pub use self::programs::{ARCH, Installed, installed, missing, node, program_folder};

use tribune_config::ConfigError;
use tribune_storage::home::Home;

/// Most profiles of one state folder; a person has to find theirs in the list.
const MAX_PROFILES: usize = 256;

/// Profiles by their id.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles(BTreeMap<String, Profile>);

/// Why profiles cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    #[error(transparent)]
    Text(#[from] ConfigError),
    #[error("{file} has the id `{id}`: the id of a profile must equal its file name, so rename one of them")]
    Name { file: String, id: String },
    #[error("`{path}` cannot be read ({error}): check its mode and owner", path = .path.display())]
    Folder { path: PathBuf, error: std::io::Error },
    #[error("`{path}` contains more than {MAX_PROFILES} profiles: remove unused ones", path = .path.display())]
    TooMany { path: PathBuf },
}

impl Profiles {
    /// The built-in profiles.
    pub fn built_in() -> Result<Self, ProfilesError> {
        let mut profiles = Self(BTreeMap::new());
        for (id, text) in BUILT_IN {
            profiles.add(id, &format!("{id}.json5"), text)?;
        }
        Ok(profiles)
    }

    /// The built-in profiles, extended and replaced by those of the state folder.
    pub fn load(home: &Home) -> Result<Self, ProfilesError> {
        let mut profiles = Self::built_in()?;
        let folder = home.profiles();
        let failed = |error| ProfilesError::Folder { path: folder.clone(), error };
        let found = match fs::read_dir(&folder) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(profiles),
            Err(error) => return Err(failed(error)),
        };
        let mut count = 0_usize;
        for file in found {
            let path = file.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "json5") {
                continue;
            }
            count += 1;
            if count > MAX_PROFILES {
                return Err(ProfilesError::TooMany { path: folder });
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(text) = tribune_config::read_text(&path)? {
                profiles.add(&name, &path.to_string_lossy(), &text)?;
            }
        }
        Ok(profiles)
    }

    fn add(&mut self, name: &str, file: &str, text: &str) -> Result<(), ProfilesError> {
        let profile: Profile = tribune_config::parse_as(file, text)?;
        if profile.id() != name {
            return Err(ProfilesError::Name { file: file.to_owned(), id: profile.id().to_owned() });
        }
        self.0.insert(name.to_owned(), profile);
        Ok(())
    }

    pub fn get(&self, id: &str) -> Option<&Profile> {
        self.0.get(id)
    }

    /// The profile of this name, or an error that lists all names.
    pub fn find(&self, id: &str) -> Result<&Profile, String> {
        self.get(id).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let meant =
                nearest(id, &names).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
            format!("there is no profile `{id}`: {meant}the profiles are {}", names.join(", "))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        fs::create_dir(home.profiles()).unwrap();
        for (name, text) in files {
            fs::write(home.profiles().join(name), text).unwrap();
        }
        (folder, home)
    }

    const MINE: &str = "{ id: 'mine', title: 'mine', command: ['acp-agent'] }";

    #[test]
    fn built_in_profiles_parse_and_pin_their_packages() {
        let profiles = Profiles::load(&Home::at("/nonexistent")).unwrap();
        let known: Vec<_> =
            profiles.iter().map(|profile| (profile.id(), profile.install().is_some())).collect();
        assert_eq!(
            known,
            [
                ("claude", true),
                ("claude-code", true),
                ("codex", true),
                ("gemini", true),
                ("generic", false),
                ("opencode", true)
            ]
        );
        for profile in profiles.iter() {
            assert!(profile.model().is_some(), "{}: the model is reached through the daemon", profile.id());
        }
    }

    #[test]
    fn profiles_of_the_state_folder_extend_and_replace_built_in_ones() {
        let other = "{ id: 'claude', title: 'ours', command: ['claude'] }";
        let (_folder, home) =
            home_with(&[("mine.json5", MINE), ("claude.json5", other), ("notes.txt", "nothing")]);
        let profiles = Profiles::load(&home).unwrap();
        assert_eq!(profiles.get("mine").unwrap().title(), "mine");
        assert_eq!(profiles.get("claude").unwrap().title(), "ours");
        assert_eq!(profiles.iter().count(), 7);
    }

    #[test]
    fn invalid_profiles_are_rejected_with_their_position() {
        let said = |name: &str, text: &str| {
            let (folder, home) = home_with(&[(name, text)]);
            let error = Profiles::load(&home).unwrap_err().to_string();
            error.replace(&*folder.path().to_string_lossy(), "HOME")
        };
        assert_eq!(
            said("other.json5", MINE),
            "HOME/profiles/other.json5 has the id `mine`: the id of a profile must equal its file name, so rename one of them"
        );
        assert_eq!(
            said("mine.json5", "{\n  id: 'mine', title: 'x', comand: ['a'],\n}"),
            "HOME/profiles/mine.json5:2:27: unknown key `comand`: did you mean `command`? The keys here are id, title, \
             install, command, resume, protocol, environment, files, system, perServer, keep, hide, instructions, commands, folders, model, capabilities, mode, \
             quirks"
        );
        let twice = said("mine.json5", "{ id: 'mine', id: 'mine' }");
        assert!(twice.ends_with("`id` is given twice: remove one of them"), "{twice}");
        let secret = format!("{{ environment: {{ KEY: 'sk-ant-api03-{}' }} }}", "aB3dE5fG7h".repeat(9));
        let secret = said("mine.json5", &secret);
        assert!(secret.contains("looks like a secret"), "{secret}");
        let missing = said("mine.json5", "{ id: 'mine', title: 'x' }");
        assert!(missing.contains("has no `command`: add it"), "{missing}");
        let word = said("mine.json5", "{ id: 'mine', title: 'x', command: ['{hom}'] }");
        assert!(
            word.contains("`command[0]` holds `{hom}`, which is not a known word: did you mean `{home}`?"),
            "{word}"
        );
    }

    #[test]
    fn an_unknown_profile_gets_the_nearest_name_suggested() {
        let profiles = Profiles::built_in().unwrap();
        assert_eq!(
            profiles.find("cluade").unwrap_err(),
            "there is no profile `cluade`: did you mean `claude`? the profiles are claude, claude-code, codex, gemini, generic, opencode"
        );
    }
}
