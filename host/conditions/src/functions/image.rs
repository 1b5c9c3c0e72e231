//! Kyverno's `image`, which parses references to images like the library go-containerregistry.

use std::sync::Arc;

use super::{
    Library,
    typed::{ImageMarker, Str},
};
use crate::machine::{Fault, Machine};

const DEFAULT_REGISTRY: &str = "index.docker.io";
const DEFAULT_TAG: &str = "latest";

/// A reference to an image, in which missing parts have been replaced by their defaults.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImageName {
    registry: String,
    repository: String,
    /// The tag of the image; empty if the reference has a digest.
    tag: String,
    /// The digest of the image; empty if the reference has none.
    digest: String,
}

pub(super) fn register(library: &mut Library) {
    for name in ["image", "parseImageReference"] {
        library.add_global::<(Str,), ImageMarker>(name, |machine, (text,)| {
            read_image(machine, &text)?.map(Arc::new).map_err(Fault::error)
        });
    }
    library.add_global::<(Str,), bool>("isImage", |machine, (text,)| Ok(read_image(machine, &text)?.is_ok()));
    library.add_member::<(ImageMarker,), bool>("containsDigest", |_, (image,)| Ok(!image.digest.is_empty()));
    let parts: [(&str, fn(&ImageName) -> &str); 5] = [
        ("registry", |image| &image.registry),
        ("repository", |image| &image.repository),
        ("tag", |image| &image.tag),
        ("digest", |image| &image.digest),
        ("identifier", |image| match image.digest.as_str() {
            "" => &image.tag,
            digest => digest,
        }),
    ];
    for (name, part) in parts {
        library.add_member::<(ImageMarker,), Str>(name, move |_, (image,)| Ok(part(&image).to_owned().into()));
    }
}

/// Parses a reference to an image. The outer error means that the cost limit is exceeded.
fn read_image(machine: &mut Machine<'_>, text: &str) -> Result<Result<ImageName, String>, Fault> {
    machine.charge_bytes(text.len())?;
    Ok(ImageName::parse(text))
}

impl ImageName {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("could not parse reference {text:?}: {why}");
        let (base, digest) = match text.split_once('@') {
            Some((base, digest)) => (base, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong("the digest is not valid"));
        }
        let (path, tag) = match base.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (base, None),
        };
        let is_of_tag = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
        if tag.is_some_and(|tag| tag.is_empty() || tag.len() > 128 || !tag.chars().all(is_of_tag)) {
            return Err(wrong("the tag is not valid"));
        }
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let (registry, repository) = match path.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest),
            _ => (DEFAULT_REGISTRY, path),
        };
        let is_of_path = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || "_-./".contains(character)
        };
        if !(2..=255).contains(&repository.len()) || !repository.chars().all(is_of_path) {
            return Err(wrong("the repository is not valid"));
        }
        let is_of_host = |character: char| character.is_ascii_alphanumeric() || "-.:[]".contains(character);
        if !registry.chars().all(is_of_host) {
            return Err(wrong("the registry is not valid"));
        }
        let registry = if registry == "docker.io" {
            DEFAULT_REGISTRY
        } else {
            registry
        };
        let implicit = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
            "library/"
        } else {
            ""
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository: format!("{implicit}{repository}"),
            tag: match digest {
                Some(_) => String::new(),
                None => tag.unwrap_or(DEFAULT_TAG).to_owned(),
            },
            digest: digest.unwrap_or_default().to_owned(),
        })
    }
}

fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
