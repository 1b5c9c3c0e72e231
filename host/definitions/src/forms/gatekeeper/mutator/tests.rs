use admittance_admission::{Phase, Scope, StageSpec};
use admittance_mutation::{FieldLocation, ImageParts};
use serde_json::json;

use super::*;
use crate::{MutatorsDefinition, load_text};

const POD: &str = "applyTo: [ { groups: [\"\"], versions: [v1], kinds: [Pod] } ]";

fn document(kind: &str, name: &str, spec: &str) -> String {
    let version = "mutations.gatekeeper.sh/v1";
    format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {{ {spec} }}\n")
}

fn load(text: &str) -> (ChainDefinition, Vec<Mutator>) {
    let chains = load_text("mutators.yaml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let [chain] = chains.try_into().unwrap();
    let mutators = chain
        .stages
        .first()
        .map(|stage| stage.hook.get().unwrap())
        .map_or_else(Vec::new, |MutatorsDefinition(mutators)| mutators.to_vec());
    (chain, mutators)
}

fn location(text: &str) -> FieldLocation {
    FieldLocation::parse(text).unwrap()
}

#[test]
fn mutators_of_every_kind_form_one_stage() {
    let image = "location: \"spec.containers[name: *].image\", parameters: { assignDomain: d.io, assignTag: \":1\" }";
    let set =
        "location: \"spec.containers[name: a].args\", parameters: { operation: prune, values: { fromList: [-v, 1] } }";
    let added = "location: spec.x, parameters: { values: { fromList: [] } }";
    let tested = "location: spec.dnsPolicy, parameters: { assign: { value: None }, \
                  pathTests: [ { subPath: spec.dnsPolicy, condition: MustNotExist } ] }";
    let text = [
        document("ModifySet", "b", &format!("{POD}, {set}")),
        document("ModifySet", "a", &format!("{POD}, {added}")),
        document(
            "AssignMetadata",
            "m",
            "location: metadata.labels.owner, parameters: { assign: { fromMetadata: { field: namespace } } }",
        ),
        document("AssignImage", "i", &format!("{POD}, {image}")).replace("/v1\n", "/v1alpha1\n"),
        document("Assign", "z", &format!("{POD}, {tested}")).replace("/v1\n", "/v1beta1\n"),
    ];
    let (chain, mutators) = load(&text.concat());
    assert_eq!((chain.name.as_str(), chain.phase), (CHAIN, Phase::Mutating));
    assert_eq!(chain.warnings(), []);
    let [stage] = chain.stages.as_slice() else {
        panic!("{chain:?}")
    };
    assert_eq!((&*stage.spec.name, &stage.spec.rules), (STAGE_NAME, &chain.rules));

    let mutator = |name: &str, location_text: &str, mutation| Mutator::new(name, location(location_text), mutation);
    let mut tested = mutator(
        "Assign/z",
        "spec.dnsPolicy",
        admittance_mutation::Mutation::Assign("None".into()),
    );
    tested.add_path_test(&location("spec.dnsPolicy"), false).unwrap();
    let parts = ImageParts {
        domain: Some("d.io".to_owned()),
        tag: Some(":1".to_owned()),
        path: None,
    };
    let mut labelled = mutator(
        "AssignMetadata/m",
        "metadata.labels.owner",
        admittance_mutation::Mutation::AssignNamespace,
    );
    labelled
        .add_path_test(&location("metadata.labels.owner"), false)
        .unwrap();
    let values = vec![json!("-v"), json!(1)];
    let expected = [
        tested,
        mutator(
            "AssignImage/i",
            "spec.containers[name: *].image",
            admittance_mutation::Mutation::Image(parts),
        ),
        labelled,
        mutator(
            "ModifySet/a",
            "spec.x",
            admittance_mutation::Mutation::Merge(Vec::new()),
        ),
        mutator(
            "ModifySet/b",
            "spec.containers[name: a].args",
            admittance_mutation::Mutation::Prune(values),
        ),
    ];
    let plain_mutators: Vec<Mutator> = mutators
        .iter()
        .cloned()
        .map(|mut mutator| {
            mutator.request_filter = StageSpec::new(mutator.name.as_str());
            mutator
        })
        .collect();
    assert_eq!(plain_mutators, expected);
}

#[test]
fn a_mutator_selects_requests_by_apply_to_and_match() {
    let spec = r#"applyTo: [ { groups: [apps, ""], versions: [v1], kinds: [Deployment, Pod] }, { groups: [batch], versions: [v1], kinds: [Job], operations: [CREATE] } ],
  match: { scope: Namespaced, kinds: [ { apiGroups: ["*"], kinds: [Pod, Job] }, { apiGroups: [apps] } ], namespaces: [shop-*], name: web,
    labelSelector: { matchLabels: { a: b } }, namespaceSelector: { matchLabels: { c: d } } },
  location: spec.x, parameters: { assign: { value: 1 } }"#;
    let config = r#"---
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: { name: config }
spec: { match: [ { excludedNamespaces: [a], processes: [mutation-webhook] }, { excludedNamespaces: [b], processes: [webhook] } ] }
"#;
    let (chain, mutators) = load(&format!("{}{config}", document("Assign", "a", spec)));
    let words = |words: &[&str]| Matcher::Only(words.iter().map(|word| (*word).to_owned()).collect());
    let parts = |rule: &Rule| {
        let operations = rule.operations.clone();
        (
            operations,
            rule.api_groups.clone(),
            rule.api_versions.clone(),
            rule.kinds.clone(),
        )
    };
    let both = Matcher::Only(vec![Operation::Create, Operation::Update]);
    let rule_parts: Vec<_> = chain.rules.iter().map(parts).collect();
    assert_eq!(
        rule_parts,
        [
            (both.clone(), words(&["apps", ""]), words(&["v1"]), words(&["Pod"])),
            (
                Matcher::Only(vec![Operation::Create]),
                words(&["batch"]),
                words(&["v1"]),
                words(&["Job"])
            ),
            (both, words(&["apps"]), words(&["v1"]), words(&["Deployment", "Pod"])),
        ]
    );
    assert!(chain.rules.iter().all(|rule| rule.scope == Scope::Namespaced));
    let [mutator] = mutators.as_slice() else {
        panic!("{mutators:?}")
    };
    assert_eq!(mutator.labels.to_string(), "a in (b)");
    assert!(mutator.request_filter.namespace_selector.is_some());
    let conditions = mutator.request_filter.match_conditions.expressions();
    let names: Vec<&str> = conditions.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["namespaces", "excludedNamespaces", "name"]);
    let excluded = conditions[1].1;
    assert!(excluded.contains("== 'a'") && !excluded.contains("'b'"), "{excluded}");
}

