//! What chains of a namespace may use.

use admittance_admission::{ClusterKind, Grants, ImageGrant, WebhookTarget, words};
use admittance_catalog::signature::{Source, SourcePattern};
use admittance_definitions::{
    ChainDefinition, HookDefinition, Mistake, PluginDefinition, PluginRole, StageDefinition,
};

/// What the chains of namespaces in stores may use, besides expressions: whoever may write one decides about the requests
/// of a namespace, and not about what this program reads and calls. Default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespacedChains {
    /// The modules of plugins.
    pub modules: Vec<SourcePattern>,
    /// The webhooks.
    pub webhooks: NamespacedWebhooks,
    /// The grants of plugins. Objects can be read only in the namespace of the chain. The kind of access reviews for any
    /// user also lets expressions use the authorizer.
    pub allow: Grants,
}

/// Which webhooks chains of a namespace may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NamespacedWebhooks {
    /// None.
    #[default]
    None,
    /// Services in the namespace of the chain.
    OwnServices,
    /// Any service and URL.
    Any,
}

words!(NamespacedWebhooks, "choice": None = "None", OwnServices = "OwnServices", Any = "Any");

/// The key of the configuration with what is allowed.
const KEY: &str = "definitions[].kubernetes.namespaced";

impl NamespacedChains {
    /// What a chain uses although it may not. Empty for a chain that is of no namespace.
    pub fn mistakes(&self, chain: &ChainDefinition) -> Vec<Mistake> {
        let Some(namespace) = &chain.namespace else {
            return Vec::new();
        };
        let mut mistakes = Vec::new();
        for (index, stage) in chain.stages.iter().enumerate() {
            for (place, what, key) in self.of_stage(stage, namespace) {
                mistakes.push(Mistake {
                    location: stage.location.clone(),
                    path: format!("spec.stages[{index}]{place}"),
                    message: format!("{what} is not allowed in a chain of a namespace"),
                    fix: format!(
                        "remove it, or let the operator allow it in `{KEY}.{key}` of the configuration"
                    ),
                });
            }
        }
        mistakes
    }

    /// Each place in the stage with what is there, and the key that allows it.
    fn of_stage(&self, stage: &StageDefinition, namespace: &str) -> Vec<(String, String, &'static str)> {
        let mut found = Vec::new();
        let of_hook = matches!(&stage.hook, HookDefinition::Cel(cel) if cel.policy.uses_authorizer());
        for (uses_it, place) in [
            (stage.spec.uses_authorizer(), ".matchConditions"),
            (of_hook, ".cel"),
        ] {
            if uses_it && !self.allow.any_access() {
                let what = format!(
                    "`authorizer`, for which the grant `{}` is needed,",
                    ClusterKind::any_access()
                );
                found.push((place.to_owned(), what, "allow.cluster"));
            }
        }
        if let HookDefinition::Webhook(webhook) = &stage.hook {
            let is_allowed = match (self.webhooks, &webhook.target) {
                (NamespacedWebhooks::Any, _) => true,
                (NamespacedWebhooks::OwnServices, WebhookTarget::Service { namespace: of, .. }) => {
                    of == namespace
                }
                _ => false,
            };
            if !is_allowed {
                let what = match &webhook.target {
                    WebhookTarget::Url(url) => format!("the webhook at {url}"),
                    WebhookTarget::Service { namespace, name, .. } => {
                        format!("the webhook at the service {namespace}/{name}")
                    }
                };
                found.push((".webhook".to_owned(), what, "webhooks"));
            }
        }
        for (role, plugin) in stage.plugins() {
            let place = place_of(role, plugin);
            // A source that cannot be determined is not allowed.
            let source = Source::of(&plugin.source).ok();
            let is_allowed =
                source.is_some_and(|source| self.modules.iter().any(|allowed| allowed.matches(&source)));
            if !is_allowed {
                found.push((
                    format!("{place}.source"),
                    format!("the module {}", plugin.source),
                    "modules",
                ));
            }
            if let Some(file) = plugin.read_from.first() {
                let what = format!("the file {}", file.display());
                found.push((place.clone(), what, "modules"));
            }
            let grants = self.denied(&plugin.allow).into_iter();
            found.extend(grants.map(|(what, key)| (format!("{place}.{key}"), what, key)));
        }
        found
    }

    /// The grants that are not allowed, and the key of each. Those of environment variables say themselves what the plugin
    /// learns.
    fn denied(&self, grants: &Grants) -> Vec<(String, &'static str)> {
        let cluster = grants.cluster.difference(&self.allow.cluster);
        let cluster = cluster.map(|kind| (format!("the grant of `{kind}`"), "allow.cluster"));
        let http = grants
            .http
            .iter()
            .filter(|grant| !self.allow.http.contains(grant));
        let http = http.map(|grant| {
            (
                format!("this grant of requests to {}", grant.origin),
                "allow.http",
            )
        });
        let images = grants.images.iter().filter(|grant| {
            let allowed = &self.allow.images;
            !allowed.contains(grant) && !allowed.contains(&ImageGrant::ALL)
        });
        let images = images.map(|grant| (format!("the grant of images in `{grant}`"), "allow.images"));
        cluster.chain(http).chain(images).collect()
    }
}

