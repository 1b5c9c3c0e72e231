use admittance_sdk::serde_json::{Value, json};
use admittance_sdk::testing::{self, Outcome, RequestBuilder};

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn admit(settings: &Value, request: RequestBuilder) -> Outcome {
    let plugin = testing::configure::<ImagePolicy>(settings).expect("the settings are right");
    request.admit(&plugin).expect("there is a verdict")
}

fn pod(image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// Each row tests one rule with an image. It contains the expected rewritten image, or a part of the expected refusal.
#[test]
fn each_rule_rewrites_or_refuses_an_image() {
    let pinned = format!("nginx:1@{DIGEST}");
    let mirrored = format!("m.io/hub/library/nginx:1@{DIGEST}");
    let rewrites = json!({"rewrites": {"docker.io/": "m.io/hub/", "docker.io/team": "t.io", "a.io:5000": "b.io"}});
    let mirror_only = json!({"rewrites": {"docker.io": "m.io/hub"}, "allowedRegistries": ["m.io"]});
    let table: [(&str, Value, &str, Result<&str, &str>); 22] = [
        ("no rule", json!({}), "nginx", Ok("nginx")),
        ("no rule, malformed", json!({}), "NOT an image", Ok("NOT an image")),
        (
            "a rewrite alone, malformed",
            rewrites.clone(),
            "NOT an image",
            Ok("NOT an image"),
        ),
        ("rewritten", rewrites.clone(), "nginx", Ok("m.io/hub/library/nginx")),
        (
            "rewritten with tag and digest",
            rewrites.clone(),
            &pinned,
            Ok(&mirrored),
        ),
        ("the longest rewrite", rewrites.clone(), "team/a:1", Ok("t.io/a:1")),
        ("with a port", rewrites.clone(), "a.io:5000/x", Ok("b.io/x")),
        ("another port", rewrites.clone(), "a.io:5001/x", Ok("a.io:5001/x")),
        (
            "rewritten already",
            rewrites,
            "m.io/hub/library/nginx",
            Ok("m.io/hub/library/nginx"),
        ),
        (
            "allowed after rewriting",
            mirror_only.clone(),
            "nginx",
            Ok("m.io/hub/library/nginx"),
        ),
        (
            "not allowed",
            mirror_only.clone(),
            "x.io/a",
            Err("is not listed in allowedRegistries; use one of \"m.io\""),
        ),
        ("a lookalike", mirror_only, "m.io.x.io/a", Err("allowedRegistries")),
        (
            "allowed by path",
            json!({"allowedRegistries": ["a.io/team"]}),
            "a.io/team/x",
            Ok("a.io/team/x"),
        ),
        (
            "not allowed by path",
            json!({"allowedRegistries": ["a.io/team"]}),
            "a.io/teams/x",
            Err("allowedRegistries"),
        ),
        (
            "refused",
            json!({"refusedRegistries": ["x.io"]}),
            "x.io/a",
            Err("under \"x.io\", which is listed in refusedRegistries"),
        ),
        (
            "refused on any port",
            json!({"refusedRegistries": ["x.io"]}),
            "x.io:443/a",
            Err("refusedRegistries"),
        ),
        (
            "not refused",
            json!({"refusedRegistries": ["x.io"]}),
            "y.io/a",
            Ok("y.io/a"),
        ),
        ("no tag", json!({"refuseLatest": true}), "nginx", Err("refuseLatest")),
        (
            "latest",
            json!({"refuseLatest": true}),
            "a.io:1/nginx:latest",
            Err("refuseLatest"),
        ),
        (
            "pinned is not latest",
            json!({"refuseLatest": true}),
            &pinned,
            Ok(&pinned),
        ),
        (
            "no digest",
            json!({"requireDigest": true}),
            "nginx:1",
            Err("requireDigest requires"),
        ),
        (
            "malformed",
            json!({"refuseLatest": true}),
            "nginx:1 ",
            Err("not a valid reference"),
        ),
    ];
    for (name, settings, image, expected) in table {
        let outcome = admit(&settings, testing::create(pod(image)));
        match expected {
            Ok(after) => {
                assert_eq!(outcome.denial(), None, "{name}");
                assert_eq!(outcome.at("/spec/containers/0/image"), Some(&json!(after)), "{name}");
                assert_eq!(
                    outcome.patch().is_some(),
                    image != after,
                    "{name}: a patch only for a change"
                );
            }
            Err(part) => {
                let denial = outcome.denial().unwrap_or_else(|| panic!("{name}: it passed"));
                assert!(
                    denial.message.starts_with("spec.containers[0].image: image "),
                    "{name}: {}",
                    denial.message
                );
                assert!(
                    denial.message.contains(&format!("\"{image}\"")),
                    "{name}: {}",
                    denial.message
                );
                assert!(denial.message.contains(part), "{name}: {}", denial.message);
                assert_eq!(
                    (denial.code, denial.reason.as_str()),
                    (403, "ImageNotAllowed"),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn all_violations_are_in_one_message() {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {
        "containers": [{"name": "a", "image": "a.io/fine:1"}, {"name": "b", "image": "x.io/b"}],
        "initContainers": [{"name": "c", "image": "nginx"}],
        "ephemeralContainers": [{"name": "d", "image": ""}],
        "volumes": [{"name": "v", "image": {"reference": "x.io/v:1"}}, {"name": "w", "emptyDir": {}}],
    }}}});
    let settings = json!({"refuseLatest": true, "refusedRegistries": ["x.io"], "rewrites": {"docker.io": "m.io"}});
    let outcome = admit(&settings, testing::create(object));
    let message = &outcome.denial().expect("it breaks rules").message;
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 5, "{message}");
    assert_eq!(lines[0], "4 images break the policy:");
    assert!(
        lines[1].starts_with("- spec.template.spec.containers[1].image: image \"x.io/b\" is under"),
        "{message}"
    );
    assert!(
        lines[2].starts_with(
            "- spec.template.spec.initContainers[0].image: image \"nginx\" (rewritten to \"m.io/library/nginx\") has no tag"
        ),
        "{message}"
    );
    assert!(
        lines[3].contains("ephemeralContainers[0].image: image \"\" is not a valid reference"),
        "{message}"
    );
    assert!(
        lines[4].contains("spec.template.spec.volumes[0].image.reference: image \"x.io/v:1\""),
        "{message}"
    );
}

#[test]
fn images_are_rewritten_in_every_field_of_every_kind() {
    let spec = json!({
        "containers": [{"name": "a", "image": "nginx:1"}, {"name": "b"}],
        "initContainers": [{"name": "c", "image": "team/c:1"}],
        "ephemeralContainers": null,
        "volumes": [{"name": "v", "image": {"reference": "v:1"}}],
    });
    let template = json!({"template": {"spec": spec}});
    let table = [
        ("v1", "Pod", json!({"spec": spec}), "/spec"),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": template}),
            "/spec/template/spec",
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": template}}}),
            "/spec/jobTemplate/spec/template/spec",
        ),
        ("v4", "application", json!({"spec": template}), "/spec/template/spec"),
        ("v4", "deployment", json!({"spec": template}), "/spec/template/spec"),
    ];
    for (api_version, kind, mut object, spec) in table {
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let outcome = admit(&json!({"rewrites": {"docker.io": "m.io"}}), testing::create(&object));
        for (path, expected) in [
            ("containers/0/image", "m.io/library/nginx:1"),
            ("initContainers/0/image", "m.io/team/c:1"),
            ("volumes/0/image/reference", "m.io/library/v:1"),
        ] {
            assert_eq!(
                outcome.at(&format!("{spec}/{path}")),
                Some(&json!(expected)),
                "{kind} {path}"
            );
        }
        assert_eq!(outcome.at(&format!("{spec}/containers/1/image")), None, "{kind}");
    }
}

