use std::fs;

use std::path::Path;

use super::*;
use crate::PluginDefinition;

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec:\n  rules: \
         [ {{ operations: [CREATE], kinds: [pod] }} ]\n  stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ]\n"
    )
}

fn bcs_chain(name: &str, operation: &str, kind: &str) -> String {
    format!(
        "apiVersion: v4\nkind: admissionwebhook\nmetadata: {{ namespace: m, name: {name} }}\n\
         resourcesRef: {{ operation: {operation}, kind: {kind} }}\nadmissionWebhooks: []\n"
    )
}

fn names(chains: &[ChainDefinition]) -> Vec<&str> {
    chains.iter().map(|chain| chain.name.as_str()).collect()
}

#[test]
fn definitions_are_loaded_from_directories_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (file, name) in [("2.yaml", "a"), ("1.yml", "c"), ("other.txt", "d")] {
        fs::write(path(file), chain(name)).unwrap();
    }
    fs::write(
        path("many.yaml"),
        format!(
            "---\n{}---\n# none\n---\n{}",
            chain("b"),
            bcs_chain("x", "Create", "application")
        ),
    )
    .unwrap();
    for ignored in [
        ".hidden.yaml",
        "2.yaml~",
        "#2.yaml#",
        "2.yaml.bak",
        ".#2.yaml",
        "readme.md",
    ] {
        fs::write(path(ignored), "no definition").unwrap();
    }
    fs::create_dir(path("inside")).unwrap();
    fs::write(path("inside/e.yaml"), chain("e")).unwrap();

    let all = load(&[directory.path().to_owned()]).unwrap();
    assert_eq!(names(&all), ["a", "b", "c", "m/x"]);
    assert_eq!(all[0].location.file, path("2.yaml").display().to_string());
    let Some(plugin) = all[0].stages[0].hook.get::<PluginDefinition>() else {
        panic!("no plugin");
    };
    assert_eq!(plugin.source, crate::ModuleReference::File(path("s.wasm")));

    let chains = load(&[path("2.yaml"), directory.path().to_owned(), path("other.txt")]).unwrap();
    assert_eq!(names(&chains), ["a", "b", "c", "d", "m/x"]);
    assert_eq!(load(&[]).unwrap(), []);
}

#[test]
fn mistakes_of_all_files_are_reported_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("a.yaml"), chain("A")).unwrap();
    fs::write(path("b.yaml"), chain("same")).unwrap();
    fs::write(path("c.yaml"), format!("\n{}", chain("same"))).unwrap();
    fs::write(path("d.json"), "{").unwrap();
    let message = load(&[directory.path().to_owned(), path("absent.yaml")])
        .unwrap_err()
        .to_string();
    let directory_prefix = format!("{}/", directory.path().display());
    assert_eq!(
        message.replace(&directory_prefix, ""),
        "a.yaml:3:19: metadata.name: \"A\" is not a valid name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit\n\
         absent.yaml: the file cannot be read: No such file or directory (os error 2); correct the path; if the file was deleted, its definitions are removed with its entry in `definitions` of the configuration\n\
         c.yaml:2:1: metadata.name: \"same\" is also the name of the chain in b.yaml:1:1; give each chain its own name\n\
         d.json:1:1: this is not JSON: EOF while parsing an object"
    );
}

