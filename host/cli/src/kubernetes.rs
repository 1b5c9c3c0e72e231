//! `admittance kubernetes`: writes manifests and a Helm chart that install Admittance in a cluster.

mod agent;
mod bundle;
mod certificates;
mod chart;
mod configuration;
mod crds;
mod files;
mod layout;
mod manifest;
mod needs;
mod notes;
mod registration;
mod rewrite;
mod roles;
mod static_pod;
mod template;
mod values;

use std::path::{Path, PathBuf};

use admittance::{
    Moment,
    admission::FailurePolicy,
    definitions::{ChainDefinition, Definitions},
};
use admittance_definitions::{DefinitionSet, read_files};
use admittance_fleet::OwnCertificate;
use clap::{Args, Subcommand};
use time::OffsetDateTime;

use self::{
    bundle::Bundle,
    certificates::Certificates,
    configuration::Configuration,
    manifest::CommentedManifest,
    needs::ClusterNeeds,
    values::{KubernetesVersion, claim, directory, label, name, quantity},
};
use crate::{
    arguments::{no_definition, parse_existing_path, word},
    output::WARN,
};

/// Install Admittance in a Kubernetes cluster, as a webhook of its API server.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  admittance kubernetes manifests --definitions chains/ | kubectl apply --server-side -f -
  admittance kubernetes chart --definitions chains/ --output-directory chart"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: KubernetesCommand,
}

#[derive(Debug, Subcommand)]
enum KubernetesCommand {
    /// Print all objects that install Admittance in a cluster, with chains, plugins and certificates.
    ///
    /// When a Pod is ready, the leader of the Pods registers webhooks for exactly the rules of the chains. These
    /// webhooks are never called for the namespace of the installation, kube-system (but see --include-kube-system),
    /// kube-node-lease and namespaces with the label admittance.dev/ignore. The command sends nothing to a cluster, and
    /// prints notes to standard error.
    ///
    /// Apply the objects with `kubectl apply --server-side -f -`, because the ConfigMaps of plugins are too large for
    /// `kubectl apply` without --server-side.
    #[command(after_help = "Examples:
  admittance kubernetes manifests --definitions chains/ | kubectl apply --server-side -f -")]
    Manifests(Box<Installation>),
    /// Write a Helm chart that installs the same objects, with values for the differences between clusters.
    ///
    /// The arguments are the same as for `manifests` and become the defaults of the values, except that the release has
    /// its own name and namespace. The chart contains the chains and plugins, but no keys or tokens: the Pods make the
    /// certificate, or, with --certs or `listen.tls` in the configuration, it comes from a Secret or from cert-manager.
    #[command(after_help = "Examples:
  admittance kubernetes chart --definitions chains/ --output-directory chart
  helm install admittance chart --namespace admittance-system --create-namespace")]
    Chart(Box<Installation>),
    /// Print the CustomResourceDefinitions of chains, for drivers with `definitions: [ { kubernetes: {} } ]`.
    #[command(after_help = "Examples:
  admittance kubernetes crds | kubectl apply -f -")]
    Crds,
}

