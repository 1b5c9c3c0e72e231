//! The stock plugin `sidecar-injector`: adds containers, init containers, volumes, annotations and
//! labels to Pods and to the pod templates of workloads, of Kubernetes and of BCS.
//!
//! ```yaml
//! containers:
//!   - name: log-agent
//!     image: registry.example.com/log-agent:2.1
//!     volumeMounts: [{ name: logs, mountPath: /var/log/app }]
//! volumes:
//!   - { name: logs, emptyDir: {} }
//! annotations: { example.com/logs: collected }
//! mode: optOut          # or optIn, always
//! ```
//!
//! It adds, and never changes: a container, volume, annotation or label of the same name stays as it
//! is. So it injects once however often it runs, and puts back what an update left out. A workload
//! decides by the annotation `sidecar-injector.admittance.dev/inject` on its pod template or on itself.
//!
//! Kubernetes takes no further containers for a Pod that exists, so a bare Pod is injected when it is
//! created and left alone when it is updated. Requests for subresources are left alone too.

mod settings;

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::Pointer;
use admittance_sdk::prelude::*;
use admittance_sdk::workload::{Container, PodTemplate, Workload};

use settings::{Element, Naming, elements};
pub use settings::{Mode, Settings};

/// The configured plugin.
#[derive(Debug)]
pub struct SidecarInjector {
    containers: Vec<Element>,
    init_containers: Vec<Element>,
    volumes: Vec<Element>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    mode: Mode,
    annotation: String,
    status_annotation: String,
    /// What the status annotation says: the containers, separated by commas.
    status: String,
}

#[plugin(
    mutates,
    resources = [
        "v1/pods", "v1/replicationcontrollers", "v1/podtemplates",
        "apps/v1/deployments", "apps/v1/statefulsets", "apps/v1/daemonsets", "apps/v1/replicasets",
        "batch/v1/jobs", "batch/v1/cronjobs",
        "v4/applications", "v4/deployments",
    ],
)]
impl Plugin for SidecarInjector {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let Settings {
            containers,
            init_containers,
            volumes,
            annotations,
            labels,
            mode,
            annotation,
            status_annotation,
        } = settings;
        let mut errors = SettingsErrors::new();
        // Containers and init containers share their names, volumes have their own.
        let mut taken = BTreeSet::new();
        let empty = containers.is_empty()
            && init_containers.is_empty()
            && volumes.is_empty()
            && annotations.is_empty()
            && labels.is_empty();
        if empty {
            errors.push(
                pointer![],
                "there is nothing to inject; give `containers`, `initContainers`, `volumes`, `annotations` or `labels`",
            );
        }
        let containers = elements(
            "containers",
            containers,
            Naming::NameOrImage,
            &mut taken,
            &mut errors,
        );
        let init_containers = elements(
            "initContainers",
            init_containers,
            Naming::NameOrImage,
            &mut taken,
            &mut errors,
        );
        let volumes = elements(
            "volumes",
            volumes,
            Naming::Name,
            &mut BTreeSet::new(),
            &mut errors,
        );
        for (field, value) in [
            ("annotation", &annotation),
            ("statusAnnotation", &status_annotation),
        ] {
            if value.is_empty() {
                errors.push(
                    pointer![field],
                    "the annotation has no name; give one, or leave the field out",
                );
            }
        }
        for (field, keys) in [("annotations", &annotations), ("labels", &labels)] {
            if keys.contains_key("") {
                errors.push(
                    pointer![field, ""],
                    "a key is empty; give it a name, or remove it",
                );
            }
        }
        for (key, why) in [
            (&annotation, "by which workloads decide"),
            (&status_annotation, "that records the injection"),
        ] {
            if annotations.contains_key(key.as_str()) {
                errors.push(
                    pointer!["annotations", key],
                    format!("this is the annotation {why}; remove it"),
                );
            }
        }
        if annotation == status_annotation {
            errors.push(
                pointer!["statusAnnotation"],
                "this must be another annotation than `annotation`",
            );
        }
        errors.check()?;
        let status = containers
            .iter()
            .chain(&init_containers)
            .map(Element::identity)
            .collect::<Vec<_>>()
            .join(",");
        Ok(Self {
            containers,
            init_containers,
            volumes,
            annotations,
            labels,
            mode,
            annotation,
            status_annotation,
            status,
        })
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        let writes = matches!(request.operation(), Operation::Create | Operation::Update);
        if !writes || request.subresource().is_some() {
            return Ok(Response::allow());
        }
        let Some(workload) = Workload::read(request)? else {
            return Ok(Response::allow());
        };
        if workload.is_pod() && request.operation() == Operation::Update {
            return Ok(Response::allow());
        }
        if let Some(misspelt) = workload.misspelt() {
            return Ok(Response::deny(
                Denial::new(format!(
                    "{}: the control plane reads this field as \"{}\"; write it so, that the sidecar can be injected",
                    misspelt.path, misspelt.expected
                ))
                .code(422)
                .reason("MisspeltField"),
            ));
        }
        let mut patch = Patch::new();
        let mut unclear = None;
        for template in workload.templates() {
            let answer = template
                .annotation(&self.annotation)
                .or_else(|| workload.annotation(&self.annotation));
            let wish = answer.map(Wish::read);
            if matches!(wish, Some(Wish::Unclear)) {
                unclear = answer;
            }
            if self.injects(wish) {
                self.inject(template, &mut patch)?;
            }
        }
        let response = Response::patch(patch);
        Ok(match unclear {
            Some(value) => response.warn(format!(
                "the annotation {} is \"{value}\", which is neither \"true\" nor \"false\"; it has no effect",
                self.annotation
            )),
            None => response,
        })
    }

    fn warm_up(&self, sample: &Request) {
        // Leaves the heap as large as a call needs it.
        let _ = self.admit(sample);
    }
}