#[test]
fn a_file_without_a_definition_is_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("a.yaml"), chain("a")).unwrap();
    let empty = "there is no definition in it; to remove its definitions, delete the file";
    let table: [(&str, &[u8], &str); 8] = [
        ("b.yaml", b"", empty),
        ("b.yaml", b" \n\n", empty),
        ("b.yaml", b"# kind: AdmissionChain\n", empty),
        ("b.yml", b"---\n# nothing\n---\n...\n", empty),
        ("b.yaml", b"\xef\xbb\xbf", empty),
        ("b.yaml", b"null\n", empty),
        ("b.json", b"\n", empty),
        (
            "b.yaml",
            b"# \xff",
            "the file is not UTF-8 from here on; save it as UTF-8",
        ),
    ];
    let mistakes = || {
        let message = load(&[directory.path().to_owned()]).unwrap_err().to_string();
        message.replace(&format!("{}/", directory.path().display()), "")
    };
    for (name, content, expected) in table {
        fs::write(path(name), content).unwrap();
        let message = mistakes();
        assert!(
            message.starts_with(name) && message.ends_with(expected),
            "{content:?}: {message}"
        );
        fs::remove_file(path(name)).unwrap();
    }
    fs::create_dir(path("b.yaml")).unwrap();
    assert_eq!(
        mistakes(),
        "b.yaml: the file cannot be read: it is a directory, not a regular file; let it be a file that can be read, or delete it to remove its definitions"
    );
    fs::remove_dir(path("b.yaml")).unwrap();
    std::os::unix::fs::symlink(path("absent"), path("b.yaml")).unwrap();
    assert_eq!(
        mistakes(),
        "b.yaml: the file cannot be read: No such file or directory (os error 2); let it be a file that can be read, or delete it to remove its definitions"
    );
    fs::remove_file(path("b.yaml")).unwrap();
    assert_eq!(names(&load(&[directory.path().to_owned()]).unwrap()), ["a"]);
}

#[test]
fn a_second_bcs_definition_for_an_operation_and_kind_is_a_mistake() {
    let text = [
        bcs_chain("a", "Create", "Application"),
        bcs_chain("b", "Update", "Application"),
        bcs_chain("c", "create", "deployment"),
        bcs_chain("d", "CREATE", "application"),
    ]
    .join("---\n");
    assert_eq!(
        load_text("f", &text).unwrap_err().to_string(),
        "f:22:15: resourcesRef: f:4:15 already defines hooks for Create of application; BCS has one definition for each operation and kind: put the hooks into one"
    );
}

fn webhook_configuration(phase: &str, name: &str) -> String {
    format!(
        "{{ apiVersion: admissionregistration.k8s.io/v1, kind: {phase}WebhookConfiguration, metadata: {{ name: {name} }} }}"
    )
}

fn phases(chains: &[ChainDefinition]) -> Vec<(&str, &str)> {
    let phase = |chain: &ChainDefinition| chain.phase.as_str();
    chains.iter().map(|chain| (phase(chain), chain.name.as_str())).collect()
}

#[test]
fn chains_are_sorted_by_phase_and_name() {
    let text = [
        webhook_configuration("Validating", "a"),
        webhook_configuration("Mutating", "c"),
        webhook_configuration("Mutating", "a"),
        webhook_configuration("Validating", "b"),
        chain("b"),
    ]
    .join("\n---\n");
    let expected = [
        ("Mutating", "a"),
        ("Mutating", "b"),
        ("Mutating", "c"),
        ("Validating", "a"),
        ("Validating", "b"),
    ];
    assert_eq!(phases(&load_text("f", &text).unwrap()), expected);
    let twice = format!(
        "{text}\n---\n{}\n---\n{}",
        chain("c"),
        webhook_configuration("Validating", "b")
    );
    assert_eq!(
        load_text("f", &twice).unwrap_err().to_string(),
        "f:17:1: metadata.name: \"c\" is also the name of the chain in f:3:1; give each chain its own name\n\
         f:25:1: metadata.name: \"b\" is also the name of the chain in f:7:1; give each chain its own name"
    );
}

