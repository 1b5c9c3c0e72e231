//! The attacks.

use admittance_tests::{Error, modules};

/// Something that a client, a guest, a webhook or a module does.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) means: Means,
}

/// How it is done.
pub(crate) enum Means {
    /// Clients create objects, which a plugin with these settings is called with. Some of it is made longer.
    Guest { settings: Settings, object: usize },
    /// Clients create objects, which a webhook in Audit mode is called with that never answers.
    SilentWebhook,
    /// Another client opens so many connections and sends the beginning of a request that no chain is for.
    UnfinishedBodies(usize),
    /// Somebody applies, as a dry run, a definition with this module.
    Module(fn() -> Result<Vec<u8>, Error>),
    /// Somebody applies, as a dry run, a definition whose module is a FIFO.
    Fifo,
    /// Somebody applies, as a dry run, these definitions.
    Documents(fn() -> String),
}

/// Settings of the guest `misbehaves`.
pub(crate) enum Settings {
    /// One of its behaviours.
    Behaviour(&'static str),
    /// It answers with this patch.
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

/// All of them.
pub(crate) const ATTACKS: [Attack; 16] = [
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
        name: "audit webhook hangs",
        means: Means::SilentWebhook,
    },
    Attack {
        name: "unfinished bodies",
        means: Means::UnfinishedBodies(1024),
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
];

/// Each operation copies the whole object into itself.
fn doubling() -> String {
    patch_of((0..35).map(|number| format!(r#"{{"op":"copy","from":"","path":"/b{number}"}}"#)))
}

/// Each operation copies most of the object.
fn copying() -> String {
    patch_of((0..1000).map(|number| format!(r#"{{"op":"copy","from":"/spec","path":"/b{number}"}}"#)))
}

/// Each operation moves what those before it have added.
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
