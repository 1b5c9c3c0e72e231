use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PackageContents, VERSION, copy_all, output, tar_gz, write};
use crate::{
    command::{Error, root, run},
    folders::{copy_into, create_directory, file_error},
};

/// Writes the Debian package: an `ar` archive that contains two `tar` archives, as described in `deb(5)`.
pub(super) fn package(contents: &PackageContents, staging: &Path, to: &Path) -> Result<PathBuf, Error> {
    let tree = staging.join("debian");
    fill_tree(contents, &tree)?;
    let parts = staging.join("deb");
    write(&parts.join("debian-binary"), "2.0\n")?;
    tar_gz(&tree, &parts.join("data.tar.gz"))?;
    let control = staging.join("control");
    write(&control.join("control"), control_file(contents)?)?;
    tar_gz(&control, &parts.join("control.tar.gz"))?;
    let package = to.join(format!("admittance_{VERSION}_{}.deb", contents.machine.debian_name()));
    run(Command::new("ar")
        .arg("rcD")
        .arg(&package)
        .args(["debian-binary", "control.tar.gz", "data.tar.gz"])
        .current_dir(&parts))?;
    Ok(package)
}

fn fill_tree(contents: &PackageContents, tree: &Path) -> Result<(), Error> {
    let [bash, zsh, fish] = &contents.completions;
    for (file, directory) in [
        (&contents.program, "usr/bin"),
        (bash, "usr/share/bash-completion/completions"),
        (zsh, "usr/share/zsh/vendor-completions"),
        (fish, "usr/share/fish/vendor_completions.d"),
    ] {
        let directory = tree.join(directory);
        create_directory(&directory)?;
        copy_into(file, &directory)?;
    }
    let pages = tree.join("usr/share/man/man1");
    create_directory(&pages)?;
    copy_all(&contents.man_pages, &pages)?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "--no-name", "--recursive"]).arg(&pages);
    run(&mut gzip)?;
    let licence = tree.join("usr/share/doc/admittance/copyright");
    write(
        &licence,
        fs::read(&contents.licence).map_err(file_error(&contents.licence))?,
    )?;
    let unit = fs::read_to_string(&contents.unit).map_err(file_error(&contents.unit))?;
    write(
        &tree.join("usr/lib/systemd/system/admittance.service"),
        unit.replace("/usr/local/bin/", "/usr/bin/"),
    )?;
    create_directory(&tree.join("etc/admittance"))
}

fn control_file(contents: &PackageContents) -> Result<String, Error> {
    let program = fs::read(&contents.program).map_err(file_error(&contents.program))?;
    let size = program.len() / 1024;
    let architecture = contents.machine.debian_name();
    let glibc = newest_glibc(&program).map_or_else(String::new, |version| format!(" (>= {version})"));
    let maintainer = maintainer()?;
    Ok(format!(
        "Package: admittance\nVersion: {VERSION}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
         Installed-Size: {size}\nDepends: libc6{glibc}, libgcc-s1\nRecommends: \
         ca-certificates\nSection: admin\nPriority: optional\nDescription: admission hooks as WebAssembly components, \
         in front of any control plane\n Requests that change something pass through chains of hooks, which allow, \
         change or\n refuse them. Hooks are hot-loaded plugins, policies of Kubernetes, or webhooks.\n"
    ))
}

/// Returns the maintainer of the package, from Debian's environment variables. Without them, it is the last commit's
/// author.
fn maintainer() -> Result<String, Error> {
    if let (Ok(name), Ok(address)) = (env::var("DEBFULLNAME"), env::var("DEBEMAIL")) {
        return Ok(format!("{name} <{address}>"));
    }
    let mut git = Command::new("git");
    let author = output(git.args(["log", "-1", "--format=%an <%ae>"]).current_dir(root()))?;
    Ok(author.trim().to_owned())
}

/// Returns the newest version of the C library that the symbols of a program require.
fn newest_glibc(program: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let positions = program.windows(PREFIX.len()).enumerate();
    let versions = positions
        .filter(|(_, window)| *window == PREFIX)
        .filter_map(|(start, _)| {
            let rest = program.get(start + PREFIX.len()..)?;
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).take(3);
            String::from_utf8(digits.copied().collect()).ok()?.parse::<u32>().ok()
        });
    versions.max().map(|minor| format!("2.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_requires_the_newest_glibc_version_that_its_program_uses() {
        let program = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_2.x";
        assert_eq!(newest_glibc(program).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc(b"static"), None);
    }
}
