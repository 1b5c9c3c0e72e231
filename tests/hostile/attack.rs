use admittance_tests::{EndlessReply, Error, modules};
use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

/// An attack on the program by clients, a guest, a webhook or a module.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) means: Means,
}

pub(crate) enum Means {
    /// Clients create objects for which a plugin with these settings is called. One field of each object is `object`
    /// bytes long.
    Guest { settings: Settings, object: usize },
    /// Clients create objects for which this Kubewarden policy is called.
    Policy(fn() -> Result<Vec<u8>, Error>),
    /// Clients create objects, and for each object, the program evaluates these CEL expressions.
    Expressions(&'static str),
    /// Clients create objects. For these, a stage in Audit mode calls a webhook that never answers.
    SilentWebhook,
    /// Clients create objects. The server that the program then calls sends informational responses (1xx) without end.
    Informational(AttackServer),
    /// The attacker has another IP address than other clients. It opens this many connections, and sends an incomplete
    /// request on each of them.
    UnfinishedBodies {
        connections: usize,
        request: UnfinishedRequest,
    },
    /// The agent of a cluster floods a gateway with replies of this kind.
    Tunnel(EndlessReply),
    /// Clients send a definition in a dry run, so that the program tries it. The definition uses the guest `misbehaves`
    /// as a plugin, which may use 1 GiB of memory. The value is the name of the guest's behaviour.
    Configuring(&'static str),
    /// Clients send a definition in a dry run, so that the program tries it. Its plugin is this module.
    Module(fn() -> Result<Vec<u8>, Error>),
    /// Clients send a definition in a dry run, so that the program tries it. The file of its module is a FIFO (a named
    /// pipe), from which nothing can be read.
    Fifo,
    /// Clients send these definitions in a dry run, so that the program tries them.
    Documents(fn() -> String),
    /// Clients send this request to the admin port. Meanwhile, a well-behaved client sends a probe to the admin port
    /// after each of its own requests.
    Admin(fn() -> AttackCall),
    /// Clients open the page of the console about the decisions with a certain UID. Before the attack, this many
    /// requests of 9 KiB with this UID are sent.
    Decisions(usize),
}

impl Means {
    pub(crate) fn is_admin_attack(&self) -> bool {
        matches!(self, Self::Admin(_) | Self::Decisions(_))
    }
}

#[derive(Clone)]
pub(crate) struct AttackCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttackServer {
    Upstream,
    Webhook,
    /// The server to which a plugin sends HTTP requests through the program.
    OfPlugin,
}

#[derive(Clone, Copy)]
pub(crate) enum UnfinishedRequest {
    /// No chain matches the request, so the program forwards the body to the upstream server piece by piece. The client
    /// sends only one byte of the body.
    Streamed,
    /// A chain matches the request, so the program needs its whole body, of which the client omits the last byte.
    Held,
}

pub(crate) enum Settings {
    Behaviour(&'static str),
    Patch(fn() -> String),
}

const fn guest_attack(name: &'static str, behaviour: &'static str) -> Attack {
    Attack {
        name,
        means: Means::Guest {
            settings: Settings::Behaviour(behaviour),
            object: 0,
        },
    }
}

const fn patch_attack(name: &'static str, patch: fn() -> String, object: usize) -> Attack {
    Attack {
        name,
        means: Means::Guest {
            settings: Settings::Patch(patch),
            object,
        },
    }
}

const fn module_attack(name: &'static str, module: fn() -> Result<Vec<u8>, Error>) -> Attack {
    Attack {
        name,
        means: Means::Module(module),
    }
}

pub(crate) const ATTACKS: &[Attack] = &[
    guest_attack("guest loops", "loops-forever"),
    guest_attack("guest grows memory", "grows-memory"),
    guest_attack("guest fills memory", "fills-memory"),
    guest_attack("guest answers 8 MiB", "huge-patch"),
    guest_attack("guest logs", "logs-without-end"),
    patch_attack("patch doubles the object", doubling_patch, 0),
    patch_attack("patch copies 200 KiB", copying_patch, 200 << 10),
    patch_attack("patch inserts 20,000", || inserting_patch(20_000), 0),
    patch_attack("patch inserts 9,999", || inserting_patch(9_999), 0),
    Attack {
        name: "policy verifies a chain",
        means: Means::Policy(modules::verifying_module),
    },
    Attack {
        name: "expression writes 16 MB",
        means: Means::Expressions(WRITING_EXPRESSIONS),
    },
    Attack {
        name: "audit webhook hangs",
        means: Means::SilentWebhook,
    },
    Attack {
        name: "unfinished bodies",
        means: Means::UnfinishedBodies {
            connections: 1024,
            request: UnfinishedRequest::Streamed,
        },
    },
    Attack {
        name: "unfinished large bodies",
        means: Means::UnfinishedBodies {
            connections: 300,
            request: UnfinishedRequest::Held,
        },
    },
    Attack {
        name: "upstream sends 1xx",
        means: Means::Informational(AttackServer::Upstream),
    },
    Attack {
        name: "webhook sends 1xx",
        means: Means::Informational(AttackServer::Webhook),
    },
    Attack {
        name: "plugin's server sends 1xx",
        means: Means::Informational(AttackServer::OfPlugin),
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
    module_attack("component explodes", modules::exploding_module),
    module_attack("component compiles long", modules::slow_module),
    module_attack("the same within limits", modules::slow_module_within_limits),
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
        means: Means::Documents(|| nested_aliases("[", "]")),
    },
    Attack {
        name: "nested aliases, merged",
        means: Means::Documents(|| nested_aliases("{<<: [", "]}")),
    },
    Attack {
        name: "sign-in form of 8 MB",
        means: Means::Admin(sign_in_call),
    },
    Attack {
        name: "what applies to 3.5 MB",
        means: Means::Admin(applies_call),
    },
    Attack {
        name: "4,000 decisions of one uid",
        means: Means::Decisions(4000),
    },
];

/// All elements of the lists refer to the same text of 100,000 bytes, which needs little memory. In the JSON of the
/// result, however, this text is written 160 times.
const WRITING_EXPRESSIONS: &str = r#"cel:
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

fn sign_in_call() -> AttackCall {
    AttackCall {
        method: Method::POST,
        path: "/sign-in".to_owned(),
        headers: &[
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ],
        body: "a=1&".repeat(2_000_000).into(),
    }
}

fn applies_call() -> AttackCall {
    let labels: Map<String, Value> = (0..100_000)
        .map(|number| (format!("label-{number:07}"), "a-value-of-16-chr".into()))
        .collect();
    let object = json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": "web", "namespace": "good", "labels": labels},
    });
    AttackCall {
        method: Method::POST,
        path: "/v1/applies".to_owned(),
        headers: &[("content-type", "application/json")],
        body: json!({ "object": object }).to_string().into(),
    }
}

/// Returns a patch that makes the object twice as large with each operation, by copying it into itself.
fn doubling_patch() -> String {
    patch_of((0..35).map(|number| format!(r#"{{"op":"copy","from":"","path":"/b{number}"}}"#)))
}

/// Returns a patch that copies a large part of the object with each operation.
fn copying_patch() -> String {
    patch_of((0..1000).map(|number| format!(r#"{{"op":"copy","from":"/spec","path":"/b{number}"}}"#)))
}

/// Returns a patch that inserts `count` items at the start of a list. Each insertion has to move all items behind it.
fn inserting_patch(count: usize) -> String {
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

/// Returns a few hundred bytes of YAML. Through aliases, each line repeats the line before it nine times.
fn nested_aliases(open: &str, close: &str) -> String {
    let lines = (1..10).map(|line| {
        let entries = vec![format!("*a{}", line - 1); 9].join(",");
        format!("a{line}: &a{line} {open}{entries}{close}\n")
    });
    format!("a0: &a0 {{x: 1}}\n{}", lines.collect::<String>())
}
