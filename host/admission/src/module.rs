pub(crate) mod digest;

use std::{env, fmt, path::PathBuf, str::FromStr};

use url::Url;

use crate::Digest;

/// The location of a module. Its text is `file:` and a path, `stock:` and the name of a plugin that is installed with
/// the program, an `https://` URL, or `oci://` and the name of an artifact in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModuleReference {
    /// A file on this machine.
    File(PathBuf),
    /// An https URL without user information and fragment.
    Https(Url),
    /// An artifact in a registry.
    Oci(OciReference),
}

/// The name of an artifact in a registry: `registry/repository:tag`, `registry/repository@sha256:...`, or both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OciReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The reason why a text is not a valid reference to a module, with the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}: {fix}")]
pub struct InvalidReference {
    /// The text of the invalid reference.
    pub text: String,
    /// The problem with the reference, as the end of a sentence.
    pub problem: &'static str,
    /// The advice on how to correct the reference, as the end of a sentence.
    pub fix: String,
}

impl OciReference {
    /// The tag of a reference without tag and digest. Other registry tools use the same.
    pub const DEFAULT_TAG: &str = "latest";

    /// Returns the registry: its host, with the port if there is one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the repository: the path of the artifact in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the registry and the repository, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Returns the tag; [`DEFAULT_TAG`](Self::DEFAULT_TAG) if there is neither tag nor digest.
    pub fn tag(&self) -> Option<&str> {
        match (&self.tag, self.digest) {
            (Some(tag), _) => Some(tag),
            (None, None) => Some(Self::DEFAULT_TAG),
            (None, Some(_)) => None,
        }
    }

    /// Returns the digest of the artifact's manifest, if the reference has one. It is not the digest of the module.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }
}

impl FromStr for OciReference {
    type Err = InvalidReference;

    /// Parses the name of an artifact, which is written without `oci://`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem, fix: &str| InvalidReference {
            text: format!("oci://{text}"),
            problem,
            fix: fix.to_owned(),
        };
        let (name, digest) = match text.split_once('@') {
            None => (text, None),
            Some((name, digest)) => {
                let fix = "write `@sha256:` and 64 hexadecimal digits";
                let digest = digest.parse().map_err(|_| invalid("has an invalid digest", fix))?;
                (name, Some(digest))
            }
        };
        let (registry, path) = name
            .split_once('/')
            .filter(|(registry, _)| is_host(registry))
            .ok_or_else(|| {
                let fix = "write `oci://`, the registry's host, `/` and the repository, `oci://registry.example.com/plugins/images:1.0`";
                invalid("does not name a registry and a repository", fix)
            })?;
        let (repository, tag) = match path.split_once(':') {
            None => (path, None),
            Some((repository, tag)) => (repository, Some(tag)),
        };
        if !is_repository(repository) {
            let fix = "write it in lower-case letters, digits, and `.`, `_`, `-` between them, `/` between parts";
            return Err(invalid("does not name a repository", fix));
        }
        if !tag.is_none_or(is_tag) {
            let fix = "write at most 128 letters, digits, `_`, `.` and `-`, and do not begin with `.` or `-`";
            return Err(invalid("has an invalid tag", fix));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_valid_host = url::Host::parse(host).is_ok_and(|parsed| parsed.to_string() == host.to_ascii_lowercase());
    is_valid_host && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_repository(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_word)
            && part.ends_with(is_word)
            && part.chars().all(|c| is_word(c) || matches!(c, '.' | '_' | '-'))
    };
    text.len() <= 255 && text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(is_word) && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

impl ModuleReference {
    /// The environment variable that names the directory of the stock plugins.
    pub const STOCK_DIRECTORY: &str = "ADMITTANCE_PLUGINS";

    /// Returns the location of the stock plugin with this name. It is in the directory that the environment variable
    /// [`STOCK_DIRECTORY`](Self::STOCK_DIRECTORY) names or, if that is unset, in `plugins` next to the program.
    pub fn stock(name: &str) -> Self {
        let directory = env::var_os(Self::STOCK_DIRECTORY)
            .map(PathBuf::from)
            .unwrap_or_else(|| env::current_exe().unwrap_or_default().with_file_name("plugins"));
        Self::File(directory.join(format!("{}.wasm", name.replace('-', "_"))))
    }

    /// Returns the name of the stock plugin at this location; `None` if the module is not a stock plugin.
    pub fn stock_name(&self) -> Option<String> {
        let Self::File(path) = self else { return None };
        let name = path.file_stem()?.to_str()?.replace('_', "-");
        (*self == Self::stock(&name)).then_some(name)
    }

    /// Returns the reference in the form that definitions contain. A stock plugin becomes `stock:` and its name,
    /// because its path differs between machines.
    pub fn to_portable_text(&self) -> String {
        match self.stock_name() {
            Some(name) => format!("stock:{name}"),
            None => self.to_string(),
        }
    }
}

