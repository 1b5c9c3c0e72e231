use std::time::Duration as Span;

use super::*;
use crate::{DefinitionFile, DefinitionId, DefinitionSet, Definitions, load_text};

const CHAINS: &str = "\
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  rules: [{ operations: [CREATE], kinds: [Pod] }]
  stages:
  - { name: images, plugin: { source: \"file:a.wasm\" } }
  - { name: labels, plugin: { source: \"file:a.wasm\" } }
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: { name: pods }
spec:
  phase: Validating
  rules: [{ operations: [CREATE], kinds: [Pod] }]
  stages:
  - { name: images, plugin: { source: \"file:a.wasm\" } }
---
apiVersion: v4
kind: admissionwebhook
metadata: { name: inject, namespace: ns }
resourcesRef: { operation: Create, kind: application }
admissionWebhooks:
- { name: sidecar, plugin: { source: \"file:a.wasm\" } }
";

fn exception(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionException\nmetadata: {{ name: {name} }}\nspec: {{ owner: \
         team, reason: why, expires: 2027-01-31, {spec} }}\n"
    )
}

fn load_definitions(text: &str) -> Definitions {
    let set = DefinitionSet::of_files(vec![DefinitionFile::file("a.yaml", text)]);
    set.definitions().unwrap()
}

fn excepted_stages(definitions: &Definitions, name: &str) -> Vec<String> {
    let chains = definitions.chains.iter();
    let stages = chains.flat_map(|chain| chain.stages.iter().map(move |stage| (chain, &stage.spec)));
    stages
        .filter(|(_, spec)| spec.exceptions.iter().any(|exception| &*exception.name == name))
        .map(|(chain, spec)| format!("{}:{}/{}", chain.phase, chain.name, spec.name))
        .collect()
}

#[test]
fn stages_have_the_exceptions_that_name_them() {
    for (stages, expected) in [
        ("[pods/labels]", &["Mutating:pods/labels"][..]),
        ("[pods/images]", &["Mutating:pods/images", "Validating:pods/images"]),
        ("[\"Validating:pods/images\"]", &["Validating:pods/images"]),
        (
            "[\"pods/*\", pods/images]",
            &["Mutating:pods/images", "Mutating:pods/labels", "Validating:pods/images"],
        ),
        (
            "[\"Mutating:pods/*\"]",
            &["Mutating:pods/images", "Mutating:pods/labels"],
        ),
        ("[ns/inject/sidecar]", &["Mutating:ns/inject/sidecar"]),
        ("[\"ns/inject/*\"]", &["Mutating:ns/inject/sidecar"]),
        ("[pods/none]", &[]),
    ] {
        let text = format!(
            "{CHAINS}---\n{}",
            exception("a", &format!("stages: {stages}, users: [x]"))
        );
        let definitions = load_definitions(&text);
        assert_eq!(excepted_stages(&definitions, "a"), expected, "{stages}");
        let unknown = definitions.exceptions[0].unknown_stage_mistakes(&definitions.chains);
        assert_eq!(unknown.len(), usize::from(expected.is_empty()), "{stages}: {unknown:?}");
    }
}

#[test]
fn an_unknown_stage_is_reported_with_its_line() {
    let text = "\
apiVersion: admittance.dev/v1alpha1
kind: AdmissionException
metadata: { name: a }
spec:
  owner: team
  reason: why
  expires: 2027-01-31
  users: [x]
  stages:
  - pods/images
  - pods/image
  - \"deployments/*\"
";
    let chains = load_text("chains.yaml", CHAINS).unwrap();
    let texts: Vec<_> = load_definitions(text).exceptions[0]
        .unknown_stage_mistakes(&chains)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "a.yaml:11:5: spec.stages[1]: there is no stage pods/image; did you mean pods/images?",
            "a.yaml:12:5: spec.stages[2]: there is no chain deployments with stages; correct the name, or remove it",
        ]
    );
}

#[test]
fn an_exception_is_read_with_all_its_fields() {
    let spec = "stages: [pods/images], rules: [{ operations: [CREATE], resources: [pods] }], namespaces: [shop, \"x-*\"], \
                names: [\"web-*\"], users: [jane], groups: [\"system:*\"], matchConditions: [{ name: small, \
                expression: \"object.spec.replicas < 3\" }]";
    let definitions = load_definitions(&exception("a", spec));
    let ExceptionDefinition {
        exception,
        owner,
        reason,
        ..
    } = &definitions.exceptions[0];
    assert_eq!((&**owner, &**reason), ("team", "why"));
    assert_eq!(exception.rules.len(), 1);
    assert_eq!(exception.namespaces, ["shop", "x-*"].map(NameGlob::new));
    assert_eq!(exception.names, [NameGlob::new("web-*")]);
    assert_eq!(exception.users, [NameGlob::new("jane")]);
    assert_eq!(exception.groups, [NameGlob::new("system:*")]);
    assert_eq!(
        exception.match_conditions.expressions(),
        [("small", "object.spec.replicas < 3")]
    );
}

#[test]
fn an_exception_ends_after_its_last_day() {
    for (text, expected) in [
        ("2027-01-31", Some("2027-02-01T00:00:00.000Z")),
        ("2027-12-31", Some("2028-01-01T00:00:00.000Z")),
        ("2028-02-29", Some("2028-03-01T00:00:00.000Z")),
        ("2027-01-31T12:00:00Z", Some("2027-01-31T12:00:00.000Z")),
        ("2027-01-31T12:00:00.5+02:00", Some("2027-01-31T10:00:00.500Z")),
        ("2027-02-29", None),
        ("2027-1-31", None),
        ("2027-01-31 12:00", None),
        ("9999-12-31", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("1969-12-31", Some("1970-01-01T00:00:00.000Z")),
        ("1969-12-30", None),
        ("soon", None),
    ] {
        let document =
            exception("a", "stages: [pods/images], users: [x]").replace("2027-01-31", &format!("\"{text}\""));
        let definitions = DefinitionSet::of_files(vec![DefinitionFile::file("a.yaml", document)]).definitions();
        match (definitions, expected) {
            (Ok(definitions), Some(expected)) => {
                assert_eq!(
                    definitions.exceptions[0].exception.until.to_string(),
                    expected,
                    "{text}"
                );
            }
            (Err(mistakes), None) => {
                let mistakes = mistakes.to_string();
                assert!(
                    mistakes.contains("spec.expires") && mistakes.contains("2027-01-31T12:00:00Z"),
                    "{mistakes}"
                );
            }
            (definitions, _) => panic!("{text}: {definitions:?}"),
        }
    }
}

#[test]
fn an_expired_exception_causes_a_warning() {
    let definitions = load_definitions(&exception("a", "stages: [pods/images], users: [x]"));
    let exception = &definitions.exceptions[0];
    let end = exception.exception.until;
    let before = Moment(end.0 - Span::from_millis(1));
    assert_eq!(exception.expiry_warning(before), None);
    let warning = exception.expiry_warning(end).unwrap().to_string();
    assert!(
        warning.starts_with("a.yaml:1:1: spec.expires: exception a expired at 2027-02-01T"),
        "{warning}"
    );
}

#[test]
fn mistakes_in_exceptions_are_reported_with_their_locations() {
    let table = [
        (exception("a", "users: [x]"), "spec.stages: missing; list stages"),
        (
            exception("a", "stages: [], users: [x]"),
            "spec.stages: the list is empty",
        ),
        (
            exception("a", "stages: [pods], users: [x]"),
            "spec.stages[0]: `pods` is not the name of a stage",
        ),
        (
            exception("a", "stages: [pods/images]"),
            "spec: it is for every request; write `rules`",
        ),
        (
            exception("a", "stages: [pods/images], users: []"),
            "spec.users: the list is empty",
        ),
        (
            exception("a", "stages: [pods/images], users: [\"\"]"),
            "spec.users[0]: empty",
        ),
        (
            exception("a", "stages: [pods/images], user: x"),
            "spec.user: unknown field; did you mean `users`?",
        ),
        (
            exception(
                "a",
                "stages: [pods/images], matchConditions: [{ name: a, expression: x }]",
            ),
            "spec.matchConditions[0].expression: ",
        ),
        (
            exception("A", "stages: [pods/images], users: [x]"),
            "metadata.name: \"A\" is not a valid name",
        ),
        (
            exception("a", "stages: [pods/images], users: [x]").replace("owner: team, ", ""),
            "spec.owner: missing; name who answers for it",
        ),
        (
            exception("a", "stages: [pods/images], users: [x]").replace("v1alpha1", "v1"),
            "apiVersion: \"admittance.dev/v1\" is not a supported version of AdmissionException",
        ),
        (
            exception("a", "stages: [pods/images], users: [x]")
                .repeat(2)
                .replace("}\napi", "}\n---\napi"),
            "metadata.name: \"a\" is also the name of the exception in a.yaml:1:1",
        ),
    ];
    for (text, expected) in table {
        let mistakes = load_text("a.yaml", &text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{expected}: {mistakes}");
    }
}

#[test]
fn an_exception_can_be_applied_listed_and_deleted_like_a_chain() {
    let set = DefinitionSet::of_files(vec![DefinitionFile::file("chains.yaml", CHAINS)]);
    let text = exception("a", "stages: [pods/images], users: [x]");
    let destination = |_: &DefinitionId| {
        Some(crate::Destination {
            kind: crate::StoreKind::Files,
            path: "exception.yaml".into(),
        })
    };
    let created = set
        .apply(&text, "new", crate::ExpectedDefinitions::Any, &destination)
        .unwrap();
    let id: DefinitionId = "AdmissionException/a".parse().unwrap();
    assert_eq!(created.effects, [(id.clone(), crate::AppliedEffect::Created)]);
    assert_eq!(excepted_stages(&created.set.definitions().unwrap(), "a").len(), 2);
    let stored = created
        .set
        .documents()
        .into_iter()
        .find(|stored| stored.id == id)
        .unwrap();
    assert_eq!((stored.chain, stored.has_mistakes), (None, false));
    let deleted = created.set.delete(&id).unwrap();
    assert_eq!(deleted.set, set);
}
