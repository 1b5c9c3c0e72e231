//! `admittance kubernetes`: prints manifests that install Admittance in a cluster.

mod admin;
mod bundle;
mod certificates;
mod configuration;
mod deployment;
mod error;
mod files;
mod layout;
mod manifest;
mod needs;
mod objects;
mod quantity;
mod registration;
mod rewrite;
mod version;

use std::path::{Path, PathBuf};

use admittance::{
    admission::FailurePolicy,
    definitions::{self, ChainDefinition},
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value as Json, json};
use time::OffsetDateTime;

use self::{
    bundle::{Bundle, ModuleHome},
    certificates::Certificates,
    configuration::Configuration,
    deployment::PodChoices,
    error::Error,
    layout::{IGNORE_LABEL, Label, Name},
    manifest::Manifest,
    needs::Needs,
    quantity::Quantity,
    registration::{Choices, Webhook},
    version::Version,
};
use crate::output::ODD;

/// Install Admittance in a Kubernetes cluster, as a webhook of its API server.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Manifests(Box<ManifestArguments>),
}

/// Print everything that installs Admittance in a cluster, with chains, plugins and certificates.
///
/// The webhooks are registered for the rules of the chains and for nothing else, and never for the
/// namespace of the installation, kube-system (but see --include-kube-system), kube-node-lease and namespaces
/// with the label admittance.dev/ignore. Nothing is sent to a cluster; notes are printed to standard error.
///
/// Apply it with `kubectl apply --server-side -f -`: the ConfigMaps of plugins are too large for
/// `kubectl apply` without it.
#[derive(Debug, Args)]
struct ManifestArguments {
    /// Files and directories of chain definitions. May be given more than once.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present = "config")]
    definitions: Vec<PathBuf>,
    /// A configuration of `serve` with the dialect `kubernetes`: its definitions are used, and its settings
    /// of limits, webhooks, modules, signatures, sandbox, log, clients and the admin port. Namespaces come
    /// from the cluster.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The namespace of the installation. It should contain nothing else: the webhooks are not called for its
    /// objects.
    #[arg(long, value_name = "NAME", default_value = "admittance-system")]
    namespace: Label,
    /// The prefix of the names of all objects.
    #[arg(long, value_name = "NAME", default_value = "admittance")]
    name: Name,
    /// The image, whose entry point is the program `admittance`.
    #[arg(long, value_name = "IMAGE", default_value = concat!("admittance:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// The number of Pods.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// The version of the cluster, if it is older than 1.28: features that it does not support are left out.
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<Version>,
    /// Register one webhook per chain instead of one per phase. Denials then name the chain, and each webhook
    /// has its own timeout and failure policy; but the API server calls mutating webhooks one after another.
    #[arg(long)]
    per_chain: bool,
    /// How many seconds the API server waits for a webhook [default: the sum of the stages' timeouts].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30))]
    timeout: Option<u8>,
    /// What the API server does when a webhook cannot be called [default: Fail if that is the policy of
    /// any of its stages].
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true)]
    failure_policy: Option<Policy>,
    /// An additional namespace to exclude from the webhooks. May be given more than once.
    #[arg(long, value_name = "NAME")]
    exclude_namespace: Vec<Label>,
    /// Register the webhooks for kube-system too, where cluster DNS and the network's own Pods are. Requests
    /// for them are then refused while no Pod of Admittance answers, unless the failure policy is Ignore.
    #[arg(long)]
    include_kube_system: bool,
    /// The directory where `admittance certs --service NAME.NAMESPACE` put the certificates [default:
    /// new ones, valid for a year].
    #[arg(long, value_name = "DIRECTORY")]
    certs: Option<PathBuf>,
    /// The image contains the plugins in this directory; print no ConfigMaps for them.
    #[arg(long, value_name = "DIRECTORY", value_parser = absolute)]
    modules_in_image: Option<String>,
    /// Print a NetworkPolicy that allows connections only to the Pods' two ports, and outgoing ones only if
    /// the chains need them.
    #[arg(long)]
    network_policy: bool,
    /// The priority class of the Pods; system-cluster-critical keeps them when a node is full.
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// The CPU request of a Pod.
    #[arg(long, value_name = "QUANTITY", default_value = "100m")]
    cpu_request: Quantity,
    /// The memory request of a Pod.
    #[arg(long, value_name = "QUANTITY", default_value = "256Mi")]
    memory_request: Quantity,
    /// The memory limit of a Pod [default: no limit].
    #[arg(long, value_name = "QUANTITY")]
    memory_limit: Option<Quantity>,
    /// Write a file for each kind of object to this directory, and print nothing.
    #[arg(long, value_name = "DIRECTORY")]
    output_directory: Option<PathBuf>,
}

/// `failurePolicy`, as Kubernetes writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// The request is refused.
    #[value(name = "Fail")]
    Fail,
    /// The request goes on as if there were no webhook.
    #[value(name = "Ignore")]
    Ignore,
}