#[test]
fn mutators_that_never_apply_cause_warnings() {
    for (matching, expected) in [
        ("source: Generated", "there is no ExpansionTemplate"),
        ("kinds: [ { apiGroups: [apps] } ]", "have nothing in common"),
    ] {
        let spec =
            format!("{POD}, match: {{ {matching} }}, location: spec.x, parameters: {{ assign: {{ value: 1 }} }}");
        let (chain, mutators) = load(&document("Assign", "a", &spec));
        assert_eq!((mutators, chain.stages.len()), (Vec::new(), 0));
        let [warning] = chain.warnings.as_slice() else {
            panic!("{chain:?}")
        };
        assert!(warning.message.contains(expected), "{warning}");
    }
}

/// The expected mistakes follow Gatekeeper 3.x. Its checks are in pkg/mutation/mutators for each kind of mutator, in
/// pkg/mutation/path/tester for path tests, and in pkg/mutation/mutators/assignimage/imageparser_test.go for images.
#[test]
fn mistakes_in_mutators_are_reported_with_their_locations() {
    let pod = |spec: &str| format!("{POD}, {spec}");
    let pod_with_location = |location: &str| {
        pod(&format!(
            "location: '{location}', parameters: {{ assign: {{ value: {{ name: a }} }} }}"
        ))
    };
    let assigned = |assign: &str| pod(&format!("location: spec.x, parameters: {{ assign: {assign} }}"));
    let tests = |tests: &str| {
        let tests = format!("pathTests: [{tests}]");
        pod(&format!(
            "location: spec.x.y, parameters: {{ assign: {{ value: 1 }}, {tests} }}"
        ))
    };
    let metadata =
        |location: &str, value: &str| format!("location: '{location}', parameters: {{ assign: {{ value: {value} }} }}");
    let image = |parameters: &str| pod(&format!("location: spec.image, parameters: {{ {parameters} }}"));
    let set = |parameters: &str| pod(&format!("location: spec.x, parameters: {{ {parameters} }}"));
    let no_apply_to = "location: spec.x, parameters: { assign: { value: 1 } }".to_owned();
    for (kind, spec, expected) in [
        ("Assign", no_apply_to.clone(), "spec.applyTo: missing"),
        ("Assign", format!("applyTo: [], {no_apply_to}"), "the list is empty"),
        (
            "Assign",
            format!("applyTo: [ {{ groups: [\"\"], versions: [v1] }} ], {no_apply_to}"),
            "spec.applyTo[0].kinds: missing",
        ),
        (
            "Assign",
            format!("applyTo: [ {{ groups: [\"*\"], versions: [v1], kinds: [Pod] }} ], {no_apply_to}"),
            "`*` has no meaning in `applyTo`",
        ),
        (
            "Assign",
            pod_with_location("spec..x"),
            "spec.location: `spec..x` is not a location",
        ),
        (
            "Assign",
            pod_with_location("metadata.labels.a"),
            "only AssignMetadata changes the metadata",
        ),
        (
            "Assign",
            pod_with_location("spec.containers[name: a].name"),
            "the field by which the items of a list are found",
        ),
        (
            "Assign",
            pod_with_location("spec.containers[name: *]"),
            "ends with all items of a list",
        ),
        (
            "Assign",
            pod_with_location("spec.containers[name: b]"),
            "not the item that the location names; write an object with `name: \"b\"`",
        ),
        (
            "Assign",
            pod("location: 'spec.x[name: a]', parameters: { assign: { fromMetadata: { field: name } } }"),
            "an item of a list cannot come from the metadata",
        ),
        ("Assign", assigned("{}"), "exactly one of `value` and `fromMetadata`"),
        (
            "Assign",
            assigned("{ value: 1, fromMetadata: { field: name } }"),
            "exactly one of",
        ),
        ("Assign", assigned("{ fromMetadata: { field: uid } }"), "uid"),
        (
            "Assign",
            assigned("{ externalData: { provider: p } }"),
            "spec.parameters.assign.externalData: external data comes from a provider of Gatekeeper, and there is none here",
        ),
        (
            "Assign",
            tests("{ subPath: spec.z, condition: MustExist }"),
            "spec.z is not the beginning of the location spec.x.y",
        ),
        ("Assign", tests("{ subPath: spec.x, condition: Exists }"), "MustExist"),
        (
            "Assign",
            tests("{ subPath: spec.x, condition: MustNotExist }, { subPath: spec.x.y, condition: MustExist }"),
            "contradict each other: spec.x must not exist",
        ),
        (
            "AssignMetadata",
            metadata("metadata.name", "a"),
            "AssignMetadata sets a label or an annotation",
        ),
        (
            "AssignMetadata",
            metadata("metadata.finalizers.a", "a"),
            "AssignMetadata sets a label or an annotation",
        ),
        (
            "AssignMetadata",
            metadata("spec.labels.a", "a"),
            "AssignMetadata sets a label or an annotation",
        ),
        (
            "AssignMetadata",
            metadata("metadata.labels.a.b", "a"),
            "AssignMetadata sets a label or an annotation",
        ),
        ("AssignMetadata", metadata("metadata.labels.a", "1"), "put it in quotes"),
        (
            "AssignMetadata",
            format!("{POD}, {}", metadata("metadata.labels.a", "b")),
            "spec.applyTo: unknown field",
        ),
        ("AssignImage", image(""), "nothing is assigned"),
        (
            "AssignImage",
            image("assignDomain: foobar"),
            "\"foobar\" is not a domain",
        ),
        ("AssignImage", image("assignDomain: 'foobar.:5000'"), "is not a domain"),
        (
            "AssignImage",
            image("assignDomain: 'my.reg.io:latest'"),
            "is not a domain",
        ),
        ("AssignImage", image("assignDomain: not/ok.io"), "is not a domain"),
        (
            "AssignImage",
            image("assignPath: lib/stuff/app/"),
            "is not a path of an image",
        ),
        (
            "AssignImage",
            image("assignDomain: a.io, assignPath: 'lib/stuff:things/app'"),
            "is not a path of an image",
        ),
        (
            "AssignImage",
            image("assignPath: a.b.c/stuff"),
            "the path begins with what would be read as a domain",
        ),
        (
            "AssignImage",
            image("assignTag: latest"),
            "\"latest\" is not a tag or a digest",
        ),
        (
            "AssignImage",
            image("assignTag: ':lat:est'"),
            "is not a tag or a digest",
        ),
        (
            "AssignImage",
            image("assignTag: '@sha256:123456'"),
            "is not a tag or a digest",
        ),
        (
            "AssignImage",
            pod("location: 'spec.containers[name: a]', parameters: { assignTag: ':1' }"),
            "ends with the items of a list",
        ),
        (
            "ModifySet",
            set("values: {}"),
            "spec.parameters.values.fromList: missing",
        ),
        (
            "ModifySet",
            set("operation: add, values: { fromList: [a] }"),
            "operation",
        ),
        (
            "ModifySet",
            pod("location: 'spec.x[name: a]', parameters: { values: { fromList: [a] } }"),
            "ends with the items of a list",
        ),
    ] {
        let text = document(kind, "a", &spec);
        match load_text("mutators.yaml", &text) {
            Ok(chains) => panic!("{text}: {chains:?}"),
            Err(mistakes) => {
                let message = mistakes.to_string();
                assert!(message.contains(expected), "{expected}: {message}");
            }
        }
    }
    for parameters in [
        "assignDomain: 'localhost:5000'",
        "assignDomain: 'a-b-c.com:5000', assignPath: a.b.c/stuff",
        "assignPath: lib/stuff-app__thing/a/b--c/e",
        "assignTag: '@sha256:12345678901234567890123456789012'",
    ] {
        load(&document("AssignImage", "a", &image(parameters)));
    }
}

/// Gatekeeper 3.x applies neither of two mutators whose locations contradict each other (pkg/mutation/schema).
#[test]
fn mutators_with_contradicting_locations_are_a_mistake() {
    let object = format!("{POD}, location: spec.containers.image, parameters: {{ assign: {{ value: 1 }} }}");
    let list = "location: 'spec.containers[name: a].image', parameters: { assignTag: ':1' }";
    let text = format!(
        "{}{}",
        document("Assign", "a", &object),
        document("AssignImage", "b", &format!("{POD}, {list}"))
    );
    let mistakes = load_text("mutators.yaml", &text).unwrap_err().to_string();
    assert!(
        mistakes.contains("contradicts that of Assign/a in mutators.yaml:2"),
        "{mistakes}"
    );
    let other_kind = POD.replace("Pod", "Deployment");
    load(&text.replacen(POD, &other_kind, 1));

    let twice = document("Assign", "a", &object).repeat(2);
    let mistakes = load_text("mutators.yaml", &twice).unwrap_err().to_string();
    assert!(
        mistakes.contains("\"Assign/a\" is also the name of the mutator in"),
        "{mistakes}"
    );
}
