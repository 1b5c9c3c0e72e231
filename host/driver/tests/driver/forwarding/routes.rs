use std::collections::HashSet;

use admittance_bcs::routes::{RouteAction, RouteLookup, lookup, routes};
use axum::body::Body;
use serde_json::json;

use super::scheduler::*;
use crate::harness::*;

/// The body that the client sends with a request, and the body that the scheduler receives.
#[derive(Clone, Copy, Debug)]
enum SentBody {
    Nothing,
    /// The driver forwards the body without reading it.
    Raw,
    /// The driver checks the body, an object of this kind, and forwards it unchanged.
    Checked(&'static str),
    /// The driver converts the body, an object of this kind, to a `Version`.
    Version(&'static str),
    /// The driver converts a deployment to a `DeploymentDef`.
    Deployment,
    /// The driver converts a daemonset to a `BcsDaemonsetDef`.
    Daemonset,
    /// The driver converts a message to a `BcsMessage`.
    Message,
}

use SentBody::{Checked, Daemonset, Deployment, Message, Nothing, Raw, Version};

impl SentBody {
    fn body(self) -> String {
        match self {
            Nothing => String::new(),
            Raw => r#"{ "any":  ["thing"] }"#.to_owned(),
            Checked(kind) | Version(kind) => runnable_json(kind, "a"),
            Deployment => runnable_json("deployment", "a"),
            Daemonset => runnable_json("daemonset", "a"),
            Message => r#"{"msgtype":"signal","msgdata":{"processname":"p","signal":12}}"#.to_owned(),
        }
    }

    fn assert_forwarded(self, forwarded_request: &RelayedRequest) {
        match self {
            Nothing => assert_eq!(forwarded_request.body, "", "{}", forwarded_request.line),
            Raw | Checked(_) => assert_eq!(forwarded_request.body, self.body(), "{}", forwarded_request.line),
            Version(kind) => {
                let version = forwarded_request.json();
                assert_eq!(
                    (
                        &version["ID"],
                        &version["RunAs"],
                        &version["Kind"],
                        &version["Instances"]
                    ),
                    (&json!("a"), &json!("n"), &json!(kind), &json!(2)),
                    "{}",
                    forwarded_request.line
                );
                assert_eq!(
                    version["raw_json"].to_string(),
                    self.body(),
                    "{}",
                    forwarded_request.line
                );
            }
            Deployment => {
                let definition = forwarded_request.json();
                assert_eq!(definition["metadata"]["name"], "a", "{}", forwarded_request.line);
                assert_eq!(
                    definition["version"]["Kind"], "application",
                    "{}",
                    forwarded_request.line
                );
                assert_eq!(
                    definition["raw_json"].to_string(),
                    self.body(),
                    "{}",
                    forwarded_request.line
                );
            }
            Daemonset => {
                let definition = forwarded_request.json();
                assert_eq!(definition["name"], "a", "{}", forwarded_request.line);
                assert_eq!(definition["version"]["Kind"], "daemonset", "{}", forwarded_request.line);
            }
            Message => assert_eq!(
                forwarded_request.json()["Sig"],
                json!({"Signal": 12, "ProcessName": "p"}),
                "{}",
                forwarded_request.line
            ),
        }
        let has_length_header = forwarded_request.headers.contains_key("content-length");
        let has_length = has_length_header
            || forwarded_request.line.starts_with("GET")
            || forwarded_request.line.starts_with("DELETE");
        assert!(
            has_length,
            "{} has no length: {:?}",
            forwarded_request.line, forwarded_request.headers
        );
    }
}

/// The routes that bcs-mesos-driver forwards: (method, path, body, expected method and path at the scheduler)
#[rustfmt::skip]
const ROWS: [(&str, &str, SentBody, &str); 69] = [
    ("POST",   "/namespaces/path/applications",                         Version("application"), "POST /v1/apps"),
    ("PUT",    "/namespaces/path/applications?instances=3&args=x",      Version("application"), "POST /v1/apps/n/a/update?instances=3&args=x"),
    ("DELETE", "/namespaces/n/applications/a?enforce=1",                Nothing,                "DELETE /v1/apps/n/a?enforce=1&kind=application"),
    ("PUT",    "/namespaces/path/applications/rollback",                Version("application"), "POST /v1/apps/n/a/update?instances=2&kind=application"),
    ("PUT",    "/namespaces/n/applications/a/scale/3",                  Nothing,                "POST /v1/apps/n/a/scale?instances=3&kind=application"),
    ("GET",    "/namespaces/n/applications",                            Nothing,                "GET /v1/n/apps?kind=application"),
    ("GET",    "/namespaces/n/applications/a",                          Nothing,                "GET /v1/apps/n/a?kind=application"),
    ("POST",   "/namespaces/path/processes",                            Version("process"),     "POST /v1/apps"),
    ("PUT",    "/namespaces/path/processes?instances=3",                Version("process"),     "POST /v1/apps/n/a/update?instances=3&args="),
    ("DELETE", "/namespaces/n/processes/a",                             Nothing,                "DELETE /v1/apps/n/a?enforce=&kind=process"),
    ("PUT",    "/namespaces/path/processes/rollback",                   Version("process"),     "POST /v1/apps/n/a/update?instances=2&kind=process"),
    ("PUT",    "/namespaces/n/processes/a/scale/3",                     Nothing,                "POST /v1/apps/n/a/scale?instances=3&kind=process"),
    ("GET",    "/namespaces/n/processes",                               Nothing,                "GET /v1/n/apps?kind=process"),
    ("GET",    "/namespaces/n/processes/a",                             Nothing,                "GET /v1/apps/n/a?kind=process"),
    ("POST",   "/namespaces/n/applications/a/message",                  Message,                "POST /v1/apps/n/a/message"),
    ("POST",   "/namespaces/n/applications/a/taskgroups/0.t/message",   Message,                "POST /v1/apps/n/a/message/0.t"),
    ("GET",    "/namespaces/n/applications/a/tasks",                    Nothing,                "GET /v1/apps/n/a/tasks"),
    ("GET",    "/namespaces/n/applications/a/taskgroups",               Nothing,                "GET /v1/apps/n/a/taskgroups"),
    ("PUT",    "/namespaces/n/applications/a/taskgroups/0.t/rescheduler?hostRetainTime=5", Nothing, "PUT /v1/taskgroup/0.t/rescheduler?hostRetainTime=5"),
    ("POST",   "/namespaces/n/applications/a/taskgroups/0.t/restart",   Nothing,                "POST /v1/taskgroup/0.t/restart"),
    ("POST",   "/namespaces/n/applications/a/taskgroups/0.t/reload",    Nothing,                "POST /v1/taskgroup/0.t/reload"),
    ("GET",    "/namespaces/n/applications/a/versions",                 Nothing,                "GET /v1/apps/n/a/versions"),
    ("GET",    "/namespaces/n/applications/a/versions/17",              Nothing,                "GET /v1/apps/n/a/versions/17"),
    ("POST",   "/namespaces/n/configmaps",                              Checked("configmap"),   "POST /v1/configmap"),
    ("PUT",    "/namespaces/n/configmaps",                              Checked("configmap"),   "PUT /v1/configmap"),
    ("DELETE", "/namespaces/n/configmaps/a",                            Nothing,                "DELETE /v1/configmap/n/a"),
    ("POST",   "/namespaces/n/secrets",                                 Checked("secret"),      "POST /v1/secret"),
    ("PUT",    "/namespaces/n/secrets",                                 Checked("secret"),      "PUT /v1/secret"),
    ("DELETE", "/namespaces/n/secrets/a",                               Nothing,                "DELETE /v1/secret/n/a"),
    ("POST",   "/namespaces/n/services",                                Checked("service"),     "POST /v1/service"),
    ("PUT",    "/namespaces/n/services",                                Checked("service"),     "PUT /v1/service"),
    ("DELETE", "/namespaces/n/services/a",                              Nothing,                "DELETE /v1/service/n/a"),
    ("GET",    "/cluster/resources",                                    Nothing,                "GET /v1/cluster/resources"),
    ("GET",    "/cluster/endpoints",                                    Nothing,                "GET /v1/cluster/endpoints"),
    ("GET",    "/cluster/current/offers",                               Nothing,                "GET /v1/cluster/current/offers"),
    ("POST",   "/namespaces/path/deployments",                          Deployment,             "POST /v1/deployment/n/a"),
    ("PUT",    "/namespaces/path/deployments?args=x",                   Deployment,             "PUT /v1/deployment/n/a?args=x"),
    ("DELETE", "/namespaces/n/deployments/a?enforce=1",                 Nothing,                "DELETE /v1/deployment/n/a?enforce=1"),
    ("PUT",    "/namespaces/n/deployments/a/cancelupdate",              Nothing,                "POST /v1/deployment/n/a/cancelupdate"),
    ("PUT",    "/namespaces/n/deployments/a/pauseupdate",               Nothing,                "POST /v1/deployment/n/a/pauseupdate"),
    ("PUT",    "/namespaces/n/deployments/a/resumeupdate",              Nothing,                "POST /v1/deployment/n/a/resumeupdate"),
    ("PUT",    "/namespaces/n/deployments/a/scale/4",                   Nothing,                "PUT /v1/deployment/n/a/scale/4"),
    ("POST",   "/namespaces/path/daemonset",                            Daemonset,              "POST /v1/daemonsets"),
    ("DELETE", "/namespaces/n/daemonset/a?enforce=1",                   Nothing,                "DELETE /v1/daemonsets/n/a?enforce=1"),
    ("GET",    "/transactions/n?objKind=application&objName=a",         Nothing,                "GET /v1/transactions/n?objKind=application&objName=a"),
    ("DELETE", "/transactions/n/t",                                     Nothing,                "DELETE /v1/transactions/n/t"),
    ("GET",    "/agentsettings?ips=127.0.0.1",                          Nothing,                "GET /v1/agentsettings?ips=127.0.0.1"),
    ("DELETE", "/agentsettings?ips=127.0.0.1",                          Nothing,                "POST /v1/agentsettings/delete?ips=127.0.0.1"),
    ("POST",   "/agentsettings",                                        Raw,                    "POST /v1/agentsettings"),
    ("POST",   "/agentsettings/enable?ips=127.0.0.1",                   Nothing,                "POST /v1/agentsettings/enable?ips=127.0.0.1"),
    ("POST",   "/agentsettings/disable?ips=127.0.0.1",                  Nothing,                "POST /v1/agentsettings/disable?ips=127.0.0.1"),
    ("PUT",    "/agentsettings/taint",                                  Raw,                    "PUT /v1/agentsettings/taint"),
    ("PUT",    "/agentsettings/extendedresource",                       Raw,                    "PUT /v1/agentsettings/extendedresource"),
    ("POST",   "/crr/register",                                         Raw,                    "POST /v1/crr/register"),
    ("POST",   "/crd/namespaces/n/k",                                   Raw,                    "POST /v1/crd/namespaces/n/k"),
    ("PUT",    "/crd/namespaces/n/k",                                   Raw,                    "PUT /v1/crd/namespaces/n/k"),
    ("DELETE", "/crd/namespaces/n/k/a",                                 Nothing,                "DELETE /v1/crd/namespaces/n/k/a"),
    ("GET",    "/crd/namespaces/n/k/a",                                 Nothing,                "GET /v1/crd/namespaces/n/k/a"),
    ("GET",    "/crd/namespaces/n/k",                                   Nothing,                "GET /v1/crd/namespaces/n/k"),
    ("GET",    "/crd/k",                                                Nothing,                "GET /v1/crd/k"),
    ("POST",   "/image/commit/0.t?image=i&url=u",                       Nothing,                "POST /v1/image/commit/0.t?image=i&url=u"),
    ("GET",    "/definition/application/n/a",                           Nothing,                "GET /v1/definition/application/n/a"),
    ("GET",    "/definition/deployment/n/a",                            Nothing,                "GET /v1/definition/deployment/n/a"),
    ("POST",   "/command/application/n/a",                              Raw,                    "POST /v1/command/application/n/a"),
    ("GET",    "/command/application/n/a?id=i",                         Nothing,                "GET /v1/command/application/n/a?id=i"),
    ("DELETE", "/command/application/n/a?id=i",                         Nothing,                "DELETE /v1/command/application/n/a?id=i"),
    ("POST",   "/command/deployment/n/a",                               Raw,                    "POST /v1/command/deployment/n/a"),
    ("GET",    "/command/deployment/n/a?id=i",                          Nothing,                "GET /v1/command/deployment/n/a?id=i"),
    ("DELETE", "/command/deployment/n/a?id=i",                          Nothing,                "DELETE /v1/command/deployment/n/a?id=i"),
];

#[tokio::test]
async fn every_route_reaches_the_scheduler() {
    let scene = SchedulerScene::start().await;
    let mut covered_routes = HashSet::new();
    for (method, path, sent_body, expected) in ROWS {
        let (head, ()) = request(method, &mesos_path(path), Body::empty())
            .map(|_| ())
            .into_parts();
        let RouteLookup::Found(matched) = lookup(&head) else {
            panic!("{method} {path} has no route")
        };
        covered_routes.insert((matched.route.verb, matched.route.path));
        let (forwarded, status, reply) = scene.send(method, path, &sent_body.body()).await;
        let forwarded_request = forwarded.unwrap_or_else(|| panic!("{method} {path} was not asked: {status} {reply}"));
        assert_eq!(forwarded_request.line, expected, "{method} {path}");
        sent_body.assert_forwarded(&forwarded_request);
        assert_eq!((status, reply.as_str()), (200, SUCCESS), "{method} {path}");
    }
    for route in routes() {
        if matches!(route.action, RouteAction::Scheduler(_)) {
            assert!(
                covered_routes.contains(&(route.verb, route.path)),
                "{route:?} has no row"
            );
        }
    }
}