impl From<Policy> for FailurePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fail => Self::Fail,
            Policy::Ignore => Self::Ignore,
        }
    }
}

/// A directory of the image, as it may appear in a document.
fn absolute(text: &str) -> Result<String, &'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    if text.starts_with('/') && text.chars().all(fits) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write an absolute path of letters, digits, `-`, `_` and `.`")
    }
}

/// The common properties of all objects.
#[derive(Debug)]
struct Installation {
    name: Name,
    namespace: Label,
    /// `None`: a recent version.
    version: Option<Version>,
}

impl Installation {
    /// The labels of every object, also used to select the Pods.
    fn labels(&self) -> Json {
        json!({
            "app.kubernetes.io/name": "admittance",
            "app.kubernetes.io/instance": self.name.as_str(),
        })
    }

    /// The metadata of an object in the namespace.
    fn metadata(&self, name: &str) -> Json {
        json!({"name": name, "namespace": self.namespace.as_str(), "labels": self.labels()})
    }

    fn knows(&self, what: fn(Version) -> bool) -> bool {
        self.version.is_none_or(what)
    }
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let Command::Manifests(arguments) = &arguments.command;
    let (manifests, notes) = manifests(arguments, OffsetDateTime::now_utc())?;
    for note in notes {
        anstream::eprintln!("{ODD}note:{ODD:#} {note}");
    }
    match &arguments.output_directory {
        Some(directory) => manifest::write(directory, &manifests)?,
        None => manifest::print(&manifests)?,
    }
    Ok(())
}

/// The objects in the order in which they are applied, and notes for the user.
fn manifests(
    arguments: &ManifestArguments,
    now: OffsetDateTime,
) -> Result<(Vec<Manifest>, Vec<String>), Error> {
    let (mut configuration, chains) = input(arguments)?;
    let installation = Installation {
        name: arguments.name.clone(),
        namespace: arguments.namespace.clone(),
        version: arguments.kubernetes_version,
    };
    let choices = Choices {
        per_chain: arguments.per_chain,
        timeout: arguments.timeout,
        failure_policy: arguments.failure_policy.map(FailurePolicy::from),
        exclude: &arguments.exclude_namespace,
        include_kube_system: arguments.include_kube_system,
        request_timeout: configuration.request_timeout,
        has_match_conditions: installation.knows(Version::has_match_conditions),
    };
    let webhooks = Webhook::of(&chains, &choices)?;
    let home = match &arguments.modules_in_image {
        Some(directory) => ModuleHome::Image(directory),
        None => ModuleHome::ConfigMaps,
    };
    let bundle = Bundle::of(&chains, home)?;
    let needs = Needs::of(&chains);
    if needs.cluster() || configuration.uses_cluster() {
        configuration.use_cluster();
    }
    let Installation { name, namespace, .. } = &installation;
    let certificates = match &arguments.certs {
        Some(directory) => Certificates::read(directory, name, namespace, now)?,
        None => Certificates::make(name, namespace, now)?,
    };
    let pods = PodChoices {
        image: &arguments.image,
        replicas: arguments.replicas,
        cpu: arguments.cpu_request.as_str(),
        memory: arguments.memory_request.as_str(),
        memory_limit: arguments.memory_limit.as_ref().map(Quantity::as_str),
        priority_class: arguments.priority_class.as_deref(),
        has_token: configuration.uses_cluster(),
    };

    let mut manifests = vec![
        Manifest::new("", objects::namespace(&installation)),
        Manifest::new("", objects::service_account(&installation)),
    ];
    let roles = objects::roles(&installation, &needs);
    manifests.extend(roles.into_iter().map(|role| Manifest::new("", role)));
    manifests.push(Manifest::new("", objects::secret(&installation, &certificates)));
    let admin = objects::admin(&installation, &configuration);
    manifests.extend(admin.map(|secret| Manifest::new("", secret)));
    manifests.push(Manifest::new(
        "The configuration of the Pods. After a change, restart them: kubectl rollout restart.",
        objects::config(&installation, &configuration)?,
    ));
    manifests.push(Manifest::new(
        "Changes to chains, plugins and certificates need no restart: Pods reload mounted files.",
        objects::chains(&installation, &bundle),
    ));
    let modules = bundle.modules.iter();
    manifests.extend(modules.map(|module| Manifest::new("", objects::module(&installation, module))));
    manifests.push(Manifest::new("", objects::service(&installation)));
    let deployment = deployment::deployment(&installation, &pods, &configuration, &bundle);
    manifests.push(Manifest::new("", deployment));
    manifests.push(Manifest::new("", objects::disruption_budget(&installation)));
    if arguments.network_policy {
        let may_call_out = needs.calls_out || configuration.uses_cluster();
        manifests.push(Manifest::new(
            "",
            objects::network_policy(&installation, may_call_out),
        ));
    }
    let ca = &certificates.authority;
    let configurations = registration::configurations(&installation, &webhooks, ca, &choices);
    manifests.extend(configurations.into_iter().map(|object| {
        let comment = "Apply this when the Pods are ready: kubectl rollout status.";
        Manifest::new(comment, object)
    }));
    let mut notes = notes(arguments, &installation, &webhooks, &certificates, &manifests);
    notes.extend(
        chains
            .iter()
            .flat_map(ChainDefinition::warnings)
            .map(|warning| warning.to_string()),
    );
    if !configuration.admin.has_users() {
        notes.push(
            "the admin API of the Pods is disabled, except for probes and metrics: list its users in \
             `admin.tokens` of a configuration (--config)"
                .to_owned(),
        );
    }
    if configuration.had_credentials {
        notes.push(
            "modules.dockerConfig is omitted, because a ConfigMap must not hold credentials: mount a Secret of \
             the type kubernetes.io/dockerconfigjson as config.json, and name its directory in DOCKER_CONFIG"
                .to_owned(),
        );
    }
    Ok((manifests, notes))
}

