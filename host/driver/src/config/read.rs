//! Reads the configuration file, and reports all mistakes at once.
//!
//! An invalid value is reported and replaced with the default of its key, so that the rest of its section can be read
//! too. The result is discarded if there was any mistake.

mod admin;
mod decisions;
mod limits;
pub(super) mod lists;
mod modules;
mod namespaces;
pub(crate) mod outbound;
mod ports;
mod signatures;
mod tracing;
pub(crate) mod upstream;
pub(crate) mod zookeeper;

use std::{net::SocketAddr, path::Path, time::Duration};

use admittance_definitions::{
    Mistakes,
    document::{self, Node},
};
use http::Uri;

use self::zookeeper::ConfiguredEnsembles;
use super::{Config, ListenConfig, LogConfig, SwitchMode, has_leader};
use crate::{fronts, locations};

const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionContext<'a> {
    pub(crate) listen: &'a ListenConfig,
    pub(crate) ensembles: ConfiguredEnsembles,
    has_cluster: bool,
}

impl SectionContext<'_> {
    pub(crate) fn require_kubernetes(self, node: &Node<'_>) {
        if !self.has_cluster {
            let fix = "write `cluster: {}`, or `cluster: { kubeconfig: ... }`";
            node.add_mistake("no Kubernetes cluster is configured", fix);
        }
    }
}

impl Config {
    /// Reads the configuration file and the certificates that it names. Relative paths start at the file's directory.
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        document::read_value(path, read_config)
    }

    /// Returns the default configuration of a webhook server for AdmissionReviews at this address, over plain HTTP.
    pub fn for_reviews(address: SocketAddr) -> Result<Self, Mistakes> {
        let text = format!("{{\"listen\": {{\"address\": \"{address}\"}}, \"dialect\": {{\"kubernetes\": {{}}}}}}");
        let mut mistakes = Mistakes::new();
        let document = document::read_text("", &text, &mut mistakes).pop();
        let config = document.and_then(|document| read_config(&document.root(&mut mistakes)));
        config.ok_or(mistakes)
    }
}

fn read_config(root: &Node<'_>) -> Option<Config> {
    let mut fields = root.object()?;
    if fields.has("kind") && !fields.has("dialect") {
        let message = "this is a definition or another object, not a configuration of `admittance serve`";
        let fix =
            "a configuration names its definitions in `definitions`; `admittance check FILE` checks them without one";
        return root.reject(message, fix);
    }
    let listen = fields.get_or_default("listen", ports::listen);
    let admin = fields.get_optional("admin", admin::admin);
    let sections = SectionContext {
        listen: &listen,
        ensembles: ConfiguredEnsembles::read(&fields),
        has_cluster: fields.has("cluster"),
    };
    let front = fronts::read(&mut fields, sections);
    let defaults = front
        .as_ref()
        .map(|(front, _)| front.default_limits())
        .unwrap_or_default();
    let limits = fields.get_optional("limits", |node| limits::limits(node, &defaults));
    let definitions = fields.get_or_default("definitions", |node| locations::read_locations(node, sections));
    let has_leader = front
        .as_ref()
        .is_none_or(|(front, _)| has_leader(&**front, &definitions, sections.ensembles.has_cluster()));
    let replicas = fields.get_optional("replicas", |node| switch_mode(node, has_leader));
    let on_bad_definition = fields.get_or_default("onBadDefinition", Node::word);
    let zookeeper = fields.get_or_default("zookeeper", zookeeper::zookeeper);
    // The former key `cache` gets a message that names its replacement.
    if fields.has("cache") {
        fields.refuse(
            "cache",
            "compiled plugins are kept in the store, with the modules they are of",
            "write `store: { directory: ... }`",
        );
    }
    let store = fields.get_or_default("store", modules::store);
    let history = fields.get_or_default("history", modules::history);
    let mut catalog = fields.get_or_default("modules", modules::modules);
    catalog.signatures = fields.get_or_default("signatures", signatures::signatures);
    let mut sandbox = fields.get_or_default("sandbox", limits::sandbox);
    let (plugin_http, of_policies) = fields.get_or_default("pluginHttp", outbound::plugin_http);
    sandbox.policy_http = of_policies.into();
    let namespaces = namespaces::namespaces(&mut fields);
    let cluster = fields.get_optional("cluster", namespaces::read_cluster);
    let (resolve, accepts_short_keys) = fields.get_or_default("webhooks", read_webhooks);
    let (decisions, decision_sinks) = fields.get_or_default("decisions", |node| decisions::decisions(node, sections));
    let log = fields.get_or_default("log", read_log);
    let tracing = fields.get_optional("tracing", tracing::tracing);
    let (front, lists) = front?;
    Some(Config {
        listen,
        admin,
        front,
        lists,
        limits: limits.unwrap_or(defaults),
        definitions,
        replicas,
        lease: None,
        on_bad_definition,
        zookeeper,
        store,
        history,
        catalog,
        sandbox,
        plugin_http,
        namespaces,
        cluster,
        webhook_addresses: resolve,
        accepts_short_keys,
        decisions,
        decision_sinks,
        log,
        tracing,
        ambiguities: root.ambiguities(),
    })
}

pub(crate) fn read_duration(node: &Node<'_>) -> Option<Duration> {
    node.duration(MILLISECOND..=HOUR)
}

pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    admittance_admission::is_dns_label(text)
        .then(|| text.to_owned())
        .ok_or_else(|| {
            format!("{text:?} is not a valid namespace: write lower case letters, digits and -, such as bkbcs")
        })
}

/// Reads the configured [`SwitchMode`]. The mode `Together` is a mistake if no leader coordinates the replicas.
fn switch_mode(node: &Node<'_>, has_leader: bool) -> Option<SwitchMode> {
    let mode = node.word()?;
    if mode == SwitchMode::Together && !has_leader {
        let fix = "add `kubernetes: {}` to `definitions`, or write `dialect.kubernetes.webhookConfigurations` or `.audit`, \
                   or `zookeeper.cluster` with the dialect `bcs`";
        node.add_mistake("these replicas have no leader", fix);
    }
    Some(mode)
}

fn read_webhooks(node: &Node<'_>) -> Option<(Vec<(String, String)>, bool)> {
    let mut fields = node.object()?;
    let addresses = fields.get_or_default("resolve", Node::string_map);
    let accepts_short_keys = fields.get_or_default("acceptShortKeys", Node::boolean);
    Some((addresses.into_iter().collect(), accepts_short_keys))
}

pub(crate) fn parse_url(text: &str, default_path: &str, example: &str) -> Result<Uri, String> {
    let url_error = || format!("{text:?} is not a valid URL: write {example}");
    let uri: Uri = text.parse().map_err(|_| url_error())?;
    let mut parts = uri.into_parts();
    let is_http = parts
        .scheme
        .as_ref()
        .is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https"));
    let is_plain = parts
        .authority
        .as_ref()
        .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
    if !is_http || !is_plain {
        return Err(url_error());
    }
    if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
        parts.path_and_query = default_path.parse().ok();
    }
    Uri::from_parts(parts).map_err(|_| url_error())
}

fn read_log(node: &Node<'_>) -> Option<LogConfig> {
    let mut fields = node.object()?;
    Some(LogConfig {
        level: fields.get_or_default("level", Node::word),
        format: fields.get_or_default("format", Node::word),
    })
}

#[cfg(test)]
mod tests;
