//! `admittance new`: writes the project of a plugin.

mod manifest;
mod template;

use std::{
    borrow::Cow,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;

use self::template::{Lang, PluginTemplate};
use crate::{
    files,
    output::{BOLD, write},
};

/// Write a small, finished project of a plugin: its code with the SDK, tests, a chain, and a file for CI.
///
/// The directory must not exist yet, or be empty.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance new require-label
  admittance new require-label --lang python
  admittance new require-label --lang c
  admittance new default-label --template mutating")]
pub(crate) struct Arguments {
    /// The directory to create. The package is named after it.
    #[arg(value_name = "NAME")]
    directory: PathBuf,
    /// The language of the plugin.
    #[arg(long, value_enum, default_value_t)]
    lang: Lang,
    /// The plugin to begin with.
    #[arg(long, value_enum, default_value_t)]
    template: PluginTemplate,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let Arguments {
        directory,
        lang,
        template,
    } = arguments;
    let name = plugin_name(directory, *lang)?;
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(files::error_at(directory)(error).into()),
    };
    if !is_free {
        return Err(format!("{} is not empty; name another directory", directory.display()).into());
    }
    let language = lang.template();
    let filled = |text: &str| {
        text.replace("{{module}}", language.module)
            .replace("{{setup}}", language.setup)
            .replace("{{summary}}", template.summary())
            .replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
    };
    for (path, content) in language.files(*template) {
        let content = str::from_utf8(content)
            .map(filled)
            .map_err(|error| format!("the template {path}: {error}"))?;
        files::replace_in_tree(&directory.join(path), content.as_bytes(), files::PUBLIC_MODE)?;
    }
    for (path, content) in language.sdk {
        let content = match str::from_utf8(content) {
            Ok(manifest) if path.ends_with("Cargo.toml") => {
                Cow::Owned(manifest::resolve_inheritance(manifest).into_bytes())
            }
            _ => Cow::Borrowed(*content),
        };
        files::replace_in_tree(&directory.join(path), &content, files::PUBLIC_MODE)?;
    }
    let location = directory.display();
    Ok(write(&format!(
        "created {location}\n\n  {BOLD}cd {location} && admittance test{BOLD:#}    builds and tests it\n  \
         {BOLD}admittance dev{BOLD:#}    does so after every change, and serves it\n"
    ))?)
}

fn plugin_name(directory: &Path, lang: Lang) -> Result<&str, String> {
    const RESERVED_WORDS: &str = "abstract alloc as async await become box break build const continue core crate deps do dyn else \
         enum examples extern false final fn for if impl in incremental let loop macro match mod move mut \
         override priv proc-macro pub ref return self static std struct super test trait true try type \
         typeof unsafe use where while";
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_valid = name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.len() <= 63
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
    if !is_valid {
        return Err(format!(
            "`{name}` is not a name for a plugin; write lower-case letters, digits and `-`, as in `require-label`"
        ));
    }
    if lang == Lang::Rust && RESERVED_WORDS.split(' ').any(|reserved| reserved == name) {
        Err(format!(
            "`{name}` is reserved in Rust; choose another name, as in `require-label`"
        ))
    } else {
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_name_must_be_valid_for_packages_and_chains() {
        for (path, expected) in [
            ("require-label", Some("require-label")),
            ("a/b2", Some("b2")),
            ("Label", None),
            ("require_label", None),
            ("2fa", None),
            ("label-", None),
            ("..", None),
            ("match", None),
        ] {
            assert_eq!(plugin_name(Path::new(path), Lang::Rust).ok(), expected, "{path}");
        }
        assert_eq!(plugin_name(Path::new("match"), Lang::Python), Ok("match"));
    }

    #[test]
    fn a_new_project_overwrites_no_files() {
        let folder = tempfile::tempdir().unwrap();
        for lang in [Lang::Rust, Lang::Python, Lang::Javascript, Lang::C] {
            let directory = folder.path().join(format!("{lang:?}").to_lowercase());
            let template = PluginTemplate::Validating;
            let arguments = Arguments {
                directory,
                lang,
                template,
            };
            run(&arguments).unwrap();
            for (path, _) in lang.template().files(template) {
                let bytes = std::fs::read(arguments.directory.join(path)).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                // No placeholder `{{ ... }}` of a template may remain in a file. But `${{ ... }}` is an expression for
                // GitHub, so it remains.
                assert!(!text.replace("${{", "").contains("{{"), "{path}");
            }
            let error = run(&arguments).unwrap_err();
            assert!(error.to_string().contains("is not empty"), "{error}");
        }
        let manifest = files::read(&folder.path().join("rust/vendor/admittance/Cargo.toml")).unwrap();
        assert!(!manifest.contains("workspace"), "{manifest}");
    }
}
