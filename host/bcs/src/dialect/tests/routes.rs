//! Tests of the table of routes, and of the requests to the scheduler that the table defines.

use std::collections::HashSet;

use super::*;
use crate::routes::{ForwardedBody, RouteAction, RouteLookup, lookup, router_pattern, routes, table};

#[test]
fn every_route_of_the_table_is_found_and_its_target_is_valid() {
    assert_eq!((table::ROUTES.len(), table::DOCUMENTED_ROUTES.len()), (85, 4));
    let mut distinct_routes = HashSet::new();
    for route in routes() {
        assert!(
            distinct_routes.insert((route.verb, route.path)),
            "{route:?} is there twice"
        );
        let path = format!("{PREFIX}{}", router_pattern(route.path).replace("{*uri}", "{uri}"))
            .replace('{', "x-")
            .replace('}', "");
        let RouteLookup::Found(matched) = lookup(&request_head(route.verb.method().as_str(), &path, &[])) else {
            panic!("{route:?} is not found by {path}")
        };
        assert_eq!((matched.route.verb, matched.route.path), (route.verb, route.path));
        let parameters: Vec<&str> = route
            .path
            .split('/')
            .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| name.trim_end_matches(":*"))
            .collect();
        for name in &parameters {
            assert_eq!(matched.parameter(name), format!("x-{name}"), "{route:?}");
        }
        let (RouteAction::Scheduler(call) | RouteAction::Definitions(call)) = route.action else {
            continue;
        };
        let target = call
            .target()
            .unwrap_or_else(|| panic!("{route:?} has no target that can be read"));
        for name in target.parameters() {
            assert!(parameters.contains(&name), "{route:?} has no parameter {name}");
        }
        let body_placeholders = ["{RunAs}", "{ID}", "{Instances}", "{metadata."];
        if body_placeholders
            .iter()
            .any(|placeholder| call.target.contains(placeholder))
        {
            assert!(
                matches!(call.body, ForwardedBody::Version(_) | ForwardedBody::DeploymentDef),
                "{route:?}"
            );
        }
    }
}

