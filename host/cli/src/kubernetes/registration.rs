//! Determines how webhooks are registered for an installation.

use admittance_fleet::{RegisteredChain, RegisteredWebhook, WebhookRegistration};

use super::{Installation, PreparedInstallation, values::KubernetesVersion};

impl Installation {
    pub(super) fn registration(&self) -> WebhookRegistration {
        WebhookRegistration {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            per_chain: self.per_chain,
            timeout: self.timeout,
            failure_policy: self.failure_policy,
            excluded_namespaces: self.exclude_namespace.clone(),
            includes_kube_system: self.include_kube_system,
            has_match_conditions: self.supports(KubernetesVersion::has_match_conditions),
        }
    }

    /// Returns an error for arguments about webhooks, because the leader takes these settings from the configuration.
    pub(super) fn leave_webhooks_to_the_leader(&self) -> Result<(), &'static str> {
        let registration = WebhookRegistration {
            has_match_conditions: WebhookRegistration::default().has_match_conditions,
            ..self.registration()
        };
        let default = WebhookRegistration {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..WebhookRegistration::default()
        };
        if self.static_pod {
            return Err(
                "--static: the API server reads webhooks from files; remove dialect.kubernetes.webhookConfigurations",
            );
        }
        if registration != default {
            return Err(
                "--per-chain, --timeout, --failure-policy, --exclude-namespace and --include-kube-system: write them in \
                 dialect.kubernetes.webhookConfigurations, which the leader of the Pods reads",
            );
        }
        Ok(())
    }
}

impl PreparedInstallation {
    pub(super) fn registered_webhooks(&self, installation: &Installation) -> Result<Vec<RegisteredWebhook>, String> {
        let mut chains = Vec::new();
        for chain in &self.chains {
            let registered = RegisteredChain::from(chain);
            if let Some(problem) = registered.problem() {
                return Err(format!("{}: {problem}", chain.location));
            }
            chains.push(registered);
        }
        Ok(RegisteredWebhook::for_all_chains(
            &chains,
            &installation.registration(),
            self.configuration.request_timeout,
        ))
    }
}
