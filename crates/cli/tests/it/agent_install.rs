//! `tribune agents install`, with an npm that is played: what it is asked for, what it is not given, and what becomes of what it
//! brings.

use std::os::unix::fs::PermissionsExt as _;

use crate::fixture::{Place, Said, said};

/// Writes down how it was called, and brings a package in the version that stands in `brings`.
const NPM: &str = r#"#!/bin/sh
here=$(dirname "$0")
printf '%s\n' "$@" > "$here/arguments"
env > "$here/variables"
[ -e "$here/fails" ] && { echo "npm error 404 Not Found" >&2; exit 1; }
mkdir -p node_modules/@google/gemini-cli
echo "{\"version\":\"$(cat "$here/brings")\"}" > node_modules/@google/gemini-cli/package.json
"#;

/// A place with a played npm.
struct Shop {
    place: Place,
}

impl Shop {
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

    fn install(&self, more: &[&str]) -> Said {
        let mut command = self.place.command(&[&["agents", "install"], more].concat());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.place.path("bin").display()));
        command.env("OPENAI_API_KEY", "fixture-key-0123456789").env("npm_config_loglevel", "error");
        said(command.output().unwrap())
    }

    fn installed(&self) -> Option<String> {
        let package = "programs/gemini/node_modules/@google/gemini-cli/package.json";
        std::fs::read_to_string(self.place.home().join(package)).ok()
    }
}

#[test]
fn one_exact_version_is_got_without_scripts_and_without_keys() {
    let shop = Shop::new("0.61.0");
    let planned = shop.install(&["gemini", "--dry-run"]);
    assert!(planned.out.starts_with("would install @google/gemini-cli@0.61.0 with npm"), "{planned:?}");
    assert_eq!(shop.installed(), None, "nothing was done");
    let first = shop.install(&["gemini"]);
    assert!(
        first.err.contains("installing @google/gemini-cli@0.61.0 with npm, without its scripts"),
        "{first:?}"
    );
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
    // Again, with an npm that would fail: it is not asked.
    shop.write("fails", "");
    let second = shop.install(&["gemini", "--json"]);
    assert!(second.out.contains("\"was_installed\":true"), "{second:?}");
}

#[test]
fn what_was_not_asked_for_or_did_not_come_leaves_everything_as_it_was() {
    let shop = Shop::new("0.60.0");
    let wrong = shop.install(&["gemini"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(
        wrong.err.contains(
            "npm installed @google/gemini-cli 0.60.0 where @google/gemini-cli 0.61.0 was asked for"
        ),
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
    let none = said(command.env("PATH", shop.place.path("bin")).output().unwrap());
    assert!(none.err.contains("`npm` is not on the PATH"), "{none:?}");
}

#[test]
fn what_is_not_there_is_told_with_the_nearest_name() {
    let shop = Shop::new("0.61.0");
    let meant = shop.install(&["gemin"]);
    assert!(meant.err.contains("did you mean `gemini`?"), "{meant:?}");
    let nothing = shop.install(&["generic"]);
    assert!(nothing.err.contains("the profile `generic` names no package"), "{nothing:?}");
}
