//! Finds a plugin's settings and module in its document, to locate mistakes that are found in loading the plugin.

use std::path::Path;

use admittance_admission::unescaped_token;

use crate::{
    Location,
    document::{self, Mistakes, Node},
    rego,
};

/// Returns the location of the setting at this JSON Pointer. `stage` is the location of a stage or of a group's member;
/// `is_candidate` selects the candidate of the stage. If the setting is missing, returns the location of the innermost
/// value on the way to it. Returns `None` if the file has changed since it was read.
///
/// If the setting is a text of several lines, `line` is the line of the mistake in it, counted from 1.
pub fn setting_location(stage: &Location, is_candidate: bool, pointer: &str, line: Option<u32>) -> Option<Location> {
    let documents = document::read_file(Path::new(&stage.file), &mut Mistakes::new());
    let stage = stage_at(&documents, stage)?;
    // A candidate without `settings` inherits those of the stage's plugin, so the setting is searched there.
    let candidate_settings = is_candidate.then(|| stage.child("candidate")?.child("settings"));
    let settings = candidate_settings
        .flatten()
        .or_else(|| stage.child("plugin")?.child("settings"))
        // A policy of Kubewarden has `settings` directly in its `spec`, not inside `plugin`.
        .or_else(|| stage.child("spec")?.child("settings"))
        .or_else(|| stage.child("settings"))
        .or_else(|| rego::find_settings(&stage));
    let (mut node, pointer) = match settings {
        Some(settings) => (settings, pointer),
        // A SidecarSet has no field for settings. The plugin gets the whole `spec` of the SidecarSet as its setting
        // `sidecarSet`, so a pointer into this setting leads into the `spec`.
        None => (stage.child("spec")?, pointer.strip_prefix("/sidecarSet")?),
    };
    for part in pointer.split('/').skip(1) {
        let part = unescaped_token(part);
        // A mistake in a Rego policy has the pointer `/rego`, because the plugin gets the policy as its setting `rego`.
        // In the document of a native stage, the policy is in the field `text` or `file` instead.
        let other = || (part == "rego").then(|| node.child("text").or_else(|| node.child("file")));
        let Some(next) = node.child(&part).or_else(|| other().flatten()) else {
            break;
        };
        node = next;
    }
    let mut location = node.location();
    // `line` counts the lines of the setting's text. In a YAML file, a text of several lines is a block, and each of
    // its lines is also a line of the file, so `line` is added to the location. In a JSON file, the whole text is on
    // one line, so the location stays the same.
    let is_block = || node.json().as_str().is_some_and(|text| text.contains('\n'));
    if let Some(line) = line
        && !document::is_named_json(Path::new(&location.file))
        && is_block()
    {
        location.line = location.line.saturating_add(line.saturating_sub(1));
    }
    Some(location)
}

/// Returns the location of the module reference in the stage that begins at `stage`. Returns `None` if the file no
/// longer contains it.
pub fn module_location(stage: &Location, is_candidate: bool) -> Option<Location> {
    let documents = document::read_file(Path::new(&stage.file), &mut Mistakes::new());
    let stage = stage_at(&documents, stage)?;
    let source = |field: &str| stage.child(field)?.child("source");
    let candidate = if is_candidate { source("candidate") } else { None };
    let module = candidate
        .or_else(|| source("plugin"))
        .or_else(|| stage.child("spec")?.child("module"))
        // A plugin may also be a member of a group. In this case, `stage` is the member. A native group has the module
        // reference of a member in the field `source`, and a Kubewarden group has it in the field `module`.
        .or_else(|| stage.child("source"))
        .or_else(|| stage.child("module"));
    Some(module?.location())
}

fn stage_at<'a>(documents: &'a [document::Document], location: &Location) -> Option<Node<'a>> {
    let mut nodes = documents
        .iter()
        .filter_map(|document| document.root_ignoring_mistakes().object_at(location));
    nodes.next()
}
