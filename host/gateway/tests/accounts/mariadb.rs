//! Starts a real MariaDB server from Debian's package on a port of its own.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use admittance_gateway::accounts::MySqlConfig;
use sqlx::{AnyConnection, Connection as _, query, raw_sql};

use crate::ensemble::KEEPER;

/// The environment variable with the directory of MariaDB's programs. Without it, they are searched in `PATH`.
const DIRECTORY_VARIABLE: &str = "ADMITTANCE_TEST_MARIADB";

/// The time after which a test fails. No operation takes this long, even on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Options for little memory and a fast start. Data survives if the server is killed, but not a power failure.
const SERVER_OPTIONS: [&str; 7] = [
    "--no-defaults",
    "--user=root",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=16M",
    "--performance-schema=OFF",
];

/// A MariaDB server that is killed when this value is dropped or when the test process ends.
#[derive(Debug)]
pub(crate) struct MariaDb {
    directory: PathBuf,
    port: u16,
    keeper: Option<Child>,
}

impl MariaDb {
    pub(crate) fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("mariadb").tempdir().unwrap().keep();
        let installed = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--user=root",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .arg(format!("--datadir={}", directory.join("data").display()))
            .output()
            .expect("no mariadb-install-db: install Debian's mariadb-server-core and mariadb-client-core");
        assert!(
            installed.status.success(),
            "{}",
            String::from_utf8_lossy(&installed.stdout)
        );
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self {
            directory,
            port,
            keeper: None,
        };
        server.start_server();
        server
    }

    pub(crate) fn start_server(&mut self) {
        let log = self.directory.join("log");
        let socket = self.directory.join("socket");
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(env::var_os(DIRECTORY_VARIABLE).map_or("mariadbd".into(), |path| PathBuf::from(path).join("mariadbd")))
            .args(SERVER_OPTIONS)
            .arg(format!("--datadir={}", self.directory.join("data").display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--port={}", self.port))
            .env("LOG", &log)
            .env("REMOVE", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = keeper.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let begin = Instant::now();
        while !fs::read_to_string(&log)
            .unwrap_or_default()
            .contains("ready for connections")
        {
            assert!(
                keeper.try_wait().unwrap().is_none() && begin.elapsed() < START_TIMEOUT,
                "MariaDB does not start: {}",
                fs::read_to_string(&log).unwrap_or_default()
            );
            thread::sleep(POLL_INTERVAL);
        }
        self.keeper = Some(keeper);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }

    pub(crate) async fn create_database(&self) -> MySqlConfig {
        let name = format!("test{:016x}", fastrand::u64(..));
        let mut connection = self.connect("mysql").await;
        // The name can be used without quotes, because it contains only letters and digits.
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        raw_sql(create).execute(&mut connection).await.unwrap();
        MySqlConfig {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            database: name,
            user: "root".to_owned(),
            password: None,
            ca: None,
        }
    }

    pub(crate) async fn connect(&self, database: &str) -> AnyConnection {
        sqlx::any::install_default_drivers();
        let url = format!("mysql://root@127.0.0.1:{}/{database}?ssl-mode=disabled", self.port);
        AnyConnection::connect(&url).await.unwrap()
    }

    pub(crate) async fn run_statements(&self, database: &str, statements: &[&'static str]) {
        let mut connection = self.connect(database).await;
        for statement in statements {
            query(*statement).execute(&mut connection).await.unwrap();
        }
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the MariaDB server that all tests share. Each test has its own database in it.
pub(crate) fn shared_server() -> &'static MariaDb {
    static SHARED: OnceLock<MariaDb> = OnceLock::new();
    SHARED.get_or_init(MariaDb::start)
}
