//! The annotations with which workloads opt in or out of the injection, and which record that they are injected.

use admittance_sdk::workload::{PodTemplate, Workload};

use crate::settings::Convention;

/// The annotations of [kube-sidecar-injector](https://github.com/morvencao/kube-sidecar-injector).
const KUBE_SIDECAR_INJECTOR: (&str, &str) = (
    "sidecar-injector-webhook.morven.me/inject",
    "sidecar-injector-webhook.morven.me/status",
);

/// The namespaces in which kube-sidecar-injector never injects.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-public"];

/// The value that kube-sidecar-injector writes into its status annotation. It is read case-insensitively.
const INJECTED_STATUS: &str = "injected";

#[derive(Debug)]
pub(crate) struct AnnotationPair {
    pub(crate) choice_annotation: String,
    pub(crate) status_annotation: String,
    pub(crate) style: AnnotationStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnnotationStyle {
    /// The syntax of this plugin: the status annotation lists the injected containers.
    Admittance,
    /// The syntax of kube-sidecar-injector: the value `injected` of the status annotation prevents another injection.
    KubeSidecarInjector,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectionChoice {
    Ask,
    Decline,
    Unclear,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AnnotatedChoice<'a> {
    pub(crate) choice: InjectionChoice,
    pub(crate) value: &'a str,
    pub(crate) annotations: &'a AnnotationPair,
}

/// The annotations that the plugin understands: those of the configured convention, and sometimes also those of
/// kube-sidecar-injector.
#[derive(Debug)]
pub(crate) struct Conventions {
    pub(crate) main: AnnotationPair,
    kube_annotations: Option<AnnotationPair>,
}

impl Conventions {
    /// Chooses the names of the annotations. `is_added` returns whether the plugin adds an annotation with a given name
    /// to workloads.
    pub(crate) fn new(
        convention: Convention,
        answer: Option<String>,
        status: Option<String>,
        is_added: impl Fn(&str) -> bool,
    ) -> Self {
        let (style, names) = match convention {
            Convention::Both | Convention::Admittance => (
                AnnotationStyle::Admittance,
                (
                    "sidecar-injector.admittance.dev/inject",
                    "sidecar-injector.admittance.dev/status",
                ),
            ),
            Convention::KubeSidecarInjector => (AnnotationStyle::KubeSidecarInjector, KUBE_SIDECAR_INJECTOR),
        };
        let main = AnnotationPair {
            choice_annotation: answer.unwrap_or_else(|| names.0.to_owned()),
            status_annotation: status.unwrap_or_else(|| names.1.to_owned()),
            style,
        };
        // The settings may use a name such as `sidecar-injector-webhook.morven.me/inject` for another annotation. Then
        // the annotations of kube-sidecar-injector are not read.
        let is_taken = |name: &str| name == main.choice_annotation || name == main.status_annotation || is_added(name);
        let (answer, status) = KUBE_SIDECAR_INJECTOR;
        let understood =
            (convention == Convention::Both && !is_taken(answer) && !is_taken(status)).then(|| AnnotationPair {
                choice_annotation: answer.to_owned(),
                status_annotation: status.to_owned(),
                style: AnnotationStyle::KubeSidecarInjector,
            });
        Self {
            main,
            kube_annotations: understood,
        }
    }

    pub(crate) fn skips_namespace(&self, namespace: Option<&str>) -> bool {
        self.main.style == AnnotationStyle::KubeSidecarInjector && is_system_namespace(namespace)
    }

    /// Returns the annotation with which a workload opts in or out. A workload may have both the annotation of the
    /// configured convention and that of kube-sidecar-injector. The configured one takes precedence then.
    pub(crate) fn annotated_choice<'a>(
        &'a self,
        template: &'a PodTemplate<'_>,
        workload: &'a Workload<'_>,
        namespace: Option<&str>,
    ) -> Option<AnnotatedChoice<'a>> {
        self.annotation_pairs().find_map(|marks| {
            let value = template
                .annotation(&marks.choice_annotation)
                .or_else(|| workload.annotation(&marks.choice_annotation))?;
            let wish = match (marks.style.parse_choice(value), marks.style) {
                (InjectionChoice::Ask, AnnotationStyle::KubeSidecarInjector) if is_system_namespace(namespace) => {
                    InjectionChoice::Decline
                }
                (wish, _) => wish,
            };
            Some(AnnotatedChoice {
                choice: wish,
                value,
                annotations: marks,
            })
        })
    }

