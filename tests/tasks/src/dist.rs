//! Writes the files of a release: an archive, a Debian package, an image, the bill of materials, and checksums.
//!
//! The files are reproducible: all times in them are the time of the last commit, they contain no names of users, and
//! their entries are sorted by name.

mod debian;
mod image;
mod machine;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::Args;
pub(crate) use machine::TargetMachine;

use crate::{
    command::{Error, root, run, say, target_directory},
    folders::{copy_into, create_directory, file_error, remove_directory},
    plugins, supply_chain,
};

/// The arguments of `cargo task dist`.
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// Package this compiled program, to try the packages without compiling a release.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Package the program for this architecture, `x86_64` or `aarch64`. If that is not this machine's architecture,
    /// the program is cross-compiled with Debian's compiler, and runs in QEMU to print its man pages.
    #[arg(long, value_name = "ARCHITECTURE", default_value = env::consts::ARCH)]
    machine: TargetMachine,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

struct PackageContents {
    machine: TargetMachine,
    program: PathBuf,
    man_pages: PathBuf,
    completions: [PathBuf; 3],
    unit: PathBuf,
    licence: PathBuf,
    plugins: PathBuf,
}

impl Dist {
    pub(crate) fn write(&self) -> Result<(), Error> {
        let directory = target_directory().join("dist");
        remove_directory(&directory)?;
        let staging = directory.join("staging");
        create_directory(&staging)?;
        let program = match &self.program {
            Some(program) => fs::canonicalize(program).map_err(file_error(program))?,
            None => supply_chain::release(&plugins::build_compressed()?, &self.machine)?,
        };
        say("Packing the program");
        let contents = PackageContents::print_by_program(program, self.machine.clone(), &staging)?;
        let archive = archive(&contents, &staging, &directory)?;
        let package = debian::package(&contents, &staging, &directory)?;
        let image = image::layout(&contents, &staging, &directory)?;
        let mut published = vec![archive, package, image];
        if self.program.is_none() {
            copy_into(&root().join("target/sbom/admittance.cdx.json"), &directory)?;
            published.push(directory.join("admittance.cdx.json"));
        }
        let sums: Result<String, Error> = published
            .iter()
            .map(|path| Ok(format!("{}  {}\n", sha256(path)?, file_name_text(path))))
            .collect();
        write(&directory.join("SHA256SUMS"), sums?)?;
        remove_directory(&staging)?;
        say(&format!("The files are in {}", directory.display()));
        Ok(())
    }
}

impl PackageContents {
    fn print_by_program(program: PathBuf, machine: TargetMachine, staging: &Path) -> Result<Self, Error> {
        let man_pages = staging.join("man");
        run(machine.command(&program).arg("man").arg(&man_pages))?;
        let completions = [
            ("bash", "admittance"),
            ("zsh", "_admittance"),
            ("fish", "admittance.fish"),
        ];
        let mut paths = Vec::new();
        for (shell, file) in completions {
            let path = staging.join(shell).join(file);
            let script = output(machine.command(&program).args(["completions", shell]))?;
            write(&path, script)?;
            paths.push(path);
        }
        let completions = paths
            .try_into()
            .map_err(|_| Error::Missing("a shell has no completions".to_owned()))?;
        Ok(Self {
            machine,
            program,
            man_pages,
            completions,
            unit: root().join("docs/examples/systemd/admittance.service"),
            licence: root().join("LICENSE"),
            plugins: root().join("target/plugins"),
        })
    }
}

/// Writes the archive of the release. It contains the program, the stock plugins, and the files to install.
fn archive(contents: &PackageContents, staging: &Path, to: &Path) -> Result<PathBuf, Error> {
    let name = format!("admittance-{VERSION}-{}-linux", contents.machine.name());
    let tree = staging.join("archive");
    let top = tree.join(&name);
    for directory in [&top, &top.join("plugins"), &top.join("man"), &top.join("completions")] {
        create_directory(directory)?;
    }
    for file in [&contents.program, &contents.unit, &contents.licence] {
        copy_into(file, &top)?;
    }
    for file in &contents.completions {
        copy_into(file, &top.join("completions"))?;
    }
    copy_all(&contents.man_pages, &top.join("man"))?;
    copy_all(&contents.plugins, &top.join("plugins"))?;
    tar_gz(&tree, &to.join(format!("{name}.tar.gz")))
}

fn tar_gz(directory: &Path, to: &Path) -> Result<PathBuf, Error> {
    let tar = to.with_extension("");
    pack(directory, &tar)?;
    compress(&tar)?;
    Ok(to.to_owned())
}

/// Compresses a file with gzip. The original name and time of the file are left out.
fn compress(file: &Path) -> Result<(), Error> {
    run(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(file))
}

/// Packs the files of a directory into a tar archive. The archive depends only on the names and content of the files.
fn pack(directory: &Path, to: &Path) -> Result<(), Error> {
    run(tar("--create", directory, to)?.args(["--mode=u+rw,go=rX", "."]))
}

fn tar(operation: &str, directory: &Path, archive: &Path) -> Result<Command, Error> {
    let mut tar = Command::new("tar");
    tar.args([operation, "--sort=name", "--format=gnu", "--numeric-owner"])
        .args(["--owner=0", "--group=0"])
        .arg(format!("--mtime=@{}", source_date()?))
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(directory);
    Ok(tar)
}

/// Returns the time that all packed files get: the variable `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn source_date() -> Result<String, Error> {
    if let Ok(time) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let mut git = Command::new("git");
    output(git.args(["log", "-1", "--format=%ct"]).current_dir(root())).map(|time| time.trim().to_owned())
}

