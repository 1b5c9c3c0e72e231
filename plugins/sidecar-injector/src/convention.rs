//! The annotations with which workloads opt in or out of the injection, and which record that they are injected.

use admittance_sdk::workload::{PodTemplate, Workload};

use crate::settings::Convention;

/// The annotations of [kube-sidecar-injector](https://github.com/morvencao/kube-sidecar-injector).
const KUBE_SIDECAR_INJECTOR: (&str, &str) = (
    "sidecar-injector-webhook.morven.me/inject",
    "sidecar-injector-webhook.morven.me/status",
);

/// The namespaces in which kube-sidecar-injector injects nothing.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-public"];

/// The value of the status annotation of kube-sidecar-injector. It is read case-insensitively.
const INJECTED: &str = "injected";

/// A pair of annotations, and their syntax.
#[derive(Debug)]
pub(crate) struct AnnotationPair {
    /// The annotation by which a workload opts in or out.
    pub(crate) answer: String,
    /// The annotation that records the injection.
    pub(crate) status: String,
    pub(crate) style: Style,
}

/// The syntax of the annotations' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// The status annotation lists the injected containers.
    Admittance,
    /// A status annotation with the value `injected` prevents another injection.
    KubeSidecarInjector,
}

/// Whether a workload's annotation asks for the injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectionChoice {
    Ask,
    Decline,
    Unclear,
}

/// The choice that the annotation of a workload makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) wish: InjectionChoice,
    pub(crate) value: &'a str,
    pub(crate) marks: &'a AnnotationPair,
}

/// The annotations that the plugin reads: the pair of the convention, and another pair that is also supported.
#[derive(Debug)]
pub(crate) struct Conventions {
    pub(crate) main: AnnotationPair,
    understood: Option<AnnotationPair>,
}

impl Conventions {
    /// Creates the conventions. The annotations have the names that the operator set, or the default names of the
    /// convention. `is_added` says whether the plugin adds an annotation of this name to workloads.
    pub(crate) fn new(
        convention: Convention,
        answer: Option<String>,
        status: Option<String>,
        is_added: impl Fn(&str) -> bool,
    ) -> Self {
        let (style, names) = match convention {
            Convention::Both | Convention::Admittance => (
                Style::Admittance,
                (
                    "sidecar-injector.admittance.dev/inject",
                    "sidecar-injector.admittance.dev/status",
                ),
            ),
            Convention::KubeSidecarInjector => (Style::KubeSidecarInjector, KUBE_SIDECAR_INJECTOR),
        };
        let main = AnnotationPair {
            answer: answer.unwrap_or_else(|| names.0.to_owned()),
            status: status.unwrap_or_else(|| names.1.to_owned()),
            style,
        };
        // If the settings use an annotation name for something else, that use takes precedence.
        let is_taken = |name: &str| name == main.answer || name == main.status || is_added(name);
        let (answer, status) = KUBE_SIDECAR_INJECTOR;
        let understood =
            (convention == Convention::Both && !is_taken(answer) && !is_taken(status)).then(|| {
                AnnotationPair {
                    answer: answer.to_owned(),
                    status: status.to_owned(),
                    style: Style::KubeSidecarInjector,
                }
            });
        Self { main, understood }
    }

    /// Returns whether nothing is injected into a namespace, even if annotations request it.
    pub(crate) fn skips(&self, namespace: Option<&str>) -> bool {
        self.main.style == Style::KubeSidecarInjector && is_system(namespace)
    }

    /// Returns the choice that a template or its workload makes. The annotation of the convention takes precedence.
    pub(crate) fn answer<'a>(
        &'a self,
        template: &'a PodTemplate<'_>,
        workload: &'a Workload<'_>,
        namespace: Option<&str>,
    ) -> Option<Answer<'a>> {
        self.all().find_map(|marks| {
            let value = template
                .annotation(&marks.answer)
                .or_else(|| workload.annotation(&marks.answer))?;
            let wish = match (marks.style.read(value), marks.style) {
                (InjectionChoice::Ask, Style::KubeSidecarInjector) if is_system(namespace) => {
                    InjectionChoice::Decline
                }
                (wish, _) => wish,
            };
            Some(Answer { wish, value, marks })
        })
    }

    /// Returns whether a template was injected before, and must not be injected again.
    pub(crate) fn is_done(&self, template: &PodTemplate<'_>) -> bool {
        self.all().any(|marks| marks.says_injected(template))
    }

    /// Returns the containers that a template's status annotation lists as injected. They are needed because BCS drops
    /// the names of containers.
    pub(crate) fn listed<'a>(&self, template: &'a PodTemplate<'_>) -> Option<&'a str> {
        let lists = self.main.style == Style::Admittance;
        lists.then(|| template.annotation(&self.main.status)).flatten()
    }

    /// Returns the annotations that record an injection and that the template lacks. `containers` are the added
    /// containers; `answer` is the annotation that requested the injection.
    pub(crate) fn missing_status<'a>(
        &'a self,
        template: &PodTemplate<'_>,
        answer: Option<Answer<'_>>,
        containers: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let by = answer.map(|answer| answer.marks.answer.as_str());
        self.all().filter_map(move |marks| match marks.style {
            Style::Admittance => {
                let missing = !containers.is_empty() && template.annotation(&marks.status).is_none();
                missing.then_some((marks.status.as_str(), containers))
            }
            Style::KubeSidecarInjector => {
                let speaks = marks.answer == self.main.answer || by == Some(&marks.answer);
                (speaks && !marks.says_injected(template)).then_some((marks.status.as_str(), INJECTED))
            }
        })
    }

    /// Returns the pairs of annotations, the pair of the convention first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AnnotationPair> {
        std::iter::once(&self.main).chain(&self.understood)
    }
}

impl AnnotationPair {
    fn says_injected(&self, template: &PodTemplate<'_>) -> bool {
        self.style == Style::KubeSidecarInjector
            && template
                .annotation(&self.status)
                .is_some_and(|status| status.eq_ignore_ascii_case(INJECTED))
    }
}

impl Style {
    fn read(self, value: &str) -> InjectionChoice {
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        let (ask, decline): (&[&str], &[&str]) = match self {
            Self::Admittance => (
                &["true", "yes", "on", "enabled", "1"],
                &["false", "no", "off", "disabled", "0"],
            ),
            // Until 2022, kube-sidecar-injector read only words that opt in. Since then, it has read only words that
            // opt out, and `no` is not one of them; here, `no` also opts out.
            Self::KubeSidecarInjector => (&["y", "yes", "true", "on"], &["n", "no", "not", "false", "off"]),
        };
        if is(ask) {
            InjectionChoice::Ask
        } else if is(decline) {
            InjectionChoice::Decline
        } else {
            InjectionChoice::Unclear
        }
    }

    /// Returns the values to suggest for opting in and out.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Admittance => ("true", "false"),
            Self::KubeSidecarInjector => ("yes", "no"),
        }
    }
}

fn is_system(namespace: Option<&str>) -> bool {
    namespace.is_some_and(|namespace| SYSTEM_NAMESPACES.contains(&namespace))
}
