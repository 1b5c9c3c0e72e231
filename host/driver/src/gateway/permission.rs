//! What a request needs leave for.

use admittance::dialect::{
    Bcs,
    bcs::{Action, Lookup},
};
use http::{Method, header::UPGRADE, request::Parts};

use super::path;

/// What somebody may do with a cluster. The greater one may do what the lesser may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Read: GET, but for consoles.
    Read,
    /// And everything else but what `Hooks` is for.
    Write,
    /// And change the definitions of admission hooks, which decide on everybody's requests.
    Hooks,
}

impl Permission {
    /// Every permission.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Hooks];

    /// As files of tokens write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Hooks => "Hooks",
        }
    }
}

/// How names of hooks begin in paths: `admissionwebhook`, and `admissionwebhooks`.
const HOOKS: &str = "admissionwebhook";
/// What the names of custom resources that define hooks have in them: those of BCS, and Kubernetes' own, which a
/// driver reaches as well.
const CONFIGURATIONS: &str = "webhookconfiguration";

/// What this request to a driver needs.
///
/// A console is a shell in a container, so opening one is no reading, although it is a GET. A path that is no
/// route of the driver, or is one of custom resources, needs leave for hooks when hooks are named in it.
pub(super) fn needed(head: &Parts) -> Permission {
    let (is_console, is_hooks) = match Bcs::lookup(head) {
        Lookup::Found(matched) => match matched.route.action {
            Action::Definitions(_) => (false, true),
            Action::Console => (true, false),
            Action::Scheduler(_) => (false, false),
            Action::CustomResourceDefinitions | Action::CustomResources => (false, names_hooks(head)),
        },
        Lookup::OtherMethod(_) | Lookup::NotFound => (false, names_hooks(head)),
    };
    match (head.method == Method::GET, is_hooks) {
        (true, _) if is_console || head.headers.contains_key(UPGRADE) => Permission::Write,
        (true, _) => Permission::Read,
        (false, false) => Permission::Write,
        (false, true) => Permission::Hooks,
    }
}

fn names_hooks(head: &Parts) -> bool {
    path::decoded(head.uri.path())
        .split('/')
        .map(str::to_ascii_lowercase)
        .any(|segment| segment.starts_with(HOOKS) || segment.contains(CONFIGURATIONS))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::{
        Permission::{Hooks, Read, Write},
        *,
    };

    #[test]
    fn needs() {
        for (method, path, expected) in [
            ("GET", "/namespaces/n/applications", Read),
            ("POST", "/namespaces/n/applications", Write),
            ("PUT", "/namespaces/n/applications/a/scale/3", Write),
            ("DELETE", "/namespaces/n/applications/a", Write),
            // An application may have any name.
            ("DELETE", "/namespaces/n/applications/admissionwebhook", Write),
            ("DELETE", "/namespaces/admissionwebhook/applications/a", Write),
            ("GET", "/admissionwebhooks", Read),
            ("GET", "/namespaces/n/admissionwebhook/a", Read),
            ("POST", "/namespaces/n/admissionwebhook", Hooks),
            ("PUT", "/namespaces/n/admissionwebhook", Hooks),
            ("DELETE", "/namespaces/n/admissionwebhook/a", Hooks),
            ("POST", "/crd/namespaces/n/admissionwebhook", Hooks),
            ("DELETE", "/crd/namespaces/n/admissionwebhook/a", Hooks),
            // However it is written.
            ("POST", "/namespaces/n/%61dmissionwebhook", Hooks),
            ("POST", "/namespaces/n%2Fadmissionwebhook", Hooks),
            ("POST", "/namespaces/n/admissionwebhook/", Hooks),
            ("POST", "/namespaces/n/AdmissionWebhook", Hooks),
            ("POST", "/namespaces/n/%2561dmissionwebhook", Hooks),
            ("POST", "/crd/namespaces/n/admissionwebhook2", Write),
            ("POST", "/admissionwebhooks", Hooks),
            // The same by way of the custom resources.
            (
                "PUT",
                "/customresources/apis/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a",
                Hooks,
            ),
            (
                "PUT",
                "/customresources/apis/bkbcs.tencent.com/v2/namespaces/b/%2561dmissionwebhookconfigurations/a",
                Hooks,
            ),
            (
                "GET",
                "/customresources/apis/bkbcs.tencent.com/v2/namespaces/b/admissionwebhookconfigurations/a",
                Read,
            ),
            (
                "POST",
                "/customresources/apis/example.com/v1/namespaces/b/things",
                Write,
            ),
            (
                "DELETE",
                "/customresourcedefinitions/admissionwebhookconfigurations.bkbcs.tencent.com",
                Hooks,
            ),
            ("DELETE", "/customresourcedefinitions/things.example.com", Write),
            (
                "POST",
                "/customresources/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                Hooks,
            ),
            (
                "DELETE",
                "/customresources/apis/example.com/v1/namespaces/b/things/my-webhook",
                Write,
            ),
            (
                "GET",
                "/webconsole/bcsapi/v1/consoleproxy/mesos/create_exec",
                Write,
            ),
            ("POST", "/webconsole/x", Write),
            ("GET", "/nothing", Read),
            ("POST", "/nothing", Write),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/mesosdriver/v4{path}"));
            let head = request.body(()).unwrap().into_parts().0;
            assert_eq!(needed(&head), expected, "{method} {path}");
        }
        let socket = Request::get("/mesosdriver/v4/nothing").header("upgrade", "websocket");
        assert_eq!(needed(&socket.body(()).unwrap().into_parts().0), Write);
    }
}