impl FromStr for ModuleReference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem, fix: &str| InvalidReference {
            text: text.to_owned(),
            problem,
            fix: fix.to_owned(),
        };
        match text.split_once(':') {
            Some(("file", path)) => {
                let path_without_slashes = path.trim_start_matches('/');
                // In `file://host/path`, the two slashes precede the name of another machine, so this form is refused.
                // With one or three slashes, as in `file:/path` and `file:///path`, the file is on this machine.
                match path.len() - path_without_slashes.len() {
                    0 if path.is_empty() => Err(invalid("has no path", "write `file:` and the path of the module")),
                    0 => Ok(Self::File(path.into())),
                    2 => {
                        let fix = "write `file:` and the path, without `//`";
                        Err(invalid("names a file on another machine", fix))
                    }
                    _ => Ok(Self::File(format!("/{path_without_slashes}").into())),
                }
            }
            Some(("stock", name)) => {
                let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
                if name.is_empty() || !name.chars().all(is_name) {
                    let fix = "write the name of a stock plugin, `stock:image-policy`";
                    return Err(invalid("names no stock plugin", fix));
                }
                Ok(Self::stock(name))
            }
            Some(("https", _)) => {
                let fix = "write `https://`, the host and the path, without user and fragment";
                Url::parse(text)
                    .ok()
                    .filter(|url| {
                        url.has_host()
                            && url.username().is_empty()
                            && url.password().is_none()
                            && url.fragment().is_none()
                    })
                    .map(Self::Https)
                    .ok_or_else(|| invalid("is not a valid URL of a module", fix))
            }
            Some(("http", rest)) => Err(invalid(
                "uses http, which does not protect the module from changes in transit",
                &format!("write `https:{rest}`"),
            )),
            // Kubewarden's policies write `registry://` for `oci://`.
            Some(("oci" | "registry", name)) => {
                let name = name
                    .strip_prefix("//")
                    .ok_or_else(|| invalid("names no artifact", "write `oci://registry/repository:tag`"))?;
                name.parse().map(Self::Oci)
            }
            Some(_) => Err(invalid(
                "does not say where the module is",
                "write `file:` and a path, an `https://` URL, or `oci://registry/repository:tag`",
            )),
            None => {
                let fix = format!("write `file:{text}`");
                Err(invalid("does not say where the module is", &fix))
            }
        }
    }
}

impl fmt::Display for ModuleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Https(url) => url.fmt(f),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_module_reference_round_trips_through_text() {
        for text in [
            "file:a.wasm",
            "file:/opt/plugins/a.wasm",
            "https://plugins.example.com/a.wasm?version=2",
            "oci://registry.example.com/a",
            "oci://registry.example.com:5000/team/a_b-c.d:1.0",
            "oci://127.0.0.1:5000/a:latest",
            "oci://[::1]:5000/a:1",
            &format!("oci://localhost/a@{DIGEST}"),
            &format!("oci://localhost/a:1@{DIGEST}"),
        ] {
            let reference: ModuleReference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
        }
        let reference: ModuleReference = "registry://r.example.com/a:1".parse().unwrap();
        assert_eq!(reference.to_string(), "oci://r.example.com/a:1");
        for text in ["file:///a.wasm", "file:////a.wasm"] {
            assert_eq!(text.parse(), Ok(ModuleReference::File("/a.wasm".into())));
        }
    }

    #[test]
    fn an_oci_reference_has_registry_repository_tag_and_digest() {
        let digest = Some(DIGEST.parse().unwrap());
        for (text, tag, expected) in [
            ("r.example.com/a/b:1", Some("1"), None),
            ("r.example.com/a/b", Some("latest"), None),
            (&format!("r.example.com/a/b@{DIGEST}"), None, digest),
            (&format!("r.example.com/a/b:1@{DIGEST}"), Some("1"), digest),
        ] {
            let reference: OciReference = text.parse().unwrap();
            assert_eq!(reference.registry(), "r.example.com");
            assert_eq!(reference.repository(), "a/b");
            assert_eq!((reference.tag(), reference.digest()), (tag, expected), "{text}");
        }
    }

    #[test]
    fn an_invalid_reference_is_reported_with_the_fix() {
        for (text, expected) in [
            (
                "a.wasm",
                "`a.wasm` does not say where the module is: write `file:a.wasm`",
            ),
            ("file:", "`file:` has no path: write `file:` and the path of the module"),
            (
                "file://host/a",
                "`file://host/a` names a file on another machine: write `file:` and the path, without `//`",
            ),
            (
                "http://a/b",
                "`http://a/b` uses http, which does not protect the module from changes in transit: write `https://a/b`",
            ),
            (
                "ftp://a/b",
                "`ftp://a/b` does not say where the module is: write `file:` and a path, an `https://` URL, or `oci://registry/repository:tag`",
            ),
            (
                "oci:a/b",
                "`oci:a/b` names no artifact: write `oci://registry/repository:tag`",
            ),
        ] {
            let error = text.parse::<ModuleReference>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        for text in [
            "https://",
            "https://user@a/b",
            "https://a/b#c",
            "oci://a",
            "oci:///a",
            "oci://a/",
            "oci://a/B",
            "oci://a/b//c",
            "oci://a/-b",
            "oci://a:port/b",
            "oci://a/b:",
            "oci://a/b:.1",
            "oci://a/b@sha256:00",
            "oci://a b/c",
        ] {
            assert!(text.parse::<ModuleReference>().is_err(), "{text}");
        }
    }
}
