//! Injects what the plugin's own settings list: adds parts that Pods and the templates of workloads lack.

use std::collections::{BTreeMap, BTreeSet};

use admittance_sdk::Pointer;
use admittance_sdk::prelude::*;
use admittance_sdk::workload::{Container, PodTemplate, TextMap, Workload};

use crate::convention::{AnnotatedChoice, Conventions, InjectionChoice};
use crate::settings::{AddedElement, InjectionMode, NameRule, Settings, elements};

/// The parts that the plugin adds, and the workloads to which it adds them.
#[derive(Debug)]
pub struct Injector {
    containers: Vec<AddedElement>,
    init_containers: Vec<AddedElement>,
    volumes: Vec<AddedElement>,
    image_pull_secrets: Vec<AddedElement>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    mode: InjectionMode,
    conventions: Conventions,
    /// The value that the status annotation gets: the names of the added containers, separated by commas.
    status: String,
}

impl Injector {
    pub(crate) fn new(settings: Settings) -> Result<Self, SettingsErrors> {
        let Settings {
            containers,
            init_containers,
            volumes,
            image_pull_secrets,
            annotations,
            labels,
            convention,
            mode,
            annotation,
            status_annotation,
            sidecar_set: _,
        } = settings;
        let mut errors = SettingsErrors::new();
        // The names of all containers and init containers, no two of which may be equal. Volumes are not included,
        // because a volume may have the same name as a container.
        let mut used_names = BTreeSet::new();
        let empty = containers.is_empty()
            && init_containers.is_empty()
            && volumes.is_empty()
            && image_pull_secrets.is_empty()
            && annotations.is_empty()
            && labels.is_empty();
        if empty {
            errors.push(
                pointer![],
                "there is nothing to inject; give `containers`, `initContainers`, `volumes`, `imagePullSecrets`, \
                 `annotations` or `labels`",
            );
        }
        let containers = elements(
            "containers",
            containers,
            NameRule::NameOrImage,
            &mut used_names,
            &mut errors,
        );
        let init_containers = elements(
            "initContainers",
            init_containers,
            NameRule::NameOrImage,
            &mut used_names,
            &mut errors,
        );
        let volumes = elements("volumes", volumes, NameRule::Name, &mut BTreeSet::new(), &mut errors);
        let image_pull_secrets = elements(
            "imagePullSecrets",
            image_pull_secrets,
            NameRule::Name,
            &mut BTreeSet::new(),
            &mut errors,
        );
        let conventions = Conventions::new(convention, annotation, status_annotation, |name| {
            annotations.contains_key(name)
        });
        check_annotations(&conventions, &annotations, &labels, &mut errors);
        errors.check()?;
        let status = containers
            .iter()
            .chain(&init_containers)
            .map(AddedElement::identity)
            .collect::<Vec<_>>()
            .join(",");
        Ok(Self {
            containers,
            init_containers,
            volumes,
            image_pull_secrets,
            annotations,
            labels,
            mode: mode.unwrap_or_default(),
            conventions,
            status,
        })
    }

    pub(crate) fn admit(&self, request: &Request) -> Result<Response, Error> {
        let writes = matches!(request.operation(), Operation::Create | Operation::Update);
        let namespace = request.namespace();
        if !writes || request.subresource().is_some() || self.conventions.skips_namespace(namespace) {
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
                    "{}: the control plane reads this field as \"{}\"; use that spelling, so that the sidecar can be injected",
                    misspelt.path, misspelt.expected
                ))
                .code(422)
                .reason("MisspeltField"),
            ));
        }
        let mut patch = Patch::new();
        let mut unclear = None;
        for template in workload.templates() {
            let answer = self.conventions.annotated_choice(template, &workload, namespace);
            if answer.is_some_and(|answer| answer.choice == InjectionChoice::Unclear) {
                unclear = answer;
            }
            if self.should_inject(template, answer) {
                self.inject(template, answer, &mut patch)?;
            }
        }
        let response = Response::patch(patch);
        Ok(match unclear {
            Some(AnnotatedChoice {
                value,
                annotations: marks,
                ..
            }) => {
                let (yes, no) = marks.style.opt_in_and_out_words();
                response.warn(format!(
                    "the annotation {} is \"{value}\", which is neither \"{yes}\" nor \"{no}\"; it has no effect",
                    marks.choice_annotation
                ))
            }
            None => response,
        })
    }
}

fn check_annotations(
    conventions: &Conventions,
    annotations: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
    errors: &mut SettingsErrors,
) {
    let (answer, status) = (&conventions.main.choice_annotation, &conventions.main.status_annotation);
    for (field, value) in [("annotation", answer), ("statusAnnotation", status)] {
        if value.is_empty() {
            errors.push(
                pointer![field],
                "the annotation has no name; set one, or remove the field",
            );
        }
    }
    for (field, keys) in [("annotations", annotations), ("labels", labels)] {
        if keys.contains_key("") {
            errors.push(pointer![field, ""], "a key is empty; give it a name, or remove it");
        }
    }
    for (key, why) in [
        (answer, "by which workloads decide"),
        (status, "that records the injection"),
    ] {
        if annotations.contains_key(key.as_str()) {
            errors.push(
                pointer!["annotations", key],
                format!("this is the annotation {why}; remove it"),
            );
        }
    }
    if answer == status {
        errors.push(
            pointer!["statusAnnotation"],
            "this must be another annotation than `annotation`",
        );
    }
}

