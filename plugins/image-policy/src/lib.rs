//! The stock plugin `image-policy`: rewrites container images to other registries, and denies images that break the
//! rules, in Pods and workloads of Kubernetes and of BCS.
//!
//! ```yaml
//! rewrites:
//!   docker.io: mirror.example.com/docker-hub
//! allowedRegistries: [mirror.example.com, registry.example.com/team]
//! refusedRegistries: [registry.example.com/team/attic]
//! refuseLatest: true
//! requireDigest: false
//! ```
//!
//! Every rule is optional, and applies to the rewritten image. `containers`, `initContainers`, `ephemeralContainers`
//! and image volumes are covered. If there is a rule to check, an image that is not a valid reference is denied.
//!
//! Images that an existing Pod already has are not changed when the Pod is updated: the Pod runs them, and another name
//! would restart it. Objects that are being deleted are ignored too, because a denial would prevent their deletion.

mod reference;
mod settings;

use std::fmt::Write as _;

use admittance_sdk::prelude::*;
use admittance_sdk::serde::de::IgnoredAny;
use admittance_sdk::workload::{PodTemplate, Workload};
use admittance_sdk::{Pointer, PointerBuf};

use reference::{Reference, ReferencePrefix};
pub use settings::Settings;
use settings::{RegistryRewrite, parse_registries, parse_rewrites};

/// The plugin `image-policy`, configured with its settings.
#[derive(Debug)]
pub struct ImagePolicy {
    rewrites: Vec<RegistryRewrite>,
    allowed_registries: Option<Vec<ReferencePrefix>>,
    refused_registries: Vec<ReferencePrefix>,
    refuse_latest: bool,
    require_digest: bool,
}

#[plugin(
    mutates,
    resources = [
        "v1/pods", "v1/pods/ephemeralcontainers", "v1/replicationcontrollers", "v1/podtemplates",
        "apps/v1/deployments", "apps/v1/statefulsets", "apps/v1/daemonsets", "apps/v1/replicasets",
        "batch/v1/jobs", "batch/v1/cronjobs",
        "v4/applications", "v4/deployments",
    ],
)]
impl Plugin for ImagePolicy {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let rewrites = parse_rewrites(&settings.rewrites, &mut errors);
        let refused = parse_registries("refusedRegistries", &settings.refused_registries, &mut errors);
        let allowed = settings.allowed_registries.map(|texts| {
            if texts.is_empty() {
                errors.push(
                    pointer!["allowedRegistries"],
                    "an empty list refuses every image; add a registry, or remove the field",
                );
            }
            parse_registries("allowedRegistries", &texts, &mut errors)
        });
        errors.check()?;
        let Settings {
            refuse_latest,
            require_digest,
            ..
        } = settings;
        Ok(Self {
            rewrites,
            allowed_registries: allowed,
            refused_registries: refused,
            refuse_latest,
            require_digest,
        })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        if !matches!(request.operation(), Operation::Create | Operation::Update) {
            return Ok(Response::allow());
        }
        let Some(workload) = Workload::read(request)? else {
            return Ok(Response::allow());
        };
        let old = if request.operation() == Operation::Update && workload.is_pod() {
            Workload::read_old(request)?
        } else {
            None
        };
        let mut patch = Patch::new();
        let mut violations = Vec::new();
        if let Some(misspelt) = workload.misspelt()
            && self.has_rules()
        {
            violations.push(format!(
                "{}: the control plane reads this field as \"{}\"; use that spelling",
                field_path(&misspelt.path),
                misspelt.expected
            ));
        }
        for template in workload.templates() {
            for image in pod_images(template) {
                if old.as_ref().is_none_or(|old| !has_image(old, &image)) {
                    self.check_image(&image, &template.spec_path, &mut patch, &mut violations)?;
                }
            }
        }
        if violations.is_empty() || (request.operation() == Operation::Update && is_being_deleted(request)?) {
            return Ok(Response::patch(patch));
        }
        let message = match violations.as_slice() {
            [one] => one.clone(),
            all => {
                let mut message = format!("{} images break the policy:", all.len());
                for violation in all {
                    message.push_str("\n- ");
                    message.push_str(violation);
                }
                message
            }
        };
        Ok(Response::deny(Denial::new(message).reason("ImageNotAllowed")))
    }

    fn warm_up(&self, sample: &Request) {
        // This call makes the heap grow to the size that a call needs. Every later call starts with a copy of the
        // memory, so its heap need not grow again.
        let _ = self.admit(sample);
    }
}

impl ImagePolicy {
    fn has_rules(&self) -> bool {
        self.allowed_registries.is_some()
            || !self.refused_registries.is_empty()
            || self.refuse_latest
            || self.require_digest
    }

