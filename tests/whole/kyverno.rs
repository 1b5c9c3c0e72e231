//! Tests Kyverno policies and Kyverno's own tests, run as a user would.

use std::{fs, path::Path};

use admittance_tests::{Admittance, FinishedProgram};
use serde_json::{Value, json};

use crate::documents::page::Page;

async fn run_admittance(directory: &Path, arguments: &[&str]) -> FinishedProgram {
    let path = |argument: &&str| {
        if argument.contains('.') || argument.ends_with('/') {
            directory.join(argument).into_os_string()
        } else {
            argument.into()
        }
    };
    Admittance::run(arguments.iter().map(path)).await.unwrap()
}

fn parse_report(command_output: &FinishedProgram) -> Value {
    serde_json::from_str(&command_output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", command_output.stdout, command_output.stderr))
}

const MUTATING_POLICY: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: { name: run-as }
spec:
  matchConstraints:
    resourceRules: [{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }]
  variables:
    - name: limits
      expression: resource.Get('v1', 'configmaps', object.metadata.namespace, 'limits')
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: "Object{spec: Object.spec{hostname: string(variables.limits.data.host)}}"
---
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: { name: old, namespace: shop }
spec:
  policyRefs: [{ name: trusted-registries, kind: ValidatingPolicy }]
  matchConditions: [{ name: old, expression: "object.metadata.name == 'old'" }]
"#;

const TEAM_POLICY: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: { name: teams }
spec:
  matchConstraints:
    resourceRules: [{ operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods] }]
  validations:
    - expression: "http.Get('https://teams.example.com/shop').names.exists(name, name == object.metadata.name)"
"#;

const LIMITS_CONFIG_MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: limits, namespace: shop }\ndata: { host: a }\n";

