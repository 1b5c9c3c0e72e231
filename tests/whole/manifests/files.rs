//! Tests directories as input and output, and configurations that cannot be installed.

use super::*;

#[tokio::test]
async fn certificates_in_a_directory_are_used_in_the_manifests() {
    let directory = tempfile::tempdir().unwrap();
    let chains = write(&directory, "pods.yaml", chains());
    let certs = directory.path().join("certs");
    let arguments = |name: &str| {
        format!(
            "--definitions {} --certs {} --name {name}",
            chains.display(),
            certs.display()
        )
    };
    let missing = run_manifests(&arguments("admittance")).await;
    assert_eq!(missing.code, Some(2));
    let fix = format!(
        "admittance certs --service admittance.admittance-system --out {}",
        certs.display()
    );
    assert!(missing.stderr.contains(&fix), "{}", missing.stderr);
    assert_eq!(missing.stdout, "");

    for service in ["admittance.admittance-system", "other.admittance-system"] {
        let certs_output = Admittance::run(["certs", "--service", service, "--out", certs.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    }
    let [first, second] = [
        run_manifests(&arguments("admittance")).await,
        run_manifests(&arguments("admittance")).await,
    ];
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(first.stdout, second.stdout, "the same input, the same text");
    let objects = parse_objects(&first.stdout);
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let encode_file = |name: &str| BASE64_STANDARD.encode(fs::read(certs.join(name)).unwrap());
    assert_eq!(
        secret["data"]["tls.crt"],
        encode_file("admittance.admittance-system.pem")
    );
    assert_eq!(
        secret["data"]["tls.key"],
        encode_file("admittance.admittance-system.key")
    );
    assert_eq!(secret["data"]["ca.crt"], encode_file("ca.pem"));

    type Change = fn(&Path);
    let file = "admittance.admittance-system";
    // (change of the certificate files, part of the error message)
    let table: [(Change, &str); 4] = [
        (
            |at| {
                drop(fs::copy(
                    at.join("other.admittance-system.pem"),
                    at.join("admittance.admittance-system.pem"),
                ))
            },
            "admittance.admittance-system.key",
        ),
        (
            |at| {
                drop(fs::copy(
                    at.join("other.admittance-system.key"),
                    at.join("admittance.admittance-system.key"),
                ))
            },
            "would not accept it for admittance.admittance-system.svc",
        ),
        (
            |at| fs::write(at.join("admittance.admittance-system.key"), "x").unwrap(),
            "it holds no private key",
        ),
        (
            |at| fs::write(at.join("ca.pem"), fs::read(at.join("ca.key")).unwrap()).unwrap(),
            "would become public",
        ),
    ];
    for (change, expected) in table {
        change(&certs);
        let finished = run_manifests(&arguments("admittance")).await;
        assert_eq!(finished.code, Some(2), "{file}");
        assert!(finished.stderr.contains(expected), "{expected}: {}", finished.stderr);
    }
}

#[tokio::test]
async fn the_kubernetes_example_can_be_installed() {
    let example = repository().join("docs/examples/kubernetes");
    let output = tempfile::tempdir().unwrap();
    // The chains of the example name plugins by relative paths. So the test copies the example together with the
    // plugins.
    let folder = example_with_plugins(&example, output.path());
    let arguments = format!(
        "--config {} --output-directory {}",
        folder.join("admittance.yaml").display(),
        output.path().join("manifests").display()
    );
    let finished = run_manifests(&arguments).await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    let mut files: Vec<_> = fs::read_dir(output.path().join("manifests"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "01-namespace.yaml",
            "02-serviceaccount.yaml",
            "03-clusterrole.yaml",
            "04-clusterrolebinding.yaml",
            "05-role.yaml",
            "06-rolebinding.yaml",
            "08-configmap.yaml",
            "09-service.yaml",
            "10-deployment.yaml",
            "11-poddisruptionbudget.yaml",
        ]
    );
    let read_objects =
        |file: &str| parse_objects(&fs::read_to_string(output.path().join("manifests").join(file)).unwrap());
    let names: Vec<_> = read_objects("08-configmap.yaml")
        .iter()
        .map(|map| map["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "admittance-config",
            "admittance-chains",
            "admittance-module-image-policy",
            "admittance-module-sidecar-injector",
        ]
    );
}

fn example_with_plugins(example: &Path, root: &Path) -> PathBuf {
    let plugins = root.join("target/plugins");
    let chains = root.join("docs/examples/kubernetes/chains");
    fs::create_dir_all(&plugins).unwrap();
    fs::create_dir_all(&chains).unwrap();
    for package in ["sidecar-injector", "image-policy"] {
        let component = source(package);
        let from = Path::new(component.trim_start_matches("file:"));
        fs::copy(from, plugins.join(from.file_name().unwrap())).unwrap();
    }
    let mut copy_count = 0;
    for entry in fs::read_dir(example.join("chains")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, chains.join(from.file_name().unwrap())).unwrap();
        copy_count += 1;
    }
    assert_eq!(copy_count, 2);
    let folder = root.join("docs/examples/kubernetes");
    fs::copy(example.join("admittance.yaml"), folder.join("admittance.yaml")).unwrap();
    folder
}

#[tokio::test]
async fn unusable_arguments_are_reported_instead_of_manifests() {
    let plugin = source("sidecar-injector");
    let stage = format!("{{ name: s, plugin: {{ source: \"{plugin}\" }} }}");
    let chain = |rule: &str, stage: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\n\
             spec: {{ rules: [ {rule} ], stages: [ {stage} ] }}\n"
        )
    };
    let pods = "{ operations: [CREATE], resources: [pods] }";
    let proxy = "dialect: { bcs: { cluster: BCS-MESOS-10001 } }\nupstream: { servers: [\"http://127.0.0.1:1\"] }\n";
    // (definitions, configuration, further argument, part of the error message)
    // In the argument, `CHAINS` stands for the path of the definitions.
    for (definitions, config, argument, expected) in [
        (
            chain("{ operations: [CREATE], kinds: [Pod] }", &stage),
            None,
            "",
            "list `resources`",
        ),
        (
            chain(pods, "{ name: s, plugin: { source: \"file:absent.wasm\" } }"),
            None,
            "",
            "absent.wasm",
        ),
        (
            chain(pods, "{ name: s, plugin: { source: \"file:large.wasm\" } }"),
            None,
            "",
            "--modules-in-image",
        ),
        (chain(pods, "{ name: s }"), None, "", "chains.yaml"),
        (String::new(), None, "", "there is no definition in it"),
        (chain(pods, &stage), Some(proxy), "", "dialect: { kubernetes: {} }"),
        (chain(pods, &stage), None, "--namespace Hooks", "lower-case"),
        (chain(pods, &stage), None, "--kubernetes-version 1.9", "oldest"),
        (chain(pods, &stage), None, "--timeout 31", "1..=30"),
        (
            chain(pods, &stage),
            None,
            "--replicas 3 --max-replicas 2",
            "--max-replicas",
        ),
        (
            chain(pods, &stage),
            Some("dialect: { kubernetes: {} }\ndefinitions: [chains.yaml]\n"),
            "--resources CHAINS",
            "kubernetes: {}",
        ),
        (chain(pods, &stage), None, "--memory-limit 1MB", "256Mi"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "large.wasm", vec![0; 1024 * 1024 + 1]);
        let chains_path = write(&directory, "chains.yaml", &definitions);
        let config = config.map(|text| write(&directory, "admittance.yaml", text));
        let config = config
            .map(|path| format!("--config {}", path.display()))
            .unwrap_or_default();
        let chains = chains_path.display().to_string();
        let argument = argument.replace("CHAINS", &chains);
        let finished = run_manifests(&format!("--definitions {chains} {config} {argument}")).await;
        assert_eq!(finished.code, Some(2), "{expected}: {}", finished.stderr);
        assert!(finished.stderr.contains(expected), "{expected}: {}", finished.stderr);
        assert_eq!(finished.stdout, "");
    }
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: replicas }
spec:
  matchConstraints:
    resourceRules: [ { apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments] } ]
  validations: [ { expression: \"object.spec.replicas <= 5\" } ]
";
const BINDING: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: replicas }
spec: { policyName: replicas, validationActions: [Deny] }
";

/// A file that has only a binding or a constraint defines no chain by itself. It must be printed nevertheless, because
/// the policy or the template in another file needs it.
#[tokio::test]
async fn every_definition_file_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let examples = repository().join("docs/examples/gatekeeper/required-labels");
    let chains = directory.path().join("chains");
    fs::create_dir(&chains).unwrap();
    for name in ["template.yaml", "constraint.yaml"] {
        fs::copy(examples.join(name), chains.join(name)).unwrap();
    }
    fs::write(chains.join("policy.yaml"), POLICY).unwrap();
    fs::write(chains.join("binding.yaml"), BINDING).unwrap();
    let arguments = format!(
        "--definitions {} --modules-in-image /usr/local/lib/admittance",
        chains.display()
    );
    let printed = PrintedManifests::in_directory(directory, &arguments).await;
    let data = printed.object("ConfigMap", "-chains")["data"].as_object().unwrap();
    let names: Vec<_> = data.keys().collect();
    assert_eq!(
        names,
        ["binding.yaml", "constraint.yaml", "policy.yaml", "template.yaml"]
    );
    assert_eq!(data["binding.yaml"], BINDING);
    let env = &printed.pod()["containers"][0]["env"];
    let plugins = json!({"name": "ADMITTANCE_PLUGINS", "value": "/usr/local/lib/admittance"});
    assert!(env.as_array().unwrap().contains(&plugins), "{env}");

    let root = printed.directory.path().join("pod");
    printed.write_volumes(&root);
    let config = root.join("etc/admittance/config/admittance.yaml");
    let store = store();
    let arguments = ["check", "--config", config.to_str().unwrap(), "--store"];
    let checked = Admittance::run(arguments.into_iter().chain(store.to_str()))
        .await
        .unwrap();
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
}
