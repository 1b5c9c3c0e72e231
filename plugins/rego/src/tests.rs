use admittance_sdk::serde_json::{Value as Json, json};
use admittance_sdk::testing::{self, Outcome};

use super::*;

const PODS: &str = r#"
package pods
import rego.v1

deny contains msg if {
  some container in input.request.object.spec.containers
  container.image != "web:1"
  msg := sprintf("the image %v", [container.image])
}

allow if count(deny) == 0

main := {"response": {"allowed": allow, "warnings": ["old"]}} if allow
main := {"response": {"allowed": false, "status": {"message": "no"}}} if not allow

number := 3
"#;

fn pod(image: &str) -> Json {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
           "spec": {"containers": [{"name": "web", "image": image}]}})
}

fn settings_mistakes(settings: Json) -> Vec<(String, String)> {
    match testing::configure::<Rego>(settings) {
        Ok(_) => Vec::new(),
        Err(errors) => {
            let errors = errors.iter();
            errors
                .map(|error| (error.pointer().to_owned(), error.message().to_owned()))
                .collect()
        }
    }
}

fn admit(settings: Json, object: Json) -> Result<Outcome, Error> {
    let plugin = testing::configure::<Rego>(settings).expect("the settings are right");
    testing::create(object).admit(&plugin)
}

fn denial_message(outcome: &Outcome) -> Option<&str> {
    outcome.denial().map(|denial| denial.message.as_str())
}

#[test]
fn the_value_of_an_entry_point_may_be_a_set_a_boolean_or_a_review() {
    for (rule, image, denial) in [
        ("data.pods.deny", "web:1", None),
        ("pods/deny", "db:1", Some("the image db:1")),
        ("data.pods.allow", "web:1", None),
        ("data.pods.allow", "db:1", Some("data.pods.allow is not true")),
        ("data.pods.main", "web:1", None),
        ("data.pods.main", "db:1", Some("no")),
    ] {
        let outcome = admit(json!({"rego": PODS, "entrypoint": rule}), pod(image)).expect("there is a verdict");
        assert_eq!(denial_message(&outcome), denial, "{rule} {image}");
    }
    let failure = admit(json!({"rego": PODS, "entrypoint": "data.pods.number"}), pod("web:1"))
        .expect_err("a number is no verdict")
        .to_string();
    assert!(
        failure.contains("data.pods.number is 3; an entry point is"),
        "{failure}"
    );
}

fn template(rego: &str, constraints: Json) -> Json {
    json!({"rego": rego, "version": "v0", "constraints": constraints})
}

#[test]
fn messages_of_violations_begin_with_the_name_of_the_constraint() {
    let rego = r#"package t
        violation[{"msg": msg}] {
          label := input.parameters.labels[_]
          not input.review.object.metadata.labels[label]
          msg := label
        }"#;
    for (actions, denial, warnings) in [
        (json!(["deny"]), Some("[c] a\n[c] b"), vec![]),
        (json!(["warn"]), None, vec!["[c] a", "[c] b"]),
        (json!(["deny", "warn"]), Some("[c] a\n[c] b"), vec!["[c] a", "[c] b"]),
    ] {
        let settings = template(
            rego,
            json!({"c": {"parameters": {"labels": ["b", "a"]}, "actions": actions}}),
        );
        let outcome = admit(settings, pod("web:1")).expect("there is a verdict");
        assert_eq!(denial_message(&outcome), denial);
        assert_eq!(outcome.warnings(), warnings);
    }
}

#[test]
fn the_review_of_a_delete_contains_the_deleted_object() {
    let rego = r#"package t
        violation[{"msg": input.review.object.metadata.name}] { input.review.operation == "DELETE" }"#;
    let settings = template(rego, json!({"c": {"actions": ["deny"]}}));
    let plugin = testing::configure::<Rego>(settings).expect("the settings are right");
    let outcome = testing::delete(pod("web:1"))
        .admit(&plugin)
        .expect("there is a verdict");
    assert_eq!(denial_message(&outcome), Some("[c] web"));
}

/// Policies for OPA find the request in `input.request`, but templates of Gatekeeper do not (gatekeeper#3545).
#[test]
fn the_input_of_a_template_has_only_the_review_and_the_parameters() {
    let rego = r#"package t
        violation[{"msg": concat(",", sort([name | input[name]]))}] { true }
        violation[{"msg": "request"}] { input.request.kind.kind == "Pod" }"#;
    let settings = template(rego, json!({"c": {"actions": ["deny"]}}));
    let outcome = admit(settings, pod("web:1")).expect("there is a verdict");
    assert_eq!(denial_message(&outcome), Some("[c] parameters,review"));
}

#[test]
fn the_inventory_contains_the_objects_of_the_cluster() {
    let rego = r#"package t
        violation[{"msg": msg}] {
          data.inventory.namespace[namespace]["apps/v1"]["Deployment"][name].spec.replicas > 1
          data.inventory.cluster["v1"]["Node"][node]
          not input.inventory
          msg := sprintf("%v/%v on %v", [namespace, name, node])
        }"#;
    let mut settings = template(rego, json!({"c": {"actions": ["deny"]}}));
    settings["inventory"] = json!(["apps/v1/Deployment", "v1/Node"]);
    let objects = [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "db", "namespace": "shop"}, "spec": {"replicas": 1}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
    ];
    let outcome = testing::with_cluster(objects, || admit(settings, pod("web:1"))).expect("there is a verdict");
    assert_eq!(denial_message(&outcome), Some("[c] shop/web on n1"));
}

