//! `tribune agents install` with a fake npm: how npm is called, with which environment, and what happens with its
//! result.

use std::os::unix::fs::PermissionsExt as _;

use crate::fixture::{CliOutput, Place, cli_output};

/// Records how it was called, and installs a package in the version that the file `brings` names.
const NPM: &str = r#"#!/bin/sh
here=$(dirname "$0")
printf '%s\n' "$@" > "$here/arguments"
env > "$here/variables"
[ -e "$here/fails" ] && { echo "npm error 404 Not Found" >&2; exit 1; }
mkdir -p node_modules/@google/gemini-cli
echo "{\"version\":\"$(cat "$here/brings")\"}" > node_modules/@google/gemini-cli/package.json
"#;

/// A home with a fake npm.
struct FakeNpm {
    place: Place,
}

impl FakeNpm {
    fn new(brings: &str) -> Self {
        let shop = Self { place: Place::new() };
        std::fs::create_dir(shop.place.path("bin")).unwrap();
        shop.write("npm", NPM);
        shop.write("brings", brings);
        let everyones = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shop.place.path("bin/npm"), everyones).unwrap();
        shop
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.place.path("bin").join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path("bin").join(name)).unwrap()
    }

    fn install(&self, more: &[&str]) -> CliOutput {
        let mut command = self.place.command(&[&["agents", "install"], more].concat());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.place.path("bin").display()));
        command.env("OPENAI_API_KEY", "fixture-key-0123456789").env("npm_config_loglevel", "error");
        cli_output(command.output().unwrap())
    }

    fn installed(&self) -> Option<String> {
        let package = "programs/gemini/node_modules/@google/gemini-cli/package.json";
        std::fs::read_to_string(self.place.home().join(package)).ok()
    }
}

#[test]
fn install_gets_the_exact_version_without_scripts_or_keys() {
    let shop = FakeNpm::new("0.61.0");
    let planned = shop.install(&["gemini", "--dry-run"]);
    assert!(planned.out.starts_with("would install @google/gemini-cli@0.61.0 with npm"), "{planned:?}");
    assert_eq!(shop.installed(), None, "nothing was done");
    let first = shop.install(&["gemini"]);
    assert!(first.err.contains("installing @google/gemini-cli@0.61.0 with npm into"), "{first:?}");
    assert!(first.out.contains("installed Gemini CLI"), "{first:?}");
    assert!(shop.installed().is_some());
    let arguments = shop.read("arguments");
    assert!(arguments.contains("--ignore-scripts\n"), "{arguments}");
    assert!(arguments.contains("\n--\n@google/gemini-cli@0.61.0\n"), "{arguments}");
    let variables = shop.read("variables");
    assert!(
        !variables.contains("fixture-key") && variables.contains("npm_config_loglevel=error"),
        "{variables}"
    );
    // Again, with an npm that would fail: it is not called.
    shop.write("fails", "");
    let second = shop.install(&["gemini", "--json"]);
    assert!(second.out.contains("\"was_installed\":true"), "{second:?}");
}

#[test]
fn failed_install_changes_nothing() {
    let shop = FakeNpm::new("0.60.0");
    let wrong = shop.install(&["gemini"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(
        wrong.err.contains("npm installed @google/gemini-cli 0.60.0 instead of @google/gemini-cli 0.61.0"),
        "{wrong:?}"
    );
    assert_eq!(shop.installed(), None);
    shop.write("fails", "");
    let failed = shop.install(&["gemini"]);
    assert!(
        failed.err.contains("npm could not install") && failed.err.contains("404 Not Found"),
        "{failed:?}"
    );
    assert_eq!(shop.installed(), None);
    std::fs::remove_file(shop.place.path("bin/npm")).unwrap();
    let mut command = shop.place.command(&["agents", "install", "gemini"]);
    let none = cli_output(command.env("PATH", shop.place.path("bin")).output().unwrap());
    assert!(none.err.contains("`npm` is not on the PATH"), "{none:?}");
}

#[test]
fn unknown_profile_suggests_the_nearest_name() {
    let shop = FakeNpm::new("0.61.0");
    let meant = shop.install(&["gemin"]);
    assert!(meant.err.contains("did you mean `gemini`?"), "{meant:?}");
    let nothing = shop.install(&["generic"]);
    assert!(nothing.err.contains("the profile `generic` names no package"), "{nothing:?}");
}
