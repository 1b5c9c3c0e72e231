use std::{fmt::Write as _, path::Path};

use super::*;
use crate::document;

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec:\n  rules: \
         [ {{ operations: [CREATE], kinds: [pod] }} ]\n  stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ]\n"
    )
}

fn set_of_file(path: &str, text: &str) -> DefinitionSet {
    DefinitionSet::of_files(vec![DefinitionFile::file(path, text)])
}

/// Even while the file is being changed, all chains of a set get the same version of it.
#[test]
fn a_file_that_several_definitions_refer_to_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.rego");
    let files = ["a", "b"].map(|name| {
        let rego = "rego: { file: policy.rego, libs: [policy.rego], entrypoint: data.a.deny }";
        let text = chain(name).replace("plugin: { source: file:s.wasm }", rego);
        DefinitionFile::file(directory.path().join(format!("{name}.yaml")), text)
    });
    let [first, second] = files.clone();
    std::fs::write(&policy, "package a0").unwrap();
    let set = DefinitionSet::of_files(vec![first]);
    set.chains().unwrap();
    assert!(set.is_current());
    std::fs::write(&policy, "package a1").unwrap();
    assert!(!set.is_current());
    for chain in set.with_contents(vec![files[0].clone(), second]).chains().unwrap() {
        let (_, plugin) = chain.stages[0].plugins().next().unwrap();
        assert_eq!(plugin.settings["rego"], "package a0", "{}", chain.name);
        assert_eq!(plugin.settings["libs"][0], "package a0", "{}", chain.name);
    }
    let chains = set.uncached().chains().unwrap();
    let (_, plugin) = chains[0].stages[0].plugins().next().unwrap();
    assert_eq!(plugin.settings["rego"], "package a1");
}

#[test]
fn stored_definitions_keep_their_text_and_comments() {
    let pods = chain("pods");
    let text = format!(
        "# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n---\n\n{jobs}...\n\
         --- {{ apiVersion: v4, kind: AdmissionWebhook, metadata: {{ namespace: 'n', name: x }} }}\n",
        jobs = chain("jobs").replace('\n', "\r\n"),
    );
    let stored = set_of_file("chains/a.yaml", &text).documents();
    let stored_texts: Vec<_> = stored
        .iter()
        .map(|stored| (stored.id.to_string(), stored.line, stored.text.as_str()))
        .collect();
    let jobs = format!("\n{}", chain("jobs").replace('\n', "\r\n"));
    let pods = format!("# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n");
    assert_eq!(
        stored_texts,
        [
            ("AdmissionChain/pods".to_owned(), 4, pods.as_str()),
            ("AdmissionChain/jobs".to_owned(), 14, jobs.as_str()),
            (
                "AdmissionWebhook/n/x".to_owned(),
                21,
                "{ apiVersion: v4, kind: AdmissionWebhook, metadata: { namespace: 'n', name: x } }\n"
            ),
        ]
    );
    let chains: Vec<_> = stored
        .iter()
        .map(|stored| stored.chain.as_ref().map(ToString::to_string))
        .collect();
    assert_eq!(
        chains,
        [Some("Mutating:pods".to_owned()), Some("Mutating:jobs".to_owned()), None]
    );
    assert!(
        stored
            .iter()
            .all(|stored| !stored.in_list && stored.file == Path::new("chains/a.yaml"))
    );
}

#[test]
fn stored_definitions_are_identified_by_kind_and_name() {
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
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: 'n', name: x }",
            vec![],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: 'n', name: x }\nspec: {}",
            vec![("AdmissionWebhookConfiguration/n/x", None)],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: 'n', name: x }\n\
             spec: { Metadata: { Namespace: m, Name: w } }",
            vec![("AdmissionWebhookConfiguration/m/w", None)],
        ),
        ("kind: Pod\nmetadata: { name: a }", vec![]),
        ("a: [", vec![]),
    ];
    for (text, expected) in table {
        let stored = set_of_file("f", text).documents();
        let stored_ids: Vec<_> = stored
            .iter()
            .map(|stored| (stored.id.to_string(), stored.chain.as_ref().map(ToString::to_string)))
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(id, chain)| (id.to_owned(), chain.map(str::to_owned)))
            .collect();
        assert_eq!(stored_ids, expected, "{text}");
        assert!(stored.iter().all(|stored| stored.in_list == text.contains("items")));
    }
    let stored = set_of_file("f", &list).documents();
    assert_eq!(stored[0].text.trim_end(), chain("b").trim_end());
}

#[test]
fn the_documents_of_a_policy_include_its_bindings() {
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
        let stored_ids: Vec<_> = set
            .documents_of_chain(&id.parse().unwrap())
            .iter()
            .map(|stored| stored.id.to_string())
            .collect();
        assert_eq!(stored_ids, expected, "{id}");
    }
}

fn entries(documents: &[String]) -> Vec<DefinitionFile> {
    let entry = |text: &String| {
        let stored = set_of_file("f", text).documents();
        let path = stored.first().map(|stored| stored.id.to_string());
        let documents = document::read_text("f", text, &mut Mistakes::new());
        let json = documents
            .first()
            .map(|document| document.root_ignoring_mistakes().json());
        DefinitionFile::entry(path.unwrap(), json.unwrap().to_string(), None)
    };
    documents.iter().map(entry).collect()
}