#[test]
fn each_item_of_a_list_is_a_definition() {
    // `kubectl get -o yaml` prints a list in this form.
    let text = format!(
        "apiVersion: v1\nitems:\n- {}\n- {}\n- {}\nkind: List\nmetadata: {{ resourceVersion: \"\" }}\n",
        webhook_configuration("Validating", "a"),
        webhook_configuration("Mutating", "a"),
        chain("b").replace('\n', "\n  "),
    );
    let chains = load_text("chains/f", &text).unwrap();
    let expected = [("Mutating", "a"), ("Mutating", "b"), ("Validating", "a")];
    assert_eq!(phases(&chains), expected);
    assert_eq!((chains[0].location.line, chains[0].location.column), (4, 3));
    let Some(plugin) = chains[1].stages[0].hook.get::<PluginDefinition>() else {
        panic!("no plugin");
    };
    let beside = crate::ModuleReference::File("chains/s.wasm".into());
    assert_eq!(plugin.source, beside);

    // An API server omits the `kind` in the items of a list, because the kind of the list
    // (`ValidatingWebhookConfigurationList`) tells it.
    for (phase, version, policy) in [("Mutating", "v1", "Fail"), ("Validating", "v1beta1", "Ignore")] {
        let text = format!(
            "{{\"kind\":\"{phase}WebhookConfigurationList\",\"apiVersion\":\"admissionregistration.k8s.io/{version}\",\
             \"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":[{{\"metadata\":{{\"name\":\"a\"}},\"webhooks\":[{{\
             \"name\":\"a.b.c\",\"clientConfig\":{{\"url\":\"https://h.example\"}},\"sideEffects\":\"None\",\
             \"admissionReviewVersions\":[\"v1\"],\"rules\":[{{\"operations\":[\"*\"],\"apiGroups\":[\"*\"],\
             \"apiVersions\":[\"*\"],\"resources\":[\"*\"]}}]}}]}}]}}"
        );
        let chains = load_text("f", &text).unwrap();
        assert_eq!(phases(&chains), [(phase, "a")]);
        assert_eq!(chains[0].stages[0].spec.failure_policy.as_str(), policy);
    }
    for empty in ["items: []", "items:", ""] {
        let text = format!("apiVersion: v1\nkind: List\n{empty}");
        assert_eq!(load_text("f", &text), Ok(Vec::new()));
    }
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n- kind: Pod\n",
        webhook_configuration("Mutating", "a"),
        webhook_configuration("Mutating", "a"),
    );
    let message = load_text("f", &text).unwrap_err().to_string();
    let (first, last) = message.split_once('\n').unwrap();
    assert_eq!(
        first,
        "f:5:3: items[1].metadata.name: \"a\" is also the name of the chain in f:4:3; give each chain its own name"
    );
    assert!(
        last.starts_with("f:6:9: items[2].kind: \"Pod\" is not known here; "),
        "{last}"
    );
}

#[test]
fn a_document_that_is_not_a_definition_is_a_mistake() {
    let known_kinds = "write an AdmissionChain, NamespacedAdmissionChain or AdmissionException (admittance.dev/v1alpha1), a MutatingWebhookConfiguration, ValidatingWebhookConfiguration, MutatingAdmissionPolicy, ValidatingAdmissionPolicy, MutatingAdmissionPolicyBinding or ValidatingAdmissionPolicyBinding (admissionregistration.k8s.io/v1), a CustomResourceDefinition (apiextensions.k8s.io/v1), a ClusterAdmissionPolicy, AdmissionPolicy, ClusterAdmissionPolicyGroup or AdmissionPolicyGroup (policies.kubewarden.io/v1), a ConstraintTemplate (templates.gatekeeper.sh/v1), a constraint (constraints.gatekeeper.sh/v1beta1), a Config (config.gatekeeper.sh/v1alpha1), a SyncSet (syncset.gatekeeper.sh/v1alpha1), an ExpansionTemplate (expansion.gatekeeper.sh/v1beta1), an Assign, AssignImage, AssignMetadata or ModifySet (mutations.gatekeeper.sh/v1), a ValidatingPolicy, NamespacedValidatingPolicy, MutatingPolicy, NamespacedMutatingPolicy or PolicyException (policies.kyverno.io/v1), a SidecarSet (apps.kruise.io/v1beta1), an admissionwebhook (v4) or an AdmissionWebhookConfiguration (bkbcs.tencent.com/v2)";
    let table = [
        ("a: 1", format!("f:1:1: kind: missing; {known_kinds}")),
        ("[]", "f:1:1: a list where an object is expected; write `field: value`".to_owned()),
        ("kind: 1", "f:1:7: kind: a number where a string is expected; put it in quotes: \"1\"".to_owned()),
        ("apiVersion: v1\nkind: Pod", format!("f:2:7: kind: \"Pod\" of v1 is not known here; {known_kinds}")),
        ("kind: Pod", format!("f:1:7: kind: \"Pod\" is not known here; {known_kinds}")),
        ("kind: AdmisionChain", "f:1:7: kind: \"AdmisionChain\" is not known here; did you mean AdmissionChain?".to_owned()),
        ("apiVersion: policies.kyverno.io/v1\nkind: ValidatngPolicy", "f:2:7: kind: \"ValidatngPolicy\" of policies.kyverno.io/v1 is not known here; did you mean ValidatingPolicy?".to_owned()),
        ("apiVersion: v1\nkind: ConfigMap", format!("f:2:7: kind: \"ConfigMap\" of v1 is not known here; {known_kinds}")),
        ("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview", "f:2:7: kind: \"AdmissionReview\" of admission.k8s.io/v1 is not known here; it is a request, not a definition: `admittance run CHAINS REQUEST` and `admittance replay REQUESTS CHAINS` evaluate requests".to_owned()),
        ("dialect: { rest: {} }", "f:1:1: this is a configuration of `admittance serve`, not a definition; name it with `--config`, and definitions in this place".to_owned()),
        ("kind: AdmissionChain", "f:1:1: apiVersion is missing; write `apiVersion: admittance.dev/v1alpha1`".to_owned()),
        ("apiVersion: admittance.dev/v1\nkind: AdmissionChain", "f:1:13: apiVersion: \"admittance.dev/v1\" is not a supported version of AdmissionChain; write `apiVersion: admittance.dev/v1alpha1`".to_owned()),
        ("apiVersion: v5\nkind: admissionwebhook", "f:1:13: apiVersion: \"v5\" is not a supported version of admissionwebhook; write `apiVersion: v4`".to_owned()),
        ("apiVersion: bkbcs.tencent.com/v1\nkind: AdmissionWebhookConfiguration", "f:1:13: apiVersion: \"bkbcs.tencent.com/v1\" is not a supported version of AdmissionWebhookConfiguration; write `apiVersion: bkbcs.tencent.com/v2`".to_owned()),
        ("apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: MutatingWebhookConfiguration", "f:1:13: apiVersion: \"admissionregistration.k8s.io/v1alpha1\" is not a supported version of MutatingWebhookConfiguration; write `apiVersion: admissionregistration.k8s.io/v1`".to_owned()),
        ("kind: ValidatingWebhookConfiguration", "f:1:1: apiVersion is missing; write `apiVersion: admissionregistration.k8s.io/v1`".to_owned()),
        ("apiVersion: v1\nkind: ValidatingWebhookConfigurationList", "f:1:13: apiVersion: \"v1\" is not a supported version of ValidatingWebhookConfigurationList; write `apiVersion: admissionregistration.k8s.io/v1`".to_owned()),
        ("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionThing", "f:2:7: kind: \"ValidatingAdmissionThing\" of admissionregistration.k8s.io/v1 is not known here; did you mean ValidatingAdmissionPolicy or ValidatingAdmissionPolicyBinding?".to_owned()),
        ("apiVersion: v1\nkind: List\nitem: []", "f:3:1: item: unknown field; did you mean `items`?".to_owned()),
        ("apiVersion: v1\nkind: List\nitems: {}", "f:3:8: items: an object where a list is expected".to_owned()),
        ("apiVersion: v1\nkind: List\nitems: [ 1, { apiVersion: v1, kind: List }, {} ]", format!(
            "f:3:10: items[0]: a number where an object is expected; write `field: value`\n\
             f:3:37: items[1].kind: \"List\" of v1 is not known here; {known_kinds}\n\
             f:3:45: items[2].kind: missing; {known_kinds}"
        )),
    ];
    for (text, expected) in table {
        assert_eq!(load_text("f", text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn a_chain_can_be_created_from_a_plugin_alone() {
    let chain = ChainDefinition::of_plugin(
        Path::new("target/image_policy.wasm"),
        serde_json::json!({"a": 1}),
        admittance_admission::Grants::default(),
    );
    assert_eq!(chain.name, "image_policy");
    let Some(plugin) = chain.stages[0].hook.get::<PluginDefinition>() else {
        panic!("no plugin");
    };
    assert_eq!(
        plugin.source,
        crate::ModuleReference::File("target/image_policy.wasm".into())
    );
    assert_eq!(plugin.settings.to_string(), r#"{"a":1}"#);
}
