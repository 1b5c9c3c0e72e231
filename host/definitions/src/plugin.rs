//! `plugin` of a stage.

use admittance_admission::ClusterKind;
use serde_json::Value as Json;
use url::Url;

use crate::{
    document::{Mistakes, Node, quoted},
    model::{AllowDefinition, ModuleSource, PluginDefinition},
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
        .and_then(|digest| digest.parse_with(read_digest, mistakes));
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

fn read_source(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ModuleSource> {
    let text = node.text(mistakes)?;
    let fetched = |what: &str, mistakes: &mut Mistakes| {
        let message = format!("this version loads plugins from files, not from {what}");
        node.wrong(
            message,
            "download the module and write `file:` and its path",
            mistakes,
        );
        None
    };
    match text.split_once(':') {
        Some(("file", path)) => {
            // `file:///absolute` is the same file as `file:/absolute`.
            let path = match path.strip_prefix("//") {
                Some(absolute) if absolute.starts_with('/') => absolute,
                Some(_) => {
                    let fix = "write `file:` and the path, without `//`";
                    node.wrong(
                        format!("{text} names a file of another machine", text = quoted(text)),
                        fix,
                        mistakes,
                    );
                    return None;
                }
                None => path,
            };
            if path.is_empty() {
                node.wrong("no path after `file:`", "write the path of the module", mistakes);
                return None;
            }
            Some(ModuleSource::File(node.beside(path)))
        }
        Some(("https" | "http", _)) => fetched("the web", mistakes),
        Some(("oci", _)) => fetched("registries", mistakes),
        Some(_) | None => {
            let message = format!("{text} does not say where the module is", text = quoted(text));
            let fix = if text.contains(':') {
                "write `file:` and the path of the module".to_owned()
            } else {
                format!("write `file:{text}`")
            };
            node.wrong(message, fix, mistakes);
            None
        }
    }
}

fn read_digest(text: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    let wrong = || {
        format!(
            "{text} is no digest: write `sha256:` and 64 hexadecimal digits",
            text = quoted(text)
        )
    };
    let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?;
    hex::decode_to_slice(digits, &mut digest).map_err(|_| wrong())?;
    Ok(digest)
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
