//! A guest that opens a file or a socket, as a library might, although the sandbox has neither. If the settings ask for
//! it, the guest uses a capability instead: it sends a request, lists Nodes, or queries a user's permissions.

use std::{fs, net::TcpStream};

use admittance_sdk::{
    UserInfo,
    cluster::{self, CanI, List},
    http,
    prelude::*,
    serde_json::Value,
};

/// The settings of this guest: what it tries to access, and the URL if that is a server.
#[settings]
#[derive(Debug)]
pub struct Settings {
    /// The resource that the guest tries to open.
    pub target: GuestTarget,
    /// The URL for the target `http`.
    pub url: Option<String>,
}

/// A file, socket, server or object that the guest tries to access.
#[settings]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestTarget {
    /// `/etc/passwd`.
    File,
    /// A socket: a TCP connection to port 22 of this machine.
    Socket,
    /// The HTTP server whose address is in the setting `url`.
    Http,
    /// Two pages of Nodes, with only the field `spec.providerID`.
    Nodes,
    /// Whether the user `jo` may access the Secrets of the namespace `shop`.
    Access,
}

/// Tries to access the target of its settings, and reports whether it could.
#[derive(Debug)]
pub struct ReachesOut(Settings);

#[plugin(capabilities = [
    http("*"),
    cluster("v1/Node"),
    cluster("authorization.k8s.io/v1/SubjectAccessReview"),
])]
impl Plugin for ReachesOut {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self(settings))
    }

    fn admit(&self, _: &Request) -> Result<Response, Error> {
        let reached = match self.0.target {
            GuestTarget::File => fs::read_to_string("/etc/passwd").map(|text| format!("{} bytes", text.len())),
            GuestTarget::Http => {
                let url = self.0.url.as_deref().unwrap_or_default();
                return Ok(match http::Request::get(url).send() {
                    Ok(response) => {
                        let body = String::from_utf8_lossy(&response.body);
                        Response::deny(format!("{} {body}", response.status))
                    }
                    Err(error) => Response::allow().warn(error.to_string()),
                });
            }
            GuestTarget::Nodes => return Ok(answer(nodes())),
            GuestTarget::Access => return Ok(answer(access())),
            GuestTarget::Socket => TcpStream::connect("127.0.0.1:22").map(|stream| format!("{stream:?}")),
        };
        Ok(match reached {
            Ok(description) => Response::deny(format!("the host allowed access to {description}")),
            Err(error) => Response::allow().warn(format!("nothing there: {error}")),
        })
    }
}

fn answer(lookup: Result<String, cluster::Error>) -> Response {
    match lookup {
        Ok(text) => Response::deny(text),
        Err(error) => Response::allow().warn(error.to_string()),
    }
}

fn nodes() -> Result<String, cluster::Error> {
    let nodes: Vec<_> = List::of("v1", "Node")
        .fields(["/spec/providerID"])
        .page_size(1)
        .objects::<Value>()
        .collect::<Result<_, _>>()?;
    Ok(Value::Array(nodes).to_string())
}

fn access() -> Result<String, cluster::Error> {
    let user = UserInfo {
        username: "jo".to_owned(),
        uid: String::new(),
        groups: Vec::new(),
        extra: Vec::new(),
    };
    let ask_access = |verb: &str| {
        CanI::new(verb, "", "secrets")
            .namespace("shop")
            .user(user.clone())
            .ask()
    };
    Ok(format!(
        "get {}, delete {}",
        ask_access("get")?.allowed,
        ask_access("delete")?.allowed
    ))
}