#[derive(Clone, Debug, Args)]
struct Installation {
    /// Files and directories of chain definitions. May be given more than once.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present_any = ["config", "agent"], value_parser = parse_existing_path)]
    definitions: Vec<PathBuf>,
    /// A configuration of `serve` with the dialect `kubernetes`. The definitions that it names are installed, and its
    /// settings of limits, webhooks, modules, signatures, sandbox, HTTP requests by plugins, log, clients and the admin
    /// port apply to the Pods. The namespaces that it lists are ignored, because the Pods read namespaces from the
    /// cluster.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// Files and directories of definitions that are resources of the cluster, for a configuration with `definitions: [
    /// { kubernetes: {} } ]`: the Pods get the permissions that these definitions need, but the definitions are not
    /// printed. May be given more than once.
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "config", value_parser = parse_existing_path)]
    resources: Vec<PathBuf>,
    /// The namespace of the installation. It should contain nothing else, since the webhooks are not called for its
    /// objects.
    #[arg(long, value_name = "NAME", default_value = "admittance-system", value_parser = label)]
    namespace: String,
    /// The prefix of the names of all objects of the installation.
    #[arg(long, value_name = "NAME", default_value = "admittance", value_parser = name)]
    name: String,
    /// The image of the Pods, whose entry point is the program `admittance`.
    #[arg(long, value_name = "IMAGE", default_value = concat!("admittance:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// The number of Pods.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Print a HorizontalPodAutoscaler. It adds Pods up to this number while the Pods use more than 70 % of the CPU
    /// that they request.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    max_replicas: Option<u16>,
    /// The version of the cluster, if it is older than 1.28. The objects then do without features that this version
    /// lacks.
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<KubernetesVersion>,
    /// Register one webhook for each chain instead of one for each phase. Then denials name the chain, and each webhook
    /// has its own timeout and failure policy; but the API server calls mutating webhooks one after another.
    #[arg(long)]
    per_chain: bool,
    /// The number of seconds for which the API server waits for a webhook [default: the sum of the stages' timeouts].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30))]
    timeout: Option<u8>,
    /// The reaction of the API server when a webhook cannot be called: Fail refuses the request, Ignore continues
    /// without the webhook [default: Fail if that is the policy of any of its stages].
    #[arg(long, value_name = "POLICY", value_parser = word::<FailurePolicy>(), ignore_case = true)]
    failure_policy: Option<FailurePolicy>,
    /// An additional namespace to exclude from the webhooks. May be given more than once.
    #[arg(long, value_name = "NAME", value_parser = label)]
    exclude_namespace: Vec<String>,
    /// Register the webhooks for kube-system too, in which cluster DNS and the Pods of the network run. While no Pod of
    /// Admittance answers, requests for this namespace are then refused, unless the failure policy is Ignore.
    #[arg(long)]
    include_kube_system: bool,
    /// The directory to which `admittance certs --service NAME.NAMESPACE` wrote the certificates [default: new ones,
    /// valid for a year].
    #[arg(long, value_name = "DIRECTORY")]
    certs: Option<PathBuf>,
    /// Write the files for a control plane node, instead of objects for the cluster: a static Pod that the API server
    /// on this node calls at 127.0.0.1, and the webhooks as files of the API server (KEP-5793). Make the certificate
    /// with `admittance certs --host 127.0.0.1`.
    #[arg(long = "static", requires_all = ["certs", "output_directory"],
        conflicts_with_all = ["agent", "resources", "max_replicas", "network_policy", "service_monitor", "store_claim"])]
    static_pod: bool,
    /// A PersistentVolumeClaim for the store of modules and their compiled forms. The Pods share the store, so a new
    /// Pod finds it filled. Its content is executed, so no other Pod may mount it [default: an emptyDir for each Pod].
    #[arg(long, value_name = "NAME", value_parser = claim)]
    store_claim: Option<String>,
    /// The directory in the image that contains the plugins. Then no ConfigMaps are printed for them.
    #[arg(long, value_name = "DIRECTORY", value_parser = directory)]
    modules_in_image: Option<String>,
    /// Print a NetworkPolicy that allows incoming connections only to the two ports of the Pods, and outgoing
    /// connections only if the chains need them.
    #[arg(long)]
    network_policy: bool,
    /// Print a ServiceMonitor for the Prometheus Operator, in place of the annotations `prometheus.io/scrape`.
    #[arg(long)]
    service_monitor: bool,
    /// The priority class of the Pods. With system-cluster-critical, a full node does not evict them.
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// The CPU request of a Pod.
    #[arg(long, value_name = "QUANTITY", default_value = "100m", value_parser = quantity)]
    cpu_request: String,
    /// The memory request of a Pod.
    #[arg(long, value_name = "QUANTITY", default_value = "256Mi", value_parser = quantity)]
    memory_request: String,
    /// The memory limit of a Pod [default: no limit].
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    memory_limit: Option<String>,
    /// Write the files of the chart, or one file of manifests for each kind of object, to this directory, and print
    /// nothing.
    #[arg(long, value_name = "DIRECTORY")]
    output_directory: Option<PathBuf>,
    #[command(flatten)]
    agent: agent::AgentArguments,
}

