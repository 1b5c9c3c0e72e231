//! The list of attacks.

use admittance_tests::{EndlessReply, Error, modules};
use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

/// An attack by a client, a guest, a webhook or a module.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) means: Means,
}

pub(crate) enum Means {
    /// Clients create objects, for which a plugin with these settings is called, with a field of this length.
    Guest { settings: Settings, object: usize },
    /// Clients create objects, for which a policy of Kubewarden is called.
    Policy(fn() -> Result<Vec<u8>, Error>),
    /// Clients create objects, for which these expressions are evaluated.
    Expressions(&'static str),
    /// Clients create objects, for which a webhook in Audit mode is called that never responds.
    SilentWebhook,
    /// Clients create objects, for which this server sends informational responses without end.
    Informational(Server),
    /// Another client opens this many connections and sends the beginning of a request on each.
    UnfinishedBodies { connections: usize, request: Unfinished },
    /// Another client is the agent of its cluster at a gateway, and gives this reply to all requests: to 256 watches
    /// whose replies no client reads, or to clients that send one request after another.
    Tunnel(EndlessReply),
    /// A definition with the guest `misbehaves`, with 1 GiB of memory and this behaviour, is applied as a dry run.
    Configuring(&'static str),
    /// A definition with this module is applied as a dry run.
    Module(fn() -> Result<Vec<u8>, Error>),
    /// A definition whose module is a FIFO is applied as a dry run.
    Fifo,
    /// These definitions are applied as a dry run.
    Documents(fn() -> String),
    /// Clients send this to the admin port. Well-behaved requests have new connections, and probes follow them.
    Admin(fn() -> Call),
    /// Clients open the page of a uid with which this many objects of 9 KiB were created. It is measured like `Admin`.
    Decisions(usize),
}

impl Means {
    /// Returns whether the attack is on the admin port.
    pub(crate) fn is_of_admin(&self) -> bool {
        matches!(self, Self::Admin(_) | Self::Decisions(_))
    }
}

/// A request to the admin port.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: Bytes,
}

/// Servers to which the program sends requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Upstream,
    Webhook,
    /// The server that a plugin sends requests to.
    OfPlugin,
}

/// A request that is never completed.
#[derive(Clone, Copy)]
pub(crate) enum Unfinished {
    /// No chain matches the request, whose body has one byte.
    Streamed,
    /// The chains need its body, which has all but one of the allowed bytes.
    Held,
}

