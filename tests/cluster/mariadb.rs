//! Starts MariaDB as Debian packages it, as a process instead of as a service.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use admittance_tests::Error;
use serde_json::{Value, json};
use tokio::{net::TcpStream, process::Command};

use crate::process::{Process, with_free_ports};

/// The environment variable with the directory of MariaDB's programs. If it is not set, they are looked up in `PATH`.
const DIRECTORY_VARIABLE: &str = "ADMITTANCE_TEST_MARIADB";
const DATABASE: &str = "bcs";
const USER: &str = "gateway";

/// A MariaDB server with an empty database. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct ClusterMariaDb {
    process: Process,
    address: SocketAddr,
    directory: PathBuf,
}

impl ClusterMariaDb {
    pub(crate) async fn start(directory: &Path) -> Result<Self, Error> {
        let installed = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--skip-test-db"])
            .arg(format!("--datadir={}", data_directory(directory).display()))
            .output()
            .await
            .map_err(Error::io(
                "mariadb-install-db of Debian's packages mariadb-server-core and mariadb-client-core",
            ))?;
        if !installed.status.success() {
            let output = String::from_utf8_lossy(&installed.stdout).into_owned();
            return Err(Error::Invalid(format!("mariadb-install-db: {output}")));
        }
        let statements = format!(
            "CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n\
             CREATE USER IF NOT EXISTS '{USER}'@'%';\n\
             GRANT ALL ON {DATABASE}.* TO '{USER}'@'%';\n"
        );
        let file = statements_file(directory);
        fs::write(&file, statements).map_err(Error::io(file.display().to_string()))?;
        let (process, address) =
            with_free_ports(|[address]| async move { Ok((start_server(directory, address).await?, address)) }).await?;
        Ok(Self {
            process,
            address,
            directory: directory.to_owned(),
        })
    }

    pub(crate) fn config(&self) -> Value {
        json!({"server": self.address.to_string(), "database": DATABASE, "user": USER})
    }

    pub(crate) async fn kill(&mut self) -> Result<(), Error> {
        self.process.kill().await
    }

    /// Starts a MariaDB server that was stopped, on the same port and with the same data.
    pub(crate) async fn start_again(&mut self) -> Result<(), Error> {
        self.process = start_server(&self.directory, self.address).await?;
        Ok(())
    }
}

fn data_directory(directory: &Path) -> PathBuf {
    directory.join("mariadb")
}

fn statements_file(directory: &Path) -> PathBuf {
    directory.join("mariadb.sql")
}

async fn start_server(directory: &Path, address: SocketAddr) -> Result<Process, Error> {
    let program = env::var_os(DIRECTORY_VARIABLE).map_or_else(
        || PathBuf::from("mariadbd"),
        |path| PathBuf::from(path).join("mariadbd"),
    );
    let mut process = Process::start(
        "mariadbd",
        &program,
        [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            format!("--bind-address={}", address.ip()),
            format!("--port={}", address.port()),
            format!("--datadir={}", data_directory(directory).display()),
            format!("--socket={}", directory.join("mariadb.socket").display()),
            format!("--init-file={}", statements_file(directory).display()),
            "--skip-name-resolve".to_owned(),
            "--innodb-buffer-pool-size=16M".to_owned(),
            "--performance-schema=OFF".to_owned(),
        ],
        directory,
    )?;
    let is_ready = async || TcpStream::connect(address).await.is_ok();
    process.wait_until_ready(is_ready).await?;
    Ok(process)
}
