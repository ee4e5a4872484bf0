//! The names of resources in the ledger, under which their labels are stored and found: one function for both.
//!
//! A name with a secret in it is stored with a hash in place of each component, so that the name of a folder stays the
//! beginning of the names of what is in it. What the redactor knows changes with its version and its values, so labels are
//! looked up under every form that a name may have been stored in.

use std::borrow::Cow;
use std::path::Path;

use tribune_ledger::Cid;
use tribune_ledger::cid::Domain;
use tribune_records::outcome::Resource;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_redact::Redactor;
use tribune_runtime::AgentId;

/// Characters of the hash of a component: enough that no two names of a workspace are confused.
const HASH_CHARS: usize = 24;

/// The name of a resource, not redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelName(String);

impl LabelName {
    pub(crate) fn of(ground: &WorkspaceRoots, resource: &Resource) -> Self {
        let (agent, folder) = (ground.agent(), containing_folder(ground, resource));
        Self(match resource {
            Resource::File(path) | Resource::FileIn(_, path) => format!("file:{}/{path}", folder.name()),
            Resource::Workspace | Resource::Folder(_) => format!("workspace:{}", folder.name()),
            Resource::Memory(key) => format!("memory:{agent}/{key}"),
            Resource::MailboxMessage(id) => return Self::message(id),
            Resource::Schedule(id) => schedule(agent, id),
            Resource::Url(host) => format!("host:{host}"),
            Resource::Session(key) => format!("session:{key}"),
        })
    }

    pub(crate) fn message(id: &str) -> Self {
        Self(format!("letter:{id}"))
    }

    /// A name that another part of the daemon made, such as that of a schedule.
    pub(crate) fn from_text(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// The name under which labels are stored.
    pub(super) fn stored(self, redactor: &Redactor) -> String {
        match redactor.redact(&self.0) {
            Cow::Borrowed(_) => self.0,
            Cow::Owned(_) => self.hashed(),
        }
    }

    /// The name with a hash in place of each component, whatever it contains.
    pub(super) fn hashed(&self) -> String {
        let (kind, path) = self.0.split_once(':').unwrap_or(("", &self.0));
        let component = |text: &str| {
            if text.is_empty() {
                return String::new();
            }
            let hash = Cid::from_bytes(Domain::Action.hash(&[b"component", text.as_bytes()])).to_string();
            format!("#{}", &hash.trim_start_matches("b3:")[..HASH_CHARS])
        };
        let components: Vec<String> = path.split('/').map(component).collect();
        format!("{kind}:{}", components.join("/"))
    }

    /// Every name under which labels of the resource may be stored, also by earlier versions.
    pub(crate) fn forms(&self, redactor: &Redactor) -> Vec<String> {
        let mut forms = vec![self.0.clone(), self.hashed()];
        if let Cow::Owned(shown) = redactor.redact(&self.0) {
            let hash = Cid::from_bytes(Domain::Action.hash(&[b"name", self.0.as_bytes()])).to_string();
            forms.push(format!("{shown}#{}", hash.trim_start_matches("b3:")));
        }
        forms
    }

    /// The beginnings of the stored names of everything below this folder.
    pub(super) fn prefixes(&self) -> [String; 2] {
        [format!("{}/", self.0), format!("{}/", self.hashed())]
    }
}

/// The name of a schedule in the ledger. Its id is unique per agent.
pub fn schedule(agent: &AgentId, id: &str) -> String {
    format!("schedule:{agent}/{id}")
}

/// The folder that contains a resource. A resource in an additional directory is named as in a session that works there.
pub(super) fn containing_folder<'g>(
    ground: &'g WorkspaceRoots,
    resource: &Resource,
) -> Cow<'g, WorkspaceRoots> {
    match resource {
        Resource::FileIn(folder, _) | Resource::Folder(folder) => {
            Cow::Owned(WorkspaceRoots::new(ground.agent().clone(), Some(Path::new(&**folder).into())))
        }
        _ => Cow::Borrowed(ground),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_folder_begins_the_names_of_what_is_in_it() {
        let secret = format!("ghp{}{}", "_", "aB3dE5gH7j".repeat(4));
        let redactor = Redactor::new();
        let agent: AgentId = "main".parse().unwrap();
        for folder in ["/srv/app".to_owned(), format!("/srv/{secret}/app")] {
            let ground = WorkspaceRoots::new(agent.clone(), Some(Path::new(&folder).into()));
            let below = LabelName::from_text(format!("file:{folder}")).prefixes();
            for path in ["a.txt".to_owned(), format!("sub/{secret}.txt")] {
                let file = LabelName::of(&ground, &Resource::File(path));
                let stored = file.clone().stored(&redactor);
                assert!(!stored.contains(&secret), "{stored}");
                assert!(below.iter().any(|prefix| stored.starts_with(prefix)), "{stored}");
                assert!(file.forms(&redactor).contains(&stored), "{stored}");
            }
        }
        // Names are found again when the redactor learns or forgets what a secret looks like.
        let knows = Redactor::new().with_exact_values(vec!["quiet-harbour-lantern".to_owned()]);
        let file = LabelName::from_text("file:main/quiet-harbour-lantern.txt");
        let [before, after] = [&redactor, &knows].map(|redactor| file.clone().stored(redactor));
        assert_ne!(before, after);
        for redactor in [&redactor, &knows] {
            let forms = file.forms(redactor);
            assert!(forms.contains(&before) && forms.contains(&after));
        }
    }
}
