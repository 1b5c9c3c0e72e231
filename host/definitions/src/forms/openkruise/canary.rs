//! Reads annotations of SidecarSets. Two of them make a SidecarSet the canary of another one, which is its base.

use std::sync::Arc;

use admittance_admission::Precedence;

use super::chain_name;
use crate::{
    ChainDefinition,
    document::{Mistake, Mistakes, Node, ValueLocation, quoted},
};

const CANARY_ANNOTATION: &str = "apps.kruise.io/sidecarset-canary";
const BASE_ANNOTATION: &str = "apps.kruise.io/sidecarset-base";

/// Annotations that OpenKruise itself writes when it updates Pods in place. This program ignores them without warning.
const UPDATE_ANNOTATIONS: [&str; 2] = ["kruise.io/sidecarset-hash", "kruise.io/sidecarset-hash-without-image"];

/// A SidecarSet that is the canary of another SidecarSet, its base. If a Pod is selected by the canary and by the base,
/// only the canary is injected into it.
#[derive(Debug)]
pub(super) struct Canary {
    name: String,
    base: String,
    location: ValueLocation,
}

/// Reads the canary that a SidecarSet's annotations define. Warns about annotations without an effect.
pub(super) fn read(metadata: &Node<'_>, name: &str, warnings: &mut Vec<Mistake>) -> Option<Canary> {
    let annotations = super::child_field(metadata, "annotations")?.children();
    let find = |key: &str| {
        annotations
            .iter()
            .find(|(annotation_key, _)| *annotation_key == Some(key))
    };
    let base = find(BASE_ANNOTATION)
        .filter(|_| find(CANARY_ANNOTATION).is_some_and(|(_, value)| value.json() == "true"))
        .and_then(|(_, node)| Some((node, node.json().as_str()?.to_owned())));
    let canary = base.filter(|(_, base)| !base.is_empty()).map(|(node, base)| Canary {
        name: name.to_owned(),
        base,
        location: node.value_location(),
    });
    for (key, node) in &annotations {
        let Some(key) = key.filter(|key| is_of_openkruise(key)) else {
            continue;
        };
        let has_effect = canary.is_some() && [CANARY_ANNOTATION, BASE_ANNOTATION].contains(&key);
        if !has_effect && !UPDATE_ANNOTATIONS.contains(&key) {
            let message = format!("the annotation {key} has no effect here");
            let fix = match key {
                CANARY_ANNOTATION | BASE_ANNOTATION => "write both annotations of a canary, or remove it",
                _ => "remove it, or leave the SidecarSet to OpenKruise",
            };
            warnings.push(node.mistake(message, fix));
        }
    }
    canary
}

fn is_of_openkruise(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| domain == "kruise.io" || domain.ends_with(".kruise.io"))
}

impl Canary {
    /// Reports the mistakes in this canary for which OpenKruise rejects it. Mistakes that depend on other SidecarSets
    /// are not reported here.
    pub(super) fn check_itself(&self, is_updated: bool, root: &Node<'_>) {
        if self.base == self.name {
            let message = "a canary cannot be its own base";
            root.report(self.location.mistake(message, "name another SidecarSet"));
        }
        if is_updated {
            let message = "a canary cannot update Pods that exist";
            let fix = "write `updateStrategy: { type: NotUpdate }`";
            root.report(self.location.mistake(message, fix));
        }
    }

    /// Reports a mistake if the base of this canary is itself a canary, which OpenKruise rejects.
    pub(super) fn check(&self, canaries: &[&Self], mistakes: &mut Mistakes) {
        let is_base = |other: &&Self| other.name == self.base && other.name != self.name;
        if canaries.iter().any(is_base) {
            let message = format!("the base {} is a canary too", quoted(&self.base));
            let fix = "name a SidecarSet that is no canary";
            mistakes.push(self.location.mistake(message, fix));
        }
    }
}

/// A Pod that is selected by a canary and by its base gets only the canary. Therefore the stage of the base excludes
/// the Pods that the canary selects.
pub(super) fn add_precedences(canaries: &[&Canary], chains: &mut [ChainDefinition]) {
    for canary in canaries {
        let find = |chains: &[ChainDefinition], name| {
            let name = chain_name(name);
            chains.iter().position(|chain| chain.name == name)
        };
        let base = find(chains, &canary.base);
        let Some(chain) = find(chains, &canary.name).and_then(|index| chains.get_mut(index)) else {
            continue;
        };
        if base.is_none() {
            let message = format!("there is no SidecarSet {}", quoted(&canary.base));
            let fix = "correct the name of the base, or remove the annotations";
            chain.warnings.push(canary.location.mistake(message, fix));
        }
        let Some(stage) = chain.stages.first() else {
            continue;
        };
        let precedence = Arc::new(Precedence {
            chain: chain.name.as_str().into(),
            namespaces: stage.spec.namespace_selector.clone(),
            objects: stage.spec.object_selector.clone(),
        });
        if let Some(base) = base.and_then(|index| chains.get_mut(index)) {
            for stage in &mut base.stages {
                stage.spec.yields_to.push(precedence.clone());
            }
        }
    }
}