#[rustfmt::skip]
#[test]
fn the_head_of_a_request_without_a_body_determines_how_it_is_forwarded() {
    // (section or source file with this rule, method, path below `/mesosdriver/v4`, expected request to the scheduler)
    for (source, method, path, expected) in [
        ("1.3 applications", "DELETE", "/namespaces/n/applications/a?enforce=1", "DELETE /v1/apps/n/a?enforce=1&kind=application"),
        ("1.3 applications, nothing asked", "DELETE", "/namespaces/n/applications/a", "DELETE /v1/apps/n/a?enforce=&kind=application"),
        ("1.3 applications", "PUT", "/namespaces/n/applications/a/scale/3", "POST /v1/apps/n/a/scale?instances=3&kind=application"),
        ("1.3 applications", "GET", "/namespaces/n/applications", "GET /v1/n/apps?kind=application"),
        ("1.3 applications", "GET", "/namespaces/n/applications/a", "GET /v1/apps/n/a?kind=application"),
        ("1.3 processes", "DELETE", "/namespaces/n/processes/a?enforce=1", "DELETE /v1/apps/n/a?enforce=1&kind=process"),
        ("1.3 processes", "PUT", "/namespaces/n/processes/a/scale/3", "POST /v1/apps/n/a/scale?instances=3&kind=process"),
        ("1.3 processes", "GET", "/namespaces/n/processes", "GET /v1/n/apps?kind=process"),
        ("1.3 processes", "GET", "/namespaces/n/processes/a", "GET /v1/apps/n/a?kind=process"),
        ("1.3 tasks", "GET", "/namespaces/n/applications/a/tasks", "GET /v1/apps/n/a/tasks"),
        ("1.3 taskgroups", "GET", "/namespaces/n/applications/a/taskgroups", "GET /v1/apps/n/a/taskgroups"),
        ("1.3 rescheduler", "PUT", "/namespaces/n/applications/a/taskgroups/0.a.n.c.1/rescheduler?hostRetainTime=9", "PUT /v1/taskgroup/0.a.n.c.1/rescheduler?hostRetainTime=9"),
        ("1.3 restart", "POST", "/namespaces/n/applications/a/taskgroups/t/restart", "POST /v1/taskgroup/t/restart"),
        ("1.3 reload", "POST", "/namespaces/n/applications/a/taskgroups/t/reload", "POST /v1/taskgroup/t/reload"),
        ("1.3 versions", "GET", "/namespaces/n/applications/a/versions", "GET /v1/apps/n/a/versions"),
        ("1.3 versions", "GET", "/namespaces/n/applications/a/versions/148", "GET /v1/apps/n/a/versions/148"),
        ("1.3 configmaps", "DELETE", "/namespaces/n/configmaps/a", "DELETE /v1/configmap/n/a"),
        ("1.3 secrets", "DELETE", "/namespaces/n/secrets/a", "DELETE /v1/secret/n/a"),
        ("1.3 services", "DELETE", "/namespaces/n/services/a", "DELETE /v1/service/n/a"),
        ("1.3 cluster", "GET", "/cluster/resources", "GET /v1/cluster/resources"),
        ("1.3 cluster", "GET", "/cluster/endpoints", "GET /v1/cluster/endpoints"),
        ("1.3 cluster", "GET", "/cluster/current/offers", "GET /v1/cluster/current/offers"),
        ("1.3 deployments", "DELETE", "/namespaces/n/deployments/d?enforce=1", "DELETE /v1/deployment/n/d?enforce=1"),
        ("1.3 deployments", "PUT", "/namespaces/n/deployments/d/cancelupdate", "POST /v1/deployment/n/d/cancelupdate"),
        ("1.3 deployments", "PUT", "/namespaces/n/deployments/d/pauseupdate", "POST /v1/deployment/n/d/pauseupdate"),
        ("1.3 deployments", "PUT", "/namespaces/n/deployments/d/resumeupdate", "POST /v1/deployment/n/d/resumeupdate"),
        ("1.3 deployments", "PUT", "/namespaces/n/deployments/d/scale/4", "PUT /v1/deployment/n/d/scale/4"),
        ("strconv.Atoi", "PUT", "/namespaces/n/deployments/d/scale/+007", "PUT /v1/deployment/n/d/scale/7"),
        ("1.3 daemonset", "DELETE", "/namespaces/n/daemonset/d?enforce=1", "DELETE /v1/daemonsets/n/d?enforce=1"),
        ("1.3 transactions", "GET", "/transactions/n?objKind=deployment&objName=d&other=1", "GET /v1/transactions/n?objKind=deployment&objName=d"),
        ("1.3 transactions", "DELETE", "/transactions/n/t", "DELETE /v1/transactions/n/t"),
        ("1.3 agentsettings", "GET", "/agentsettings?ips=127.0.0.1,127.0.0.2", "GET /v1/agentsettings?ips=127.0.0.1%2C127.0.0.2"),
        ("1.3 agentsettings", "DELETE", "/agentsettings?ips=127.0.0.1", "POST /v1/agentsettings/delete?ips=127.0.0.1"),
        ("1.3 agentsettings, raw", "POST", "/agentsettings", "POST /v1/agentsettings as it is"),
        ("1.3 agentsettings", "POST", "/agentsettings/enable?ips=127.0.0.1", "POST /v1/agentsettings/enable?ips=127.0.0.1"),
        ("1.3 agentsettings", "POST", "/agentsettings/disable?ips=127.0.0.1", "POST /v1/agentsettings/disable?ips=127.0.0.1"),
        ("1.3 agentsettings, raw", "PUT", "/agentsettings/taint", "PUT /v1/agentsettings/taint as it is"),
        ("1.3 agentsettings, raw", "PUT", "/agentsettings/extendedresource", "PUT /v1/agentsettings/extendedresource as it is"),
        ("1.3 crr", "POST", "/crr/register", "POST /v1/crr/register as it is"),
        ("1.3 crd", "POST", "/crd/namespaces/n/k", "POST /v1/crd/namespaces/n/k as it is"),
        ("1.3 crd", "PUT", "/crd/namespaces/n/k", "PUT /v1/crd/namespaces/n/k as it is"),
        ("1.3 crd", "DELETE", "/crd/namespaces/n/k/a", "DELETE /v1/crd/namespaces/n/k/a"),
        ("1.3 crd", "GET", "/crd/namespaces/n/k/a", "GET /v1/crd/namespaces/n/k/a"),
        ("1.3 crd", "GET", "/crd/namespaces/n/k", "GET /v1/crd/namespaces/n/k"),
        ("1.3 crd", "GET", "/crd/k", "GET /v1/crd/k"),
        ("1.3 image", "POST", "/image/commit/t?image=i:1&url=http%3A%2F%2Fr/x%26y", "POST /v1/image/commit/t?image=i%3A1&url=http%3A%2F%2Fr%2Fx%26y"),
        ("1.3 definition", "GET", "/definition/application/n/a", "GET /v1/definition/application/n/a"),
        ("1.3 definition", "GET", "/definition/deployment/n/d", "GET /v1/definition/deployment/n/d"),
        ("1.3 command, 6 (its body is not looked at)", "POST", "/command/application/test/testapp", "POST /v1/command/application/test/testapp as it is"),
        ("1.3 command", "GET", "/command/application/n/a?id=i", "GET /v1/command/application/n/a?id=i"),
        ("1.3 command", "DELETE", "/command/application/n/a?id=i", "DELETE /v1/command/application/n/a?id=i"),
        ("1.3 command", "POST", "/command/deployment/n/d", "POST /v1/command/deployment/n/d as it is"),
        ("1.3 command", "GET", "/command/deployment/n/d?id=i", "GET /v1/command/deployment/n/d?id=i"),
        ("1.3 command", "DELETE", "/command/deployment/n/d?id=i", "DELETE /v1/command/deployment/n/d?id=i"),
        ("1.3 admissionwebhook", "DELETE", "/namespaces/n/admissionwebhook/w", "DELETE /v1/admissionwebhook/n/w"),
        ("1.3 admissionwebhook", "GET", "/namespaces/n/admissionwebhook/w", "GET /v1/admissionwebhook/n/w"),
        ("1.3 admissionwebhook", "GET", "/admissionwebhooks", "GET /v1/admissionwebhooks"),
        ("6 the documented path", "DELETE", "/crd/namespaces/n/admissionwebhook/w", "DELETE /v1/admissionwebhook/n/w"),
        ("6 the documented path", "GET", "/crd/namespaces/n/admissionwebhook/w", "GET /v1/admissionwebhook/n/w"),
        ("1.3 webconsole", "GET", "/webconsole/a/b?host_ip=127.0.0.3&x=%20", "console 127.0.0.3 /bcsapi/v1/consoleproxy/a/b?host_ip=127.0.0.3&x=%20"),
        ("1.3 webconsole", "POST", "/webconsole/a?host_ip=::1", "console ::1 /bcsapi/v1/consoleproxy/a?host_ip=::1"),
        ("1.3 webconsole", "GET", "/webconsole/a", "400 param host_ip must not be empty"),
        ("here alone", "GET", "/webconsole/a?host_ip=elsewhere.example.com", "400 param host_ip must be an IP address, and `elsewhere.example.com` is not one"),
        ("1.3 customresourcedefinitions", "GET", "/customresourcedefinitions", "kubernetes /apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions as it is"),
        ("1.3 customresourcedefinitions", "GET", "/customresourcedefinitions/a.b", "kubernetes /apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions/a.b as it is"),
        ("1.3 customresourcedefinitions", "DELETE", "/customresourcedefinitions/a.b", "kubernetes /apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions/a.b as it is"),
        ("1.3 customresources", "GET", "/customresources/g/v1/namespaces/n/k?limit=5", "kubernetes /apis/g/v1/namespaces/n/k?limit=5 as it is"),
        ("1.3 customresources", "POST", "/customresources/g/v1/namespaces/n/k", "kubernetes /apis/g/v1/namespaces/n/k as it is"),
        ("1.3 customresources", "PUT", "/customresources/g/v1/namespaces/n/k/a", "kubernetes /apis/g/v1/namespaces/n/k/a as it is"),
        ("1.3 customresources", "DELETE", "/customresources/g/v1/namespaces/n/k/a", "kubernetes /apis/g/v1/namespaces/n/k/a as it is"),
        ("1.3 a watch", "GET", "/customresources/g/v1/watch/k", "404 Not Found"),
        ("1.3 a watch, in the path as it is read", "GET", "/customresources/g/v1/w%61tch/k", "404 Not Found"),
        ("1.3 PATCH is not there", "PATCH", "/customresources/g/v1/k", "405 405: Method Not Allowed GET, POST, PUT, DELETE"),
        ("1.3 not present: GET of deployments", "GET", "/namespaces/n/deployments", "405 405: Method Not Allowed POST, PUT"),
        ("1.3 not present", "POST", "/agentsettings/update", "404 404: Page Not Found"),
        ("1.3 not present", "GET", "/", "404 404: Page Not Found"),
        // `/applications/rollback` is a route of its own for PUT only. For other methods, `rollback` is the name of an
        // application.
        ("go-restful chooses among the routes of the method", "DELETE", "/namespaces/n/applications/rollback", "DELETE /v1/apps/n/rollback?enforce=&kind=application"),
        ("go-restful chooses among the routes of the method", "GET", "/namespaces/n/applications/rollback", "GET /v1/apps/n/rollback?kind=application"),
        // Special characters in a parameter, such as `?` or `&`, are encoded. So they cannot make the scheduler see
        // another route or query.
        ("here alone", "GET", "/namespaces/n%3F/applications/a%20b%25", "GET /v1/apps/n%3F/a%20b%25?kind=application"),
        ("here alone", "GET", "/namespaces/n/applications/ä", "GET /v1/apps/n/%C3%A4?kind=application"),
        ("here alone", "DELETE", "/namespaces/n/applications/a?enforce=0%26kind%3Dx", "DELETE /v1/apps/n/a?enforce=0%26kind%3Dx&kind=application"),
        ("Go takes the first", "DELETE", "/namespaces/n/applications/a?enforce=1&enforce=2", "DELETE /v1/apps/n/a?enforce=1&kind=application"),
        ("a slash splits, as Go has it", "GET", "/namespaces/n/applications/a%2Ftasks", "GET /v1/apps/n/a/tasks"),
        ("a slash at the end is none", "GET", "/namespaces/n/applications/", "GET /v1/n/apps?kind=application"),
        ("dots are steps", "GET", "/crd/namespaces/n/k/../../../../cluster/resources", "GET /v1/cluster/resources"),
        ("the error's own text", "PUT", "/namespaces/n/deployments/d/scale/x", "200 strconv.Atoi: parsing \"x\": invalid syntax"),
        ("the error's own text", "PUT", "/namespaces/n/deployments/d/scale/99999999999999999999", "200 strconv.Atoi: parsing \"99999999999999999999\": value out of range"),
    ] {
        let path = format!("{PREFIX}{path}").replace('ä', "%C3%A4");
        let head = request_head(method, &path, &[]);
        let description = describe(forwarding(&head, None).unwrap());
        assert_eq!(description, expected, "{source}: {method} {path}");
        assert_eq!(describe(translate(&head, &Bytes::from("{}"))), expected, "{source}: {method} {path}");
    }
}

#[test]
fn the_body_of_a_request_determines_how_it_is_forwarded() {
    for route in routes() {
        let (RouteAction::Scheduler(call) | RouteAction::Definitions(call)) = route.action else {
            continue;
        };
        let path = format!("{PREFIX}{}", route.path).replace(['{', '}'], "");
        let forwarding = forwarding(&request_head(route.verb.method().as_str(), &path, &[]), None);
        let by_body = !matches!(call.body, ForwardedBody::Nothing | ForwardedBody::AsIs);
        assert_eq!(forwarding.is_none(), by_body, "{route:?}");
    }
}

#[test]
fn no_client_header_is_sent_to_the_scheduler() {
    let mut head = request_head("POST", &format!("{PREFIX}/agentsettings"), &[CLUSTER]);
    head.headers.insert("authorization", "Bearer x".parse().unwrap());
    let Some(SchedulerForwarding::Rewritten(rewritten)) = forwarding(&head, None) else {
        panic!("it is for the scheduler")
    };
    let mut headers: Vec<String> = rewritten
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    assert_eq!(
        headers,
        [
            "accept-encoding: identity",
            "accept: application/json",
            "content-type: application/json"
        ]
    );
}
