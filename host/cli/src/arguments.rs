//! Parses and reads the arguments that several commands share.

use std::{
    io::{ErrorKind, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance::definitions::{self, ChainDefinition};
use admittance_admission::{Keyword, UnknownKeyword, did_you_mean};
use admittance_definitions::{DefinitionFile, read_files};
use admittance_driver::Config;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::files;

pub(crate) fn word<W: Keyword + Send + Sync>() -> impl TypedValueParser<Value = W> {
    PossibleValuesParser::new(W::KEYWORDS.iter().map(|(word, _)| *word)).try_map(|text| {
        let keyword = W::KEYWORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        keyword
            .map(|(_, value)| *value)
            .ok_or_else(|| UnknownKeyword::new::<W>(&text))
    })
}

/// Parses the path of an existing file or directory; `-` means standard input.
pub(crate) fn parse_existing_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound && text != "-" => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let beside = directory.unwrap_or(Path::new(".")).read_dir();
            let entries = beside.into_iter().flatten().flatten();
            let names = entries.map(|file| file.file_name().to_string_lossy().into_owned());
            let suggestion = did_you_mean(&path.file_name().unwrap_or_default().to_string_lossy(), names);
            Err(format!("there is no such file or directory{suggestion}"))
        }
        _ => Ok(path),
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write a number and its unit, as in 30s, 10m or 1h".to_owned())
}

pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address and a port, as in 127.0.0.1:8080".to_owned())
}

pub(crate) fn revision(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "write the number of a revision; `admittance history` lists them".to_owned())
}

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("write KEY=VALUE in place of `{text}`")),
    }
}

pub(crate) fn definitions_or_configured(paths: &[PathBuf], config: Option<&Config>) -> Vec<PathBuf> {
    match (config, paths) {
        (Some(config), []) => config.definition_files().map(Path::to_owned).collect(),
        _ => paths.to_vec(),
    }
}

/// Reads the definition texts in these files and directories. The path `-` stands for `input`.
pub(crate) fn read_definitions(paths: &[PathBuf], input: &mut impl Read) -> crate::Result<Vec<DefinitionFile>> {
    let (inputs, paths): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(|path| path == Path::new("-"));
    let mut files = read_files(&paths)?;
    if !inputs.is_empty() {
        let mut text = String::new();
        input
            .read_to_string(&mut text)
            .map_err(|error| format!("standard input: {error}"))?;
        files.push(DefinitionFile::file("standard input", text));
    }
    Ok(files)
}

pub(crate) fn load_chains(paths: &[PathBuf]) -> crate::Result<Vec<ChainDefinition>> {
    let chains = definitions::load(paths)?;
    if chains.is_empty() {
        return Err(no_definition(paths).into());
    }
    Ok(chains)
}

pub(crate) fn no_definition(paths: &[PathBuf]) -> String {
    let location = match paths {
        [] => String::new(),
        paths => format!(" in {}", files::join_paths(paths)),
    };
    format!("no definition was found{location}; name files, or directories with *.yaml, *.yml or *.json in them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_file_name_is_reported_with_similar_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("chain.yaml"), "").unwrap();
        assert_eq!(parse_existing_path(&path("chain.yaml")), Ok(path("chain.yaml").into()));
        assert_eq!(parse_existing_path("-"), Ok("-".into()));
        for (name, expected) in [
            (
                "chian.yaml",
                "there is no such file or directory; did you mean chain.yaml?",
            ),
            ("pods.json", "there is no such file or directory"),
        ] {
            assert_eq!(parse_existing_path(&path(name)), Err(expected.to_owned()));
        }
    }
}