    pub(crate) fn is_injected(&self, template: &PodTemplate<'_>) -> bool {
        self.annotation_pairs().any(|marks| marks.has_injected_status(template))
    }

    /// Returns the status annotation of the template if it lists the injected containers. BCS drops the names of
    /// containers, so only this list tells which ones were injected.
    pub(crate) fn status_list<'a>(&self, template: &'a PodTemplate<'_>) -> Option<&'a str> {
        let lists_containers = self.main.style == AnnotationStyle::Admittance;
        lists_containers
            .then(|| template.annotation(&self.main.status_annotation))
            .flatten()
    }

    /// Returns those annotations that record an injection but are missing in the template.
    pub(crate) fn missing_status_annotations<'a>(
        &'a self,
        template: &PodTemplate<'_>,
        answer: Option<AnnotatedChoice<'_>>,
        containers: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let answer_annotation = answer.map(|answer| answer.annotations.choice_annotation.as_str());
        self.annotation_pairs().filter_map(move |marks| match marks.style {
            AnnotationStyle::Admittance => {
                let is_missing = !containers.is_empty() && template.annotation(&marks.status_annotation).is_none();
                is_missing.then_some((marks.status_annotation.as_str(), containers))
            }
            AnnotationStyle::KubeSidecarInjector => {
                let speaks = marks.choice_annotation == self.main.choice_annotation
                    || answer_annotation == Some(&marks.choice_annotation);
                (speaks && !marks.has_injected_status(template))
                    .then_some((marks.status_annotation.as_str(), INJECTED_STATUS))
            }
        })
    }

    pub(crate) fn annotation_pairs(&self) -> impl Iterator<Item = &AnnotationPair> {
        std::iter::once(&self.main).chain(&self.kube_annotations)
    }
}

impl AnnotationPair {
    fn has_injected_status(&self, template: &PodTemplate<'_>) -> bool {
        self.style == AnnotationStyle::KubeSidecarInjector
            && template
                .annotation(&self.status_annotation)
                .is_some_and(|status| status.eq_ignore_ascii_case(INJECTED_STATUS))
    }
}

impl AnnotationStyle {
    fn parse_choice(self, value: &str) -> InjectionChoice {
        let is_any_of = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        let (ask, decline): (&[&str], &[&str]) = match self {
            Self::Admittance => (
                &["true", "yes", "on", "enabled", "1"],
                &["false", "no", "off", "disabled", "0"],
            ),
            // The words with which a workload opts in, and the words with which it opts out. Until 2022,
            // kube-sidecar-injector knew only the first list. Since then, it knows only the second one.
            Self::KubeSidecarInjector => (&["y", "yes", "true", "on"], &["n", "no", "not", "false", "off"]),
        };
        if is_any_of(ask) {
            InjectionChoice::Ask
        } else if is_any_of(decline) {
            InjectionChoice::Decline
        } else {
            InjectionChoice::Unclear
        }
    }

    pub(crate) fn opt_in_and_out_words(self) -> (&'static str, &'static str) {
        match self {
            Self::Admittance => ("true", "false"),
            Self::KubeSidecarInjector => ("yes", "no"),
        }
    }
}

fn is_system_namespace(namespace: Option<&str>) -> bool {
    namespace.is_some_and(|namespace| SYSTEM_NAMESPACES.contains(&namespace))
}
