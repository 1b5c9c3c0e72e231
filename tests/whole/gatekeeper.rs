//! Gatekeeper's templates, constraints and suites, and stages in Rego, run as a user would, with the real plugin.

use std::{fs, path::Path};

use admittance_tests::{Admittance, FinishedProgram, repository};
use serde_json::{Value, json};

use crate::{documents::page::Page, scene::store};

async fn run_admittance(directory: &Path, arguments: &[&str]) -> FinishedProgram {
    let path = |argument: &&str| {
        if argument.contains('.') || argument.ends_with('/') {
            directory.join(argument).into_os_string()
        } else {
            argument.into()
        }
    };
    let store = ["--store".into(), store().into()];
    Admittance::run(arguments.iter().map(path).chain(store)).await.unwrap()
}

fn parse_report(command_output: &FinishedProgram) -> Value {
    serde_json::from_str(&command_output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", command_output.stdout, command_output.stderr))
}

#[tokio::test]
async fn gatekeeper_suites_run_unchanged() {
    let examples = repository().join("docs/examples");
    // (directory of the suite, number of cases that pass). The suite `allowed-repositories` has one more case, which is
    // skipped.
    for (name, cases) in [
        ("required-labels", 6),
        ("allowed-repositories", 4),
        ("container-limits", 2),
        ("generated-pods", 6),
        ("privileged", 3),
        ("unique-hosts", 3),
    ] {
        let directory = format!("gatekeeper/{name}/");
        let command_output = run_admittance(&examples, &["test", &directory, "--output", "json"]).await;
        assert_eq!(
            command_output.code,
            Some(0),
            "{}{}",
            command_output.stdout,
            command_output.stderr
        );
        assert_eq!(
            parse_report(&command_output)["passed"],
            json!(cases),
            "{}",
            command_output.stdout
        );
    }

    // Like `gator`, `admittance test` accepts `...` for all subdirectories, and reports a missing directory.
    let command_output = run_admittance(&examples, &["test", "gatekeeper/privileged/..."]).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    let command_output = run_admittance(&examples, &["test", "gatekeeper/nothing/"]).await;
    assert!(
        command_output.stderr.contains("there is no such file or directory"),
        "{}",
        command_output.stderr
    );

    // In this suite, one case fails for each kind of assertion.
    let directory = tempfile::tempdir().unwrap();
    for name in ["template.yaml", "constraint.yaml", "incomplete.yaml"] {
        let from = examples.join("gatekeeper/required-labels").join(name);
        fs::copy(from, directory.path().join(name)).unwrap();
    }
    let suite = "kind: Suite
apiVersion: test.gatekeeper.sh/v1alpha1
tests:
  - name: labels
    template: template.yaml
    constraint: constraint.yaml
    cases:
      - { name: none, object: incomplete.yaml, assertions: [ { violations: no } ] }
      - { name: three, object: incomplete.yaml, assertions: [ { violations: 3 } ] }
      - { name: other, object: incomplete.yaml, assertions: [ { message: ^nothing } ] }
";
    let invalid = "  - { name: fits, invalid: true, template: template.yaml, constraint: constraint.yaml }
  - { name: does not fit, invalid: true, template: template.yaml, constraint: invalid.yaml }
";
    let constraint = fs::read_to_string(directory.path().join("constraint.yaml")).unwrap();
    let (before, _) = constraint.split_once("  parameters:").unwrap();
    let invalid_constraint = format!("{before}  parameters: {{ labels: 1 }}\n");
    fs::write(directory.path().join("invalid.yaml"), invalid_constraint).unwrap();
    fs::write(directory.path().join("suite.yaml"), format!("{suite}{invalid}")).unwrap();
    let command_output = run_admittance(directory.path(), &["test", "suite.yaml", "--output", "json"]).await;
    assert_eq!(
        command_output.code,
        Some(1),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    assert_eq!(
        parse_report(&command_output)["failed"],
        json!(4),
        "{}",
        command_output.stdout
    );
    assert_eq!(
        parse_report(&command_output)["passed"],
        json!(1),
        "{}",
        command_output.stdout
    );
    assert!(
        command_output.stdout.contains("the constraint fits its template"),
        "{}",
        command_output.stdout
    );
}

#[tokio::test]
async fn a_constraint_denies_requests_and_its_mistakes_are_reported_with_positions() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/gatekeeper.md").yaml();
    fs::create_dir(directory_path.join("policies")).unwrap();
    fs::write(directory_path.join("policies/labels.yaml"), &page[0]).unwrap();
    for (labels, namespace, code, expected) in [
        (
            json!({}),
            "shop",
            1,
            "[pods-have-owners] these labels are missing: {\\\"owner\\\"}",
        ),
        (json!({"owner": "a"}), "shop", 0, ""),
        (json!({}), "kube-public", 0, "match condition"),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
                         "metadata": {"name": "web", "namespace": namespace, "labels": labels},
                         "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
        fs::write(directory_path.join("pod.json"), pod.to_string()).unwrap();
        let command_output =
            run_admittance(directory_path, &["run", "policies/", "pod.json", "--output", "json"]).await;
        assert_eq!(
            command_output.code,
            Some(code),
            "{labels}: {}{}",
            command_output.stdout,
            command_output.stderr
        );
        assert!(
            command_output.stdout.contains(expected),
            "{labels}: {}",
            command_output.stdout
        );
    }
    // (text of the template, its replacement, expected position of the mistake, part of the message)
    for (from, to, position, expected) in [
        ("count(missing) > 0", "count(missing) >", "labels.yaml:2", "line "),
        (
            "count(missing)",
            "length(missing)",
            "labels.yaml:26:",
            "`length` is not a function",
        ),
        (
            "kind: RequiredLabels\nmetadata",
            "kind: Required\nmetadata",
            "labels.yaml:30:",
            "there is no ConstraintTemplate for constraints of kind \"Required\"",
        ),
        (
            "labels: [owner]",
            "labels: owner",
            "labels.yaml:42:",
            "spec.parameters.labels: the template's schema asks for a value of type array, and this is of type string",
        ),
    ] {
        let text = page[0].replace(from, to);
        assert_ne!(text, page[0], "{from}");
        fs::write(directory_path.join("policies/labels.yaml"), text).unwrap();
        let check_output = run_admittance(directory_path, &["check", "policies/"]).await;
        assert_eq!(
            check_output.code,
            Some(1),
            "{to}: {}{}",
            check_output.stdout,
            check_output.stderr
        );
        assert!(check_output.stdout.contains(position), "{to}: {}", check_output.stdout);
        assert!(check_output.stdout.contains(expected), "{to}: {}", check_output.stdout);
    }
}

#[tokio::test]
async fn all_constraints_that_deny_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/gatekeeper.md").yaml();
    let (template, constraint) = page[0].split_once("---\n").unwrap();
    let second = constraint
        .replace("pods-have-owners", "pods-have-teams")
        .replace("[owner]", "[team]");
    fs::write(
        directory_path.join("labels.yaml"),
        format!("{template}---\n{constraint}---\n{second}"),
    )
    .unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
                     "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    fs::write(directory_path.join("pod.json"), pod.to_string()).unwrap();
    let command_output = run_admittance(directory_path, &["run", "labels.yaml", "pod.json", "--output", "json"]).await;
    assert_eq!(
        command_output.code,
        Some(1),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    let expected = "[pods-have-owners] these labels are missing: {\"owner\"}\n\
                    [pods-have-teams] these labels are missing: {\"team\"}";
    let run_report = parse_report(&command_output);
    let refusal = &run_report["refusal"];
    assert_eq!((&refusal["message"], &refusal["code"]), (&json!(expected), &json!(403)));

    // A template without constraints yields no stage, but `check` compiles its Rego code nevertheless.
    fs::write(directory_path.join("labels.yaml"), template).unwrap();
    let check_output = run_admittance(directory_path, &["check", "labels.yaml"]).await;
    assert_eq!(
        check_output.code,
        Some(0),
        "{}{}",
        check_output.stdout,
        check_output.stderr
    );
    fs::write(
        directory_path.join("labels.yaml"),
        template.replace("count(missing)", "length(missing)"),
    )
    .unwrap();
    let check_output = run_admittance(directory_path, &["check", "labels.yaml"]).await;
    assert_eq!(
        check_output.code,
        Some(1),
        "{}{}",
        check_output.stdout,
        check_output.stderr
    );
    for expected in ["labels.yaml:26:", "`length` is not a function"] {
        assert!(check_output.stdout.contains(expected), "{}", check_output.stdout);
    }
}

/// A template finds the request in `input.review` and not in `input.request`, as in Gatekeeper (gatekeeper#3545).
/// `check` rejects templates that cannot work, such as one that calls an unavailable function.
#[tokio::test]
async fn templates_decide_as_in_gatekeeper() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let template = |names: &str, rule: &str| {
        format!(
            "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {{ name: denyall }}\nspec:\n  \
             crd: {{ spec: {{ names: {{ kind: DenyAll{names} }} }} }}\n  targets:\n    - target: admission.k8s.gatekeeper.sh\n      \
             rego: |\n        package denyall\n        {rule}\n---\n\
             apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: DenyAll\nmetadata: {{ name: c1 }}\nspec: {{}}\n"
        )
    };
    let request_rule = "violation[{\"msg\": \"x\"}] { input.request.kind.kind == \"Namespace\" }";
    let review_rule = request_rule.replace("request", "review");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    fs::write(directory_path.join("namespace.json"), namespace.to_string()).unwrap();
    for (rule, code) in [(request_rule, 0), (&review_rule, 1)] {
        let text = template(", plural: denyalls, singular: denyall, listKind: DenyAllList", rule);
        fs::write(directory_path.join("policy.yaml"), text).unwrap();
        let command_output = run_admittance(directory_path, &["run", "policy.yaml", "namespace.json"]).await;
        assert_eq!(
            command_output.code,
            Some(code),
            "{rule}: {}{}",
            command_output.stdout,
            command_output.stderr
        );
    }
    let sync = "apiVersion: syncset.gatekeeper.sh/v1alpha1\nkind: SyncSet\nmetadata: { name: nodes }\n\
                spec: { gvks: [ { version: v1, kind: Node } ] }\n";
    // (template or other document, exit code of `check`, part of its output)
    for (text, code, expected) in [
        (template("", "violation[\"msg\"] { true }"), 1, "policy.yaml:10:"),
        (
            template("", "violation[\"msg\"] { true }"),
            1,
            "write `violation[{\"msg\": msg}]`",
        ),
        (
            template("", "violation[{\"msg\": m}] { m := graphql.parse_query(\"\") }"),
            1,
            "`graphql.parse_query` is a function of OPA that is not available here",
        ),
        (
            template(
                "",
                "violation[{\"msg\": \"x\"}] { net.cidr_intersects(\"10.0.0.0/8\", \"10.1.0.0/16\") }",
            ),
            0,
            "ok",
        ),
        (sync.to_owned(), 0, "SyncSet nodes"),
    ] {
        fs::write(directory_path.join("policy.yaml"), &text).unwrap();
        let check_output = run_admittance(directory_path, &["check", "policy.yaml"]).await;
        let output = format!("{}{}", check_output.stdout, check_output.stderr);
        assert_eq!(check_output.code, Some(code), "{text}: {output}");
        assert!(output.contains(expected), "{text}: {output}");
    }
}

