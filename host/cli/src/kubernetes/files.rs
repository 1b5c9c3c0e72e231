//! Collects the files that a configuration names, so that they can be mounted in a Pod.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value as Json, json};

use super::layout::{CERTIFICATE_FILE, CLIENT_CA_FILE, CONFIG_FILE, KEY_FILE, RELATIVE_ADMIN, RELATIVE_TLS};

pub(super) type MountedTexts = BTreeMap<String, String>;

/// Replaces the paths of files in the sections `modules`, `pluginHttp`, `tracing` and `signatures` with the paths at
/// which the Pod finds the same files. Returns the texts of these files, so that they can be mounted.
pub(super) fn mount_module_files(root: &mut Json, directory: &Path) -> Result<MountedTexts, String> {
    let mut files = MountedTexts::new();
    let mut take =
        |node: Option<&mut Json>| mount_file(node, directory, |path, text| unique_name(&mut files, path, text));
    take(root.pointer_mut("/modules/ca"))?;
    take(root.pointer_mut("/pluginHttp/ca"))?;
    take(root.pointer_mut("/tracing/tls/ca"))?;
    for rule in entries(root.get_mut("signatures")) {
        for key in entries(rule.get_mut("keys")) {
            take(Some(key))?;
        }
        // `trustRoot` is either the path of a trusted_root.json, or an object with the paths of its parts.
        take(rule.pointer_mut("/keyless/trustRoot"))?;
        for part in ["authorities", "signatureLog", "certificateLog"] {
            take(rule.pointer_mut(&format!("/keyless/trustRoot/{part}")))?;
        }
    }
    Ok(files)
}

/// The files of the section `admin` contain keys and tokens, so they are mounted from a Secret.
pub(super) fn mount_admin_files(section: &mut Map<String, Json>, directory: &Path) -> Result<MountedTexts, String> {
    let mut files = MountedTexts::new();
    let mut take = |node: Option<&mut Json>, name: &str| {
        mount_file(node, directory, |_, text| {
            files.insert(name.to_owned(), text);
            format!("{RELATIVE_ADMIN}/{name}")
        })
    };
    if let Some(tls) = section.get_mut("tls") {
        take(tls.get_mut("certificate"), CERTIFICATE_FILE)?;
        take(tls.get_mut("key"), KEY_FILE)?;
        take(tls.get_mut("clientCa"), CLIENT_CA_FILE)?;
    }
    for (number, token) in (1_u32..).zip(entries(section.get_mut("tokens"))) {
        take(token.get_mut("file"), &format!("token-{number}"))?;
    }
    // Tokens need TLS on every address except loopback.
    if section.contains_key("tokens") && !section.contains_key("tls") {
        section.insert("tls".to_owned(), own_certificate());
    }
    Ok(files)
}

pub(super) fn own_certificate() -> Json {
    json!({
        "certificate": format!("{RELATIVE_TLS}/{CERTIFICATE_FILE}"),
        "key": format!("{RELATIVE_TLS}/{KEY_FILE}"),
    })
}

fn mount_file(
    node: Option<&mut Json>,
    directory: &Path,
    new_path: impl FnOnce(&Path, String) -> String,
) -> Result<(), String> {
    if let Some(Json::String(named)) = node {
        let path: PathBuf = directory.join(&*named);
        *named = new_path(&path, crate::files::read(&path)?);
    }
    Ok(())
}

/// Adds a file and returns its name, with a number before it if another file has that name.
fn unique_name(files: &mut MountedTexts, path: &Path, text: String) -> String {
    let base_name = config_map_key(path);
    let is_taken = |name: &str| {
        let is_reserved = [CONFIG_FILE, CLIENT_CA_FILE].contains(&name);
        is_reserved || files.get(name).is_some_and(|present| *present != text)
    };
    let (mut name, mut number) = (base_name.clone(), 1);
    while is_taken(&name) {
        number += 1;
        name = format!("{number}-{base_name}");
    }
    files.insert(name.clone(), text);
    name
}

pub(super) fn config_map_key(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.replace(|c| !is_valid(c), "-")
}

fn entries(node: Option<&mut Json>) -> &mut [Json] {
    node.and_then(Json::as_array_mut)
        .map(Vec::as_mut_slice)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
