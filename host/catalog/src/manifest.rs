use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{Digest, Error, OciReference};

pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const DOCKER_INDEX_TYPE: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The standard media type of a layer with a module:
/// <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>.
pub(crate) const WASM_TYPE: &str = "application/wasm";
const OLDER_WASM_TYPES: [&str; 3] = [
    "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];
/// The media types of image layers that are tar archives.
const ARCHIVE_TYPES: [&str; 2] = [
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];

const MAX_NAMED_LAYERS: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModuleManifest {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    manifests: Option<Vec<IgnoredAny>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    /// The digest of the layer as text, because a layer may have a digest other than SHA-256.
    pub(crate) digest: String,
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleLayer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Whether the layer is an archive that contains the module as a file, as in an image of the compat variant:
    /// <https://github.com/solo-io/wasm/blob/master/spec/spec-compat.md>.
    pub(crate) is_archive: bool,
}

impl ModuleLayer {
    /// Finds the layer that contains the module. In an artifact, this is the only layer that is a module. In an image,
    /// it is the last layer, an archive with the module in it.
    pub(crate) fn find_in_manifest(reference: &OciReference, bytes: &[u8]) -> Result<Self, Error> {
        find_module_layer(bytes).map_err(|content| not_an_artifact_error(reference, content))
    }
}

pub(crate) fn not_an_artifact_error(reference: &OciReference, content: String) -> Error {
    Error::NotAnArtifact {
        reference: Box::new(reference.clone()),
        content,
    }
}

fn find_module_layer(bytes: &[u8]) -> Result<ModuleLayer, String> {
    let manifest: ModuleManifest =
        serde_json::from_slice(bytes).map_err(|error| format!("a manifest that cannot be read ({error})"))?;
    let is_index = matches!(manifest.media_type.as_deref(), Some(INDEX_TYPE | DOCKER_INDEX_TYPE));
    match manifest.manifests {
        Some(entries) => {
            return Err(format!("an index of {} artifacts inside an index", entries.len()));
        }
        None if is_index => return Err("an index without artifacts".to_owned()),
        None => {}
    }
    if manifest.schema_version != 2 {
        return Err(format!("a manifest of version {}", manifest.schema_version));
    }
    let is_module =
        |layer: &&Descriptor| layer.media_type == WASM_TYPE || OLDER_WASM_TYPES.contains(&layer.media_type.as_str());
    let modules: Vec<&Descriptor> = manifest.layers.iter().filter(is_module).collect();
    let is_archive = |layer: &&Descriptor| ARCHIVE_TYPES.contains(&layer.media_type.as_str());
    let last_archive = || manifest.layers.last().filter(is_archive);
    let (layer, is_archive) = match modules.as_slice() {
        [layer] => (*layer, false),
        [] => (last_archive().ok_or_else(|| describe_layers(&manifest))?, true),
        modules => return Err(format!("{} modules", modules.len())),
    };
    let digest = layer.digest.parse();
    Ok(ModuleLayer {
        digest: digest.map_err(|_| format!("a module with the digest `{}`", layer.digest))?,
        size: layer.size,
        is_archive,
    })
}

fn describe_layers(manifest: &ModuleManifest) -> String {
    let mut types: Vec<String> = manifest
        .layers
        .iter()
        .take(MAX_NAMED_LAYERS)
        .map(|layer| format!("`{}`", layer.media_type))
        .collect();
    if types.is_empty() {
        let config = manifest.config.as_ref().map(|config| config.media_type.as_str());
        return format!("no layers (and the configuration is `{}`)", config.unwrap_or_default());
    }
    let more = manifest.layers.len().saturating_sub(MAX_NAMED_LAYERS);
    if more > 0 {
        types.push(format!("{more} more"));
    }
    let layers = if manifest.layers.len() == 1 {
        "a layer"
    } else {
        "layers"
    };
    format!("{layers} of {}", types.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_has_exactly_one_module() {
        let digest = Digest::of_bytes("module");
        let layer = |media_type: &str| format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":6}}"#);
        let manifest = |layers: &[String]| {
            format!(
                r#"{{"schemaVersion":2,"config":{{"mediaType":"c","digest":"sha256:0","size":2}},"layers":[{}]}}"#,
                layers.join(",")
            )
        };
        let module_layer = |is_archive| {
            Ok(ModuleLayer {
                digest,
                size: 6,
                is_archive,
            })
        };
        let (module, archive) = (module_layer(false), module_layer(true));
        let tar = layer("application/vnd.oci.image.layer.v1.tar");
        let index = format!(r#"{{"schemaVersion":2,"mediaType":"{INDEX_TYPE}"}}"#);
        for (text, expected) in [
            (manifest(&[layer(WASM_TYPE)]), module),
            (manifest(&[layer(OLDER_WASM_TYPES[0])]), module),
            (manifest(&[layer(OLDER_WASM_TYPES[1])]), module),
            (manifest(&[layer(OLDER_WASM_TYPES[2])]), module),
            (manifest(&[layer(ARCHIVE_TYPES[0])]), archive),
            (manifest(&[tar.clone(), layer(ARCHIVE_TYPES[1])]), archive),
            (manifest(&[layer(ARCHIVE_TYPES[0]), layer(WASM_TYPE)]), module),
            (manifest(&[layer("text/markdown"), layer(WASM_TYPE)]), module),
            (manifest(&[layer(WASM_TYPE), layer(WASM_TYPE)]), Err("2 modules")),
            (
                manifest(std::slice::from_ref(&tar)),
                Err("a layer of `application/vnd.oci.image.layer.v1.tar`"),
            ),
            (
                manifest(&["a", "b", "c", "d", "e"].map(layer)),
                Err("layers of `a`, `b`, `c`, `d`, 1 more"),
            ),
            (manifest(&[]), Err("no layers (and the configuration is `c`)")),
            (
                r#"{"schemaVersion":2,"manifests":[{},{}]}"#.to_owned(),
                Err("an index of 2 artifacts inside an index"),
            ),
            (index, Err("an index without artifacts")),
            (r#"{"schemaVersion":1}"#.to_owned(), Err("a manifest of version 1")),
            (
                manifest(&[layer(WASM_TYPE).replace("sha256", "sha512")]),
                Err("a module with the digest `sha512:"),
            ),
            (
                "<html>".to_owned(),
                Err("a manifest that cannot be read (expected value"),
            ),
        ] {
            match (find_module_layer(text.as_bytes()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
