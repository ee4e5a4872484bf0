//! Fails fast: finds calls that their tool would refuse in any case, before a person is asked about them.

use serde_json::Value;
use tribune_records::outcome::{ToolError, ToolErrorCode};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use super::HostTools;
use super::request::{OnDisk, Request};
use super::send_message::unknown;
use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};

impl HostTools {
    /// Why the tool would refuse this call at once, if it would. Looks at names and not at content, because the call has no
    /// permission to read yet. Blocks on the disk.
    pub(super) fn precheck_of(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<ToolError> {
        let request = match Request::new(call) {
            Ok(request) => request,
            Err(sentence) => return Some(ToolError::new(ToolErrorCode::InvalidInput, sentence)),
        };
        let path = call.input.get("path").and_then(Value::as_str).unwrap_or_default();
        let folder =
            || Workspace::open_at(&self.home, &ground.locate(path))?.hiding(&self.hidden, &self.home, ground);
        match request {
            Request::Absent(absent) => Some(absent.refused()),
            Request::Gateway(gateway) => gateway.check().err(),
            Request::OnDisk(OnDisk::Write(_)) => {
                folder().and_then(|folder| Target::check(&folder, path)).err()
            }
            Request::OnDisk(OnDisk::Edit(_)) => {
                let there = || Target::open(&folder()?, path, Parents::Find)?.there();
                there().err()
            }
            Request::Exec(exec) => exec.folder(&self.home, ground).err(),
            Request::OnDisk(OnDisk::SendMessage(message)) => {
                (!(self.known)(message.to())).then(|| unknown(message.to()))
            }
            Request::OnDisk(OnDisk::Message(message)) => message.check_recipient(&*self.known).err(),
            Request::OnDisk(OnDisk::Read(_) | OnDisk::Search(_) | OnDisk::Memory(_) | OnDisk::Cron(_))
            | Request::WebFetch(_)
            | Request::WebSearch(_)
            | Request::Spawn(_)
            | Request::Mcp(_)
            | Request::Spend(_) => None,
        }
    }
}
