use std::{
    io,
    path::{Component, Path, PathBuf, absolute},
    sync::Arc,
};

use percent_encoding::percent_decode_str;
use url::Host;

use super::SignatureError;
use crate::{ModuleReference, OciReference};

/// The source of a module, in a normalised form, so that another spelling of a reference cannot bypass a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceSource {
    pub(super) scheme: Scheme,
    /// The host of the source in lower case, and the port; `None` for a file.
    pub(super) authority: Option<(String, u16)>,
    /// The path of the module. For a file, it is absolute and contains no symbolic links. For a URL, it has no leading
    /// `/` and no escapes.
    pub(super) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    File,
    Https,
    Oci,
}

/// The port of https, and of registries, if a reference contains none.
const DEFAULT_PORT: u16 = 443;

/// The canonical name of Docker Hub, which stands for all its names.
const DOCKER_HUB: &str = "docker.io";

impl ReferenceSource {
    /// Determines the source of a reference. The symbolic links of a file are followed. The caller must read the file
    /// at the resulting [path](Self::path), because the rule is chosen for that file.
    ///
    /// # Errors
    ///
    /// Returns an error when the links of a file cannot be followed, or the reference is ambiguous.
    pub fn from_reference(reference: &ModuleReference) -> Result<Self, SignatureError> {
        let ambiguous = |problem| SignatureError::Ambiguous {
            reference: Box::new(reference.clone()),
            problem,
        };
        Ok(match reference {
            ModuleReference::File(path) => {
                let resolved = resolve_links(path).map_err(|source| SignatureError::Unreadable {
                    path: path.clone(),
                    source: Arc::new(source),
                })?;
                let path = resolved.into_os_string().into_string();
                Self {
                    scheme: Scheme::File,
                    authority: None,
                    path: path.map_err(|_| ambiguous("is not valid UTF-8"))?,
                }
            }
            ModuleReference::Https(url) => {
                let host = url.host_str().ok_or_else(|| ambiguous("has no host"))?;
                let port = url.port_or_known_default().unwrap_or(DEFAULT_PORT);
                Self {
                    scheme: Scheme::Https,
                    authority: Some((canonical_host(host), port)),
                    path: https_path(url.path()).map_err(ambiguous)?,
                }
            }
            ModuleReference::Oci(reference) => {
                let (host, port) = registry_host(reference.registry());
                Self {
                    scheme: Scheme::Oci,
                    path: repository_path(&host, port, reference),
                    authority: Some((host, port)),
                }
            }
        })
    }

    /// Returns the path of a file; `None` for other sources.
    pub fn path(&self) -> Option<&Path> {
        (self.scheme == Scheme::File).then(|| Path::new(&self.path))
    }
}

fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let path = absolute(path)?;
    for ancestor in path.ancestors() {
        match ancestor.canonicalize() {
            Ok(base) => {
                let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
                if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                // Joining `base` with an empty path would append a `/` to it. So the parts of `rest` are appended one
                // by one: if `rest` has no parts, nothing is appended.
                return Ok(rest.components().fold(base, |path, part| path.join(part)));
            }
            // The file may be missing, and so may its directory; the search then continues in the directory above. But
            // a symbolic link whose target is missing is an error.
            Err(error) if error.kind() != io::ErrorKind::NotFound || ancestor.is_symlink() => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Returns the host in lower case and without a trailing dot.
pub(super) fn canonical_host(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Normalises a URL's path: removes the leading `/`, and decodes escapes, because `%61` means `a` to servers.
fn https_path(path: &str) -> Result<String, &'static str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts = Vec::new();
    for part in path.split('/') {
        let part = percent_decode_str(part)
            .decode_utf8()
            .map_err(|_| "has a path that is not valid UTF-8")?;
        if part.contains(['/', '\\']) || part == "." || part == ".." {
            return Err("has an encoded `/`, `\\` or `..` in its path");
        }
        parts.push(part.into_owned());
    }
    if parts.iter().rev().skip(1).any(String::is_empty) {
        return Err("has a `//` in its path");
    }
    Ok(parts.join("/"))
}

/// Returns the host and port of a registry. The result is the same for all names of Docker Hub.
pub(crate) fn registry_host(registry: &str) -> (String, u16) {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(DEFAULT_PORT)),
        _ => (registry, DEFAULT_PORT),
    };
    let host = Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.to_string());
    let host = canonical_host(&host);
    match (host.as_str(), port) {
        ("index.docker.io" | "registry-1.docker.io", DEFAULT_PORT) => (DOCKER_HUB.to_owned(), port),
        _ => (host, port),
    }
}

