//! The files that the outcome of a call depends on besides its input: the programs and scripts that a command executes, or
//! the file that a write replaces. The approval covers them, so they are read again just before the call starts.

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tribune_governance::turn::CallDependencies;
use tribune_records::approval::action::{ABSENT, Files};
use tribune_records::outcome::ToolErrorCode;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use super::exec::{CommandView, FileView, WithTree, bind_command};
use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};
use super::{HostTools, edit, exec, write};

/// Maximum bytes of a file that a write replaces; a larger one is not read.
const MAX_TARGET_BYTES: usize = 16 << 20;

/// Maximum bytes of a file whose text is stored with an approval, and of all such files of a call.
const MAX_TEXT_BYTES: u64 = 64 << 10;
const MAX_TEXTS_BYTES: usize = 256 << 10;

/// Stands in place of the hash of a file that is too large to read.
const TOO_LARGE: &str = "too large";

impl HostTools {
    /// The files that the outcome of a call depends on besides its input. Blocks on the disk.
    pub(super) fn dependencies_of(
        &self,
        ground: &WorkspaceRoots,
        call: &ToolCall,
        stop: &CancellationToken,
    ) -> CallDependencies {
        let text = |name: &str| call.input.get(name).and_then(Value::as_str);
        match call.name.as_str() {
            tribune_records::exec::EXEC => {
                let mut found = self.command_files(ground, &call.input, WithTree::Yes, stop);
                found.env = exec::ENV.iter().map(|&name| name.to_owned()).collect();
                found
            }
            write::NAME | edit::NAME => {
                let path = text("path").unwrap_or_default();
                let target = Workspace::open_at(&self.home, &ground.locate(path))
                    .and_then(|workspace| Target::open(&workspace, path, Parents::Find));
                let mut found = CallDependencies::default();
                let hash = match target.and_then(|target| target.read(MAX_TARGET_BYTES)) {
                    Ok((content, _)) => {
                        let hash = blake3::hash(&content).to_hex().to_string();
                        keep(&mut found, path, content);
                        hash
                    }
                    Err(refused) if refused.code == ToolErrorCode::TooLarge => TOO_LARGE.to_owned(),
                    Err(_) => ABSENT.to_owned(),
                };
                found.files.insert(path.to_owned(), hash);
                found
            }
            _ => CallDependencies::default(),
        }
    }

    /// The files of a command that a grant for it is bound to; `None` if what it runs is not known. Blocks on the disk.
    pub(super) fn granted_files_of(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<Files> {
        if call.name != tribune_records::exec::EXEC {
            return Some(Files::default());
        }
        let found = self.command_files(ground, &call.input, WithTree::No, &CancellationToken::new());
        found.not_bound.is_empty().then_some(found.files)
    }

    /// What decides what a command runs.
    fn command_files(
        &self,
        ground: &WorkspaceRoots,
        input: &Value,
        tree: WithTree,
        stop: &CancellationToken,
    ) -> CallDependencies {
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let (line, cwd) = (text("command").unwrap_or_default(), exec::folder(text("cwd")));
        let mut found = CallDependencies { cwd: Some(cwd.to_owned()), ..CallDependencies::default() };
        let view = self.launcher.as_ref().map_or(FileView::Sandbox, |launcher| launcher.view());
        match CommandView::open(&self.home, ground, &self.hidden, view) {
            Ok(view) => bind_command(&mut found, line, cwd, &view, tree, stop),
            Err(refused) => found.not_bound.push(format!("the files of the session: {}", refused.sentence)),
        }
        found
    }
}

/// Stores the text of a file, if it fits.
pub(crate) fn keep(found: &mut CallDependencies, name: &str, content: Vec<u8>) {
    let kept: usize = found.texts.values().map(String::len).sum();
    let fits = content.len() as u64 <= MAX_TEXT_BYTES && kept + content.len() <= MAX_TEXTS_BYTES;
    if let Some(Ok(text)) = fits.then(|| String::from_utf8(content)) {
        found.texts.insert(name.to_owned(), text);
    }
}
