//! Background traffic of several teams, so that the console has content.

use std::time::Duration;

use admittance_tests::{Client, Error};
use http::{Method, Request};
use serde_json::json;

use crate::example::DemoApi;

const FEW: usize = 60;

/// Sends random requests at irregular intervals, until one gets no reply or the caller drops the future.
pub(crate) async fn send(api: &DemoApi, driver: &str) -> Result<(), Error> {
    let mut random = fastrand::Rng::new();
    let client = Client::new()?;
    loop {
        client.send(request(api, driver, &mut random)?).await?;
        tokio::time::sleep(Duration::from_millis(random.u64(20..400))).await;
    }
}

/// Sends the same sequence of random requests in every run, and prints how many of them were allowed and refused.
pub(crate) async fn send_few(api: &DemoApi, driver: &str) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(1);
    let client = Client::new()?;
    let mut allowed = 0;
    for _ in 0..FEW {
        let reply = client.send(request(api, driver, &mut random)?).await?;
        allowed += usize::from(reply.status.is_success());
    }
    println!("\ntraffic: {allowed} requests allowed, {} refused", FEW - allowed);
    Ok(())
}

/// Returns a random request that reads or writes a service. For the API of BCS, returns one of the examples.
fn request(api: &DemoApi, driver: &str, random: &mut fastrand::Rng) -> Result<Request<Vec<u8>>, Error> {
    const SERVICES: [(&str, &str, &str); 6] = [
        ("web", "nginx", "shop"),
        ("cart", "shop/cart", "shop"),
        ("payments", "finance/payments", "finance"),
        ("search", "opensearch", "search"),
        ("cache", "redis", "platform"),
        ("mail", "postfix", "platform"),
    ];
    if api.directory != crate::example::SERVICES.directory {
        return match random.choice(&api.examples) {
            Some(example) => example.request(driver),
            None => Err(Error::Invalid("the API has no examples".to_owned())),
        };
    }
    let (name, image, team) = random.choice(SERVICES).unwrap_or(("web", "nginx", "shop"));
    let url = format!("{driver}/v1/services/{name}");
    let (method, body) = if random.u8(0..10) < 3 {
        (Method::GET, Vec::new())
    } else {
        let replicas = if random.u8(0..10) == 0 {
            random.u8(6..20)
        } else {
            random.u8(1..=5)
        };
        let image = format!("{image}:1.{}", random.u8(10..30));
        let mut service = json!({"image": image, "replicas": replicas});
        if random.u8(0..4) > 0
            && let Some(fields) = service.as_object_mut()
        {
            fields.insert("team".to_owned(), team.into());
        }
        (Method::PUT, service.to_string().into_bytes())
    };
    Request::builder()
        .method(method)
        .uri(&url)
        .header("content-type", "application/json")
        .body(body)
        .map_err(|error| Error::Invalid(format!("{url}: {error}")))
}