#[tokio::test]
async fn mutators_change_objects_as_in_gatekeeper() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/gatekeeper.md").yaml();
    let mutators = page.iter().find(|text| text.contains("kind: ModifySet")).unwrap();
    fs::write(directory_path.join("mutators.yaml"), mutators).unwrap();
    let container =
        |image: &str, rest: Value| json!({"name": "web", "image": image, "args": ["--debug", "-v"], "x": rest});
    let pod = |namespace: &str, containers: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace},
               "spec": {"containers": containers}})
    };
    let changed = json!({"name": "web", "image": "mirror.example.com/web:1", "args": ["-v"], "x": 1,
                         "securityContext": {"privileged": false}});
    let run = async |object: &Value| {
        fs::write(directory_path.join("pod.json"), object.to_string()).unwrap();
        run_admittance(
            directory_path,
            &["run", "mutators.yaml", "pod.json", "--output", "json"],
        )
        .await
    };
    let command_output = run(&pod("shop", json!([container("docker.io/web:1", json!(1))]))).await;
    assert_eq!(
        command_output.code,
        Some(0),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    let mut expected = pod("shop", json!([changed]));
    expected["metadata"]["labels"] = json!({"owner": "shop"});
    let run_report = parse_report(&command_output);
    assert_eq!(run_report["object"], expected, "{}", command_output.stdout);
    let mutators = "Assign/not-privileged, AssignImage/mirror, AssignMetadata/owner, ModifySet/no-debug-logs";
    assert!(run_report.to_string().contains(mutators), "{run_report}");

    let command_output = run(&expected).await;
    assert_eq!(
        parse_report(&command_output)["object"],
        expected,
        "{}",
        command_output.stdout
    );
    let command_output = run(&pod("kube-public", json!([]))).await;
    assert_eq!(
        parse_report(&command_output)["object"],
        pod("kube-public", json!([])),
        "{}",
        command_output.stdout
    );

    let command_output = run(&pod("shop", json!({"web": {}}))).await;
    assert_eq!(
        command_output.code,
        Some(1),
        "{}{}",
        command_output.stdout,
        command_output.stderr
    );
    let expected = "spec.containers is an object, where its location expects a list";
    assert!(command_output.stdout.contains(expected), "{}", command_output.stdout);
}

