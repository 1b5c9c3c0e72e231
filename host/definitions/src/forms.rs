//! The form of a document, and the items of a list.

pub(crate) mod bcs;
pub(crate) mod gatekeeper;
pub(crate) mod kubernetes;
pub(crate) mod kubewarden;
pub(crate) mod native;
pub(crate) mod openkruise;

use admittance_admission::Phase;

use crate::{
    document::{Document, Mistakes, Node, quoted},
    forms::gatekeeper::{Document as Gatekeeper, MutatorKind},
    forms::kubernetes::{Version, openapi},
    forms::kubewarden::Policy,
};

const NATIVE: &str = "admittance.dev/v1alpha1";
const BCS_RESOURCE: &str = "bkbcs.tencent.com/v2";
const KUBERNETES: &str = "admissionregistration.k8s.io/v1";
const KUBERNETES_BETA: &str = "admissionregistration.k8s.io/v1beta1";
const KUBERNETES_ALPHA: &str = "admissionregistration.k8s.io/v1alpha1";
const KUBEWARDEN: &str = "policies.kubewarden.io/v1";
const RESOURCES: &str = "apiextensions.k8s.io/v1";
const TEMPLATES: &str = "templates.gatekeeper.sh/";
const OPENKRUISE: &str = "apps.kruise.io/v1beta1";
const OPENKRUISE_ALPHA: &str = "apps.kruise.io/v1alpha1";
const KNOWN: &str = "write an AdmissionChain, NamespacedAdmissionChain or AdmissionException (admittance.dev/v1alpha1), a MutatingWebhookConfiguration, \
                     ValidatingWebhookConfiguration, MutatingAdmissionPolicy, ValidatingAdmissionPolicy or a binding of \
                     these (admissionregistration.k8s.io/v1), a CustomResourceDefinition (apiextensions.k8s.io/v1), a ClusterAdmissionPolicy, AdmissionPolicy, \
                     ClusterAdmissionPolicyGroup or AdmissionPolicyGroup (policies.kubewarden.io/v1), a ConstraintTemplate, \
                     a constraint, a Config, a SyncSet, an ExpansionTemplate or a mutator of Gatekeeper, a SidecarSet (apps.kruise.io/v1beta1), \
                     an admissionwebhook (v4) or an AdmissionWebhookConfiguration \
                     (bkbcs.tencent.com/v2)";

