//! Downloads packages of the distribution without installing them.
//!
//! The package lists of the machine contain no source packages, and may be old or missing. So this module has its own
//! package lists, which it fetches from the sources in the machine's configuration.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command::{Error, run_logged, say},
    folders::{create_directory, file_error, remove_directory},
};

/// The code name of the only Debian release that is supported.
const DISTRIBUTION: &str = "bookworm";

pub(crate) struct Apt {
    directory: PathBuf,
    log: PathBuf,
}

impl Apt {
    /// Fetches the package lists of apt into `directory`. `purpose` is the beginning of error messages, such as `the
    /// browser comes`, which continue with `from the packages of Debian 12`.
    pub(crate) fn new(directory: &Path, log: PathBuf, purpose: &str) -> Result<Self, Error> {
        let apt = Self {
            directory: directory.to_owned(),
            log,
        };
        let sources = machine_sources(purpose)?;
        if sources.is_empty() {
            return Err(Error::Missing(format!(
                "{purpose} from the packages of Debian 12: apt on this machine has none of its suites \
                 ({DISTRIBUTION}, {DISTRIBUTION}-updates, ...)"
            )));
        }
        let parts = apt.directory.join("sources");
        remove_directory(&parts)?;
        for directory in [&parts, &apt.lists(), &apt.cache(), &apt.packages()] {
            create_directory(directory)?;
        }
        for (name, text) in sources {
            let path = parts.join(name);
            fs::write(&path, text).map_err(file_error(&path))?;
        }
        say("Reading the distribution's package lists, including source packages");
        run_logged(apt.apt_get().arg("update"), &apt.log)?;
        Ok(apt)
    }

    fn lists(&self) -> PathBuf {
        self.directory.join("lists")
    }

    fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn packages(&self) -> PathBuf {
        self.directory.join("packages")
    }

    fn apt_get(&self) -> Command {
        let mut command = Command::new("apt-get");
        let mut option = |name: &str, value: OsString| {
            let mut option = OsString::from(name);
            option.push("=");
            option.push(value);
            command.arg("-o").arg(option);
        };
        option("Dir::Etc::SourceList", "/dev/null".into());
        option("Dir::Etc::SourceParts", self.directory.join("sources").into());
        option("Dir::State::Lists", self.lists().into());
        option("Dir::Cache", self.cache().into());
        // apt usually downloads as another user. Only root can switch to another user, so this is turned off.
        option("APT::Sandbox::User", "".into());
        command.arg("--quiet").current_dir(self.packages());
        command
    }

    /// Installs the packages of missing programs, if this user is root. Each pair is a program and its package.
    pub(crate) fn require_programs(&self, purpose: &str, programs: &[(&str, &str)]) -> Result<(), Error> {
        let packages: Vec<_> = programs
            .iter()
            .filter(|(program, _)| !is_on_path(program))
            .map(|(_, package)| *package)
            .collect();
        if packages.is_empty() {
            return Ok(());
        }
        let names = packages.join(" ");
        if !is_root() {
            return Err(Error::Missing(format!(
                "{purpose} needs programs that are not installed: install them with `apt-get \
                 install {names}` as root"
            )));
        }
        say(&format!("Installing packages for {purpose} with apt-get: {names}"));
        run_logged(
            self.apt_get()
                .args(["install", "--yes", "--no-install-recommends"])
                .args(packages),
            &self.log,
        )
    }

    pub(crate) fn unpack(&self, packages: &[&str], directory: &Path) -> Result<(), Error> {
        remove_directory(directory)?;
        create_directory(directory)?;
        run_logged(self.apt_get().arg("download").args(packages), &self.log)?;
        for package in packages {
            let archive = self.downloaded_file(&format!("{package}_"), ".deb")?;
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(archive).arg(directory);
            run_logged(&mut unpack, &self.log)?;
        }
        Ok(())
    }

    /// Downloads a source package, and returns the path of the original archive in it.
    pub(crate) fn source_archive(&self, package: &str) -> Result<PathBuf, Error> {
        run_logged(
            self.apt_get().args(["source", "--download-only"]).arg(package),
            &self.log,
        )?;
        self.downloaded_file(&format!("{package}_"), ".orig.tar.gz")
    }

    fn downloaded_file(&self, begin: &str, end: &str) -> Result<PathBuf, Error> {
        let packages = self.packages();
        let mut files: Vec<_> = fs::read_dir(&packages)
            .map_err(file_error(&packages))?
            .flatten()
            .filter(|entry| {
                let file_name = entry.file_name();
                let name = file_name.to_string_lossy();
                name.starts_with(begin) && name.ends_with(end)
            })
            .collect();
        // The directory can also contain an older version of the file, from an earlier download. So the newest of the
        // matching files is used.
        files.sort_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok());
        files.last().map(fs::DirEntry::path).ok_or_else(|| {
            Error::Missing(format!(
                "apt-get downloaded no {begin}*{end}; its output is in {}",
                self.log.display()
            ))
        })
    }
}

pub(crate) fn is_on_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout == b"0\n")
}

