//! Tests every route that the driver forwards to the scheduler, and the request that the scheduler must get for it.
//! Section 1.3 of the reference of bcs-mesos-driver lists these routes. The fake scheduler reports requests that it
//! cannot decode.

use http::Method;
use serde_json::json;

use super::scene::{MesosScene, code_and_message};
use crate::scene::application;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

/// The reply of a scheduler that has no such route.
const NO_ROUTE: &str = "404: Page Not Found";

/// (method, path below `/mesosdriver/v4`, body or kind of the object in the body, request that the scheduler must get)
#[rustfmt::skip]
const ROUTES: &[(Method, &str, &str, &str)] = &[
    (POST,   "/namespaces/elsewhere/applications", "application", "POST /v1/apps"),
    (PUT,    "/namespaces/elsewhere/applications?instances=1&args=x", "application", "POST /v1/apps/n/web/update?instances=1&args=x"),
    (PUT,    "/namespaces/elsewhere/applications?args=resource", "application", "POST /v1/apps/n/web/update?instances=&args=resource"),
    (PUT,    "/namespaces/elsewhere/applications/rollback", "application", "POST /v1/apps/n/web/update?instances=2&kind=application"),
    (PUT,    "/namespaces/n/applications/web/scale/5", "", "POST /v1/apps/n/web/scale?instances=5&kind=application"),
    (GET,    "/namespaces/n/applications", "", "GET /v1/n/apps?kind=application"),
    (GET,    "/namespaces/n/applications/web", "", "GET /v1/apps/n/web?kind=application"),
    (POST,   "/namespaces/n/applications/web/message", r#"{"msgtype":"signal","msgdata":{"processname":"p","signal":12}}"#, "POST /v1/apps/n/web/message"),
    (POST,   "/namespaces/n/applications/web/taskgroups/0.web.n/message", r#"{"msgtype":"env-key","msgdata":{"env-key":"a","env-value":"b"}}"#, "POST /v1/apps/n/web/message/0.web.n"),
    (GET,    "/namespaces/n/applications/web/taskgroups", "", "GET /v1/apps/n/web/taskgroups"),
    (PUT,    "/namespaces/n/applications/web/taskgroups/0.web.n/rescheduler?hostRetainTime=5", "", "PUT /v1/taskgroup/0.web.n/rescheduler?hostRetainTime=5"),
    (POST,   "/namespaces/n/applications/web/taskgroups/0.web.n/restart", "", "POST /v1/taskgroup/0.web.n/restart"),
    (POST,   "/namespaces/n/applications/web/taskgroups/0.web.n/reload", "", "POST /v1/taskgroup/0.web.n/reload"),
    (GET,    "/namespaces/n/applications/web/versions", "", "GET /v1/apps/n/web/versions"),
    (GET,    "/namespaces/n/applications/web/versions/7", "", "GET /v1/apps/n/web/versions/7"),
    (GET,    "/definition/application/n/web", "", "GET /v1/definition/application/n/web"),
    (DELETE, "/namespaces/n/applications/web?enforce=1", "", "DELETE /v1/apps/n/web?enforce=1&kind=application"),
    (POST,   "/namespaces/n/processes", "process", "POST /v1/apps"),
    (PUT,    "/namespaces/n/processes?instances=1", "process", "POST /v1/apps/n/web/update?instances=1&args="),
    (PUT,    "/namespaces/n/processes/rollback", "process", "POST /v1/apps/n/web/update?instances=2&kind=process"),
    (PUT,    "/namespaces/n/processes/web/scale/5", "", "POST /v1/apps/n/web/scale?instances=5&kind=process"),
    (GET,    "/namespaces/n/processes", "", "GET /v1/n/apps?kind=process"),
    (GET,    "/namespaces/n/processes/web", "", "GET /v1/apps/n/web?kind=process"),
    (DELETE, "/namespaces/n/processes/web", "", "DELETE /v1/apps/n/web?enforce=&kind=process"),
    (POST,   "/namespaces/n/configmaps", "configmap", "POST /v1/configmap"),
    (PUT,    "/namespaces/n/configmaps", "configmap", "PUT /v1/configmap"),
    (DELETE, "/namespaces/n/configmaps/web", "", "DELETE /v1/configmap/n/web"),
    (POST,   "/namespaces/n/secrets", "secret", "POST /v1/secret"),
    (PUT,    "/namespaces/n/secrets", "secret", "PUT /v1/secret"),
    (DELETE, "/namespaces/n/secrets/web", "", "DELETE /v1/secret/n/web"),
    (POST,   "/namespaces/n/services", "service", "POST /v1/service"),
    (PUT,    "/namespaces/n/services", "service", "PUT /v1/service"),
    (DELETE, "/namespaces/n/services/web", "", "DELETE /v1/service/n/web"),
    (GET,    "/cluster/resources", "", "GET /v1/cluster/resources"),
    (GET,    "/cluster/endpoints", "", "GET /v1/cluster/endpoints"),
    (GET,    "/cluster/current/offers", "", "GET /v1/cluster/current/offers"),
    (POST,   "/namespaces/elsewhere/deployments", "deployment", "POST /v1/deployment/n/web"),
    (PUT,    "/namespaces/elsewhere/deployments?args=resource", "deployment", "PUT /v1/deployment/n/web?args=resource"),
    (PUT,    "/namespaces/n/deployments/web/cancelupdate", "", "POST /v1/deployment/n/web/cancelupdate"),
    (PUT,    "/namespaces/n/deployments/web/pauseupdate", "", "POST /v1/deployment/n/web/pauseupdate"),
    (PUT,    "/namespaces/n/deployments/web/resumeupdate", "", "POST /v1/deployment/n/web/resumeupdate"),
    (PUT,    "/namespaces/n/deployments/web/scale/4", "", "PUT /v1/deployment/n/web/scale/4"),
    (GET,    "/definition/deployment/n/web", "", "GET /v1/definition/deployment/n/web"),
    (DELETE, "/namespaces/n/deployments/web?enforce=1", "", "DELETE /v1/deployment/n/web?enforce=1"),
    (POST,   "/namespaces/n/daemonset", "daemonset", "POST /v1/daemonsets"),
    (DELETE, "/namespaces/n/daemonset/web?enforce=1", "", "DELETE /v1/daemonsets/n/web?enforce=1"),
    (GET,    "/transactions/n?objKind=application&objName=web", "", "GET /v1/transactions/n?objKind=application&objName=web"),
    (DELETE, "/transactions/n/t", "", "DELETE /v1/transactions/n/t"),
    (GET,    "/agentsettings?ips=10.0.0.1,10.0.0.2", "", "GET /v1/agentsettings?ips=10.0.0.1%2C10.0.0.2"),
    (POST,   "/agentsettings", r#"[{"innerIP":"10.0.0.1"}]"#, "POST /v1/agentsettings"),
    (POST,   "/agentsettings/enable?ips=10.0.0.1", "", "POST /v1/agentsettings/enable?ips=10.0.0.1"),
    (POST,   "/agentsettings/disable?ips=10.0.0.1", "", "POST /v1/agentsettings/disable?ips=10.0.0.1"),
    (PUT,    "/agentsettings/taint", r#"[{"innerIP":"10.0.0.1"}]"#, "PUT /v1/agentsettings/taint"),
    (PUT,    "/agentsettings/extendedresource", r#"{"innerIP":"10.0.0.1"}"#, "PUT /v1/agentsettings/extendedresource"),
    (POST,   "/crr/register", r#"{"kind":"crr"}"#, "POST /v1/crr/register"),
    (POST,   "/crd/namespaces/n/things", r#"{"kind":"things"}"#, "POST /v1/crd/namespaces/n/things"),
    (PUT,    "/crd/namespaces/n/things", r#"{"kind":"things"}"#, "PUT /v1/crd/namespaces/n/things"),
    (DELETE, "/crd/namespaces/n/things/a", "", "DELETE /v1/crd/namespaces/n/things/a"),
    (GET,    "/crd/namespaces/n/things/a", "", "GET /v1/crd/namespaces/n/things/a"),
    (GET,    "/crd/namespaces/n/things", "", "GET /v1/crd/namespaces/n/things"),
    (GET,    "/crd/things", "", "GET /v1/crd/things"),
    (POST,   "/image/commit/0.web.n?image=a:1&url=registry.example.com", "", "POST /v1/image/commit/0.web.n?image=a%3A1&url=registry.example.com"),
    (POST,   "/command/application/n/web", r#"{"spec":{"command":["ls"]}}"#, "POST /v1/command/application/n/web"),
    (GET,    "/command/application/n/web?id=7", "", "GET /v1/command/application/n/web?id=7"),
    (DELETE, "/command/application/n/web?id=7", "", "DELETE /v1/command/application/n/web?id=7"),
    (POST,   "/command/deployment/n/web", r#"{"spec":{"command":["ls"]}}"#, "POST /v1/command/deployment/n/web"),
    (GET,    "/command/deployment/n/web?id=7", "", "GET /v1/command/deployment/n/web?id=7"),
    (DELETE, "/command/deployment/n/web?id=7", "", "DELETE /v1/command/deployment/n/web?id=7"),
];

/// (method, path, request that the driver sends to the scheduler). The BCS scheduler has removed these routes.
#[rustfmt::skip]
const REMOVED_ROUTES: [(Method, &str, &str); 2] = [
    (GET,    "/namespaces/n/applications/web/tasks", "GET /v1/apps/n/web/tasks"),
    (DELETE, "/agentsettings?ips=10.0.0.1", "POST /v1/agentsettings/delete?ips=10.0.0.1"),
];

#[tokio::test]
async fn every_route_of_the_scheduler_is_forwarded() {
    let mesos = MesosScene::new("", &[]).await;
    let mut problems = Vec::new();
    for (method, path, body, expected) in ROUTES {
        let before = mesos.scheduler.requests().len();
        let reply = mesos.send(method.clone(), path, self::body_text(body)).await;
        let requests = mesos.scheduler.requests().split_off(before);
        let lines: Vec<String> = requests.iter().map(admittance_tests::SchedulerRequest::line).collect();
        if lines != [*expected] {
            problems.push(format!(
                "{method} {path}: the scheduler got {lines:?}, expected {expected}"
            ));
        }
        let type_of = &reply.headers["content-type"];
        if reply.status != 200 || code_and_message(&reply).0 != 0 || type_of != "application/json" {
            problems.push(format!(
                "{method} {path}: {} {type_of:?} {}",
                reply.status,
                reply.text()
            ));
        }
    }
    problems.extend(mesos.scheduler.problems());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // All writes were executed by the only scheduler.
    let address = mesos.scheduler.address();
    assert!(
        mesos
            .cluster
            .writes()
            .iter()
            .all(|write| write.scheduler_address == address)
    );
}

#[tokio::test]
async fn requests_for_removed_scheduler_routes_are_forwarded_and_the_scheduler_refuses_them() {
    let mesos = MesosScene::new("", &[]).await;
    for (method, path, expected) in REMOVED_ROUTES {
        let before = mesos.scheduler.requests().len();
        let reply = mesos.send(method.clone(), path, "").await;
        let requests = mesos.scheduler.requests().split_off(before);
        assert_eq!(requests.len(), 1, "{method} {path}");
        assert_eq!(requests[0].line(), expected, "{method} {path}");
        let (code, message) = code_and_message(&reply);
        assert_eq!((reply.status.as_u16(), code), (200, 1_405_009), "{message}");
        assert!(message.contains(NO_ROUTE), "{message}");
    }
}

#[tokio::test]
async fn paths_without_a_route_never_reach_the_scheduler() {
    let mesos = MesosScene::new("", &[]).await;
    for (method, path, status) in [
        (GET, "/nothing", 404),
        (GET, "/namespaces/n/deployments", 405),
        (Method::PATCH, "/namespaces/n/applications/web", 405),
        (POST, "/namespaces/n/configmaps/web", 405),
        (GET, "/customresourcedefinitions", 404),
    ] {
        let reply = mesos.send(method.clone(), path, "").await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}: {}", reply.text());
    }
    assert!(mesos.scheduler.requests().is_empty());
}

fn body_text(body: &str) -> String {
    if body.is_empty() || !body.starts_with(|first: char| first.is_ascii_lowercase()) {
        return body.to_owned();
    }
    let mut object = application("n", "web", "docker.io/library/nginx:1.29");
    object["kind"] = body.into();
    if body == "deployment" {
        object["spec"]["selector"] = json!({"podname": "web"});
        object["spec"]["strategy"] = json!({"type": "RollingUpdate"});
    }
    object.to_string()
}
