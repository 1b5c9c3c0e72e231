//! Locates a plugin's settings and module in its document, for mistakes that are found when the plugin is loaded.

use std::path::Path;

use admittance_admission::unescaped_token;

use crate::{
    Location,
    document::{self, Mistakes, Node},
    rego,
};

/// Returns the location of the setting at this JSON Pointer. `stage` is the location of a stage or of a group's member,
/// and `of_candidate` selects the stage's candidate. If the setting is missing, returns the location of the innermost
/// existing value. Returns `None` if the file has changed since it was read.
///
/// `line` is the line of a mistake within the setting's text, counted from 1.
pub fn setting_location(
    stage: &Location,
    of_candidate: bool,
    pointer: &str,
    line: Option<u32>,
) -> Option<Location> {
    let documents = document::read_file(Path::new(&stage.file), &mut Mistakes::new());
    let stage = stage_at(&documents, stage)?;
    // Without settings of its own, a candidate has the plugin's settings.
    let own = of_candidate.then(|| stage.child("candidate")?.child("settings"));
    let settings = own
        .flatten()
        .or_else(|| stage.child("plugin")?.child("settings"))
        // A Kubewarden policy has its settings in `spec`.
        .or_else(|| stage.child("spec")?.child("settings"))
        // A member of a group has its settings at the top, not in `plugin`.
        .or_else(|| stage.child("settings"))
        .or_else(|| rego::settings(&stage));
    let (mut node, pointer) = match settings {
        Some(settings) => (settings, pointer),
        // The `spec` of a SidecarSet is the plugin's setting `sidecarSet`.
        None => (stage.child("spec")?, pointer.strip_prefix("/sidecarSet")?),
    };
    for part in pointer.split('/').skip(1) {
        let part = unescaped_token(part);
        // In documents, the setting `rego` is the field `text` or `file`.
        let other = || (part == "rego").then(|| node.child("text").or_else(|| node.child("file")));
        let Some(next) = node.child(&part).or_else(|| other().flatten()) else {
            break;
        };
        node = next;
    }
    let mut location = node.location();
    // In YAML, a text of several lines is a block, located at its first line. In JSON, the text is on one line.
    let is_block = || node.json().as_str().is_some_and(|text| text.contains('\n'));
    if let Some(line) = line
        && !document::is_named_json(Path::new(&location.file))
        && is_block()
    {
        location.line = location.line.saturating_add(line.saturating_sub(1));
    }
    Some(location)
}

/// Returns the current location of the module reference in the stage at this location; `None` if it is no longer there.
pub fn module_location(stage: &Location, of_candidate: bool) -> Option<Location> {
    let documents = document::read_file(Path::new(&stage.file), &mut Mistakes::new());
    let stage = stage_at(&documents, stage)?;
    let source = |of: &str| stage.child(of)?.child("source");
    let candidate = if of_candidate { source("candidate") } else { None };
    let module = candidate
        .or_else(|| source("plugin"))
        // A Kubewarden policy has its module in `spec`.
        .or_else(|| stage.child("spec")?.child("module"))
        // A member of a group has `source`, or `module` in a Kubewarden group.
        .or_else(|| stage.child("source"))
        .or_else(|| stage.child("module"));
    Some(module?.location())
}

fn stage_at<'a>(documents: &'a [document::Document], location: &Location) -> Option<Node<'a>> {
    let mut found = documents
        .iter()
        .filter_map(|document| document.root_ignoring_mistakes().object_at(location));
    found.next()
}