/// The form of a kind of which API servers print lists, if the version is supported, and the version to write. None for
/// other kinds.
fn listed<'v>(kind: &str, version: &'v str) -> Option<(Option<Form>, &'v str)> {
    let kubernetes = |form: fn(Version) -> Form| {
        let version = match version {
            KUBERNETES => Some(Version::V1),
            KUBERNETES_BETA => Some(Version::V1Beta1),
            _ => None,
        };
        (version.map(form), KUBERNETES)
    };
    // Policies are read as of v1, whatever their version is.
    let policy = |form| {
        let is_known = [KUBERNETES, KUBERNETES_BETA, KUBERNETES_ALPHA].contains(&version);
        (is_known.then_some(form), KUBERNETES)
    };
    let kubewarden = |policy| {
        let form = (version == KUBEWARDEN).then_some(Form::Kubewarden(policy));
        (form, KUBEWARDEN)
    };
    let native = |form| ((version == NATIVE).then_some(form), NATIVE);
    Some(match kind {
        "AdmissionChain" => native(Form::Native { is_namespaced: false }),
        "NamespacedAdmissionChain" => native(Form::Native { is_namespaced: true }),
        "AdmissionException" => native(Form::Exception),
        "MutatingWebhookConfiguration" => kubernetes(|version| Form::Kubernetes(Phase::Mutating, version)),
        "ValidatingWebhookConfiguration" => {
            kubernetes(|version| Form::Kubernetes(Phase::Validating, version))
        }
        "MutatingAdmissionPolicy" => policy(Form::Policy(Phase::Mutating)),
        "ValidatingAdmissionPolicy" => policy(Form::Policy(Phase::Validating)),
        "MutatingAdmissionPolicyBinding" => policy(Form::Binding(Phase::Mutating)),
        "ValidatingAdmissionPolicyBinding" => policy(Form::Binding(Phase::Validating)),
        "CustomResourceDefinition" => ((version == RESOURCES).then_some(Form::Resource), RESOURCES),
        "ConstraintTemplate" => {
            let form = version
                .starts_with(TEMPLATES)
                .then_some(Form::Gatekeeper(Gatekeeper::Template));
            (form, "templates.gatekeeper.sh/v1")
        }
        // Other programs have kinds of these names.
        "Config" if version.starts_with("config.gatekeeper.sh/") => {
            (Some(Form::Gatekeeper(Gatekeeper::Config)), version)
        }
        "SyncSet" if version.starts_with("syncset.gatekeeper.sh/") => {
            (Some(Form::Gatekeeper(Gatekeeper::SyncSet)), version)
        }
        "ExpansionTemplate" if version.starts_with("expansion.gatekeeper.sh/") => {
            (Some(Form::Gatekeeper(Gatekeeper::Expansion)), version)
        }
        kind if version.starts_with("mutations.gatekeeper.sh/") => {
            let mutator = MutatorKind::of(kind)?;
            (Some(Form::Gatekeeper(Gatekeeper::Mutator(mutator))), version)
        }
        _ if version.starts_with("constraints.gatekeeper.sh/") => {
            (Some(Form::Gatekeeper(Gatekeeper::Constraint)), version)
        }
        "SidecarSet" => {
            let is_known = [OPENKRUISE, OPENKRUISE_ALPHA].contains(&version);
            (is_known.then_some(Form::SidecarSet), OPENKRUISE)
        }
        kind => kubewarden(Policy::of_kind(kind)?),
    })
}

/// The form of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A chain, perhaps of a namespace.
    Native {
        is_namespaced: bool,
    },
    /// An exception for stages.
    Exception,
    Kubernetes(Phase, Version),
    /// A policy in CEL.
    Policy(Phase),
    /// The binding of such a policy.
    Binding(Phase),
    /// The schema of a custom resource, with which policies are checked.
    Resource,
    /// The schemas of an API server.
    OpenApi,
    Kubewarden(Policy),
    Gatekeeper(Gatekeeper),
    /// A SidecarSet of OpenKruise.
    SidecarSet,
    Bcs,
    BcsResource,
}

impl Form {
    /// The kind of a definition that does not say it itself, an item of a list of its kind.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Native { is_namespaced: false } => "AdmissionChain",
            Self::Native { is_namespaced: true } => "NamespacedAdmissionChain",
            Self::Exception => "AdmissionException",
            Self::Kubernetes(Phase::Mutating, _) => "MutatingWebhookConfiguration",
            Self::Kubernetes(Phase::Validating, _) => "ValidatingWebhookConfiguration",
            Self::Policy(Phase::Mutating) => "MutatingAdmissionPolicy",
            Self::Policy(Phase::Validating) => "ValidatingAdmissionPolicy",
            Self::Binding(Phase::Mutating) => "MutatingAdmissionPolicyBinding",
            Self::Binding(Phase::Validating) => "ValidatingAdmissionPolicyBinding",
            Self::Resource => "CustomResourceDefinition",
            Self::OpenApi => "OpenAPI document",
            Self::Kubewarden(policy) => policy.kind(),
            Self::Gatekeeper(document) => document.kind(),
            Self::SidecarSet => "SidecarSet",
            Self::Bcs => "admissionwebhook",
            Self::BcsResource => "AdmissionWebhookConfiguration",
        }
    }
}

