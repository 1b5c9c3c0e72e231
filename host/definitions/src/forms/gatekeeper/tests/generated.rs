//! Tests of constraints on objects that expansion templates generate.

use std::any::Any;

use admittance_mutation::Expansion;
use serde_json::json;

use super::{REGO, constraint, load_one, names, plugin};
use crate::{MutatorsDefinition, load_text};

const EXPANSIONS: &str = r#"---
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: { name: pods }
spec:
  applyTo: [ { groups: [apps, batch], versions: [v1], kinds: [Deployment, Job] } ]
  templateSource: spec.template
  generatedGVK: { version: v1, kind: Pod }
---
apiVersion: expansion.gatekeeper.sh/v1alpha1
kind: ExpansionTemplate
metadata: { name: jobs }
spec:
  applyTo: [ { groups: [batch], versions: [v1], kinds: [CronJob] } ]
  templateSource: spec.jobTemplate
  enforcementAction: warn
  generatedGVK: { group: batch, version: v1, kind: Job }
"#;

#[test]
fn constraints_apply_to_generated_objects() {
    let mutators = r#"---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: { name: generated }
spec:
  match: { source: Generated }
  location: metadata.labels.a
  parameters: { assign: { value: b } }
---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: { name: original }
spec:
  match: { source: Original }
  location: metadata.labels.c
  parameters: { assign: { value: d } }
"#;
    let constraint_spec = |kinds: &str, source: &str| {
        format!("{{ match: {{ kinds: [ {{ kinds: [{kinds}] }} ], source: {source} }}, parameters: {{ most: 1 }} }}")
    };
    let text = format!(
        "{REGO}{EXPANSIONS}{mutators}{}{}{}{}",
        constraint("everything", "{ parameters: { most: 1 } }"),
        constraint("jobs", &constraint_spec("Job", "Generated")),
        constraint("nodes", &constraint_spec("Node", "All")),
        constraint("pods", &constraint_spec("Pod", "Original")),
    );
    let chains = load_text("policies.yaml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [mutating, chain] = chains.as_slice() else {
        panic!("{chains:?}")
    };
    assert_eq!(
        names(chain).iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        [
            "everything",
            "everything/jobs",
            "everything/jobs/pods",
            "everything/pods",
            "jobs/jobs",
            "nodes",
            "pods",
        ]
    );
    let constraints = &plugin(&chain.stages[0]).settings["constraints"];
    for stage in &chain.stages {
        let plugin = plugin(stage);
        assert_eq!(&plugin.settings["constraints"], constraints);
        assert_eq!(plugin.allow.environment["CONSTRAINT"], *stage.spec.name);
    }
    let expected = json!({"parameters": {"most": 1, "unit": "cpu"}, "actions": ["deny"],
                          "prefix": "[everything] [Implied by pods]"});
    assert_eq!(constraints["everything/jobs/pods"], expected);
    assert_eq!(constraints["everything/jobs"]["actions"], json!(["warn"]));
    assert_eq!(constraints["nodes"].get("prefix"), None);

    let [_, _, of_cron_jobs, of_jobs, ..] = chain.stages.as_slice() else {
        panic!("{chain:?}")
    };
    let expansions = [of_cron_jobs, of_jobs].map(|stage| {
        let generator = stage.spec.expansion.as_deref().unwrap();
        (generator as &dyn Any).downcast_ref::<Expansion>().unwrap()
    });
    let steps = expansions.each_ref().map(|expansion| {
        let steps = expansion.steps.iter();
        steps
            .map(|step| format!("{} at {}", step.kind, step.source.join(".")))
            .collect::<Vec<_>>()
    });
    let pod = "v1/Pod at spec.template";
    assert_eq!(steps, [vec!["batch/v1/Job at spec.jobTemplate", pod], vec![pod]]);
    let [applied] = &*expansions[0].mutators else {
        panic!("{expansions:?}")
    };
    assert_eq!(applied.name, "AssignMetadata/generated");
    let Some(MutatorsDefinition(applied)) = mutating.stages[0].hook.get() else {
        panic!("{mutating:?}")
    };
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0].name, "AssignMetadata/original");
    let generators = &expansions[0].generators;
    assert!(
        generators.iter().all(|rule| chain.rules.contains(rule)),
        "{:?}",
        chain.rules
    );
    assert!(chain.warnings().is_empty() || !chain.warnings()[0].message.contains("generated"));

    let chain = load_one(&format!(
        "{REGO}{}",
        constraint("jobs", &constraint_spec("Job", "Generated"))
    ));
    assert!(chain.stages.is_empty());
    let warnings: Vec<String> = chain.warnings().iter().map(ToString::to_string).collect();
    let expected = "spec.match.source: it is for generated objects, and there is no ExpansionTemplate";
    assert!(
        warnings.iter().any(|warning| warning.contains(expected)),
        "{warnings:?}"
    );
}

#[test]
fn mistakes_in_expansion_templates_are_reported() {
    let back = "---
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: { name: back }
spec:
  applyTo: [ { groups: [\"\"], versions: [v1], kinds: [Pod] } ]
  templateSource: spec
  generatedGVK: { group: batch, version: v1, kind: CronJob }
";
    for (text, expected) in [
        (
            format!("{EXPANSIONS}{back}"),
            "what it generates leads by \"pods\" in policies.yaml:2:1 to objects that it applies to",
        ),
        (
            EXPANSIONS
                .replace("kind: Pod", "kind: Job")
                .replace("{ version", "{ group: batch, version"),
            "what it generates leads to objects that it applies to",
        ),
        (
            EXPANSIONS.replace("spec.template", "spec..template"),
            "spec.templateSource: a field of the path is empty",
        ),
        (
            EXPANSIONS.replace("kind: Pod }", "}"),
            "spec.generatedGVK.kind: missing",
        ),
        (
            EXPANSIONS.replace("enforcementAction: warn", "enforcementAction: scoped"),
            "spec.enforcementAction",
        ),
        (
            EXPANSIONS.replace("name: jobs", "name: pods"),
            "\"pods\" is also the name of the ExpansionTemplate in",
        ),
    ] {
        let message = load_text("policies.yaml", &text).expect_err(expected).to_string();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}