impl Injector {
    fn should_inject(&self, template: &PodTemplate<'_>, answer: Option<AnnotatedChoice<'_>>) -> bool {
        let wish = answer.map(|answer| answer.choice);
        match self.mode {
            InjectionMode::OptOut => wish != Some(InjectionChoice::Decline) && !self.conventions.is_injected(template),
            InjectionMode::OptIn => wish == Some(InjectionChoice::Ask) && !self.conventions.is_injected(template),
            InjectionMode::Always => true,
        }
    }

    /// A template without containers is not changed, because it is not the template of a Pod.
    fn inject(
        &self,
        template: &PodTemplate<'_>,
        answer: Option<AnnotatedChoice<'_>>,
        patch: &mut Patch,
    ) -> Result<(), Error> {
        let Some(containers) = &template.containers else {
            return Ok(());
        };
        let spec = &template.spec_path;
        let init_containers = template.init_containers.as_deref();
        let status = self.conventions.status_list(template);
        let present = |list: &[Container<'_>], element: &AddedElement| {
            is_present(list, element, status.filter(|_| self.mode != InjectionMode::Always))
        };

        let missing = self.containers.iter().filter(|element| !present(containers, element));
        append_elements(patch, spec, "containers", true, missing)?;

        let missing = self
            .init_containers
            .iter()
            .filter(|element| !present(init_containers.unwrap_or_default(), element));
        append_elements(patch, spec, "initContainers", init_containers.is_some(), missing)?;

        let volumes = template.volumes.as_deref();
        let missing = self.volumes.iter().filter(|element| {
            !volumes
                .unwrap_or_default()
                .iter()
                .any(|volume| volume.name.as_deref() == Some(&element.name))
        });
        append_elements(patch, spec, "volumes", volumes.is_some(), missing)?;

        let secrets = template.image_pull_secrets.as_deref();
        let missing = self.image_pull_secrets.iter().filter(|element| {
            !secrets
                .unwrap_or_default()
                .iter()
                .any(|secret| secret.name.as_deref() == Some(&element.name))
        });
        append_elements(patch, spec, "imagePullSecrets", secrets.is_some(), missing)?;

        let status = self
            .conventions
            .missing_status_annotations(template, answer, &self.status);
        let annotations = template.annotations.as_ref();
        let missing = missing_entries(&self.annotations, annotations).chain(status);
        insert_entries(patch, template, "annotations", annotations.is_some(), missing)?;

        let labels = template.labels.as_ref();
        insert_entries(
            patch,
            template,
            "labels",
            labels.is_some(),
            missing_entries(&self.labels, labels),
        )
    }
}

fn missing_entries<'a>(
    added: &'a BTreeMap<String, String>,
    existing: Option<&TextMap<'_>>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    added
        .iter()
        .filter(move |(key, _)| !existing.is_some_and(|present| present.contains_key(key)))
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

/// BCS drops the names of containers. A container without a name is found by its image or the status annotation.
fn is_present(list: &[Container<'_>], element: &AddedElement, status: Option<&str>) -> bool {
    let has_name = |container: &Container<'_>| container.name.as_deref().is_some_and(|name| !name.is_empty());
    if !element.name.is_empty()
        && list
            .iter()
            .any(|container| container.name.as_deref() == Some(&element.name))
    {
        return true;
    }
    let mut nameless = list.iter().filter(|container| !has_name(container)).peekable();
    if nameless.peek().is_none() {
        return false;
    }
    status.is_some_and(|status| status.split(',').any(|identity| identity == element.identity()))
        || (!element.image.is_empty() && nameless.any(|container| container.image.as_deref() == Some(&element.image)))
}

fn append_elements<'a>(
    patch: &mut Patch,
    spec: &Pointer,
    list_field: &str,
    exists: bool,
    missing: impl Iterator<Item = &'a AddedElement>,
) -> Result<(), Error> {
    let mut missing = missing.peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let mut path = spec.with_trailing_token(list_field);
    patch.ensure_array(&path, exists);
    path.push_back("-");
    for element in missing {
        patch.add(&path, &element.json)?;
    }
    Ok(())
}

fn insert_entries<'a>(
    patch: &mut Patch,
    template: &PodTemplate<'_>,
    map_field: &str,
    exists: bool,
    missing: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Error> {
    let mut missing = missing.peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    patch.ensure_object(&template.metadata_path, template.has_metadata);
    let path = template.metadata_path.with_trailing_token(map_field);
    patch.ensure_object(&path, exists);
    for (key, value) in missing {
        patch.add(path.with_trailing_token(key), value)?;
    }
    Ok(())
}
