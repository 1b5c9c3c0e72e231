//! The demo: the driver with two plugins in front of a small example upstream, and `curl` commands to try.
//! `cargo task demo` compiles what it needs and starts it.

mod example;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use admittance_tests::{Admittance, Client, Error, Received, Serve, Upstream, repository};
use clap::Parser;
use example::{EXAMPLES, images};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

/// The driver with two plugins in front of a small example upstream.
#[derive(Debug, Parser)]
#[command(name = "cargo task demo", bin_name = "cargo task demo")]
struct Arguments {
    /// The address of the driver; port 0 lets the system choose [default: 127.0.0.1:8080, with --once port 0].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Send the examples, check the answers, and stop.
    #[arg(long)]
    once: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(code) => code,
        Err(Error::Ended { log, .. }) => {
            // The driver's error message, without the log lines before it.
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
    let upstream = Upstream::watched(any_port, |received| println!("{}", arrival(received))).await?;
    let mut driver = Serve::new(repository().join("docs/examples/demo/admittance.yaml"))?
        .listen(listen)
        .upstream(&upstream.url())
        .store(repository().join("target/demo-store"))
        .start()
        .await?;
    println!(
        "\nThe driver listens on {}, in front of an example upstream.",
        driver.url("")
    );
    if arguments.once {
        return send_all(&driver, &upstream).await;
    }
    for example in &EXAMPLES {
        println!("\n{}:\n  {}", example.title, example.curl(&driver));
    }
    println!(
        "\nThe chain is docs/examples/demo/chains/applications.yaml. Edit it, and send a request again: it is live within a \
         second. To see what is live, and why a change is not:\n  target/debug/admittance status --server {}\n\nCtrl-C stops both.\n",
        driver.admin_url("")
    );
    let io = |source| Error::Io {
        what: "a signal".into(),
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(io)?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.map_err(io)?;
            // The terminal has sent the signal to the driver too, and a second one would cut requests off.
            if timeout(Duration::from_secs(2), driver.ended()).await.is_ok() {
                return Ok(ExitCode::SUCCESS);
            }
            driver.terminate()?;
        }
        _ = terminate.recv() => driver.terminate()?,
        exited = driver.exited() => {
            eprintln!("error: the driver ended with {}", exited?);
            return Ok(ExitCode::FAILURE);
        }
    }
    driver.ended().await?;
    Ok(ExitCode::SUCCESS)
}

/// Sends every example as `curl` would, and prints the result.
async fn send_all(driver: &Admittance, upstream: &Upstream) -> Result<ExitCode, Error> {
    let client = Client::new()?;
    let mut as_promised = true;
    for example in &EXAMPLES {
        println!("\n{}:\n  {}", example.title, example.curl(driver));
        let before = upstream.received().len();
        let reply = client
            .bcs(http::Method::POST, &driver.url(example.path), example.body()?)
            .await?;
        println!("{}\n{}", reply.status, reply.text().trim_end());
        let received = upstream.received().split_off(before);
        if let Err(difference) = example.check(&reply, &received) {
            eprintln!("error: the result differs from what is expected: {difference}");
            as_promised = false;
        }
    }
    Ok(if as_promised {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A line for a request that reached the upstream.
fn arrival(received: &Received) -> String {
    let body = received.json().unwrap_or_default();
    let images = images(&body).join(", ");
    format!(
        "upstream: {} {}  images: {images}",
        received.method,
        received.uri.path()
    )
}
