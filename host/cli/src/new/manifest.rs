//! Adapts the manifests of the Rust SDK, which a new plugin's project contains.

const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

/// Inserts the values that an SDK manifest inherits from this workspace. Removes the sections about tests and lints.
pub(super) fn resolve_inheritance(manifest: &str) -> String {
    let mut section = "";
    let mut lines = Vec::new();
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
        }
        match section {
            "[lints]" | "[dev-dependencies]" => {}
            "[dependencies]" if line == "admittance-sdk-macros.workspace = true" => {
                lines.push("admittance-sdk-macros = { path = \"macros\" }".to_owned());
            }
            _ => lines.push(inherited_dependency(line).unwrap_or_else(|| line.to_owned())),
        }
    }
    lines.join("\n") + "\n"
}

/// A line such as `serde = { workspace = true, features = [..] }` inherits a dependency from the workspace's manifest.
/// Returns the whole dependency with the added features; `None` if the line inherits nothing.
fn inherited_dependency(line: &str) -> Option<String> {
    let (name, features) = match line.strip_suffix(".workspace = true") {
        Some(name) => (name, None),
        None => {
            let (name, rest) = line.split_once(" = { workspace = true, ")?;
            (name, Some(rest.strip_suffix(" }")?))
        }
    };
    let of_workspace = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(" = "))
    };
    let workspace_line = WORKSPACE.lines().find(of_workspace)?;
    let Some(features) = features else {
        return Some(workspace_line.to_owned());
    };
    let (_, value) = workspace_line.split_once(" = ")?;
    let fields = match value.strip_prefix("{ ") {
        Some(fields) => fields.strip_suffix(" }")?.to_owned(),
        None => format!("version = {value}"),
    };
    Some(format!("{name} = {{ {fields}, {features} }}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_of_a_project_inherit_nothing_from_a_workspace() {
        for manifest in [
            include_str!("../../../../sdk/Cargo.toml"),
            include_str!("../../../../sdk/macros/Cargo.toml"),
        ] {
            let text = resolve_inheritance(manifest);
            assert!(!text.contains("workspace"), "{text}");
            assert!(text.contains("version = \"0.1.0\""), "{text}");
        }
        let text =
            resolve_inheritance("[dependencies]\nserde_json = { workspace = true, features = [\"raw_value\"] }\n");
        assert!(
            text.starts_with("[dependencies]\nserde_json = { version = \"1.")
                && text.ends_with("features = [\"raw_value\"] }\n"),
            "{text}"
        );
    }
}
