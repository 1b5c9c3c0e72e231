//! The demo: the driver in front of a small example API, with suggestions. `cargo task demo` compiles and starts it.

mod example;
mod traffic;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use admittance_tests::{Admittance, Client, Error, FakeUpstream, Serve, UpstreamRequest, repository};
use clap::{Parser, ValueEnum};
use example::{BCS, DemoApi, SERVICES};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

/// The driver in front of a small example API.
#[derive(Debug, Parser)]
#[command(name = "cargo task demo", bin_name = "cargo task demo")]
struct Arguments {
    /// `bcs` selects the API of BCS instead of the JSON API, and `traffic` sends requests to it.
    #[arg(value_enum)]
    parts: Vec<DemoPart>,
    /// The address of the driver; port 0 lets the system choose [default: 127.0.0.1:8080, with --once port 0].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Send the examples, check the answers, and stop.
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DemoPart {
    /// The API of BCS with two plugins, instead of a small JSON API of services.
    Bcs,
    /// Requests as several teams would send them, until the demo ends.
    Traffic,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(code) => code,
        Err(Error::Ended { log, .. }) => {
            // Before its error message, the driver has printed log lines in JSON. Only the error message is useful
            // here.
            for line in log.lines().filter(|line| !line.starts_with('{')) {
                eprintln!("{line}");
            }
            eprintln!("To use another port, run `cargo task demo --listen 127.0.0.1:0`.");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let listen = match arguments.listen {
        Some(listen) => listen,
        None if arguments.once => any_port,
        None => SocketAddr::from(([127, 0, 0, 1], 8080)),
    };
    let api = if arguments.parts.contains(&DemoPart::Bcs) {
        &BCS
    } else {
        &SERVICES
    };
    let upstream = FakeUpstream::start_watched(api.form, |request| println!("{}", arrival(request))).await?;
    let has_traffic = arguments.parts.contains(&DemoPart::Traffic);
    let mut driver = Serve::new(repository().join(api.directory).join("admittance.yaml"))?
        .listen(listen)
        .upstream(&upstream.url())
        .store(repository().join("target/demo-store"))
        .start()
        .await?;
    let url = driver.url("");
    println!(
        "\nThe driver listens on {url}, in front of an example API. Its console:\n  {}",
        driver.admin_url("/")
    );
    if arguments.once {
        let code = send_all(api, &driver, &upstream).await?;
        if has_traffic {
            traffic::send_few(api, &url).await?;
        }
        return Ok(code);
    }
    for example in &api.examples {
        println!("\n{}:\n  {}", example.title, example.curl(&url));
    }
    print_changes(api, &driver);
    let io = |source| Error::Io {
        operation: "a signal".into(),
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(io)?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.map_err(io)?;
            // Ctrl-C also sends a signal to the driver, which then exits by itself. The driver gets two seconds for
            // that, because a second signal would make it abort requests.
            if timeout(Duration::from_secs(2), driver.wait_for_end()).await.is_ok() {
                return Ok(ExitCode::SUCCESS);
            }
            driver.terminate()?;
        }
        _ = terminate.recv() => driver.terminate()?,
        exited = driver.wait_without_timeout() => {
            eprintln!("error: the driver ended with {}", exited?);
            return Ok(ExitCode::FAILURE);
        }
        sent = traffic::send(api, &url), if has_traffic => sent?,
    }
    driver.wait_for_end().await?;
    Ok(ExitCode::SUCCESS)
}

async fn send_all(api: &DemoApi, driver: &Admittance, upstream: &FakeUpstream) -> Result<ExitCode, Error> {
    let client = Client::new()?;
    let mut is_as_expected = true;
    for example in &api.examples {
        println!("\n{}:\n  {}", example.title, example.curl(&driver.url("")));
        let request_count = upstream.requests().len();
        let reply = client.send(example.request(&driver.url(""))?).await?;
        println!("{}\n{}", reply.status, reply.text().trim_end());
        let requests = upstream.requests().split_off(request_count);
        if let Err(difference) = example.check(&reply, &requests) {
            eprintln!("error: the result differs from what is expected: {difference}");
            is_as_expected = false;
        }
    }
    Ok(if is_as_expected {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print_changes(api: &DemoApi, driver: &Admittance) {
    let (
        DemoApi {
            directory,
            chain,
            change,
            ..
        },
        server,
    ) = (api, driver.admin_url(""));
    println!(
        "\nA hot reload: edit {directory}/{chain} (for example, {change}), and send the refused request again. The change is \
         live about two seconds later; why it is not:\n  target/debug/admittance status --server {server}\n\nA rollback \
         to the chain before that change:\n  target/debug/admittance rollback 1 --server {server}\n\nCtrl-C stops both.\n"
    );
}

fn arrival(request: &UpstreamRequest) -> String {
    let body = String::from_utf8_lossy(&request.body);
    let single_line: String = body.split_whitespace().flat_map(|word| [word, " "]).collect();
    let excerpt: String = single_line.chars().take(100).collect();
    format!("upstream: {} {}  {excerpt}", request.method, request.uri.path())
}
