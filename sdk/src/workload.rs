//! Finds the containers in every kind of object that contains containers.
//!
//! | object | pod template |
//! |---|---|
//! | Kubernetes `Pod` | the object itself |
//! | `Deployment`, `StatefulSet`, `DaemonSet`, `ReplicaSet`, `Job`, `ReplicationController` | `spec.template` |
//! | `CronJob` | `spec.jobTemplate.spec.template` |
//! | `PodTemplate` | `template` |
//! | BCS `application`, `deployment`, `daemonset` (`apiVersion: v4`) | `spec.template` |
//! | any other kind | the same places, if they have the shape of a pod template |
//!
//! ```
//! use admittance_sdk::workload::Workload;
//! use admittance_sdk::{Error, Request, Response};
//!
//! fn admit(request: &Request) -> Result<Response, Error> {
//!     let Some(workload) = Workload::read(request)? else { return Ok(Response::allow()) };
//!     for template in workload.templates() {
//!         for container in template.containers.iter().flatten() {
//!             if container.image.as_deref().is_none_or(str::is_empty) {
//!                 return Ok(Response::deny(format!("{}/containers: one has no image; name it", template.spec_path)));
//!             }
//!         }
//!     }
//!     Ok(Response::allow())
//! }
//! # use admittance_sdk::{serde_json::json, testing};
//! # let job = json!({"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}});
//! # assert_eq!(testing::create(job).run(admit).unwrap().denial().unwrap().message, "/spec/template/spec/containers: one has no image; name it");
//! ```

mod container;
mod shape;

use jsonptr::PointerBuf;
use serde_json::Value;

pub use container::{
    Capabilities, EnvSource, EnvVar, ExecProbe, HttpProbe, KeyRef, Port, Probe, Quantities, Resources, SeccompProfile,
    SecurityContext, TcpProbe, TextOrNumber,
};
pub use shape::{Container, ImagePullSecret, TextMap, Volume};

use crate::{Document, Error, Request, pointer};

/// An object that contains pod templates, and these templates.
#[derive(Debug)]
pub struct Workload<'a> {
    annotations: Option<TextMap<'a>>,
    is_pod: bool,
    templates: Vec<PodTemplate<'a>>,
    misspelt: Option<Misspelt>,
}

/// The pod template in an object: its containers and metadata. Paths are JSON Pointers into the object.
#[derive(Debug, Clone)]
pub struct PodTemplate<'a> {
    /// The path of the annotations and labels of the Pods, such as `/spec/template/metadata`.
    ///
    /// In BCS, a template may lack metadata. The object's own metadata is used then, so the path is `/metadata`.
    pub metadata_path: PointerBuf,
    /// Whether the object has metadata at `metadata_path`.
    pub has_metadata: bool,
    /// The annotations of the pod template, at `metadata_path`; `None` if there are none.
    pub annotations: Option<TextMap<'a>>,
    /// The labels of the pod template, at `metadata_path`; `None` if there are none.
    pub labels: Option<TextMap<'a>>,
    /// The path of the pod spec in the object, such as `/spec/template/spec`.
    pub spec_path: PointerBuf,
    /// The list `containers` of the pod spec; `None` if it is absent.
    pub containers: Option<Vec<Container<'a>>>,
    /// The list `initContainers` of the pod spec; `None` if it is absent.
    pub init_containers: Option<Vec<Container<'a>>>,
    /// The list `ephemeralContainers` of the pod spec; `None` if it is absent.
    pub ephemeral_containers: Option<Vec<Container<'a>>>,
    /// The list `volumes` of the pod spec; `None` if it is absent.
    pub volumes: Option<Vec<Volume<'a>>>,
    /// The list `imagePullSecrets` of the pod spec; `None` if it is absent.
    pub image_pull_secrets: Option<Vec<ImagePullSecret<'a>>>,
}