/// Settings of the guest `misbehaves`.
pub(crate) enum Settings {
    /// One of the behaviours of the guest.
    Behaviour(&'static str),
    /// The plugin returns this patch.
    Patch(fn() -> String),
}

const fn guest(name: &'static str, behaviour: &'static str) -> Attack {
    Attack {
        name,
        means: Means::Guest {
            settings: Settings::Behaviour(behaviour),
            object: 0,
        },
    }
}

const fn patch(name: &'static str, patch: fn() -> String, object: usize) -> Attack {
    Attack {
        name,
        means: Means::Guest {
            settings: Settings::Patch(patch),
            object,
        },
    }
}

const fn module(name: &'static str, module: fn() -> Result<Vec<u8>, Error>) -> Attack {
    Attack {
        name,
        means: Means::Module(module),
    }
}

pub(crate) const ATTACKS: &[Attack] = &[
    guest("guest loops", "loops-forever"),
    guest("guest grows memory", "grows-memory"),
    guest("guest fills memory", "fills-memory"),
    guest("guest answers 8 MiB", "huge-patch"),
    guest("guest logs", "logs-without-end"),
    patch("patch doubles the object", doubling, 0),
    patch("patch copies 200 KiB", copying, 200 << 10),
    patch("patch inserts 20,000", || inserting(20_000), 0),
    patch("patch inserts 9,999", || inserting(9_999), 0),
    Attack {
        name: "policy verifies a chain",
        means: Means::Policy(modules::verifying),
    },
    Attack {
        name: "expression writes 16 MB",
        means: Means::Expressions(WRITING),
    },
    Attack {
        name: "audit webhook hangs",
        means: Means::SilentWebhook,
    },
    Attack {
        name: "unfinished bodies",
        means: Means::UnfinishedBodies {
            connections: 1024,
            request: Unfinished::Streamed,
        },
    },
    Attack {
        name: "unfinished large bodies",
        means: Means::UnfinishedBodies {
            connections: 300,
            request: Unfinished::Held,
        },
    },
    Attack {
        name: "upstream sends 1xx",
        means: Means::Informational(Server::Upstream),
    },
    Attack {
        name: "webhook sends 1xx",
        means: Means::Informational(Server::Webhook),
    },
    Attack {
        name: "plugin's server sends 1xx",
        means: Means::Informational(Server::OfPlugin),
    },
    Attack {
        name: "agent ignores pauses",
        means: Means::Tunnel(EndlessReply::Body),
    },
    Attack {
        name: "agent sends 1xx",
        means: Means::Tunnel(EndlessReply::Informational),
    },
    Attack {
        name: "configure fills 800 MiB",
        means: Means::Configuring("fills-memory-in-configure"),
    },
    module("component explodes", modules::exploding),
    module("component compiles long", modules::slow),
    module("the same within limits", modules::slow_within_limits),
    Attack {
        name: "FIFO as a module",
        means: Means::Fifo,
    },
    Attack {
        name: "200,000 documents",
        means: Means::Documents(documents),
    },
    Attack {
        name: "nested aliases",
        means: Means::Documents(|| aliases("[", "]")),
    },
    Attack {
        name: "nested aliases, merged",
        means: Means::Documents(|| aliases("{<<: [", "]}")),
    },
    Attack {
        name: "sign-in form of 8 MB",
        means: Means::Admin(sign_in),
    },
    Attack {
        name: "what applies to 3.5 MB",
        means: Means::Admin(applies),
    },
    Attack {
        name: "4,000 decisions of one uid",
        means: Means::Decisions(4000),
    },
];

/// The lists share one text of 100,000 bytes until they are written out.
const WRITING: &str = r#"cel:
        variables:
          - name: text
            expression: >-
              'x'.replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx')
              .replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx')
          - name: texts
            expression: "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(i, variables.text)"
        mutations:
          - patchType: JSONPatch
            jsonPatch:
              expression: >-
                [JSONPatch{op: 'add', path: '/spec/a', value:
                [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].map(i, variables.texts)}]"#;

/// Returns a form of 8 MB.
fn sign_in() -> Call {
    Call {
        method: Method::POST,
        path: "/sign-in".to_owned(),
        headers: &[
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ],
        body: "a=1&".repeat(2_000_000).into(),
    }
}

fn applies() -> Call {
    let labels: Map<String, Value> = (0..100_000)
        .map(|number| (format!("label-{number:07}"), "a-value-of-16-chr".into()))
        .collect();
    let object = json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": "web", "namespace": "good", "labels": labels},
    });
    Call {
        method: Method::POST,
        path: "/v1/applies".to_owned(),
        headers: &[("content-type", "application/json")],
        body: json!({ "object": object }).to_string().into(),
    }
}

/// Returns a patch in which each operation copies the whole object into itself.
fn doubling() -> String {
    patch_of((0..35).map(|number| format!(r#"{{"op":"copy","from":"","path":"/b{number}"}}"#)))
}

/// Returns a patch in which each operation copies most of the object.
fn copying() -> String {
    patch_of((0..1000).map(|number| format!(r#"{{"op":"copy","from":"/spec","path":"/b{number}"}}"#)))
}

/// Returns a patch that inserts this many items at the beginning of a list. Each operation shifts all items that were
/// added before.
fn inserting(count: usize) -> String {
    let begin = r#"{"op":"add","path":"/spec/a","value":[]}"#.to_owned();
    let insert = r#"{"op":"add","path":"/spec/a/0","value":0}"#.to_owned();
    patch_of(std::iter::once(begin).chain(std::iter::repeat_n(insert, count)))
}

fn patch_of(operations: impl Iterator<Item = String>) -> String {
    format!("[{}]", operations.collect::<Vec<_>>().join(","))
}

fn documents() -> String {
    "---\n1\n".repeat(200_000)
}

/// Returns a few hundred bytes, in which each line repeats the previous line nine times.
fn aliases(open: &str, close: &str) -> String {
    let lines = (1..10).map(|line| {
        let entries = vec![format!("*a{}", line - 1); 9].join(",");
        format!("a{line}: &a{line} {open}{entries}{close}\n")
    });
    format!("a0: &a0 {{x: 1}}\n{}", lines.collect::<String>())
}
