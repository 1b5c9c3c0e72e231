//! Finds the SDK for Rust, which is in no registry yet.

use std::{
    env, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::files;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sdk {
    Directory(PathBuf),
    Git(String),
}

/// Returns the directory of the SDK's package: this one, or `sdk` in it.
fn sdk_in(directory: &Path) -> Option<PathBuf> {
    let is_sdk = |directory: &PathBuf| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        manifest
            .lines()
            .any(|line| line.trim() == "name = \"admittance-sdk\"")
    };
    [directory.to_owned(), directory.join("sdk")]
        .into_iter()
        .find(is_sdk)
}

impl FromStr for Sdk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            return Ok(Self::Git(text.to_owned()));
        }
        sdk_in(Path::new(text)).map(Self::Directory).ok_or_else(|| {
            format!(
                "{text} does not contain admittance-sdk; name a clone of Admittance's repository, or its URL"
            )
        })
    }
}

impl Sdk {
    /// Finds the clone that contains the directory, or this program.
    pub(super) fn found(directory: &Path) -> Result<Self, String> {
        let beginnings = [std::path::absolute(directory).ok(), env::current_exe().ok()];
        let mut ancestors = beginnings.iter().flatten().flat_map(|path| path.ancestors());
        let sdk = ancestors.find_map(sdk_in);
        sdk.map(Self::Directory).ok_or_else(|| {
            "the SDK was not found, and it is in no registry yet; name a clone of Admittance's repository or its URL \
             with --sdk"
                .to_owned()
        })
    }

    /// Returns the fields of the dependency in Cargo.toml.
    pub(super) fn dependency(&self) -> Result<String, String> {
        let (key, value) = match self {
            Self::Git(url) => ("git", url.clone()),
            Self::Directory(path) => {
                let whole = fs::canonicalize(path).map_err(files::at(path))?;
                let text = whole
                    .to_str()
                    .ok_or_else(|| format!("{} is not UTF-8", whole.display()))?;
                ("path", text.to_owned())
            }
        };
        // A string of JSON is a string of TOML too.
        Ok(format!("{key} = {}", serde_json::Value::from(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_is_named_or_found_in_a_clone() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let url = "https://git.example.com/a\"b.git";
        assert_eq!(
            url.parse::<Sdk>().unwrap().dependency().unwrap(),
            r#"git = "https://git.example.com/a\"b.git""#
        );
        for path in [repository.clone(), repository.join("sdk")] {
            assert!(matches!(path.to_str().unwrap().parse(), Ok(Sdk::Directory(_))));
        }
        let nowhere = tempfile::tempdir().unwrap();
        let error = nowhere.path().to_str().unwrap().parse::<Sdk>().unwrap_err();
        assert!(error.contains("does not contain admittance-sdk"), "{error}");
        // This test is in the clone.
        assert!(matches!(Sdk::found(nowhere.path()), Ok(Sdk::Directory(_))));
    }
}