#[test]
fn a_function_with_arguments_of_a_wrong_type_is_undefined() {
    let rego = r#"package t
        violation[{"msg": "pattern"}] { not re_match("(", "a") }
        violation[{"msg": "long"}] { re_match("^\\w{1,63}$", "abc") }
        violation[{"msg": "any"}] { any([false, true]); all([true, true]); not any([]) }
        violation[{"msg": sprintf("%v", [cast_array({2, 1})])}] { true }
        violation[{"msg": sprintf("%v %v", ["one"])}] { true }
        violation[{"msg": "none"}] { regex.match(1, 2) }
        violation[{"msg": "cast"}] {
          cast_set([1, 1]) == {1}; cast_string("a") == "a"; cast_boolean(false) == false; cast_null(null) == null
          cast_object({"a": 1}) == {"a": 1}; not cast_string(1); not cast_object([]); not cast_array("a")
        }
        violation[{"msg": "sets"}] { set_diff({1, 2}, {2}) == {1} }
        violation[{"msg": "globs"}] { regex.globs_match("a.a.[0-9]+z", "a.a.[0-9]*z"); not regex.globs_match("a", "b") }
        violation[{"msg": "networks"}] {
          net.cidr_merge(["192.0.128.0/24", "192.0.129.0/24"], merged)
          merged == {"192.0.128.0/23"}
          net.cidr_intersects("10.0.0.0/8", "10.1.0.0/16")
          net.cidr_overlap("10.0.0.0/8", "10.1.0.1")
          net.cidr_contains_matches("10.0.0.0/8", ["10.1.0.1", "11.0.0.1"]) == {["10.0.0.0/8", 0]}
        }"#;
    let settings = template(rego, json!({"c": {"actions": ["deny"]}}));
    let outcome = admit(settings, pod("web:1")).expect("there is a verdict");
    let expected = "[c] [1, 2]\n[c] any\n[c] cast\n[c] globs\n[c] long\n[c] networks\n[c] one %!v(MISSING)\n[c] pattern\n\
                    [c] sets";
    assert_eq!(denial_message(&outcome), Some(expected));
}

#[test]
fn mistakes_are_reported_with_path_and_line() {
    let constraints = json!({"c": {"actions": ["deny"]}});
    for (rego, expected_pointer, expected) in [
        (
            "package t\nviolation[{\"msg\": \"a\"}] {\n  input.x ==\n}\n",
            "/rego",
            "line 2: ",
        ),
        (
            "package t\nviolation[{\"msg\": \"a\"}] {\n  reverse_all(input.x)\n}\n",
            "/rego",
            "line 3: `reverse_all` is not a function; import it, or correct its name",
        ),
        (
            "package t\nviolation[{\"msg\": \"a\"}] { external_data({}) }\n",
            "/rego",
            "line 2: `external_data` asks a provider of Gatekeeper, and there is none here",
        ),
        (
            "package t\nviolation[{\"msg\": \"a\"}] {\n  graphql.is_valid(\"\", \"\")\n}\n",
            "/rego",
            "line 3: `graphql.is_valid` is a function of OPA that is not available here",
        ),
        (
            "package t\nviolation[{\"msg\": m}] { m := strings.render_template(\"\", {}) }\n",
            "/rego",
            "line 2: `strings.render_template` is a function of OPA that is not available here",
        ),
        (
            "package t\ndeny[{\"msg\": \"a\"}] { true }\n",
            "/rego",
            "the template has no rule `violation`",
        ),
        (
            "package t\n\nviolation[\"msg\"] { true }\n",
            "/rego",
            "line 3: a violation is an object with a message: write `violation[{\"msg\": msg}]`",
        ),
    ] {
        let template_mistakes = settings_mistakes(template(rego, constraints.clone()));
        let [(pointer, message)] = template_mistakes.as_slice() else {
            panic!("{rego}: {template_mistakes:?}");
        };
        assert_eq!(pointer, expected_pointer, "{rego}");
        assert!(message.starts_with(expected), "{rego}: {message}");
    }
    for (head, is_right) in [
        ("violation[{\"msg\": \"a\", \"details\": {}}]", true),
        ("violation[v]", true),
        ("violation[{\"msg\": sprintf(\"%v\", [v])}]", true),
        ("violation[{\"message\": \"a\"}]", false),
        ("violation[{\"msg\": 1}]", false),
        ("violation[1]", false),
        ("violation[[v]]", false),
        ("violation", false),
        ("violation = \"a\"", false),
        ("violation = {{\"msg\": \"a\"}}", true),
    ] {
        let rego = format!("package t\n{head} {{ v := input.review.object.a }}\n");
        let head_mistakes = settings_mistakes(template(&rego, constraints.clone()));
        assert_eq!(head_mistakes.is_empty(), is_right, "{head}: {head_mistakes:?}");
    }
    let entry_point_mistakes = settings_mistakes(json!({"rego": PODS, "entrypoint": "data.pods.denny"}));
    let expected = "there is no rule data.pods.denny; name one, `data.pods.deny`";
    assert_eq!(entry_point_mistakes, [("/entrypoint".to_owned(), expected.to_owned())]);
    let rego_mistakes = settings_mistakes(json!({"rego": PODS}));
    assert_eq!(
        rego_mistakes.first().map(|(pointer, _)| pointer.as_str()),
        Some("/entrypoint")
    );
}
