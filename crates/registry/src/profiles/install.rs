//! Installs a profile's program: with the npm of this machine, in one exact version, into the state folder.
//!
//! Install scripts of packages do not run, because they would run outside of any sandbox, with all rights of the operator. The
//! result replaces the old installation only when it is complete and has the requested version.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tribune_cli_agents::Profile;
use tribune_cli_agents::profile::NpmPackage;
use tribune_sandbox::unsandboxed::in_terminal_group;
use tribune_storage::home::Home;

use super::programs;
use super::programs::{ARCH, Installed, installed, program_folder};

/// The version of Node.js that is installed with a program that needs a newer one than the system has, from npm's
/// `node-linux-*` packages.
const NODE: &str = "24.21.0";

/// Time limit of one npm run.
const NPM_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Length of the tail of npm's output shown in an error, in characters.
const ERROR_TAIL_CHARS: usize = 600;

/// Environment variables that npm inherits: paths, its own settings, proxies and certificates. No others, because they may hold
/// keys.
const PASSED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CONFIG_HOME",
];

/// Prefix of the variables that hold npm's settings.
const SETTINGS: &str = "npm_config_";

/// The steps to install a profile's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Packages with versions, as npm arguments.
    pub packages: Vec<String>,
    pub folder: PathBuf,
    /// Approximate disk usage, if known.
    pub megabytes: Option<u32>,
    /// The current installation.
    pub installed: Installed,
    npm: String,
    version: String,
}

/// Why a program cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(
        "the profile `{0}` names no package: its program must already be on this machine, in a folder that the profile names"
    )]
    Nothing(String),
    #[error(
        "`npm` is not on the PATH, but it is needed to install CLI agents: install Node.js 20 or newer with npm, for example with \
         your system's package manager, and run this again"
    )]
    NoNpm,
    #[error("npm could not install {packages} ({how}): {said}")]
    Npm { packages: String, how: String, said: String },
    #[error("npm installed {found} instead of {wanted}: check npm's settings, and run this again")]
    Wrong { wanted: String, found: String },
    #[error("`{path}` cannot be written ({error}): check the folder's owner and space", path = .path.display())]
    Disk { path: PathBuf, error: io::Error },
}

impl Plan {
    /// Makes the plan for a profile on this machine. Runs the system's Node.js to get its version.
    pub async fn new(home: &Home, profile: &Profile) -> Result<Self, InstallError> {
        let package = profile.install().ok_or_else(|| InstallError::Nothing(profile.id().to_owned()))?;
        let NpmPackage { npm, version, node, megabytes, shared_with: _ } = package;
        let mut packages = vec![format!("{npm}@{version}")];
        if let Some(least) = node
            && node_of_this_machine().await.is_none_or(|major| major < *least)
        {
            packages.push(format!("node-linux-{ARCH}@{NODE}"));
        }
        Ok(Self {
            packages,
            folder: program_folder(home, profile),
            megabytes: *megabytes,
            installed: installed(home, profile),
            npm: npm.clone(),
            version: version.to_string(),
        })
    }

    /// Executes the plan. `variables` is the operator's environment.
    pub async fn carry_out(
        &self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), InstallError> {
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |error| InstallError::Disk { path, error }
        };
        let parent = self.folder.parent().unwrap_or(&self.folder);
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(disk(parent))?;
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let (new, old) = (parent.join(format!(".{name}.new")), parent.join(format!(".{name}.old")));
        // Leftovers of an interrupted installation.
        for folder in [&new, &old] {
            remove(folder).map_err(disk(folder))?;
        }
        DirBuilder::new().mode(0o755).create(&new).map_err(disk(&new))?;
        self.npm(&new, variables).await?;
        let found = programs::version(&new, &self.npm);
        if found.as_deref() != Some(self.version.as_str()) {
            let found =
                found.map_or_else(|| "nothing".to_owned(), |version| format!("{} {version}", self.npm));
            return Err(InstallError::Wrong { wanted: format!("{} {}", self.npm, self.version), found });
        }
        match fs::rename(&self.folder, &old) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(disk(&self.folder)(error)),
        }
        fs::rename(&new, &self.folder).map_err(disk(&self.folder))?;
        remove(&old).map_err(disk(&old))
    }

    async fn npm(
        &self,
        folder: &Path,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), InstallError> {
        let mut npm = Command::from(in_terminal_group("npm"));
        npm.kill_on_drop(true);
        npm.args([
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--prefix",
        ]);
        npm.arg(folder).arg("--").args(&self.packages).current_dir(folder);
        npm.envs(variables.filter(|(name, _)| is_passed(name)));
        npm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let failed = |how: String, said: &str| {
            let said = said.trim();
            let said = if said.is_empty() { "no output; run npm by hand to see why" } else { said };
            InstallError::Npm { packages: self.packages.join(" and "), how, said: said.to_owned() }
        };
        let child = npm.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => InstallError::NoNpm,
            _ => failed(error.to_string(), ""),
        })?;
        let ended = tokio::time::timeout(NPM_TIMEOUT, child.wait_with_output()).await;
        let ended = ended.map_err(|_| failed("it took more than half an hour".to_owned(), ""))?;
        let ended = ended.map_err(|error| failed(error.to_string(), ""))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let skip = said.chars().count().saturating_sub(ERROR_TAIL_CHARS);
        let last: String = said.chars().skip(skip).collect();
        Err(failed(ended.status.to_string(), &last))
    }
}

fn is_passed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    PASSED.iter().any(|known| known.eq_ignore_ascii_case(name))
        || name.to_ascii_lowercase().starts_with(SETTINGS)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The major version of the system's Node.js, if sandboxes can run one.
async fn node_of_this_machine() -> Option<u16> {
    let node = programs::system_node()?;
    let asked = Command::from(in_terminal_group(node.to_str()?))
        .kill_on_drop(true)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let said = tokio::time::timeout(Duration::from_secs(10), asked).await.ok()?.ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}
