//! Step `secrets` of the policy stage: the tokens of the home, the model providers with their keys, and the redactor that knows
//! both.

use std::path::PathBuf;
use std::sync::Arc;

use tribune_config::{Config, RedactConfig};
use tribune_governance::models::{Env, Providers, process_env};
use tribune_providers::RequestTimeouts;
use tribune_redact::Redactor;
use tribune_storage::home::Home;

use crate::start_error::StartError;
use crate::token_files;

/// The secrets of the daemon, and what removes them from texts.
pub(crate) struct Secrets {
    pub(crate) token: String,
    pub(crate) guest_token: String,
    pub(crate) token_path: PathBuf,
    pub(crate) providers: Arc<Providers>,
    pub(crate) redactor: Arc<Redactor>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Loads the secrets. Without `env`, API keys come from the environment of the process.
    pub(super) fn load(
        home: &Home,
        config: &Config,
        env: Option<Env>,
        timeouts: RequestTimeouts,
    ) -> Result<Self, StartError> {
        let token_path = token_files::operator_path(home);
        let token = token_files::load_or_create(&token_path, token_files::OPERATOR)?;
        let guest_token = token_files::load_or_create(&token_files::guest_path(home), token_files::GUEST)?;
        let env = env.unwrap_or_else(process_env);
        let providers = Arc::new(Providers::new(&config.models, &env, timeouts));
        let known = Providers::secrets(&config.models, &env)
            .into_iter()
            .chain([token.clone(), guest_token.clone()])
            .collect();
        let redactor = Arc::new(redactor(&config.redact).with_exact_values(known));
        Ok(Self { token, guest_token, token_path, providers, redactor })
    }
}

/// The redactor for everything that is written or sent: secrets, and what the configuration adds.
fn redactor(config: &RedactConfig) -> Redactor {
    let mut redactor = Redactor::new();
    if config.emails {
        redactor = redactor.with_emails();
    }
    if config.phones {
        redactor = redactor.with_phones();
    }
    redactor
}
