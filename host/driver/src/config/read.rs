//! Reads the configuration file, and reports all mistakes at once.

mod admin;
mod bcs;
mod definitions;
mod front;
mod gateway;
mod limits;
mod modules;
mod namespaces;
mod ports;
mod rest;
mod signatures;
mod upstream;
mod zookeeper;

use std::{path::Path, time::Duration};

use admittance::catalog::CatalogConfig;
use admittance_definitions::{
    Mistakes,
    document::{self, Fields, Node},
};

use self::{
    admin::admin,
    definitions::definitions,
    front::front,
    limits::{limits, sandbox},
    modules::{history, modules, store},
    namespaces::{cluster, namespaces},
    ports::listen,
    signatures::signatures,
    zookeeper::{Ensembles, zookeeper},
};
use super::{Config, FrontConfig, LogConfig};

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

impl Config {
    /// Read the configuration file, and every certificate that it names. Paths in it are taken from its
    /// directory.
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::new();
        let config = document::read_one(path, &mut mistakes)
            .and_then(|document| config(&document.root(), &mut mistakes));
        match config {
            Some(config) => mistakes.into_result(config),
            None => Err(mistakes.into_result(()).err().unwrap_or_default()),
        }
    }
}

fn config(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<Config> {
    let mut fields = root.object(mistakes)?;
    let listen = section(fields.optional("listen"), mistakes, listen);
    let admin = if_there(fields.optional("admin"), mistakes, admin);
    // Features that need an ensemble report a missing one.
    let ensembles = Ensembles::of(&fields);
    let front = front(&mut fields, listen.as_ref(), ensembles, mistakes);
    let default_limits = front
        .as_ref()
        .map(FrontConfig::default_limits)
        .unwrap_or_default();
    let limits = or(
        fields.optional("limits"),
        default_limits.clone(),
        mistakes,
        |node, mistakes| limits(node, default_limits, mistakes),
    );
    let has_cluster = fields.has("cluster");
    let definitions = section(fields.optional("definitions"), mistakes, |node, mistakes| {
        definitions(node, ensembles, has_cluster, mistakes)
    });
    let on_bad_definition = section(fields.optional("onBadDefinition"), mistakes, Node::word);
    let zookeeper = section(fields.optional("zookeeper"), mistakes, zookeeper);
    // Only then, so that it is not among the fields that are known here.
    if fields.has("cache") {
        fields.refuse(
            "cache",
            "compiled plugins are kept in the store, with the modules they are of",
            "write `store: { directory: ... }`",
            mistakes,
        );
    }
    let store = section(fields.optional("store"), mistakes, store);
    let history = section(fields.optional("history"), mistakes, history);
    let modules = section(fields.optional("modules"), mistakes, modules);
    let signatures = section(fields.optional("signatures"), mistakes, signatures);
    let sandbox = section(fields.optional("sandbox"), mistakes, sandbox);
    let namespaces = namespaces(&mut fields, mistakes);
    let cluster = if_there(fields.optional("cluster"), mistakes, cluster);
    let resolve = section(fields.optional("webhooks"), mistakes, resolve);
    let log = section(fields.optional("log"), mistakes, log);
    fields.finish(mistakes);
    Some(Config {
        listen: listen?,
        admin: admin?,
        front: front?,
        limits: limits?,
        definitions: definitions?,
        on_bad_definition: on_bad_definition?,
        zookeeper: zookeeper?,
        store: store?,
        history: history?,
        catalog: CatalogConfig {
            signatures: signatures?,
            ..modules?
        },
        sandbox: sandbox?,
        namespaces: namespaces?,
        cluster: cluster?,
        resolve: resolve?,
        log: log?,
    })
}

/// A section of the file, or this value if it is absent.
fn or<'a, T>(
    node: Option<Node<'a>>,
    default: T,
    mistakes: &mut Mistakes,
    read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> Option<T> {
    match node {
        None => Some(default),
        Some(node) => read(&node, mistakes),
    }
}

/// A section of the file that has a default.
fn section<'a, T: Default>(
    node: Option<Node<'a>>,
    mistakes: &mut Mistakes,
    read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> Option<T> {
    or(node, T::default(), mistakes, read)
}

/// An optional section of the file.
fn if_there<'a, T>(
    node: Option<Node<'a>>,
    mistakes: &mut Mistakes,
    read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> Option<Option<T>> {
    or(node, None, mistakes, |node, mistakes| {
        read(node, mistakes).map(Some)
    })
}

/// All entries of a list; `None` if one is invalid. All are read, so that all mistakes are reported.
fn each<'a, T>(
    nodes: &[Node<'a>],
    mistakes: &mut Mistakes,
    mut read: impl FnMut(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> Option<Vec<T>> {
    let entries: Vec<Option<T>> = nodes.iter().map(|node| read(node, mistakes)).collect();
    entries.into_iter().collect()
}

fn owned(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<String> {
    node.text(mistakes).map(str::to_owned)
}

/// An object with one required field.
fn only<'a>(node: &Node<'a>, name: &'static str, fix: &str, mistakes: &mut Mistakes) -> Option<Node<'a>> {
    let mut fields = node.object(mistakes)?;
    let value = fields.required(name, fix, mistakes);
    fields.finish(mistakes);
    value
}

fn good<T>(result: Result<T, impl std::fmt::Display>, node: &Node<'_>, mistakes: &mut Mistakes) -> Option<T> {
    result
        .map_err(|error| node.wrong(error.to_string(), "", mistakes))
        .ok()
}

/// A list of strings of one type; `None` if one is invalid.
fn parsed_list<T>(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<T>>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    each(&node.list(mistakes)?, mistakes, Node::parse)
}

fn duration(
    fields: &mut Fields<'_>,
    name: &'static str,
    default: Duration,
    mistakes: &mut Mistakes,
) -> Option<Duration> {
    or(fields.optional(name), default, mistakes, |node, mistakes| {
        node.duration(MILLISECOND..=HOUR, mistakes)
    })
}

fn resolve(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<(String, String)>> {
    let node = only(
        node,
        "resolve",
        "write `resolve: { \"name.namespace\": \"127.0.0.1:9443\" }`",
        mistakes,
    )?;
    node.string_map(mistakes).map(|map| map.into_iter().collect())
}

fn log(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<LogConfig> {
    let mut fields = node.object(mistakes)?;
    let level = section(fields.optional("level"), mistakes, Node::word);
    let format = section(fields.optional("format"), mistakes, Node::word);
    fields.finish(mistakes);
    Some(LogConfig {
        level: level?,
        format: format?,
    })
}

#[cfg(test)]
mod tests;