/// The definitions in a document: itself, or the items of the list that it is.
pub(crate) fn definitions<'a>(document: &'a Document, mistakes: &mut Mistakes) -> Vec<(Form, Node<'a>)> {
    let root = document.root();
    let fields = root.object(&mut Mistakes::new());
    if fields.is_some_and(|fields| fields.has(openapi::VERSION) || fields.has(openapi::VERSION_2)) {
        return vec![(Form::OpenApi, root)];
    }
    let Some(head) = Head::read(&root, mistakes) else {
        return Vec::new();
    };
    // `kubectl get -o yaml` prints a List; the API server itself one that says what is in it.
    let kind_of_items = head.kind.strip_suffix("List");
    let of_items = match kind_of_items.and_then(|kind| listed(kind, head.version)) {
        Some((None, supported)) => {
            head.wrong_version(supported, mistakes);
            return Vec::new();
        }
        Some((form, _)) => form,
        None if (head.kind, head.version) == ("List", "v1") => None,
        None => return head.form(mistakes).map(|form| (form, root)).into_iter().collect(),
    };
    let mut definitions = Vec::new();
    let Some(mut fields) = root.object(mistakes) else {
        return definitions;
    };
    fields.ignore(&["apiVersion", "kind", "metadata"]);
    let items = fields.optional("items").and_then(|items| items.list(mistakes));
    fields.finish(mistakes);
    for item in items.unwrap_or_default() {
        let form = match of_items {
            // Its items need not say it again.
            Some(form) if item.object(mistakes).is_some_and(|fields| !fields.has("kind")) => Some(form),
            _ => Head::read(&item, mistakes).and_then(|head| head.form(mistakes)),
        };
        definitions.extend(form.map(|form| (form, item)));
    }
    definitions
}

/// The kind and version of a document.
struct Head<'a> {
    root: Node<'a>,
    kind_node: Node<'a>,
    kind: &'a str,
    version_node: Option<Node<'a>>,
    /// Empty if it is missing.
    version: &'a str,
}

impl<'a> Head<'a> {
    fn read(root: &Node<'a>, mistakes: &mut Mistakes) -> Option<Self> {
        let mut fields = root.object_of_any_case(mistakes)?;
        let kind_node = fields.required("kind", KNOWN, mistakes)?;
        let kind = kind_node.text(mistakes)?;
        let version_node = fields.optional("apiVersion");
        let version = match &version_node {
            Some(version) => version.string(mistakes)?,
            None => "",
        };
        Some(Self {
            root: root.clone(),
            kind_node,
            kind,
            version_node,
            version,
        })
    }

    fn form(&self, mistakes: &mut Mistakes) -> Option<Form> {
        let (known, versions) = match (self.kind, self.version) {
            ("AdmissionWebhookConfiguration", version) => (
                (version == BCS_RESOURCE).then_some(Form::BcsResource),
                BCS_RESOURCE,
            ),
            (kind, version) if kind.eq_ignore_ascii_case("admissionwebhook") => {
                (matches!(version, "v4" | "").then_some(Form::Bcs), "v4")
            }
            (kind, version) => match listed(kind, version) {
                Some(listed) => listed,
                None => {
                    self.unknown(mistakes);
                    return None;
                }
            },
        };
        if known.is_none() {
            self.wrong_version(versions, mistakes);
            // What needs a policy finds it, and has no mistake itself.
            let of_v1 = listed(self.kind, KUBERNETES).and_then(|(form, _)| form);
            return of_v1.filter(|form| matches!(form, Form::Policy(_) | Form::Binding(_)));
        }
        known
    }

    fn wrong_version(&self, right: &str, mistakes: &mut Mistakes) {
        let fix = format!("write `apiVersion: {right}`");
        match &self.version_node {
            Some(node) => {
                let message = format!(
                    "{version} is not a supported version of {kind}",
                    version = quoted(self.version),
                    kind = self.kind
                );
                node.wrong(message, fix, mistakes);
            }
            None => self.root.wrong("apiVersion is missing", fix, mistakes),
        }
    }

    fn unknown(&self, mistakes: &mut Mistakes) {
        let of = if self.version.is_empty() {
            String::new()
        } else {
            format!(" of {}", self.version)
        };
        let message = format!("{kind}{of} is not known here", kind = quoted(self.kind));
        self.kind_node.wrong(message, KNOWN, mistakes);
    }
}