/// Where a plugin is in its stage.
pub(crate) fn place_of(role: PluginRole<'_>, plugin: &PluginDefinition) -> String {
    match (role, plugin.source.stock_name()) {
        (PluginRole::Candidate, _) => ".candidate".to_owned(),
        (PluginRole::Member(member), _) => format!(".group.plugins.{}", member.name),
        // A policy in Rego, which names no module.
        (PluginRole::Plugin, Some(name)) if name == "rego" => ".rego".to_owned(),
        (PluginRole::Plugin, _) => ".plugin".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use admittance_definitions::load_text;
    use base64::{Engine, prelude::BASE64_STANDARD};

    use super::*;

    const CHAIN: &str = r#"
apiVersion: admittance.dev/v1alpha1
kind: NamespacedAdmissionChain
metadata: { name: pods, namespace: shop }
spec:
  rules: [ { operations: [CREATE], resources: [pods] } ]
  stages:
    - name: expressions
      cel: { validations: [ { expression: "object.metadata.name != 'bad'" } ] }
    - name: asks
      cel: { validations: [ { expression: "authorizer.group('').resource('pods').check('create').allowed()" } ] }
      matchConditions: [ { name: may, expression: "authorizer.path('/healthz').check('get').allowed()" } ]
    - name: plugin
      plugin:
        source: oci://registry.example.com/hooks/one:1
        allow:
          cluster: [v1/Secret, v1/ConfigMap]
          http: ["https://policy.example.com", { origin: "https://policy.example.com", credential: theirs }]
          images: [ghcr.io]
          environment: { A: b }
      candidate: { source: "https://example.com/x.wasm", share: 10% }
    - name: calls
      webhook: { protocol: AdmissionReview, url: "https://hooks.example.com/" }
    - name: theirs
      webhook: { protocol: AdmissionReview, service: { namespace: other, name: hook }, caBundle: "CA" }
    - name: own
      webhook: { protocol: AdmissionReview, service: { namespace: shop, name: hook }, caBundle: "CA" }
"#;

    fn chain() -> ChainDefinition {
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
        let encoded = BASE64_STANDARD.encode(authority.cert.pem());
        let text = CHAIN.replace("\"CA\"", &encoded);
        load_text("chain.yaml", &text).unwrap().remove(0)
    }

    fn places(allowed: &NamespacedChains, chain: &ChainDefinition) -> Vec<String> {
        let mistakes = allowed.mistakes(chain);
        mistakes.into_iter().map(|mistake| mistake.path).collect()
    }

    #[test]
    fn only_expressions_are_allowed_at_first() {
        let chain = chain();
        assert_eq!(
            (chain.name.as_str(), chain.namespace.as_deref()),
            ("shop/pods", Some("shop"))
        );
        let none = NamespacedChains::default();
        assert_eq!(
            places(&none, &chain),
            [
                "spec.stages[1].matchConditions",
                "spec.stages[1].cel",
                "spec.stages[2].plugin.source",
                "spec.stages[2].plugin.allow.cluster",
                "spec.stages[2].plugin.allow.cluster",
                "spec.stages[2].plugin.allow.http",
                "spec.stages[2].plugin.allow.http",
                "spec.stages[2].plugin.allow.images",
                "spec.stages[2].candidate.source",
                "spec.stages[2].candidate.allow.cluster",
                "spec.stages[2].candidate.allow.cluster",
                "spec.stages[2].candidate.allow.http",
                "spec.stages[2].candidate.allow.http",
                "spec.stages[2].candidate.allow.images",
                "spec.stages[3].webhook",
                "spec.stages[4].webhook",
                "spec.stages[5].webhook",
            ]
        );
        let text = none.mistakes(&chain)[2].to_string();
        assert!(
            text.contains(
                "the module oci://registry.example.com/hooks/one:1 is not allowed in a chain of a namespace"
            ) && text.contains("`definitions[].kubernetes.namespaced.modules`"),
            "{text}"
        );
        // A chain of all namespaces is the operator's.
        let mut of_all = chain;
        of_all.namespace = None;
        assert!(none.mistakes(&of_all).is_empty());
    }

    #[test]
    fn what_is_allowed_is_no_mistake() {
        let chain = chain();
        let HookDefinition::Plugin(plugin) = &chain.stages[2].hook else {
            panic!("stage 2 is a plugin");
        };
        let mut allowed = NamespacedChains {
            modules: vec!["oci://registry.example.com/hooks/*".parse().unwrap()],
            webhooks: NamespacedWebhooks::OwnServices,
            allow: Grants {
                cluster: [ClusterKind::any_access(), ClusterKind::new("v1", "ConfigMap")].into(),
                http: vec![plugin.allow.http[0].clone()],
                images: vec![ImageGrant::ALL],
                ..Grants::default()
            },
        };
        assert_eq!(
            places(&allowed, &chain),
            [
                "spec.stages[2].plugin.allow.cluster",
                "spec.stages[2].plugin.allow.http",
                "spec.stages[2].candidate.source",
                "spec.stages[2].candidate.allow.cluster",
                "spec.stages[2].candidate.allow.http",
                "spec.stages[3].webhook",
                "spec.stages[4].webhook",
            ]
        );
        allowed.modules.push("https://**".parse().unwrap());
        allowed.webhooks = NamespacedWebhooks::Any;
        allowed.allow = plugin.allow.clone();
        allowed.allow.cluster.insert(ClusterKind::any_access());
        assert_eq!(places(&allowed, &chain), [""; 0]);
    }
}