/// A field on the path to the containers. Its name is spelled in the wrong letter case.
///
/// BCS decodes JSON as Go does, where `Containers` is the same as `containers`; a plugin that looks for one spelling
/// could be bypassed with another. Kubernetes is case-sensitive, so this is never reported there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misspelt {
    /// The path of the misspelt field, with the misspelt name at its end.
    pub path: PointerBuf,
    /// The correct name of the misspelt field.
    pub expected: &'static str,
}

impl<'a> Workload<'a> {
    /// Returns the workload in a request's object; `None` if there is no object, or the object has no pod template.
    ///
    /// # Errors
    /// Fails if the object cannot be parsed although its kind has containers. An object of another kind is ignored if
    /// it cannot be parsed, unless it contains containers.
    pub fn read(request: &'a Request) -> Result<Option<Self>, Error> {
        Self::read_document(request, Document::Object)
    }

    /// Returns the workload in the old object of a request, if the control plane sent it.
    ///
    /// # Errors
    /// Fails as [`Workload::read`] does.
    pub fn read_old(request: &'a Request) -> Result<Option<Self>, Error> {
        Self::read_document(request, Document::OldObject)
    }

    fn read_document(request: &'a Request, document: Document) -> Result<Option<Self>, Error> {
        let control_plane = ControlPlane::from_request(request);
        let outcome = if is_pod(request) {
            request
                .read::<shape::ShapePod<'a>>(document)
                .map(|pod| pod.map(|pod| Self::from_pod(pod, control_plane)))
        } else {
            request
                .read::<shape::ShapeObject<'a>>(document)
                .map(|object| object.map(|object| Self::from_object(object, control_plane)))
        };
        match outcome {
            Ok(workload) => {
                Ok(workload.filter(|workload| !workload.templates.is_empty() || workload.misspelt.is_some()))
            }
            Err(error) if has_known_kind(request) || may_have_containers(request, document) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns whether the object itself is a Kubernetes Pod. Most fields of a Pod cannot be changed after creation.
    pub fn is_pod(&self) -> bool {
        self.is_pod
    }

    /// Returns the pod templates of the object. A workload of Kubernetes or BCS has exactly one.
    pub fn templates(&self) -> &[PodTemplate<'a>] {
        &self.templates
    }

    /// Returns a field whose name is in the wrong letter case, such as `Containers`. BCS recognizes the field all the
    /// same, but a plugin may miss it. So a plugin that enforces a policy should deny the object.
    pub fn misspelt(&self) -> Option<&Misspelt> {
        self.misspelt.as_ref()
    }

    /// Returns the value of an annotation of the object itself, not of the pod template.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    fn new(metadata: Option<&shape::ShapeMetadata<'a>>, is_pod: bool) -> Self {
        Self {
            annotations: metadata.and_then(|metadata| metadata.annotations.clone()),
            is_pod,
            templates: Vec::with_capacity(1),
            misspelt: None,
        }
    }

    fn from_pod(pod: shape::ShapePod<'a>, control_plane: ControlPlane) -> Self {
        let mut workload = Self::new(pod.metadata.as_ref(), true);
        if let Some(spec) = pod.spec {
            workload.push(
                PodTemplate::new(pointer!["metadata"], pod.metadata, pointer!["spec"], spec),
                control_plane,
            );
        }
        workload
    }

    fn from_object(object: shape::ShapeObject<'a>, control_plane: ControlPlane) -> Self {
        let mut workload = Self::new(object.metadata.as_ref(), false);
        if control_plane == ControlPlane::Bcs {
            workload.misspelt = object.misspelt();
        }
        let shape::ShapeObject {
            metadata,
            spec,
            template,
            ..
        } = object;
        let shape::ShapeSpec {
            template: direct,
            job_template,
            ..
        } = spec.unwrap_or_default();
        let of_job = job_template.and_then(|job| job.spec).and_then(|spec| spec.template);
        let templates = [
            (pointer!["spec", "template"], direct),
            (pointer!["spec", "jobTemplate", "spec", "template"], of_job),
            (pointer!["template"], template),
        ];
        let mut own_metadata = metadata;
        for (path, template) in templates {
            let Some(shape::ShapeTemplate {
                metadata,
                spec: Some(spec),
                ..
            }) = template
            else {
                continue;
            };
            let (metadata_path, metadata) = match (metadata, control_plane) {
                (None, ControlPlane::Bcs) => (pointer!["metadata"], own_metadata.take()),
                (metadata, _) => (path.with_trailing_token("metadata"), metadata),
            };
            workload.push(
                PodTemplate::new(metadata_path, metadata, path.with_trailing_token("spec"), spec),
                control_plane,
            );
        }
        workload
    }

    fn push(&mut self, (template, misspelt): (PodTemplate<'a>, Option<Misspelt>), control_plane: ControlPlane) {
        if control_plane == ControlPlane::Bcs && self.misspelt.is_none() {
            self.misspelt = misspelt;
        }
        self.templates.push(template);
    }
}

impl<'a> PodTemplate<'a> {
    /// Returns the three lists of containers in the pod template, each with its name.
    pub fn container_lists(&self) -> [(&'static str, &[Container<'a>]); 3] {
        [
            ("containers", self.containers.as_deref().unwrap_or_default()),
            ("initContainers", self.init_containers.as_deref().unwrap_or_default()),
            (
                "ephemeralContainers",
                self.ephemeral_containers.as_deref().unwrap_or_default(),
            ),
        ]
    }

    /// Returns the value of an annotation that the pod template gives to its Pods.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    fn new(
        metadata_path: PointerBuf,
        metadata: Option<shape::ShapeMetadata<'a>>,
        spec_path: PointerBuf,
        spec: shape::PodSpec<'a>,
    ) -> (Self, Option<Misspelt>) {
        let misspelt = spec.misspelt(&spec_path).or_else(|| {
            metadata
                .as_ref()
                .and_then(|metadata| metadata.misspelt_here(&metadata_path))
        });
        let shape::PodSpec {
            containers,
            init_containers,
            ephemeral_containers,
            volumes,
            image_pull_secrets,
            ..
        } = spec;
        let has_metadata = metadata.is_some();
        let shape::ShapeMetadata {
            annotations, labels, ..
        } = metadata.unwrap_or_default();
        let template = Self {
            metadata_path,
            has_metadata,
            annotations,
            labels,
            spec_path,
            containers,
            init_containers,
            ephemeral_containers,
            volumes,
            image_pull_secrets,
        };
        (template, misspelt)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ControlPlane {
    /// The API of BCS, whose only version is `apiVersion: v4`.
    Bcs,
    Kubernetes,
}

impl ControlPlane {
    fn from_request(request: &Request) -> Self {
        let kind = request.kind();
        if kind.group.is_empty() && kind.version == "v4" {
            Self::Bcs
        } else {
            Self::Kubernetes
        }
    }
}

fn is_pod(request: &Request) -> bool {
    let kind = request.kind();
    kind.group.is_empty() && kind.version == "v1" && kind.kind == "Pod"
}

/// Returns whether the object's kind is built in and has containers, such as `Pod`, `Deployment` or the `application`
/// of BCS. Custom resources with containers are not included.
fn has_known_kind(request: &Request) -> bool {
    let kind = request.kind();
    let name = kind.kind.as_str();
    match kind.group.as_str() {
        "" if kind.version == "v4" => ["application", "deployment", "daemonset"]
            .iter()
            .any(|known_kind| name.eq_ignore_ascii_case(known_kind)),
        "" => matches!(name, "Pod" | "PodTemplate" | "ReplicationController"),
        "apps" => matches!(name, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet"),
        "batch" => matches!(name, "Job" | "CronJob"),
        _ => false,
    }
}

#[cold]
fn may_have_containers(request: &Request, document: Document) -> bool {
    let Ok(Some(object)) = request.read::<Value>(document) else {
        return true;
    };
    [
        "/spec/template/spec/containers",
        "/spec/jobTemplate/spec/template/spec/containers",
        "/template/spec/containers",
    ]
    .iter()
    .any(|pointer| object.pointer(pointer).is_some_and(Value::is_array))
}

#[cfg(test)]
mod tests;