/// Returns the entries for the distribution in the machine's apt sources, with source packages enabled.
fn machine_sources(purpose: &str) -> Result<Vec<(OsString, String)>, Error> {
    let mut files = Vec::new();
    let [list, parts] = configured_paths(purpose)?;
    files.extend(list.is_file().then_some(list));
    if parts.is_dir() {
        for entry in fs::read_dir(&parts).map_err(file_error(&parts))? {
            files.push(entry.map_err(file_error(&parts))?.path());
        }
    }
    let mut sources = Vec::new();
    for file in files {
        let convert = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => convert_list_file,
            Some("sources") => convert_sources_file,
            _ => continue,
        };
        let text = convert(&fs::read_to_string(&file).map_err(file_error(&file))?);
        if !text.is_empty() {
            sources.push((file.file_name().unwrap_or_default().to_owned(), text));
        }
    }
    Ok(sources)
}

fn configured_paths(purpose: &str) -> Result<[PathBuf; 2], Error> {
    let start_error = |source| match source {
        source if std::io::Error::kind(&source) == std::io::ErrorKind::NotFound => Error::Missing(format!(
            "{purpose} from the packages of Debian 12, but this machine has no apt"
        )),
        source => Error::Start {
            program: "apt-config".into(),
            source,
        },
    };
    let output = Command::new("apt-config")
        .args(["shell", "f", "Dir::Etc::sourcelist/f", "d", "Dir::Etc::sourceparts/d"])
        .output()
        .map_err(start_error)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        PathBuf::from(value.unwrap_or_default().trim_matches('\''))
    };
    Ok([path("f="), path("d=")])
}

fn is_of_distribution(suite: &str) -> bool {
    suite
        .strip_prefix(DISTRIBUTION)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/']))
}

/// Enables source packages in a list of apt sources that has one entry per line: `deb [options] uri suite components`.
fn convert_list_file(text: &str) -> String {
    let mut result = String::new();
    for line in text.lines() {
        let Some(rest) = line
            .trim()
            .strip_prefix("deb")
            .filter(|rest| rest.starts_with([' ', '\t']))
        else {
            continue;
        };
        let after_options = match rest.trim_start().strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, after)| after),
            None => rest,
        };
        if after_options.split_whitespace().nth(1).is_some_and(is_of_distribution) {
            result.push_str(&format!("deb{rest}\ndeb-src{rest}\n"));
        }
    }
    result
}

/// Enables source packages in a list of apt sources that has one paragraph of fields per entry (deb822).
fn convert_sources_file(text: &str) -> String {
    let mut result = String::new();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let field = |line: &str, name: &str| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        let has_field = |name: &str, is_wanted: &dyn Fn(&str) -> bool| {
            let values = stanza.iter().find_map(|line| field(line, name));
            values.is_some_and(|values| values.split_whitespace().any(is_wanted))
        };
        if !has_field("Types", &|kind| kind == "deb") || !has_field("Suites", &is_of_distribution) {
            continue;
        }
        for line in stanza {
            match field(line, "Types") {
                Some(_) => result.push_str("Types: deb deb-src"),
                None => result.push_str(line),
            }
            result.push('\n');
        }
        result.push('\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_packages_are_enabled_in_apt_lists_with_one_line_per_entry() {
        for (line, expected) in [
            (
                "deb http://mirror.example.com/debian bookworm main contrib",
                "deb http://mirror.example.com/debian bookworm main contrib\n\
                 deb-src http://mirror.example.com/debian bookworm main contrib\n",
            ),
            (
                "deb [signed-by=/k.gpg arch=amd64] http://mirror.example.com/s bookworm-security main",
                "deb [signed-by=/k.gpg arch=amd64] http://mirror.example.com/s bookworm-security main\n\
                 deb-src [signed-by=/k.gpg arch=amd64] http://mirror.example.com/s bookworm-security main\n",
            ),
            ("deb-src http://mirror.example.com/debian bookworm main", ""),
            ("# deb http://mirror.example.com/debian bookworm main", ""),
            ("deb https://packages.example.com/apt cloud-bookworm main", ""),
            ("deb https://packages.example.com/apt bookwormish main", ""),
            ("deb [signed-by=/k.gpg", ""),
            ("", ""),
        ] {
            assert_eq!(convert_list_file(line), expected, "{line}");
        }
    }

    #[test]
    fn source_packages_are_enabled_in_apt_lists_with_deb822_stanzas() {
        let text = "Types: deb\n# a comment\nURIs: http://mirror.example.com/debian\n\
                    suites: bookworm bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n\n\n\
                    Types: deb\nURIs: https://packages.example.com\nSuites: nodistro\nComponents: main\n\n\
                    Types: deb-src\nURIs: http://mirror.example.com/debian\nSuites: bookworm\nComponents: main\n";
        assert_eq!(
            convert_sources_file(text),
            "Types: deb deb-src\nURIs: http://mirror.example.com/debian\n\
             suites: bookworm bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n\n"
        );
        assert_eq!(convert_sources_file(""), "");
    }
}