impl Installation {
    /// `--kubernetes-version` gives the version. If it is not given, the cluster is assumed to be recent, so it
    /// supports every feature.
    fn supports(&self, feature: fn(KubernetesVersion) -> bool) -> bool {
        self.kubernetes_version.is_none_or(feature)
    }
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let now = Moment::now().0.into();
    match &arguments.command {
        KubernetesCommand::Manifests(installation) => {
            if installation.static_pod {
                return write_node_files(installation, now);
            }
            let (manifests, notes) = if installation.agent.agent {
                (agent::agent_manifests(installation)?, Vec::new())
            } else {
                make_manifests(installation, now)?
            };
            print_notes(&notes);
            match &installation.output_directory {
                Some(directory) => manifest::write_files(directory, &manifests),
                None => manifest::print_manifests(&manifests),
            }
        }
        KubernetesCommand::Chart(installation) => {
            if installation.static_pod || installation.agent.agent {
                let message =
                    "a chart has neither a static Pod nor an agent: use --static and --agent with `manifests`";
                return Err(message.into());
            }
            write_chart(installation, now)
        }
        KubernetesCommand::Crds => manifest::print_manifests(&crds::manifests()?),
    }
}

fn print_notes(notes: &[String]) {
    for note in notes {
        anstream::eprintln!("{WARN}note:{WARN:#} {note}");
    }
}

struct PreparedInstallation {
    configuration: Configuration,
    bundle: Bundle,
    needs: ClusterNeeds,
    chains: Vec<ChainDefinition>,
}

impl PreparedInstallation {
    fn new(installation: &Installation) -> crate::Result<Self> {
        if installation.max_replicas.is_some_and(|max| max < installation.replicas) {
            return Err("--max-replicas is smaller than --replicas".into());
        }
        let (mut configuration, set) = read_input(installation)?;
        if configuration.kept_webhooks_certificate.is_some() {
            installation.leave_webhooks_to_the_leader()?;
        } else if !installation.static_pod {
            // The configuration has no settings for webhooks, so it gets them here. With these settings, the leader of
            // the Pods registers the webhooks once a Pod is ready. If they were registered earlier, the API server
            // would call webhooks that nothing serves yet.
            let has_certificate =
                installation.certs.is_some() || configuration.names_certificate || configuration.has_own_admin_tls();
            let own_certificate = (!has_certificate).then(OwnCertificate::default);
            configuration.keep_webhooks(&installation.registration(), own_certificate)?;
        }
        if configuration.makes_certificate() && installation.certs.is_some() {
            return Err("--certs: without `listen.tls` in the configuration, the Pods make their certificate".into());
        }
        let definitions = set.definitions()?;
        let chains = all_chains(installation, &configuration, &definitions)?;
        let bundle = Bundle::collect(&set, &definitions, installation.modules_in_image.as_deref())?;
        let needs = ClusterNeeds::from_chains(&chains, &configuration.namespaced_chains);
        if needs.needs_cluster() || configuration.uses_cluster() {
            configuration.use_cluster();
        }
        Ok(Self {
            configuration,
            bundle,
            needs,
            chains,
        })
    }

    fn calls_out(&self) -> bool {
        self.needs.calls_out || self.configuration.uses_cluster() || self.configuration.exports_traces()
    }
}