/// Returns a text that lists which definitions are served and which are unusable if the store contains the files `now`.
/// A line is `{chain}: {stages}` for a served chain. For an unusable definition, it is the path, the version that is
/// served, and the reason. The files in `before` were live until now.
fn summarize_usable(now: &[DefinitionFile], before: &[DefinitionFile], on_bad: OnBadDefinition) -> String {
    let usable = DefinitionSet::of_files(now.to_vec()).usable_definitions(before, on_bad);
    let mut text = String::new();
    for chain in usable.served_set().chains().unwrap() {
        let stages: Vec<_> = chain.stages.iter().map(|stage| &*stage.spec.name).collect();
        writeln!(text, "{}: {}", chain.name, stages.join(" ")).unwrap();
    }
    for bad in usable.bad_definitions {
        let reason = bad.reasons.first().unwrap().split(": ").last().unwrap();
        writeln!(text, "{} {:?} {reason}", bad.path.display(), bad.served).unwrap();
    }
    text
}

/// Returns a chain whose module has an absolute path, because relative paths are not allowed in entries.
fn chain_with_absolute_path(name: &str) -> String {
    chain(name).replace("file:s.wasm", "file:/s.wasm")
}

fn policy(name: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{ name: {name} }}\nspec:\n  \
         matchConstraints: {{ resourceRules: [ {{ apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
         resources: [pods] }} ] }}\n  validations: [ {{ expression: 'true' }} ]\n"
    )
}

fn binding(name: &str, policy: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{ name: {name} }}\n\
         spec: {{ policyName: {policy}, validationActions: [Deny] }}\n"
    )
}

fn template(parameters: &str) -> String {
    format!(
        "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {{ name: few }}\nspec:\n  crd:\n    spec:\n      \
         names: {{ kind: Few }}\n      validation: {{ openAPIV3Schema: {{ type: object, properties: {parameters} }} }}\n  \
         targets: [ {{ target: admission.k8s.gatekeeper.sh, code: [ {{ engine: K8sNativeValidation, source: {{ \
         validations: [ {{ expression: 'true' }} ] }} }} ] }} ]\n"
    )
}

fn constraint(name: &str, limit: &str) -> String {
    format!(
        "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Few\nmetadata: {{ name: {name} }}\nspec: {{ parameters: {{ most: {limit} }} }}\n"
    )
}

#[test]
fn entries_with_a_missing_dependency_are_set_aside() {
    let keep = OnBadDefinition::KeepLast;
    let both = entries(&[binding("b", "p"), policy("p")]);
    assert_eq!(summarize_usable(&both, &[], keep), "p: b\n");

    let stray = entries(&[
        binding("a", "gone"),
        binding("b", "gone"),
        policy("p"),
        chain_with_absolute_path("pods"),
    ]);
    let rejected_line = "ValidatingAdmissionPolicyBinding/a Nothing there is no ValidatingAdmissionPolicy \"gone\"; \
                add its document, or correct the name\n";
    let expected = format!(
        "pods: s\np: b\n{rejected_line}{}",
        rejected_line.replace("/a Nothing", "/b LastVersion")
    );
    assert_eq!(summarize_usable(&stray, &both, keep), expected);
    let expected = format!("pods: s\np: \n{rejected_line}{}", rejected_line.replace("/a", "/b"));
    assert_eq!(summarize_usable(&stray, &both, OnBadDefinition::ServeRest), expected);

    let stray = entries(&[binding("b", "gone")]);
    assert_eq!(summarize_usable(&stray, &both, keep), rejected_line.replace("/a", "/b"));

    // A constraint is set aside if its template is missing, or if its parameters do not fit the schema in the template.
    let number = "{ most: { type: integer } }";
    let both = entries(&[template(number), constraint("one", "1"), constraint("two", "2")]);
    assert_eq!(summarize_usable(&both, &[], keep), "few: one two\n");
    let now = entries(&[
        template(number),
        constraint("one", "'1'"),
        constraint("three", "many"),
        constraint("two", "3"),
    ]);
    let summary = summarize_usable(&now, &both, keep);
    assert!(summary.starts_with("few: one two\nFew/one LastVersion "), "{summary}");
    assert!(summary.contains("\nFew/three Nothing "), "{summary}");
    let now = entries(&[constraint("one", "1")]);
    let summary = summarize_usable(&now, &both, keep);
    assert!(
        summary.starts_with("Few/one Nothing there is no ConstraintTemplate"),
        "{summary}"
    );
    assert_eq!(summarize_usable(&entries(&[template(number)]), &both, keep), "few: \n");
}

#[test]
fn constraints_of_an_invalid_template_are_not_used() {
    let number = "{ most: { type: integer } }";
    let all = entries(&[
        template(number),
        constraint("one", "1"),
        chain_with_absolute_path("pods"),
    ]);
    let mut usable = DefinitionSet::of_files(all.clone()).usable_definitions(&[], OnBadDefinition::KeepLast);
    let path = Path::new("ConstraintTemplate/few");
    usable.set_aside(
        path,
        vec!["it does not compile".to_owned()],
        false,
        (&[], OnBadDefinition::KeepLast),
    );
    let bad_paths: Vec<_> = usable
        .bad_definitions
        .iter()
        .map(|bad| bad.path.display().to_string())
        .collect();
    assert_eq!(bad_paths, ["ConstraintTemplate/few", "Few/one"]);
    let chains = usable.served_set().chains().unwrap();
    assert_eq!(chains.len(), 1, "{chains:?}");
    let mut usable = DefinitionSet::of_files(all.clone()).usable_definitions(&all, OnBadDefinition::KeepLast);
    usable.set_aside(
        path,
        vec!["it does not compile".to_owned()],
        false,
        (&all, OnBadDefinition::KeepLast),
    );
    assert_eq!(usable.bad_definitions.len(), 1);
    assert_eq!(usable.served_set().chains().unwrap().len(), 2);
}