/// Returns an object of this kind that runs containers with this image: a Pod, or an object with a Pod template.
fn object(kind: &str, name: &str, image: &str) -> Value {
    let pod = json!({"containers": [{"name": "a", "image": image}]});
    let (version, spec) = match kind {
        "Pod" => ("v1", pod),
        _ => ("apps/v1", json!({"template": {"spec": pod}})),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

#[tokio::test]
async fn kyverno_policies_run_with_lookups_exceptions_and_pod_controllers() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/kyverno.md").yaml();
    fs::create_dir(directory_path.join("policies")).unwrap();
    fs::write(directory_path.join("policies/registries.yaml"), &page[0]).unwrap();
    fs::write(directory_path.join("policies/run-as.yaml"), MUTATING_POLICY).unwrap();
    fs::write(directory_path.join("limits.yaml"), LIMITS_CONFIG_MAP).unwrap();
    let command_output = run_admittance(directory_path, &["check", "policies/"]).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    for (object, refusal) in [
        (object("Pod", "web", "ghcr.io/a/web:1"), None),
        (
            object("Pod", "web", "web:1"),
            Some(
                "stage trusted-registries of chain trusted-registries denied the request: Policy trusted-registries \
                 failed: use images of ghcr.io",
            ),
        ),
        (
            object("Deployment", "web", "web:1"),
            Some(
                "stage autogen-defaults of chain trusted-registries denied the request: Policy trusted-registries failed",
            ),
        ),
        (object("Pod", "old", "web:1"), None),
    ] {
        fs::write(directory_path.join("object.json"), object.to_string()).unwrap();
        let arguments = [
            "run",
            "policies/",
            "object.json",
            "--cluster",
            "limits.yaml",
            "--output",
            "json",
        ];
        let command_output = run_admittance(directory_path, &arguments).await;
        assert_eq!(
            command_output.code,
            Some(refusal.is_some().into()),
            "{}{}",
            command_output.stdout,
            command_output.stderr
        );
        let report = parse_report(&command_output);
        match refusal {
            Some(message) => assert!(
                report["refusal"]["message"].as_str().unwrap().starts_with(message),
                "{report}"
            ),
            None => assert_eq!(report["object"]["spec"]["hostname"], "a", "{report}"),
        }
    }
    let command_output = run_admittance(directory_path, &["import", "policies/", "--to", "imported.yaml"]).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    let command_output = run_admittance(directory_path, &["check", "imported.yaml"]).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
}

#[tokio::test]
async fn kyverno_tests_run_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/kyverno.md").yaml();
    let cases = directory_path.join(".kyverno-test");
    fs::create_dir(&cases).unwrap();
    fs::write(directory_path.join("teams.yaml"), TEAM_POLICY).unwrap();
    fs::write(
        directory_path.join("policies.yaml"),
        format!("{}---{MUTATING_POLICY}", page[0]),
    )
    .unwrap();
    let objects = [
        object("Pod", "good", "ghcr.io/a/web:1"),
        object("Pod", "bad", "web:1"),
        object("Pod", "old", "web:1"),
        object("Deployment", "bad", "web:1"),
    ];
    fs::write(
        cases.join("objects.yaml"),
        objects.each_ref().map(ToString::to_string).join("\n---\n"),
    )
    .unwrap();
    let mut patched = objects[0].clone();
    patched["spec"]["hostname"] = "a".into();
    // The test case expects a Pod with an empty list of volumes. The policy returns a Pod without a list of volumes,
    // which counts as equal.
    patched["spec"]["volumes"] = json!([]);
    fs::write(cases.join("patched.yaml"), patched.to_string()).unwrap();
    let context = format!(
        "kind: Context\nspec:\n  resources:\n    - {}\n",
        LIMITS_CONFIG_MAP.trim().replace('\n', "\n      ")
    );
    fs::write(cases.join("context.yaml"), context).unwrap();
    fs::write(
        cases.join("user.yaml"),
        "kind: UserInfo\nuserInfo: { username: alice }\n",
    )
    .unwrap();
    let values = "kind: Values\npolicies:\n  - name: trusted-registries\n    resources:\n      - { name: bad, values: { request.operation: UPDATE } }\n";
    fs::write(cases.join("values.yaml"), values).unwrap();
    let test = |results: &str| {
        format!(
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {{ name: registries }}\npolicies: [../policies.yaml, ../teams.yaml]\n\
             apiCallResponses: [{{ url: 'https://teams.example.com/shop', response: {{ body: {{ names: [good] }} }} }}]\n\
             resources: [objects.yaml]\ncontext: context.yaml\nuserinfo: user.yaml\nvariables: values.yaml\nresults:\n{results}"
        )
    };
    let results = "
  - { policy: trusted-registries, kind: Pod, resources: [shop/good], result: pass, isValidatingPolicy: true }
  - { policy: trusted-registries, kind: Pod, resources: [bad], result: fail }
  - { policy: trusted-registries, kind: Pod, resources: [old], result: skip }
  - { policy: trusted-registries, kind: Deployment, result: fail }
  - { policy: run-as, kind: Pod, resources: [good], result: pass, patchedResources: patched.yaml }
  - { policy: run-as, kind: Pod, resources: [bad], result: fail, patchedResources: objects.yaml }
  - { policy: teams, kind: Pod, resources: [good], result: pass }
  - { policy: teams, kind: Pod, resources: [old], result: fail }
";
    fs::write(cases.join("kyverno-test.yaml"), test(results)).unwrap();
    let command_output = run_admittance(directory_path, &["test", "./", "--output", "json"]).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    assert_eq!(
        parse_report(&command_output)["passed"],
        json!(8),
        "{}",
        command_output.stdout
    );

    for (selector, expected) in [
        ("policy=trusted-*, resource=bad", 2),
        ("rule=x,resource=shop/o?d", 2),
        ("policy=run", 0),
    ] {
        let command_output = run_admittance(directory_path, &["test", "./", "-t", selector, "--output", "json"]).await;
        match expected {
            0 => assert!(
                command_output
                    .stderr
                    .contains("is selected; correct --test-case-selector"),
                "{}",
                command_output.stderr
            ),
            expected => assert_eq!(
                parse_report(&command_output)["passed"],
                json!(expected),
                "{}",
                command_output.stdout
            ),
        }
    }
    let command_output = run_admittance(directory_path, &["test", "./", "-t", "name=a"]).await;
    let expected = "`name=a` is not `policy=NAME`, `rule=NAME` or `resource=NAME`";
    assert!(command_output.stderr.contains(expected), "{}", command_output.stderr);

    let failing_results = "
  - { policy: trusted-registries, kind: Pod, resources: [good], result: fail }
  - { policy: run-as, kind: Pod, resources: [bad], result: pass, patchedResources: objects.yaml }
  - { policy: run-as, kind: Pod, resources: [good], result: fail, patchedResources: patched.yaml }
";
    fs::write(cases.join("kyverno-test.yaml"), test(failing_results)).unwrap();
    let command_output = run_admittance(directory_path, &["test", "./", "--output", "json"]).await;
    assert_eq!(
        (command_output.code, &parse_report(&command_output)["failed"]),
        (Some(1), &json!(3)),
        "{}",
        command_output.stdout
    );
    for (results, expected) in [
        (
            "  - { policy: p, kind: Pod, resources: [other], result: pass }\n",
            "there is no Pod other among the resources",
        ),
        (
            "  - { policy: p, kind: Job, result: pass }\n",
            "there is no Job among the resources",
        ),
        (
            "  - { policy: p, kind: Pod, result: passed }\n",
            "results[0].result: \"passed\" is not a valid result",
        ),
        (
            "  - { policy: p, kind: Pod, resource: good, result: pass }\n",
            "results[0].resource: Kyverno has deprecated this field; write `resources: [...]`",
        ),
        (
            "  - { policy: p, kind: Pod, resourses: [good], result: pass }\n",
            "results[0].resourses: unknown field; did you mean `resources`?",
        ),
        ("  []\n", "results: the list is empty"),
        (
            "  []\njsonPayload: a.json\n",
            "only objects of Kubernetes are tested here",
        ),
    ] {
        fs::write(cases.join("kyverno-test.yaml"), test(results)).unwrap();
        let command_output = run_admittance(directory_path, &["test", "./"]).await;
        assert!(
            command_output.code == Some(2) && command_output.stderr.contains(expected),
            "{}{}",
            command_output.stdout,
            command_output.stderr
        );
    }
}
