//! Reads `rego` of a native stage: a policy in Rego, which becomes the settings of the stock plugin `rego`.

use std::path::PathBuf;

use admittance_admission::ModuleReference;
use serde_json::{Map, Value as Json};

use crate::{
    document::{Fields, Mistakes, Node, readers},
    plugin::{PluginDefinition, child, read_allow},
};

pub(crate) fn read(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<PluginDefinition> {
    const VERSIONS: [(&str, &str); 2] = [("v0", "v0"), ("v1", "v1")];
    let mut fields = node.object(mistakes)?;
    let mut plugin = PluginDefinition::new(ModuleReference::stock("rego"));
    let mut settings = Map::new();
    let text = read_text(&mut fields, &mut plugin.read_from, mistakes);
    let fix = "name the rule that decides, `data.jobs.deny`";
    let entrypoint = fields.get_required("entrypoint", fix, readers::text, mistakes);
    let mut libs = Vec::new();
    for file in fields.get("libs", Vec::new(), Node::list, mistakes) {
        libs.extend(read_file(&file, &mut plugin.read_from, mistakes));
    }
    let version = fields.get("version", "v1", readers::one_of("version", &VERSIONS), mistakes);
    if let Some(parameters) = fields.get_optional("parameters", readers::json_object, mistakes) {
        settings.insert("parameters".to_owned(), parameters);
    }
    if let Some(allow) = fields.optional("allow") {
        plugin.allow = read_allow(&allow, mistakes);
    }
    fields.finish(mistakes);
    let (text, entrypoint) = (text?, entrypoint?);
    // The granted kinds are in `data.inventory`, if the policy reads it.
    if text.contains("inventory") && !plugin.allow.cluster.is_empty() {
        let kinds = plugin
            .allow
            .cluster
            .iter()
            .filter(|kind| !kind.is_access_review());
        settings.insert("inventory".to_owned(), kinds.map(ToString::to_string).collect());
    }
    settings.insert("rego".to_owned(), text.into());
    settings.insert("entrypoint".to_owned(), entrypoint.into());
    settings.insert("version".to_owned(), version.into());
    if !libs.is_empty() {
        settings.insert("libs".to_owned(), libs.into());
    }
    plugin.settings = Json::Object(settings);
    Some(plugin)
}

fn read_text(
    fields: &mut Fields<'_>,
    read_from: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<String> {
    let mut present = fields.present(&["text", "file"]);
    match (present.pop(), present.pop()) {
        (Some(("text", node)), None) => node.text(mistakes).map(str::to_owned),
        (Some((_, node)), None) => read_file(&node, read_from, mistakes),
        (None, _) => {
            let fix = "write `text` or `file`";
            fields.node().wrong("there is no policy", fix, mistakes);
            None
        }
        (Some(_), Some(_)) => {
            let message = "it has a text and a file";
            fields.node().wrong(message, "keep one of them", mistakes);
            None
        }
    }
}

fn read_file(node: &Node<'_>, read_from: &mut Vec<PathBuf>, mistakes: &mut Mistakes) -> Option<String> {
    let written = node.text(mistakes)?;
    let is_relative = PathBuf::from(written).is_relative();
    if is_relative && !node.is_in_directory() {
        let message = "the path is relative, and this definition is not in a directory";
        node.wrong(message, "write the policy itself in `text`", mistakes);
        return None;
    }
    let path = node.file(mistakes)?;
    read_from.push(path.clone());
    let text = node.text_of(&path);
    text.map_err(|mistake| {
        let fix = "correct the path, or write the policy itself in `text`";
        node.wrong(mistake.message, fix, mistakes);
    })
    .ok()
}

/// Finds the object with the settings of a policy in Rego: `rego` of a stage, or the target of a template of Gatekeeper.
pub(crate) fn settings<'a>(stage: &Node<'a>) -> Option<Node<'a>> {
    let of_template = || {
        let target = child(&child(&child(stage, "spec")?, "targets")?, "0")?;
        let Some(code) = child(&target, "code") else {
            return Some(target);
        };
        let sources = code
            .children()
            .into_iter()
            .filter_map(|(_, code)| child(&code, "source"));
        sources.into_iter().find(|source| child(source, "rego").is_some())
    };
    child(stage, "rego").or_else(of_template)
}
