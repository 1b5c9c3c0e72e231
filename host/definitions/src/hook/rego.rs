//! Reads the field `rego` of a native stage. The Rego policy in it becomes a setting of the stock plugin `rego`.

use std::path::PathBuf;

use admittance_admission::ModuleReference;
use serde_json::{Map, Value as Json};

use crate::{
    document::{Fields, Node, readers},
    plugin::{PluginDefinition, read_allow},
};

pub(crate) fn read(node: &Node<'_>) -> Option<PluginDefinition> {
    const VERSIONS: [(&str, &str); 2] = [("v0", "v0"), ("v1", "v1")];
    let mut fields = node.object()?;
    let mut plugin = PluginDefinition::new(ModuleReference::stock("rego"));
    let mut settings = Map::new();
    let text = read_text(&mut fields, &mut plugin.read_from);
    let fix = "name the rule that decides, `data.jobs.deny`";
    let entrypoint = fields.get_required("entrypoint", fix, readers::text);
    let mut libs = Vec::new();
    for file in fields.get("libs", Vec::new(), Node::list) {
        libs.extend(read_file(&file, &mut plugin.read_from));
    }
    let version = fields.get("version", "v1", readers::one_of("version", &VERSIONS));
    if let Some(parameters) = fields.get_optional("parameters", readers::json_object) {
        settings.insert("parameters".to_owned(), parameters);
    }
    if let Some(allow) = fields.optional("allow") {
        plugin.allow = read_allow(&allow);
    }
    let (text, entrypoint) = (text?, entrypoint?);
    // The plugin must know which kinds of objects a policy finds in `data.inventory`. These are the kinds that the
    // stage grants to the plugin, so they are passed to it in the setting `inventory`.
    if text.contains("inventory") && !plugin.allow.cluster.is_empty() {
        let kinds = plugin.allow.cluster.iter().filter(|kind| !kind.is_access_review());
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

fn read_text(fields: &mut Fields<'_>, read_from: &mut Vec<PathBuf>) -> Option<String> {
    let mut present = fields.present_fields(&["text", "file"]);
    match (present.pop(), present.pop()) {
        (Some(("text", node)), None) => node.text().map(str::to_owned),
        (Some((_, node)), None) => read_file(&node, read_from),
        (None, _) => fields.node().reject("there is no policy", "write `text` or `file`"),
        (Some(_), Some(_)) => fields.node().reject("it has a text and a file", "keep one of them"),
    }
}

fn read_file(node: &Node<'_>, read_from: &mut Vec<PathBuf>) -> Option<String> {
    if PathBuf::from(node.text()?).is_relative() && !node.is_in_directory() {
        let message = "the path is relative, and this definition is not in a directory";
        return node.reject(message, "write the policy itself in `text`");
    }
    let path = node.file_path()?;
    read_from.push(path.clone());
    let text = node.file_text(&path);
    text.map_err(|mistake| {
        let fix = "correct the path, or write the policy itself in `text`";
        node.add_mistake(mistake.message, fix);
    })
    .ok()
}

/// Finds the object with a stage's Rego policy: `rego` of a native stage, or the target of a Gatekeeper template.
pub(crate) fn find_settings<'a>(stage: &Node<'a>) -> Option<Node<'a>> {
    let template_policy = || {
        let target = stage.child("spec")?.child("targets")?.child("0")?;
        let Some(code) = target.child("code") else {
            return Some(target);
        };
        let sources = code.children().into_iter().filter_map(|(_, code)| code.child("source"));
        sources.into_iter().find(|source| source.child("rego").is_some())
    };
    stage.child("rego").or_else(template_policy)
}
