//! The stock plugin `sidecar-injector`: adds containers, init containers, volumes, annotations and labels to Pods and
//! to the pod templates of workloads, of Kubernetes and of BCS.
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
//! The plugin adds, and never changes: an existing container, volume, annotation or label with the same name stays as
//! it is. So it is idempotent, and adds again what an update removed. A workload opts in or out with the annotation
//! `sidecar-injector.admittance.dev/inject` on its pod template or on itself.
//!
//! The file `sidecarconfig.yaml` of [kube-sidecar-injector] and of tutorials based on it can be used as settings
//! unchanged. Its annotations `sidecar-injector-webhook.morven.me/inject` and `.../status` are supported in addition to
//! the plugin's own; `convention: kubeSidecarInjector` makes the plugin behave as that injector does.
//!
//! Kubernetes does not allow adding containers to an existing Pod, so a Pod is injected only when it is created.
//! Requests for subresources are ignored.
//!
//! If `sidecarSet` is set, the plugin injects as OpenKruise injects a SidecarSet: see [`SidecarSet`].
//!
//! [kube-sidecar-injector]: https://github.com/morvencao/kube-sidecar-injector

mod convention;
mod injector;
mod settings;
mod sidecar_set;

use admittance_sdk::prelude::*;

pub use injector::Injector;
pub use settings::{Convention, InjectionMode, Settings};
pub use sidecar_set::{Injection, PatchPolicy, PodMetadata, SidecarSet};

/// The plugin `sidecar-injector`, configured with its settings.
#[derive(Debug)]
pub enum SidecarInjector {
    /// The plugin adds the containers, volumes and other parts that its own settings list.
    Own(Injector),
    /// The plugin injects a SidecarSet as OpenKruise does.
    SidecarSet(Injection),
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

    fn configure(mut settings: Settings) -> Result<Self, SettingsErrors> {
        match settings.sidecar_set.take() {
            None => Injector::new(settings).map(Self::Own),
            Some(set) if settings == Settings::default() => Injection::new(set).map(Self::SidecarSet),
            Some(_) => Err(SettingsErrors::one(
                pointer!["sidecarSet"],
                "a SidecarSet is injected without anything else; remove the other settings, or make another stage \
                 for them",
            )),
        }
    }

    fn admit(&self, request: &Request) -> Result<Response, Error> {
        match self {
            Self::Own(injector) => injector.admit(request),
            Self::SidecarSet(injection) => injection.admit(request),
        }
    }

    fn warm_up(&self, sample: &Request) {
        // This call makes the heap grow to the size that a call needs. Every later call starts with a copy of the
        // memory, so its heap need not grow again.
        let _ = self.admit(sample);
    }
}

#[cfg(test)]
mod tests;
