//! Writes an OCI image without a container engine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{PackageContents, VERSION, compress, copy_all, output, pack, sha256, tar, write};
use crate::{
    command::{Error, run},
    folders::{copy_into, create_directory, file_error},
};

/// The user that runs the program in the image. `admittance kubernetes manifests` uses it, too.
const USER: &str = "65532:65532";

/// The file with the bundle of public certificate authorities, in Debian and its derivatives.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Writes the image as an archive in the OCI layout, from which `skopeo`, `podman load` and `docker load` can read it.
pub(super) fn layout(contents: &PackageContents, staging: &Path, to: &Path) -> Result<PathBuf, Error> {
    let tree = staging.join("image");
    fill_tree(contents, &tree)?;
    let layout = staging.join("oci");
    let blobs = Blobs(layout.join("blobs/sha256"));
    create_directory(&blobs.0)?;
    let plain = staging.join("layer.tar");
    pack(&tree, &plain)?;
    let writable = staging.join("writable");
    create_directory(&writable.join("tmp"))?;
    run(tar("--append", &writable, &plain)?.args(["--mode=1777", "./tmp"]))?;
    let difference = sha256(&plain)?;
    compress(&plain)?;
    let layer = blobs.add(&staging.join("layer.tar.gz"))?;
    let architecture = contents.machine.debian_name();
    let config = staging.join("config.json");
    write(
        &config,
        format!(
            r#"{{"architecture":"{architecture}","os":"linux","config":{{"User":"{USER}","WorkingDir":"/etc/admittance","Env":["PATH=/usr/local/bin","HOME=/tmp","ADMITTANCE_PLUGINS=/usr/local/lib/admittance"],"Entrypoint":["/usr/local/bin/admittance"],"Cmd":["serve"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{difference}"]}}}}"#
        ),
    )?;
    let config = blobs.add(&config)?;
    let manifest = staging.join("manifest.json");
    write(
        &manifest,
        format!(
            r#"{{"schemaVersion":2,"mediaType":"{0}","config":{1},"layers":[{2}]}}"#,
            "application/vnd.oci.image.manifest.v1+json",
            config.descriptor("application/vnd.oci.image.config.v1+json", ""),
            layer.descriptor("application/vnd.oci.image.layer.v1.tar+gzip", ""),
        ),
    )?;
    let tag = format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{VERSION}"}}"#);
    let manifest = blobs
        .add(&manifest)?
        .descriptor("application/vnd.oci.image.manifest.v1+json", &tag);
    write(
        &layout.join("index.json"),
        format!(r#"{{"schemaVersion":2,"manifests":[{manifest}]}}"#),
    )?;
    write(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let image = to.join(format!(
        "admittance-{VERSION}-{}-linux.oci.tar",
        contents.machine.name()
    ));
    pack(&layout, &image)?;
    Ok(image)
}

fn fill_tree(contents: &PackageContents, tree: &Path) -> Result<(), Error> {
    let programs = tree.join("usr/local/bin");
    create_directory(&programs)?;
    copy_into(&contents.program, &programs)?;
    for library in libraries(contents)? {
        let library = library.strip_prefix("/").unwrap_or(&library);
        let directory = tree.join(library.parent().unwrap_or(library));
        create_directory(&directory)?;
        copy_into(&Path::new(&contents.machine.libraries()).join(library), &directory)?;
    }
    let plugins = tree.join("usr/local/lib/admittance");
    create_directory(&plugins)?;
    copy_all(&contents.plugins, &plugins)?;
    if let Ok(authorities) = fs::read(AUTHORITIES) {
        write(&tree.join(AUTHORITIES.trim_start_matches('/')), authorities)?;
    }
    create_directory(&tree.join("etc/admittance"))?;
    write(&tree.join("etc/nsswitch.conf"), "hosts: files dns\n")
}

fn libraries(contents: &PackageContents) -> Result<Vec<PathBuf>, Error> {
    let listing = output(&mut contents.machine.list_libraries(&contents.program))?;
    let paths = listing.lines().filter_map(|line| {
        let path = line
            .split_once("=> ")
            .map_or(line, |(_, path)| path)
            .split_whitespace()
            .next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    Ok(paths.collect())
}

struct Blobs(PathBuf);

struct LayoutBlob {
    digest: String,
    size: u64,
}

impl Blobs {
    fn add(&self, file: &Path) -> Result<LayoutBlob, Error> {
        let digest = sha256(file)?;
        let size = fs::copy(file, self.0.join(&digest)).map_err(file_error(file))?;
        Ok(LayoutBlob { digest, size })
    }
}

impl LayoutBlob {
    fn descriptor(&self, media_type: &str, more: &str) -> String {
        let Self { digest, size } = self;
        format!(r#"{{"mediaType":"{media_type}","digest":"sha256:{digest}","size":{size}{more}}}"#)
    }
}