#[test]
fn only_changed_images_of_an_update_are_checked() {
    let settings = json!({"rewrites": {"docker.io": "m.io"}, "refuseLatest": true});
    let deployment = |image: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
               "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
    };
    let debugged = |image: &str, debugger: &str| {
        let mut object = pod(image);
        object["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": debugger}]);
        object
    };
    let deleted = |mut object: Value| {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object
    };
    let table = [
        (
            "a Pod keeps what it runs",
            testing::update(pod("nginx"), pod("nginx")),
            Ok("/spec/containers/0/image"),
            "nginx",
        ),
        (
            "a Pod's new image is rewritten",
            testing::update(pod("nginx"), pod("b:2")),
            Ok("/spec/containers/0/image"),
            "m.io/library/b:2",
        ),
        (
            "a Pod's new image is checked",
            testing::update(pod("nginx:1"), pod("nginx")),
            Err(()),
            "",
        ),
        (
            "a container that is added to a running Pod is checked",
            testing::update(pod("nginx:1"), debugged("nginx:1", "busybox")),
            Err(()),
            "",
        ),
        (
            "and rewritten",
            testing::update(pod("nginx:1"), debugged("nginx:1", "busybox:1")),
            Ok("/spec/ephemeralContainers/0/image"),
            "m.io/library/busybox:1",
        ),
        (
            "an old object is not needed",
            testing::update("{}", pod("nginx")),
            Err(()),
            "",
        ),
        (
            "a workload is checked again",
            testing::update(deployment("nginx"), deployment("nginx")),
            Err(()),
            "",
        ),
        (
            "a workload that is being deleted may go",
            testing::update(deleted(deployment("nginx")), deleted(deployment("nginx"))),
            Ok("/spec/template/spec/containers/0/image"),
            "nginx",
        ),
        (
            "nobody deletes by saying so",
            testing::update(deployment("nginx"), deleted(deployment("nginx"))),
            Err(()),
            "",
        ),
        (
            "nor in a CREATE",
            testing::create(deleted(deployment("nginx"))),
            Err(()),
            "",
        ),
        ("a DELETE passes", testing::delete(pod("nginx")), Ok(""), ""),
        (
            "a CONNECT passes",
            testing::connect(pod("nginx")),
            Ok("/spec/containers/0/image"),
            "nginx",
        ),
    ];
    for (name, request, expected, image) in table {
        let outcome = admit(&settings, request);
        match expected {
            Err(()) => assert!(outcome.denial().is_some(), "{name}"),
            Ok(pointer) => {
                assert_eq!(outcome.denial(), None, "{name}");
                assert_eq!(
                    outcome.at(pointer).and_then(Value::as_str).unwrap_or_default(),
                    image,
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn keys_in_another_letter_case_do_not_bypass_the_image_rules() {
    let object = json!({"apiVersion": "v4", "kind": "application",
        "spec": {"template": {"spec": {"Containers": [{"image": "x.io/a:1"}]}}}});
    let outcome = admit(&json!({"refusedRegistries": ["x.io"]}), testing::create(&object));
    let denial = outcome.denial().expect("BCS reads Containers as containers");
    assert!(
        denial
            .message
            .contains("spec.template.spec.Containers: the control plane reads this field as \"containers\"")
    );
    assert!(admit(&json!({"rewrites": {"x.io": "y.io"}}), testing::create(&object)).is_allowed());
}

#[test]
fn every_mistake_in_the_settings_is_reported() {
    let table: [(Value, &[(&str, &str)]); 7] = [
        (
            json!({"rewrites": {"team": "m.io"}}),
            &[("/rewrites/team", "does not begin with a registry")],
        ),
        (
            json!({"rewrites": {"docker.io/": "https://m.io", "x": "y"}, "allowedRegistries": ["a.io", "b"], "refusedRegistries": ["c.io:x"]}),
            &[
                ("/rewrites/docker.io~1", "scheme"),
                ("/rewrites/x", "does not begin"),
                ("/rewrites/x", "does not begin"),
                ("/refusedRegistries/0", "does not begin"),
                ("/allowedRegistries/1", "does not begin"),
            ],
        ),
        (
            json!({"allowedRegistries": []}),
            &[("/allowedRegistries", "refuses every image")],
        ),
        (
            json!({"rewrites": {"a.io": "a.io/mirror"}}),
            &[("/rewrites/a.io", "rewritten again")],
        ),
        (
            json!({"rewrites": {"a.io": "b.io", "b.io": "c.io"}}),
            &[("/rewrites/a.io", "by the rule for \"b.io\"")],
        ),
        (
            json!({"rewrites": {"a.io": "m.io", "a.io/": "m.io"}}),
            &[("/rewrites/a.io~1", "the same as \"a.io\"")],
        ),
        (json!({"refuseLatset": true}), &[("/refuseLatset", "unknown field")]),
    ];
    for (settings, expected) in table {
        let errors = testing::configure::<ImagePolicy>(&settings).expect_err("they are wrong");
        assert_eq!(errors.len(), expected.len(), "{settings}: {errors}");
        for (error, (pointer, part)) in errors.iter().zip(expected) {
            assert_eq!(error.pointer(), *pointer, "{settings}: {error:?}");
            assert!(error.message().contains(part), "{settings}: {error:?}");
        }
    }
}

#[test]
fn the_plugin_declares_its_settings_schema_and_its_resources() {
    let description = testing::describe::<ImagePolicy>();
    assert_eq!(description.name, "image-policy");
    assert!(description.mutates && !description.summary.is_empty() && description.capabilities.is_empty());
    let schema: Value =
        admittance_sdk::serde_json::from_str(&description.settings_schema.expect("there is one")).expect("it is JSON");
    assert_eq!(schema.pointer("/properties/refuseLatest/type"), Some(&json!("boolean")));
    assert_eq!(schema.get("additionalProperties"), Some(&json!(false)));
    assert!(
        description
            .resources
            .iter()
            .any(|rule| rule.resources.iter().any(|r| r == "pods/ephemeralcontainers"))
    );
}
