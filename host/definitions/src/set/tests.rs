use std::path::Path;

use super::*;

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec:\n  rules: \
         [ {{ operations: [CREATE], kinds: [pod] }} ]\n  stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ]\n"
    )
}

fn of(path: &str, text: &str) -> DefinitionSet {
    DefinitionSet::of_files(vec![DefinitionFile::file(path, text)])
}

#[test]
fn definitions_as_they_are_written() {
    let pods = chain("pods");
    let text = format!(
        "# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n---\n\n{jobs}...\n\
         --- {{ apiVersion: v4, kind: AdmissionWebhook, metadata: {{ namespace: n, name: x }} }}\n",
        jobs = chain("jobs").replace('\n', "\r\n"),
    );
    let stored = of("chains/a.yaml", &text).documents();
    let found: Vec<_> = stored
        .iter()
        .map(|stored| (stored.id.to_string(), stored.line, stored.text.as_str()))
        .collect();
    let jobs = format!("\n{}", chain("jobs").replace('\n', "\r\n"));
    let pods =
        format!("# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n");
    assert_eq!(
        found,
        [
            ("AdmissionChain/pods".to_owned(), 4, pods.as_str()),
            ("AdmissionChain/jobs".to_owned(), 14, jobs.as_str()),
            (
                "AdmissionWebhook/n/x".to_owned(),
                21,
                "{ apiVersion: v4, kind: AdmissionWebhook, metadata: { namespace: n, name: x } }\n"
            ),
        ]
    );
    let chains: Vec<_> = stored
        .iter()
        .map(|stored| stored.chain.as_ref().map(ToString::to_string))
        .collect();
    // What is in the last is not enough for a chain.
    assert_eq!(
        chains,
        [
            Some("Mutating:pods".to_owned()),
            Some("Mutating:jobs".to_owned()),
            None
        ]
    );
    assert!(
        stored
            .iter()
            .all(|stored| !stored.in_list && stored.file == Path::new("chains/a.yaml"))
    );
}

#[test]
fn names_of_definitions() {
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}- {{ kind: Pod }}\n",
        chain("b").replace('\n', "\n  ").trim_end_matches(' ')
    );
    let table = [
        (list.as_str(), vec![("AdmissionChain/b", Some("Mutating:b"))]),
        (
            "{\"kind\": \"ValidatingWebhookConfigurationList\", \"apiVersion\": \"admissionregistration.k8s.io/v1\",\n\
             \"items\": [{\"metadata\": {\"name\": \"a\"}}, {\"metadata\": {}}]}",
            vec![("ValidatingWebhookConfiguration/a", Some("Validating:a"))],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }",
            vec![],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }\nspec: {}",
            vec![("AdmissionWebhookConfiguration/n/x", None)],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }\n\
             spec: { Metadata: { Namespace: m, Name: y } }",
            vec![("AdmissionWebhookConfiguration/m/y", None)],
        ),
        ("kind: Pod\nmetadata: { name: a }", vec![]),
        ("a: [", vec![]),
    ];
    for (text, expected) in table {
        let stored = of("f", text).documents();
        let found: Vec<_> = stored
            .iter()
            .map(|stored| {
                (
                    stored.id.to_string(),
                    stored.chain.as_ref().map(ToString::to_string),
                )
            })
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(id, chain)| (id.to_owned(), chain.map(str::to_owned)))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert!(
            stored
                .iter()
                .all(|stored| stored.in_list == text.contains("items"))
        );
    }
    // What is shown of an item can be a document of its own.
    let stored = of("f", &list).documents();
    assert_eq!(stored[0].text.trim_end(), chain("b").trim_end());
}

/// A policy's bindings are stages of its chain.
#[test]
fn definitions_of_a_chain() {
    let policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: { name: owners }\nspec:\n  \
                  matchConstraints: { resourceRules: [ { apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
                  resources: [pods] } ] }\n  validations: [ { expression: 'true' } ]\n";
    let binding = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: { name: NAME }\n\
                   spec: { policyName: owners, validationActions: [Deny] }\n";
    let set = DefinitionSet::of_files(vec![
        DefinitionFile::file("a.yaml", format!("{}---\n{policy}", chain("pods"))),
        DefinitionFile::file(
            "b.yaml",
            format!("{}---\n{}", chain("jobs"), binding.replace("NAME", "one")),
        ),
        DefinitionFile::file("c.yaml", binding.replace("NAME", "two")),
    ]);
    for (id, expected) in [
        ("Mutating:pods", vec!["AdmissionChain/pods"]),
        ("Mutating:jobs", vec!["AdmissionChain/jobs"]),
        (
            "Validating:owners",
            vec![
                "ValidatingAdmissionPolicy/owners",
                "ValidatingAdmissionPolicyBinding/one",
                "ValidatingAdmissionPolicyBinding/two",
            ],
        ),
        ("Validating:pods", vec![]),
    ] {
        let found = set.documents_of(&id.parse().unwrap());
        let found: Vec<_> = found.iter().map(|stored| stored.id.to_string()).collect();
        assert_eq!(found, expected, "{id}");
    }
}
