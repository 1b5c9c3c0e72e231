//! The settings of the plugin, and their parsed form.

use std::collections::BTreeMap;

use admittance_sdk::prelude::*;

use crate::reference::ReferencePrefix;

/// Rewrites of images, and rules for them. Every rule is optional.
#[settings]
#[derive(Debug, Default)]
pub struct Settings {
    /// Maps a registry, or a registry and the beginning of a path, to its replacement. If several
    /// entries match an image, the longest of them is used. An image without a registry belongs to
    /// `docker.io`.
    #[serde(default)]
    pub rewrites: BTreeMap<String, String>,
    /// The only registries, or prefixes of names, that images may have after rewriting.
    pub allowed_registries: Option<Vec<String>>,
    /// Registries, or beginnings of names, that images must not have after rewriting. An entry without
    /// a port covers all ports of its host.
    #[serde(default)]
    pub refused_registries: Vec<String>,
    /// Deny images without a tag, or with the tag `latest`, unless they have a digest.
    #[serde(default)]
    pub refuse_latest: bool,
    /// Deny images without a digest.
    #[serde(default)]
    pub require_digest: bool,
}

#[derive(Debug)]
pub(crate) struct RegistryRewrite {
    pub(crate) from: ReferencePrefix,
    pub(crate) to: ReferencePrefix,
}

pub(crate) fn parse_rewrites(rewrites: &BTreeMap<String, String>, errors: &mut SettingsErrors) -> Vec<RegistryRewrite> {
    let mut parsed_rewrites = Vec::new();
    for (from, to) in rewrites {
        let mut prefix = |text: &str| {
            ReferencePrefix::parse(text)
                .map_err(|why| errors.push(pointer!["rewrites", from], format!("\"{text}\" {why}")))
                .ok()
        };
        if let (Some(from_prefix), Some(to)) = (prefix(from), prefix(to)) {
            parsed_rewrites.push((from, RegistryRewrite { from: from_prefix, to }));
        }
    }
    for (key, rewrite) in &parsed_rewrites {
        // If another rule covers the result of this rule, the image would be rewritten twice. This is a mistake.
        if let Some((other, _)) = parsed_rewrites.iter().find(|(_, other)| other.from.covers(&rewrite.to)) {
            errors.push(
                pointer!["rewrites", *key],
                format!(
                    "\"{}\" would be rewritten again, by the rule for \"{other}\"; rewrite to a name that no rule matches",
                    rewrite.to
                ),
            );
        }
        if let Some((other, _)) = parsed_rewrites
            .iter()
            .find(|(other, same)| other < key && same.from == rewrite.from)
        {
            errors.push(
                pointer!["rewrites", *key],
                format!("this is the same as \"{other}\"; remove one of the two"),
            );
        }
    }
    let mut rewrites: Vec<RegistryRewrite> = parsed_rewrites.into_iter().map(|(_, rewrite)| rewrite).collect();
    rewrites.sort_by_key(|rewrite| std::cmp::Reverse(rewrite.from.specificity()));
    rewrites
}

pub(crate) fn parse_registries(field: &str, texts: &[String], errors: &mut SettingsErrors) -> Vec<ReferencePrefix> {
    let mut prefixes = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match ReferencePrefix::parse(text) {
            Ok(prefix) => prefixes.push(prefix),
            Err(why) => errors.push(pointer![field, index], format!("\"{text}\" {why}")),
        }
    }
    prefixes
}