/// The operator's configuration, and the chains.
fn input(arguments: &ManifestArguments) -> Result<(Configuration, Vec<ChainDefinition>), Error> {
    let mut paths = arguments.definitions.clone();
    let configuration = match &arguments.config {
        Some(path) => {
            let (configuration, config) = Configuration::read(path)?;
            paths.extend(config.definition_files().map(Path::to_owned));
            configuration
        }
        None => Configuration::new(),
    };
    let chains = definitions::load(&paths)?;
    if chains.is_empty() {
        let paths = if paths.is_empty() {
            arguments.config.iter().cloned().collect()
        } else {
            paths
        };
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::NoChains(names.join(", ")));
    }
    Ok((configuration, chains))
}

/// Notes for the user who applies the manifests.
fn notes(
    arguments: &ManifestArguments,
    installation: &Installation,
    webhooks: &[Webhook],
    certificates: &Certificates,
    manifests: &[Manifest],
) -> Vec<String> {
    let Installation { name, namespace, .. } = installation;
    let mut notes = Vec::new();
    let directory = arguments.certs.as_deref().unwrap_or(Path::new("certs")).display();
    let make = format!("admittance certs --service {name}.{namespace} --out {directory}");
    if arguments.certs.is_none() {
        notes.push(format!(
            "a new certificate was made, which expires on {}; each run makes a new one, with a new CA. To \
             renew it with the same CA: `{make}`, and --certs {directory}",
            certificates.ends
        ));
    } else {
        notes.push(format!(
            "the certificate expires on {}; to renew it: `{make} --renew`, and apply the manifests again",
            certificates.ends
        ));
    }
    if manifests.iter().any(Manifest::is_too_large_for_annotation) {
        notes.push(
            "a ConfigMap is too large for the annotation of `kubectl apply`: use `kubectl apply --server-side`"
                .to_owned(),
        );
    }
    if !installation.knows(Version::labels_namespaces) {
        notes.push(format!(
            "before Kubernetes 1.21 namespaces have no label with their name; label those that must be \
             excluded: `kubectl label namespace kube-system kube-node-lease {IGNORE_LABEL}=true`"
        ));
    }
    if !installation.knows(Version::has_match_conditions) {
        let mut exclusions: Vec<_> = webhooks
            .iter()
            .flat_map(|webhook| webhook.exclusions().map(|exclusion| exclusion.what))
            .collect();
        exclusions.sort_unstable();
        exclusions.dedup();
        if !exclusions.is_empty() {
            notes.push(format!(
                "the rules match {}, which no webhook should see, and Kubernetes before 1.28 cannot exclude \
                 them; list fewer resources in the chains",
                exclusions.join(" and ")
            ));
        }
    }
    let closed = |webhook: &&Webhook| webhook.failure_policy == FailurePolicy::Fail;
    if webhooks.iter().filter(closed).any(Webhook::may_match_nodes) {
        notes.push(
            "the rules match nodes, and the failure policy is Fail: when no Pod of Admittance answers, no node \
             can join or report its state; write --failure-policy Ignore, or list fewer resources"
                .to_owned(),
        );
    }
    if arguments.include_kube_system && webhooks.iter().any(|webhook| closed(&webhook)) {
        notes.push(format!(
            "the webhooks apply to kube-system, and the failure policy is Fail: when no Pod of Admittance \
             answers, components of the cluster itself (DNS, network) cannot be created or changed, and \
             without them Admittance may not start again; write --failure-policy Ignore, or be ready to run \
             `kubectl delete \
             mutatingwebhookconfiguration,validatingwebhookconfiguration {name}`"
        ));
    }
    if arguments.replicas == 1 && webhooks.iter().any(|webhook| closed(&webhook)) {
        notes.push(
            "there is one replica, and the failure policy is Fail: requests are refused while its Pod is moved \
             to another node"
                .to_owned(),
        );
    }
    notes
}
