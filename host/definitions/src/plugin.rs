//! `plugin` of a stage.

use admittance_admission::ClusterKind;
use admittance_module::{InvalidReference, ModuleReference};
use serde_json::Value as Json;
use url::Url;

use crate::{
    document::{Mistakes, Node, quoted},
    model::{AllowDefinition, PluginDefinition},
};

/// The least and the most memory a plugin may be given: 1 MiB, and what 32 bits address.
const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 32;

pub(crate) fn read(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<PluginDefinition> {
    let mut fields = node.object(mistakes)?;
    let source = fields
        .required("source", "write `file:` and the path of the module", mistakes)
        .and_then(|source| read_source(&source, mistakes));
    let digest = fields
        .optional("digest")
        .and_then(|digest| digest.parse(mistakes));
    let settings = match fields.optional("settings") {
        Some(settings) => settings.object(mistakes).map(|_| settings.json()),
        None => None,
    };
    let allow = fields
        .optional("allow")
        .map(|allow| read_allow(&allow, mistakes))
        .unwrap_or_default();
    let memory = fields
        .optional("memory")
        .and_then(|memory| memory.size(MEMORY, mistakes))
        .and_then(|memory| usize::try_from(memory).ok());
    fields.finish(mistakes);
    Some(PluginDefinition {
        source: source?,
        digest,
        settings: settings.unwrap_or_else(|| Json::Object(serde_json::Map::new())),
        allow,
        memory,
    })
}

fn read_source(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ModuleReference> {
    match node.text(mistakes)?.parse() {
        Ok(ModuleReference::File(path)) => Some(ModuleReference::File(node.beside(path))),
        Ok(reference) => Some(reference),
        Err(InvalidReference { text, problem, fix }) => {
            node.wrong(format!("{text} {problem}", text = quoted(&text)), fix, mistakes);
            None
        }
    }
}

fn read_allow(node: &Node<'_>, mistakes: &mut Mistakes) -> AllowDefinition {
    let Some(mut fields) = node.object(mistakes) else {
        return AllowDefinition::default();
    };
    let mut allow = AllowDefinition::default();
    if let Some(kinds) = fields.optional("cluster") {
        for kind in kinds.list(mistakes).unwrap_or_default() {
            allow.cluster.extend(kind.parse::<ClusterKind>(mistakes));
        }
    }
    if let Some(origins) = fields.optional("http") {
        for origin in origins.list(mistakes).unwrap_or_default() {
            allow.http.extend(origin.parse_with(read_origin, mistakes));
        }
    }
    if let Some(environment) = fields.optional("environment") {
        allow.environment = environment.string_map(mistakes).unwrap_or_default();
    }
    fields.finish(mistakes);
    allow
}

fn read_origin(text: &str) -> Result<Url, String> {
    Url::parse(text)
        .ok()
        .filter(|url| {
            url.scheme() == "https"
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        })
        .ok_or_else(|| {
            "this is no origin: write https, the host, and the port if it is not 443, `https://policy.example.com`"
                .to_owned()
        })
}
