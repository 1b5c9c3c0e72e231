use admittance_bcs::routes::{
    Permission::{Hooks, Read, Write},
    RouteVerb, routes,
};
use http::Request;

use super::*;

fn plain_groups() -> PlainGroups {
    let groups = ["example.com", "clb.bmsf.tencent.com"];
    groups.iter().map(|group| group.parse().unwrap()).collect()
}

fn assert_needs(method: &str, path: &str, expected: Permission) {
    let request = Request::builder().method(method).uri(format!("/mesosdriver/v4{path}"));
    let head = request.body(()).unwrap().into_parts().0;
    assert_eq!(needed_permission(&head, &plain_groups()), expected, "{method} {path}");
}

#[test]
fn each_driver_route_needs_its_permission() {
    for (method, path, expected) in [
        ("GET", "/namespaces/n/applications", Read),
        ("POST", "/namespaces/n/applications", Write),
        ("PUT", "/namespaces/n/applications/a/scale/3", Write),
        ("DELETE", "/namespaces/n/applications/a", Write),
        ("DELETE", "/namespaces/n/applications/admissionwebhook", Write),
        ("DELETE", "/namespaces/admissionwebhook/applications/a", Write),
        ("DELETE", "/namespaces/n/applications/%E5%BA%94%E7%94%A8", Write),
        ("GET", "/admissionwebhooks", Read),
        ("GET", "/namespaces/n/admissionwebhook/a", Read),
        ("POST", "/namespaces/n/admissionwebhook", Hooks),
        ("PUT", "/namespaces/n/admissionwebhook", Hooks),
        ("DELETE", "/namespaces/n/admissionwebhook/a", Hooks),
        ("POST", "/crd/namespaces/n/admissionwebhook", Hooks),
        ("DELETE", "/crd/namespaces/n/admissionwebhook/a", Hooks),
        ("POST", "/crd/namespaces/n/admissionwebhook2", Write),
        // The next seven rows have encoded or unusual paths. They need `Hooks`, because a driver could take each of
        // them for the path of a hook definition.
        ("POST", "/namespaces/n/%61dmissionwebhook", Hooks),
        ("POST", "/namespaces/n%2Fadmissionwebhook", Hooks),
        ("POST", "/namespaces/n/admissionwebhook/", Hooks),
        ("POST", "/namespaces/n/AdmissionWebhook", Hooks),
        ("POST", "/namespaces/n/%2561dmissionwebhook", Hooks),
        ("POST", "/crd/namespaces/n/%2561dmissionwebhook", Hooks),
        ("DELETE", "/namespaces/n/applications/a%2Fb", Hooks),
        ("POST", "/admissionwebhooks", Hooks),
        ("GET", "/webconsole/bcsapi/v1/consoleproxy/mesos/create_exec", Write),
        ("POST", "/webconsole/x", Write),
        // The driver's table has no route for `/nothing`. Another version of the driver may have one, so requests for
        // this path need the highest permission.
        ("GET", "/nothing", Hooks),
        ("POST", "/nothing", Hooks),
        ("DELETE", "/admissionwebhooks", Hooks),
    ] {
        assert_needs(method, path, expected);
    }
}