impl SidecarInjector {
    fn injects(&self, wish: Option<Wish>) -> bool {
        match self.mode {
            Mode::OptOut => wish != Some(Wish::Decline),
            Mode::OptIn => wish == Some(Wish::Ask),
            Mode::Always => true,
        }
    }

    /// Add to the patch what one template lacks. Only where containers run: a template of something
    /// else has no such list.
    fn inject(&self, template: &PodTemplate<'_>, patch: &mut Patch) -> Result<(), Error> {
        let Some(containers) = &template.containers else {
            return Ok(());
        };
        let spec = &template.spec_path;
        let init_containers = template.init_containers.as_deref();
        let status = template.annotation(&self.status_annotation);
        let present = |list: &[Container<'_>], element: &Element| {
            is_present(list, element, status.filter(|_| self.mode != Mode::Always))
        };

        let missing = self
            .containers
            .iter()
            .filter(|element| !present(containers, element));
        append(patch, spec, "containers", true, missing)?;

        let missing = self
            .init_containers
            .iter()
            .filter(|element| !present(init_containers.unwrap_or_default(), element));
        append(patch, spec, "initContainers", init_containers.is_some(), missing)?;

        let volumes = template.volumes.as_deref();
        let missing = self.volumes.iter().filter(|element| {
            !volumes
                .unwrap_or_default()
                .iter()
                .any(|volume| volume.name.as_deref() == Some(&element.name))
        });
        append(patch, spec, "volumes", volumes.is_some(), missing)?;

        let status = (!self.status.is_empty()).then_some((&self.status_annotation, &self.status));
        let has = |key: &str| {
            template
                .annotations
                .as_ref()
                .is_some_and(|map| map.contains_key(key))
        };
        let missing = self.annotations.iter().chain(status).filter(|(key, _)| !has(key));
        insert(
            patch,
            template,
            "annotations",
            template.annotations.is_some(),
            missing,
        )?;

        let has = |key: &str| template.labels.as_ref().is_some_and(|map| map.contains_key(key));
        let missing = self.labels.iter().filter(|(key, _)| !has(key));
        insert(patch, template, "labels", template.labels.is_some(), missing)
    }
}

/// What a workload's annotation says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Ask,
    Decline,
    Unclear,
}

impl Wish {
    fn read(value: &str) -> Self {
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        if is(&["true", "yes", "on", "enabled", "1"]) {
            Self::Ask
        } else if is(&["false", "no", "off", "disabled", "0"]) {
            Self::Decline
        } else {
            Self::Unclear
        }
    }
}

/// Whether the element is in the list.
///
/// BCS drops the names of containers when it stores them. Where there are containers without names, one of the same
/// image counts, and so does the status: another stage may have rewritten the image since.
fn is_present(list: &[Container<'_>], element: &Element, status: Option<&str>) -> bool {
    let named = |container: &Container<'_>| container.name.as_deref().is_some_and(|name| !name.is_empty());
    if !element.name.is_empty()
        && list
            .iter()
            .any(|container| container.name.as_deref() == Some(&element.name))
    {
        return true;
    }
    let mut nameless = list.iter().filter(|container| !named(container)).peekable();
    if nameless.peek().is_none() {
        return false;
    }
    status.is_some_and(|status| status.split(',').any(|identity| identity == element.identity()))
        || (!element.image.is_empty()
            && nameless.any(|container| container.image.as_deref() == Some(&element.image)))
}

fn append<'a>(
    patch: &mut Patch,
    spec: &Pointer,
    list: &str,
    exists: bool,
    missing: impl Iterator<Item = &'a Element>,
) -> Result<(), Error> {
    let mut missing = missing.peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let mut path = spec.with_trailing_token(list);
    patch.ensure_array(&path, exists);
    path.push_back("-");
    for element in missing {
        patch.add(&path, &element.json)?;
    }
    Ok(())
}

fn insert<'a>(
    patch: &mut Patch,
    template: &PodTemplate<'_>,
    map: &str,
    exists: bool,
    missing: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<(), Error> {
    let mut missing = missing.peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    patch.ensure_object(&template.metadata_path, template.has_metadata);
    let path = template.metadata_path.with_trailing_token(map);
    patch.ensure_object(&path, exists);
    for (key, value) in missing {
        patch.add(path.with_trailing_token(key), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