#[tokio::test]
async fn a_rego_stage_works_with_any_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path();
    let page = Page::read("docs/gatekeeper.md").yaml();
    let chain = page.iter().find(|text| text.contains("rego:\n        text:")).unwrap();
    fs::write(directory_path.join("chain.yaml"), chain).unwrap();
    for (count, code, expected) in [(10, 0, ""), (11, 1, "group web has 11 instances, and 10 are allowed")] {
        let job = json!({"kind": "job", "Job": {"ID": "web", "TaskGroups": [{"Name": "web", "Count": count}]}});
        fs::write(directory_path.join("job.json"), job.to_string()).unwrap();
        let command_output =
            run_admittance(directory_path, &["run", "chain.yaml", "job.json", "--output", "json"]).await;
        assert_eq!(
            command_output.code,
            Some(code),
            "{count}: {}{}",
            command_output.stdout,
            command_output.stderr
        );
        assert!(
            command_output.stdout.contains(expected),
            "{count}: {}",
            command_output.stdout
        );
    }

    // If the plugin for Rego is missing, the message names its file.
    let mut command = Admittance::command().unwrap();
    let output = command
        .args(["check", "chain.yaml"])
        .current_dir(directory_path)
        .env("ADMITTANCE_PLUGINS", directory_path.join("nowhere"))
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &*String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("nowhere/rego.wasm") && text.contains("ADMITTANCE_PLUGINS"),
        "{text}"
    );
}