#[test]
#[rustfmt::skip]
fn custom_resources_need_the_permission_hooks_unless_their_group_is_listed() {
    for (method, path, expected) in [
        // The next rows: resources of the kube-apiserver that control admission or access, and whole collections.
        ("DELETE", "/customresources/apiextensions.k8s.io/v1/customresourcedefinitions", Hooks),
        ("DELETE", "/customresources/apiextensions.k8s.io/v1/customresourcedefinitions/a.b", Hooks),
        ("DELETE", "/customresources/admissionregistration.k8s.io/v1/validatingadmissionpolicies", Hooks),
        ("POST", "/customresources/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", Hooks),
        ("DELETE", "/customresources/apiregistration.k8s.io/v1/apiservices", Hooks),
        ("DELETE", "/customresources/rbac.authorization.k8s.io/v1/clusterrolebindings", Hooks),
        ("DELETE", "/customresources/apps/v1/namespaces/kube-system/deployments", Hooks),
        ("POST", "/customresources/kyverno.io/v1/clusterpolicies", Hooks),
        ("PUT", "/customresources/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a", Hooks),
        ("DELETE", "/customresources/bkbcs.tencent.com/v2/namespaces/b/applications", Hooks),
        ("GET", "/customresources/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a", Read),
        ("DELETE", "/customresourcedefinitions/things.example.com", Hooks),
        ("POST", "/customresourcedefinitions", Hooks),
        ("GET", "/customresourcedefinitions", Read),
        // The configuration of this test allows changes of `example.com` and `clb.bmsf.tencent.com`.
        ("POST", "/customresources/example.com/v1/namespaces/b/things", Write),
        ("DELETE", "/customresources/clb.bmsf.tencent.com/v1/namespaces/b/clbs", Write),
        ("DELETE", "/customresources/example.com/v1/namespaces/b/things/my-webhook", Write),
        ("POST", "/customresources/apis/example.com/v1/namespaces/b/things", Hooks),
        ("POST", "/customresources/example.com.evil.io/v1/things", Hooks),
        ("POST", "/customresources/Example.com/v1/things", Hooks),
        ("POST", "/customresources/ex%61mple.com/v1/things", Hooks),
        ("POST", "/customresources/example.com%2Fv1/things", Hooks),
    ] {
        assert_needs(method, path, expected);
    }
}

#[test]
#[rustfmt::skip]
fn a_get_that_switches_protocols_needs_more_than_the_read_permission() {
    for (path, expected) in [
        ("/namespaces/n/applications", Write),
        ("/webconsole/x", Write),
        ("/customresources/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/a/console", Hooks),
        ("/nothing", Hooks),
    ] {
        let request = Request::get(format!("/mesosdriver/v4{path}")).header("upgrade", "websocket");
        let head = request.body(()).unwrap().into_parts().0;
        assert_eq!(needed_permission(&head, &PlainGroups::default()), expected, "{path}");
    }
}

/// The test loops over the table of the driver's routes, so that it covers routes that are added later.
#[test]
fn changing_definitions_needs_the_permission_for_hooks() {
    let mut route_count = 0;
    for route in routes() {
        let path = route.path.replace("{uri:*}", "g.io/v1/x").replace(['{', '}'], "");
        let request = Request::builder()
            .method(route.verb.method())
            .uri(format!("/mesosdriver/v4{path}"));
        let head = request.body(()).unwrap().into_parts().0;
        let required_permission = needed_permission(&head, &PlainGroups::default());
        let is_plain = matches!(route.action, RouteAction::Scheduler(_) | RouteAction::Console);
        match (is_plain, route.verb) {
            (false, RouteVerb::Get) => assert_eq!(required_permission, Read, "{}", route.path),
            (false, _) => assert_eq!(required_permission, Hooks, "{}", route.path),
            (true, _) => assert!(required_permission < Hooks, "{}", route.path),
        }
        route_count += 1;
    }
    assert_eq!(route_count, 89);
}

#[test]
fn dangerous_or_invalid_api_groups_are_refused() {
    for (text, is_valid) in [
        ("clb.bmsf.tencent.com", true),
        ("network.bkbcs.tencent.com", true),
        ("kyverno.io", true),
        ("", false),
        ("apps", false),
        ("*", false),
        ("a..b", false),
        ("A.b", false),
        ("a.b/v1", false),
        ("bkbcs.tencent.com", false),
        ("k8s.io", false),
        ("apiextensions.k8s.io", false),
        ("node.kubernetes.io", false),
    ] {
        assert_eq!(text.parse::<ApiGroup>().is_ok(), is_valid, "{text}");
    }
}
