//! Limits what namespaced chains may use.

use admittance_admission::{ClusterKind, Grants, WebhookTarget, keywords};
use admittance_catalog::signature::{ReferenceSource, SourcePattern};
use admittance_definitions::{ChainDefinition, Mistake, StageDefinition};

/// Says which modules, webhooks and grants namespaced chains in stores may use. Expressions are always allowed. By
/// default, nothing else is: users of a namespace may write such chains to decide about requests in their namespace,
/// but this does not entitle them to make this program load code, call servers or read objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespacedChains {
    /// The modules that the plugins of namespaced chains may use.
    pub modules: Vec<SourcePattern>,
    /// The webhooks that the stages of namespaced chains may call.
    pub webhooks: NamespacedWebhooks,
    /// The grants that the plugins of namespaced chains may have. A plugin with a grant to read objects can read only
    /// objects in the namespace of its chain. One of the grants allows a plugin to review the access of any user. If it
    /// is allowed here, expressions of namespaced chains may use the `authorizer`, too.
    pub allow: Grants,
}

/// The webhooks that namespaced chains may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NamespacedWebhooks {
    /// Namespaced chains may call no webhooks.
    #[default]
    None,
    /// Namespaced chains may call webhooks that are services in their own namespace.
    OwnServices,
    /// Namespaced chains may call webhooks that are services in any namespace, or have a URL.
    Any,
}

keywords!(NamespacedWebhooks, "choice": None = "None", OwnServices = "OwnServices", Any = "Any");

const CONFIG_KEY: &str = "definitions[].kubernetes.namespaced";

impl NamespacedChains {
    /// Returns a mistake for each module, webhook or grant that a namespaced chain uses but may not use. Returns none
    /// for a chain without a namespace, which may use everything.
    pub fn mistakes(&self, chain: &ChainDefinition) -> Vec<Mistake> {
        let Some(namespace) = &chain.namespace else {
            return Vec::new();
        };
        let mut mistakes = Vec::new();
        for (index, stage) in chain.stages.iter().enumerate() {
            for (field_path, description, key) in self.forbidden_uses(stage, namespace) {
                mistakes.push(Mistake {
                    location: stage.location.clone(),
                    path: format!("spec.stages[{index}]{field_path}"),
                    message: format!("{description} is not allowed in a chain of a namespace"),
                    fix: format!(
                        "remove it, or let the operator allow it in `{CONFIG_KEY}.{key}` of the configuration"
                    ),
                });
            }
        }
        mistakes
    }

    /// Returns all that a stage uses although the options do not permit it: the field, a description, and the
    /// configuration key that would permit it.
    fn forbidden_uses(&self, stage: &StageDefinition, namespace: &str) -> Vec<(String, String, &'static str)> {
        let mut forbidden = Vec::new();
        for (is_used, field_path) in [
            (stage.spec.uses_authorizer(), ".matchConditions"),
            (
                stage.hook.cluster_kinds().iter().any(ClusterKind::is_access_review),
                ".cel",
            ),
        ] {
            if is_used && !self.allow.may_check_any_access() {
                let description = format!(
                    "`authorizer`, for which the grant `{}` is needed,",
                    ClusterKind::any_access_review()
                );
                forbidden.push((field_path.to_owned(), description, "allow.cluster"));
            }
        }
        if let Some(server) = stage.hook.server() {
            let is_allowed = match (self.webhooks, server) {
                (NamespacedWebhooks::Any, _) => true,
                (
                    NamespacedWebhooks::OwnServices,
                    WebhookTarget::Service {
                        namespace: service_namespace,
                        ..
                    },
                ) => service_namespace == namespace,
                _ => false,
            };
            if !is_allowed {
                let description = match server {
                    WebhookTarget::Url(url) => format!("the webhook at {url}"),
                    WebhookTarget::Service { namespace, name, .. } => {
                        format!("the webhook at the service {namespace}/{name}")
                    }
                };
                forbidden.push((".webhook".to_owned(), description, "webhooks"));
            }
        }
        for (part, plugin) in stage.plugins() {
            let field_path = part.path;
            // A source that cannot be parsed matches none of the allowed modules, so the plugin is not allowed.
            let source = ReferenceSource::from_reference(&plugin.source).ok();
            let is_allowed = source.is_some_and(|source| self.modules.iter().any(|allowed| allowed.matches(&source)));
            if !is_allowed {
                forbidden.push((
                    format!("{field_path}.source"),
                    format!("the module {}", plugin.source),
                    "modules",
                ));
            }
            if let Some(file) = plugin.read_from.first() {
                let description = format!("the file {}", file.display());
                forbidden.push((field_path.clone(), description, "modules"));
            }
            let grants = plugin.allow.find_grants_beyond(&self.allow).into_iter();
            forbidden.extend(grants.map(|(description, key)| (format!("{field_path}.{key}"), description, key)));
        }
        forbidden
    }
}

#[cfg(test)]
mod tests;
