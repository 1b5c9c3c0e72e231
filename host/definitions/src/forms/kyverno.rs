//! Reads Kyverno's policies in CEL: `ValidatingPolicy`, `MutatingPolicy`, their namespaced kinds, and their exceptions.
//!
//! A policy becomes a chain of the same name, whose first stage is the policy itself. If the policy is for Pods, there
//! are additional stages for resources that create Pods, such as Deployments.

mod autogen;
mod exception;
mod spec;

use admittance_admission::Phase;

use self::{exception::ExceptionDocument, spec::PolicyScope};
use super::{DocumentForm, DocumentKind, FormContent, FormDocuments, TypedDocument};
use crate::{Definitions, ImportResult, document::Mistakes};

const VERSIONS: &[&str] = &[
    "policies.kyverno.io/v1",
    "policies.kyverno.io/v1beta1",
    "policies.kyverno.io/v1alpha1",
];

const RULES_REASON: &str = "policies of kyverno.io with rules are not run here: Kyverno has deprecated them";
const RULES_FIX: &str = "write a ValidatingPolicy or MutatingPolicy of policies.kyverno.io";
const EXCEPTION_REASON: &str = "exceptions of kyverno.io are from rules of policies that are not run here";
const EXCEPTION_FIX: &str = "write a PolicyException of policies.kyverno.io, which names policies in `policyRefs`";
const CONTROLLER_REASON: &str = "it creates or deletes other objects, which an admission hook cannot";
const CONTROLLER_FIX: &str = "keep it in Kyverno, whose controllers do this without a webhook";
const IMAGE_REASON: &str = "signatures of images are not verified by policies here";
const IMAGE_FIX: &str = "verify them with a policy of Kubewarden, or keep this one in Kyverno";

static KINDS: [DocumentKind; 17] = [
    DocumentKind::new("ValidatingPolicy", VERSIONS),
    DocumentKind::namespaced("NamespacedValidatingPolicy", VERSIONS),
    DocumentKind::new("MutatingPolicy", VERSIONS),
    DocumentKind::namespaced("NamespacedMutatingPolicy", VERSIONS),
    DocumentKind {
        is_namespaced: true,
        ..DocumentKind::supporting("PolicyException", VERSIONS)
    },
    DocumentKind::refused("PolicyException", EXCEPTION_REASON, EXCEPTION_FIX),
    DocumentKind::refused("ClusterPolicy", RULES_REASON, RULES_FIX),
    DocumentKind::refused("Policy", RULES_REASON, RULES_FIX),
    DocumentKind::refused("GeneratingPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("NamespacedGeneratingPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("DeletingPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("NamespacedDeletingPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("CleanupPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("ClusterCleanupPolicy", CONTROLLER_REASON, CONTROLLER_FIX),
    DocumentKind::refused("ImageValidatingPolicy", IMAGE_REASON, IMAGE_FIX),
    DocumentKind::refused("NamespacedImageValidatingPolicy", IMAGE_REASON, IMAGE_FIX),
    DocumentKind::refused(
        "GlobalContextEntry",
        "policies do not read a global context here",
        "read the objects with `resource.Get` or `resource.List` in the policy",
    ),
];

#[derive(Debug)]
pub(super) struct Kyverno;

impl DocumentForm for Kyverno {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn recognize(&self, kind: &str, version: &str) -> Option<&'static DocumentKind> {
        let (group, _) = version.split_once('/')?;
        let is_classic = group == "kyverno.io";
        let is_own = is_classic || group.ends_with(".kyverno.io");
        let mut kinds = KINDS
            .iter()
            .filter(|document_kind| is_own && document_kind.name == kind);
        // `KINDS` contains the kind `PolicyException` twice. The last one is that of the older API group `kyverno.io`.
        if is_classic { kinds.next_back() } else { kinds.next() }
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        if document.kind.is_supporting {
            let exception = exception::read(&document.root)?;
            return Some(FormContent::of_part(
                "exception",
                Phase::Validating,
                exception.name.clone(),
                exception,
            ));
        }
        let scope = PolicyScope {
            phase: if document.kind.name.ends_with("MutatingPolicy") {
                Phase::Mutating
            } else {
                Phase::Validating
            },
            is_namespaced: document.kind.is_namespaced,
        };
        spec::read(&document.root, scope).map(FormContent::of_chain)
    }

    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, mistakes: &mut Mistakes) {
        let documents = all.definitions.iter();
        let policies = documents.filter_map(|policy| Some((policy.kind.name, policy.chain()?.clone())));
        let mut chains: Vec<_> = policies.collect();
        for exception in all.parts::<ExceptionDocument>() {
            exception.attach(&mut chains, mistakes);
        }
        defined.chains.extend(chains.into_iter().map(|(_, chain)| chain));
    }

    fn import(&self, kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        let reason = "it stays with its policies; write an AdmissionException for stages of native chains";
        kind.is_supporting.then_some((ImportResult::Kept, reason))
    }
}

#[cfg(test)]
mod tests;
