use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_watch::file;
use url::Url;

use super::{Blob, FoundSignature, Material, SIGNATURE_SIZE_LIMIT, SignatureError};
use crate::ModuleReference;

/// The suffix of a bare signature.
const SIGNATURE_SUFFIX: &str = ".sig";
/// The suffix of a sigstore bundle.
const BUNDLE_SUFFIX: &str = ".sigstore.json";

/// The suffixes of signature files, appended to the full name of the module's file.
pub const SIGNATURE_SUFFIXES: [&str; 2] = [SIGNATURE_SUFFIX, BUNDLE_SUFFIX];

/// The signatures next to a file: `{file}.sig` and `{file}.sigstore.json`, for the path of the reference and
/// for the path that its symbolic links lead to.
///
/// # Errors
///
/// When one exists and cannot be read, or is too large.
pub fn gather_beside(path: &Path, resolved: &Path) -> Result<Material, SignatureError> {
    let mut material = Material::default();
    let reference = ModuleReference::File(path.to_owned());
    for place in [path, resolved] {
        if let Some((name, content)) = beside(place, SIGNATURE_SUFFIX)? {
            material.add(&reference, FoundSignature::Detached { name, content })?;
        }
        if let Some((name, content)) = beside(place, BUNDLE_SUFFIX)? {
            material.add(&reference, FoundSignature::Bundle { name, content })?;
        }
        if is_not_a_link(path, resolved) {
            break;
        }
    }
    Ok(material)
}

/// Whether the path names the file itself, not a link to it.
fn is_not_a_link(path: &Path, resolved: &Path) -> bool {
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return path == resolved,
    };
    let name = path.file_name().unwrap_or_default();
    path == resolved
        || directory
            .canonicalize()
            .is_ok_and(|directory| directory.join(name) == resolved)
}

fn beside(path: &Path, suffix: &str) -> Result<Option<(String, Blob)>, SignatureError> {
    let mut name = OsString::from(path);
    name.push(suffix);
    let path = PathBuf::from(name);
    let name = path.display().to_string();
    match file::read(&path, SIGNATURE_SIZE_LIMIT) {
        Ok(content) => Ok(Some((name, Blob(content)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(SignatureError::TooLarge {
            name,
            limit: SIGNATURE_SIZE_LIMIT,
        }),
        Err(source) => Err(SignatureError::Unreadable {
            path,
            source: Arc::new(source),
        }),
    }
}

/// The URL of the signature of a module's URL: `.sig` after its path.
pub fn signature_url(module: &Url) -> Url {
    with_suffix(module, SIGNATURE_SUFFIX)
}

/// The URL of the bundle of a module's URL: `.sigstore.json` after its path.
pub fn bundle_url(module: &Url) -> Url {
    with_suffix(module, BUNDLE_SUFFIX)
}

fn with_suffix(url: &Url, suffix: &str) -> Url {
    let mut with_suffix = url.clone();
    with_suffix.set_path(&format!("{}{suffix}", url.path()));
    with_suffix
}