fn make_manifests(
    installation: &Installation,
    now: OffsetDateTime,
) -> crate::Result<(Vec<CommentedManifest>, Vec<String>)> {
    let prepared = PreparedInstallation::new(installation)?;
    let configuration = &prepared.configuration;
    let certificates = match &installation.certs {
        _ if configuration.makes_certificate() => None,
        Some(directory) => Some(Certificates::read(directory, installation, now)?),
        None => Some(Certificates::make(installation, now)?),
    };
    let mut manifests = if prepared.configuration.reads_resources {
        crds::manifests()?
    } else {
        Vec::new()
    };
    manifests.extend(chart::chart_manifests(installation, &prepared, certificates.as_ref())?);
    let webhooks = prepared.registered_webhooks(installation)?;
    let mut notes = Vec::new();
    if let Some(certificates) = &certificates {
        notes.push(notes::certificate_note(installation, certificates));
    }
    notes.extend(notes::large_object_note(&manifests));
    notes.extend(notes::common_notes(installation, &prepared, &webhooks));
    Ok((manifests, notes))
}

fn write_chart(installation: &Installation, now: OffsetDateTime) -> crate::Result<()> {
    let Some(directory) = &installation.output_directory else {
        return Err("name the directory of the chart: --output-directory chart".into());
    };
    let prepared = PreparedInstallation::new(installation)?;
    if let Some(certs) = &installation.certs {
        Certificates::read(certs, installation, now)?;
    }
    chart::write_files(directory, &chart::chart_files(installation, &prepared)?)?;
    let mut notes = notes::chart_notes(&prepared);
    notes.extend(notes::common_notes(
        installation,
        &prepared,
        &prepared.registered_webhooks(installation)?,
    ));
    print_notes(&notes);
    Ok(())
}

fn write_node_files(installation: &Installation, now: OffsetDateTime) -> crate::Result<()> {
    let (Some(certs), Some(directory)) = (&installation.certs, &installation.output_directory) else {
        return Err("--static needs --certs and --output-directory".into());
    };
    if !installation.supports(KubernetesVersion::reads_webhooks_from_files) {
        return Err("--static needs Kubernetes 1.36 or newer".into());
    }
    let mut prepared = PreparedInstallation::new(installation)?;
    if prepared.configuration.reads_resources {
        return Err("--static is for chains in files: without them, the API server could not start".into());
    }
    prepared.configuration.serve_node();
    let certificates = Certificates::read(certs, installation, now)?;
    let files = static_pod::node_files(installation, &prepared, &certificates)?;
    static_pod::write_files(directory, installation, &files)?;
    let mut notes = static_pod::installation_notes(installation, &prepared);
    notes.push(notes::certificate_note(installation, &certificates));
    notes.extend(notes::common_notes(
        installation,
        &prepared,
        &prepared.registered_webhooks(installation)?,
    ));
    print_notes(&notes);
    Ok(())
}

fn read_input(installation: &Installation) -> crate::Result<(Configuration, DefinitionSet)> {
    let mut paths = installation.definitions.clone();
    let configuration = match &installation.config {
        Some(path) => {
            let (configuration, config) = Configuration::read(path)?;
            paths.extend(config.definition_files().map(Path::to_owned));
            configuration
        }
        None => Configuration::new(),
    };
    let set = DefinitionSet::of_files(read_files(&paths)?);
    if set.files().is_empty() && !configuration.reads_resources {
        return Err(no_definition(&paths).into());
    }
    Ok((configuration, set))
}

fn all_chains(
    installation: &Installation,
    configuration: &Configuration,
    definitions: &Definitions,
) -> crate::Result<Vec<ChainDefinition>> {
    let mut chains = definitions.chains.clone();
    if !installation.resources.is_empty() {
        if !configuration.reads_resources {
            return Err("--resources is for a configuration with `definitions: [ { kubernetes: {} } ]`".into());
        }
        chains.extend(admittance::definitions::load(&installation.resources)?);
    }
    if chains.is_empty() && !configuration.reads_resources {
        return Err(no_definition(&installation.definitions).into());
    }
    Ok(chains)
}