fn sha256(path: &Path) -> Result<String, Error> {
    let line = output(Command::new("sha256sum").arg("--binary").arg(path))?;
    let digest = line.split_whitespace().next().unwrap_or_default();
    Ok(digest.trim_start_matches('\\').to_owned())
}

fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_owned();
    let output = command.stderr(Stdio::inherit()).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(Error::Status {
            program,
            status: output.status,
        }),
        Err(source) => Err(Error::Start { program, source }),
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(from).map_err(file_error(from))? {
        copy_into(&entry.map_err(file_error(from))?.path(), to)?;
    }
    Ok(())
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    create_directory(path.parent().unwrap_or(path))?;
    fs::write(path, content).map_err(file_error(path))
}

fn file_name_text(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_systemd_unit_equals_the_unit_in_the_manual() {
        let read_file = |path: &str| fs::read_to_string(root().join(path)).expect("it can be read");
        let unit = read_file("docs/examples/systemd/admittance.service");
        assert!(read_file("docs/operators.md").contains(&unit));
    }

    #[test]
    fn an_archive_depends_only_on_the_content_of_its_files() {
        let top = target_directory().join("tmp/dist-test");
        remove_directory(&top).expect("it can be removed");
        let archives = ["a", "b"].map(|name| {
            let tree = top.join(name);
            let files = if name == "a" { ["x", "y/z"] } else { ["y/z", "x"] };
            for file in files {
                write(&tree.join(file), file).expect("it can be written");
            }
            if name == "b" {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                fs::set_permissions(tree.join("x"), mode).expect("it is ours");
            }
            let archive = tar_gz(&tree, &top.join(format!("{name}.tar.gz"))).expect("it can be packed");
            fs::read(archive).expect("it can be read")
        });
        assert!(archives[0] == archives[1], "the archives differ");
    }

    fn packages(program: PathBuf, machine: &str, staging: &Path) -> [PathBuf; 3] {
        let page = staging.join("man/admittance.1");
        write(&page, "a page").expect("it can be written");
        let completions = ["bash", "zsh", "fish"].map(|shell| staging.join(shell).join("completions"));
        for file in &completions {
            write(file, "a script").expect("it can be written");
        }
        let contents = PackageContents {
            machine: machine.parse().expect("it is supported"),
            program,
            man_pages: staging.join("man"),
            completions,
            unit: root().join("docs/examples/systemd/admittance.service"),
            licence: root().join("LICENSE"),
            plugins: staging.join("bash"),
        };
        let to = staging.join("packages");
        create_directory(&to).expect("it can be created");
        [
            debian::package(&contents, staging, &to).expect("it can be packed"),
            image::layout(&contents, staging, &to).expect("it can be packed"),
            archive(&contents, staging, &to).expect("it can be packed"),
        ]
    }

    #[test]
    fn packages_for_another_architecture_contain_its_libraries() {
        let machine: TargetMachine = "aarch64".parse().expect("it is supported");
        let top = target_directory().join("tmp/dist-aarch64");
        remove_directory(&top).expect("it can be removed");
        let (source, program) = (top.join("program.c"), top.join("program"));
        write(&source, "int main(void) { return 0; }").expect("it can be written");
        let mut compiler = Command::new(machine.linker());
        let is_compiled = compiler.arg(&source).arg("-o").arg(&program).status();
        if machine.target().is_none() || !is_compiled.is_ok_and(|status| status.success()) {
            eprintln!("skipped: Debian's packages gcc-aarch64-linux-gnu and qemu-user are not installed");
            return;
        }
        run(&mut machine.command(&program)).expect("QEMU runs it");
        let [package, image, archive] = packages(program, "aarch64", &top.join("staging"));
        for (file, ending) in [
            (&package, "_arm64.deb"),
            (&image, "-aarch64-linux.oci.tar"),
            (&archive, "-aarch64-linux.tar.gz"),
        ] {
            assert!(file_name_text(file).ends_with(ending), "{}", file.display());
        }
        let loader = top.join("staging/image/lib/ld-linux-aarch64.so.1");
        assert!(loader.exists(), "{}", loader.display());
    }

    #[test]
    fn packages_are_reproducible_and_can_be_unpacked() {
        let top = target_directory().join("tmp/dist-packages");
        remove_directory(&top).expect("it can be removed");
        let program = || fs::canonicalize("/bin/true").expect("every Linux has it");
        let builds = ["first", "second"].map(|round| packages(program(), env::consts::ARCH, &top.join(round)));
        for (first, second) in builds[0].iter().zip(&builds[1]) {
            let digest = |path| sha256(path).expect("it can be read");
            assert_eq!(digest(first), digest(second), "{}", first.display());
        }

        let [package, image, _] = &builds[0];
        let unpacked = top.join("unpacked");
        create_directory(&unpacked).expect("it can be created");
        run(Command::new("ar").arg("x").arg(package).current_dir(&unpacked)).expect("it is an archive");
        let files =
            output(Command::new("tar").arg("-tzf").arg(unpacked.join("data.tar.gz"))).expect("it is an archive");
        for file in [
            "./usr/bin/true",
            "./usr/lib/systemd/system/admittance.service",
            "./usr/share/man/man1/admittance.1.gz",
        ] {
            assert!(files.contains(file), "{file} in {files}");
        }
        run(Command::new("tar").arg("-xf").arg(image).arg("-C").arg(&unpacked)).expect("it is an archive");
        let blobs: Vec<_> = fs::read_dir(unpacked.join("blobs/sha256"))
            .expect("the layout has blobs")
            .map(|blob| blob.expect("it can be read").path())
            .collect();
        assert_eq!(blobs.len(), 3, "a layer, a configuration and a manifest");
        for blob in blobs {
            assert_eq!(sha256(&blob).expect("it can be read"), file_name_text(&blob));
        }
    }
}