    fn check_image(
        &self,
        image: &PodImage<'_>,
        spec: &Pointer,
        patch: &mut Patch,
        violations: &mut Vec<String>,
    ) -> Result<(), Error> {
        let parsed_reference = match Reference::parse(image.reference) {
            Ok(reference) => reference,
            Err(_) if !self.has_rules() => return Ok(()),
            Err(why) => {
                let path = field_path(&image.path(spec));
                violations.push(format!(
                    "{path}: image \"{}\" is not a valid reference: {why}; write it as \
                     registry/path:tag or registry/path@digest",
                    image.reference
                ));
                return Ok(());
            }
        };
        let rewritten_text = self
            .rewrites
            .iter()
            .find_map(|rewrite| parsed_reference.with_prefix_replaced(&rewrite.from, &rewrite.to));
        let problem = match &rewritten_text {
            None => self.find_violation(&parsed_reference),
            Some(text) => match Reference::parse(text) {
                Ok(reference) => self.find_violation(&reference),
                // The rewritten reference consists of a valid prefix and the rest of a valid reference. So the only
                // possible mistake is that it is too long.
                Err(why) => Some(format!("cannot be used: {why}; shorten the name, or change `rewrites`")),
            },
        };
        if let Some(reason) = problem {
            let mut violation = format!("{}: image \"{}\" ", field_path(&image.path(spec)), image.reference);
            if let Some(rewritten) = &rewritten_text {
                let _ = write!(violation, "(rewritten to \"{rewritten}\") ");
            }
            violation.push_str(&reason);
            violations.push(violation);
        } else if let Some(rewritten) = rewritten_text {
            patch.replace(image.path(spec), &rewritten)?;
        }
        Ok(())
    }

    fn find_violation(&self, image: &Reference<'_>) -> Option<String> {
        if let Some(prefix) = self
            .refused_registries
            .iter()
            .find(|prefix| image.is_under_any_port(prefix))
        {
            return Some(format!(
                "is under \"{prefix}\", which is listed in refusedRegistries; use another registry"
            ));
        }
        if let Some(allowed) = &self.allowed_registries
            && !allowed.iter().any(|prefix| image.has_prefix(prefix))
        {
            let mut message = String::from("is from a registry that is not listed in allowedRegistries; use one of ");
            for (index, prefix) in allowed.iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                let _ = write!(message, "{separator}\"{prefix}\"");
            }
            return Some(message);
        }
        if self.require_digest && !image.has_digest() {
            return Some("has no digest, which requireDigest requires; pin it with \"@sha256:...\"".to_owned());
        }
        if self.refuse_latest && image.is_latest() {
            return Some(
                "has no tag or the tag \"latest\", which refuseLatest forbids; use a version tag, such as \":1.2.3\""
                    .to_owned(),
            );
        }
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodImage<'a> {
    image_list: ImageList,
    index: usize,
    name: Option<&'a str>,
    reference: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImageList {
    Containers(&'static str),
    Volumes,
}

impl PodImage<'_> {
    fn path(&self, spec: &Pointer) -> PointerBuf {
        let mut path = spec.to_buf();
        match self.image_list {
            ImageList::Containers(list) => {
                path.push_back(list);
                path.push_back(self.index);
                path.push_back("image");
            }
            ImageList::Volumes => {
                path.push_back("volumes");
                path.push_back(self.index);
                path.push_back("image");
                path.push_back("reference");
            }
        }
        path
    }
}

fn pod_images<'t>(template: &'t PodTemplate<'_>) -> impl Iterator<Item = PodImage<'t>> {
    let containers = template.container_lists().into_iter().flat_map(|(list, containers)| {
        containers.iter().enumerate().filter_map(move |(index, container)| {
            let (name, reference) = (container.name.as_deref(), container.image.as_deref()?);
            Some(PodImage {
                image_list: ImageList::Containers(list),
                index,
                name,
                reference,
            })
        })
    });
    let volumes = template
        .volumes
        .iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, volume)| {
            let (name, reference) = (volume.name.as_deref(), volume.image_reference()?);
            Some(PodImage {
                image_list: ImageList::Volumes,
                index,
                name,
                reference,
            })
        });
    containers.chain(volumes)
}

/// Returns whether the object before the update has this image in a container of the same name, in the same list.
fn has_image(old: &Workload<'_>, image: &PodImage<'_>) -> bool {
    old.templates().iter().flat_map(pod_images).any(|other| {
        PodImage {
            index: image.index,
            ..other
        } == *image
    })
}

/// Returns whether the object in the cluster is being deleted. The object in the request does not count, because the
/// client controls its content.
#[cold]
fn is_being_deleted(request: &Request) -> Result<bool, Error> {
    #[view]
    struct OldObject {
        metadata: Option<OldObjectMetadata>,
    }

    #[view]
    struct OldObjectMetadata {
        deletion_timestamp: Option<IgnoredAny>,
    }

    let old = request.old_object::<OldObject>()?;
    Ok(old
        .and_then(|object| object.metadata)
        .is_some_and(|metadata| metadata.deletion_timestamp.is_some()))
}

/// Converts a JSON Pointer to the notation of Kubernetes: `spec.containers[0].image`.
fn field_path(pointer: &Pointer) -> String {
    let mut path = String::new();
    for token in pointer.tokens() {
        let decoded = token.decoded();
        if decoded.bytes().all(|byte| byte.is_ascii_digit()) {
            let _ = write!(path, "[{decoded}]");
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&decoded);
        }
    }
    path
}

#[cfg(test)]
mod tests;