/// Returns whether this host and port are Docker Hub's. They must come from [`registry_host`].
pub(crate) fn is_docker_hub(host: &str, port: u16) -> bool {
    (host, port) == (DOCKER_HUB, DEFAULT_PORT)
}

/// Returns the path of a repository. On Docker Hub, a repository without a user is an official one, in `library/`.
pub(crate) fn repository_path(host: &str, port: u16, reference: &OciReference) -> String {
    let repository = reference.repository();
    if is_docker_hub(host, port) && !repository.contains('/') {
        format!("library/{repository}")
    } else {
        repository.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed_source(text: &str) -> ReferenceSource {
        ReferenceSource::from_reference(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn all_spellings_of_a_reference_have_the_same_source() {
        for (written, plain) in [
            ("https://EXAMPLE.com/a", "https://example.com/a"),
            ("https://example.com./a", "https://example.com/a"),
            ("https://example.com:443/a", "https://example.com/a"),
            ("https://example.com/%61", "https://example.com/a"),
            ("https://example.com/b/../a", "https://example.com/a"),
            ("https://example.com/b/%2e%2E/a", "https://example.com/a"),
            ("https://example.com/a?version=2", "https://example.com/a"),
            ("https://0x7f.1/a", "https://127.0.0.1/a"),
            ("oci://EXAMPLE.com/a:1", "oci://example.com/a"),
            ("oci://example.com:443/a", "oci://example.com/a"),
            ("oci://index.docker.io/a", "oci://docker.io/library/a"),
            ("oci://registry-1.docker.io/b/a", "oci://docker.io/b/a"),
        ] {
            assert_eq!(parsed_source(written), parsed_source(plain), "{written}");
        }
        assert_ne!(
            parsed_source("https://example.com/a"),
            parsed_source("https://example.com:8443/a")
        );
        assert_ne!(
            parsed_source("https://example.com/a"),
            parsed_source("https://example.com/A")
        );
        assert_ne!(
            parsed_source("oci://example.com/a"),
            parsed_source("oci://example.com:5000/a")
        );
        // docker.io:5000 is not Docker Hub, so it has no official images.
        assert_ne!(
            parsed_source("oci://docker.io:5000/a"),
            parsed_source("oci://docker.io:5000/library/a")
        );
    }

    #[test]
    fn an_ambiguous_reference_is_refused() {
        for text in [
            "https://example.com/a%2fb",
            "https://example.com/..%2fb",
            "https://example.com/a%5cb",
            "https://example.com//a",
            "https://example.com/a//b",
            "https://example.com/%ff",
        ] {
            let error = ReferenceSource::from_reference(&text.parse().unwrap()).unwrap_err();
            assert!(matches!(error, SignatureError::Ambiguous { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn the_source_of_a_file_is_its_path_with_symbolic_links_followed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        std::fs::create_dir(root.join("b")).unwrap();
        std::fs::write(root.join("b/module"), "").unwrap();
        std::os::unix::fs::symlink(root.join("b/module"), root.join("a/link")).unwrap();
        for path_text in ["b/module", "a/../b/module", "a/link", "./a/.././b//module"] {
            let reference = ModuleReference::File(root.join(path_text));
            let source = ReferenceSource::from_reference(&reference).unwrap();
            assert_eq!(source.path(), Some(root.join("b/module").as_path()), "{path_text}");
        }
        for (path_text, expected_path) in [
            ("a/gone", "a/gone"),
            ("gone/module", "gone/module"),
            ("b/../gone", "gone"),
        ] {
            let source = ReferenceSource::from_reference(&ModuleReference::File(root.join(path_text))).unwrap();
            assert_eq!(source.path(), Some(root.join(expected_path).as_path()), "{path_text}");
        }
        std::os::unix::fs::symlink(root.join("gone"), root.join("dangling")).unwrap();
        for path_text in ["dangling", "dangling/module", "gone/../b/module", "b/module/inside"] {
            let error = ReferenceSource::from_reference(&ModuleReference::File(root.join(path_text))).unwrap_err();
            assert!(
                matches!(error, SignatureError::Unreadable { .. }),
                "{path_text}: {error}"
            );
        }
    }
}
