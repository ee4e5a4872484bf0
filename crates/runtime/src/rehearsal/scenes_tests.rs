//! The built-in scenes, and those of a folder.

use super::*;
use crate::event::StopReason;
use crate::rehearsal::fakes::TestSession;

/// A folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tribune-scenes-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).unwrap();
    }

    fn refusal(&self) -> String {
        let text = Scenes::builtin_and(&self.0).unwrap_err().to_string();
        text.replace(&format!("{}", self.0.display()), "DIR")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_builtin_scene_is_good_and_described() {
    for (name, source) in BUILTIN {
        assert!(source.starts_with("# "), "{name}");
        parse(source).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let scenes = Scenes::builtin();
    assert_eq!(scenes.names().collect::<Vec<_>>(), BUILTIN.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert!(scenes.descriptions().all(|(_, description)| !description.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn every_builtin_scene_plays() {
    for (name, _) in BUILTIN {
        let stage = TestSession::new();
        let played = stage.turn(&format!("/play {name}")).await;
        match *name {
            "fail" => assert_eq!(played.failed.unwrap().code(), "overloaded"),
            _ => assert_eq!(played.stop(), StopReason::EndTurn, "{name}"),
        }
    }
}

#[test]
fn a_folder_adds_its_scenes() {
    let folder = Folder::new("adds");
    folder.write("mine.scene", "say hi\n# What it does\n");
    folder.write("bare.scene", "say hi");
    folder.write("notes.txt", "not a script");
    folder.write(".mine.scene", "not a script");
    let scenes = Scenes::builtin_and(&folder.0).unwrap();
    let described = |name| scenes.descriptions().find(|(other, _)| *other == name).map(|(_, text)| text);
    assert_eq!((described("mine"), described("bare")), (Some("What it does"), Some("")));
    assert_eq!(scenes.names().count(), BUILTIN.len() + 2);
}

#[test]
fn a_missing_folder_adds_nothing() {
    let scenes = Scenes::builtin_and(Path::new("/nonexistent/scenes")).unwrap();
    assert_eq!(scenes.names().count(), BUILTIN.len());
}

#[test]
fn a_bad_scene_is_named_with_its_place() {
    let folder = Folder::new("bad");
    folder.write("bad.scene", "# Bad\nsay a\n  slwoly 2s b\n");
    assert_eq!(folder.refusal(), "DIR/bad.scene:3:3: `slwoly` is not a command. Did you mean `slowly`?");
}

#[test]
fn a_scene_may_not_shadow_a_builtin() {
    let folder = Folder::new("shadow");
    folder.write("hello.scene", "say hi");
    assert_eq!(
        folder.refusal(),
        "DIR/hello.scene has the name of a scene that comes with the program. Give it another name."
    );
}

#[test]
fn files_have_bounds() {
    let folder = Folder::new("name");
    folder.write("Mine.scene", "say hi");
    assert!(folder.refusal().starts_with("DIR/Mine.scene does not name a scene."));

    let folder = Folder::new("large");
    folder.write("large.scene", "#".repeat(MAX_SCRIPT_BYTES + 1));
    assert!(folder.refusal().starts_with("DIR/large.scene has more than 65536 bytes."));

    let folder = Folder::new("binary");
    folder.write("binary.scene", [0xff, 0xfe]);
    assert!(folder.refusal().starts_with("cannot read DIR/binary.scene: it is not UTF-8 text."));

    let folder = Folder::new("folder");
    fs::create_dir(folder.0.join("folder.scene")).unwrap();
    assert!(folder.refusal().starts_with("cannot read DIR/folder.scene: not a file."));

    let folder = Folder::new("many");
    for number in 0..=MAX_SCENE_FILES {
        folder.write(&format!("scene-{number}.scene"), "say hi");
    }
    assert!(folder.refusal().starts_with("DIR has more than 256 scenes."));
}
