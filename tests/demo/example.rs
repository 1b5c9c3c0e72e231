//! The requests that the demo proposes, and what comes of each.

use std::fs;

use admittance_tests::{Admittance, Error, Received, Reply, repository};
use serde_json::Value;

/// One request to try.
pub(crate) struct Example {
    pub(crate) title: &'static str,
    /// The body, in `docs/examples/demo`.
    file: &'static str,
    pub(crate) path: &'static str,
    promise: Promise,
}

enum Promise {
    /// The upstream gets the object with these images, one for each container.
    Images(&'static [&'static str]),
    /// The upstream gets nothing, and the client this status and a message with these words.
    Refused(u16, &'static [&'static str]),
    /// The upstream gets the client's bytes.
    Untouched,
}

pub(crate) const EXAMPLES: [Example; 3] = [
    Example {
        title: "An application gains a sidecar, and its images come from the mirror",
        file: "web.json",
        path: "/mesosdriver/v4/namespaces/shop/applications",
        promise: Promise::Images(&[
            "mirror.example.com/library/nginx:1.29",
            "mirror.example.com/ops/log-agent:2.4",
        ]),
    },
    Example {
        title: "An image without a fixed version is refused",
        file: "latest.json",
        path: "/mesosdriver/v4/namespaces/shop/applications",
        promise: Promise::Refused(400, &["stage images of chain applications", "latest"]),
    },
    Example {
        title: "The same in an excluded namespace passes untouched",
        file: "system.json",
        path: "/mesosdriver/v4/namespaces/bcs-system/applications",
        promise: Promise::Untouched,
    },
];

impl Example {
    /// A line for a shell at the top of the repository.
    pub(crate) fn curl(&self, driver: &Admittance) -> String {
        format!(
            "curl -s {} -H 'BCS-ClusterID: BCS-MESOS-10001' -d @docs/examples/demo/{}",
            driver.url(self.path),
            self.file
        )
    }

    pub(crate) fn body(&self) -> Result<Vec<u8>, Error> {
        let path = repository().join("docs/examples/demo").join(self.file);
        fs::read(&path).map_err(|source| Error::Io {
            what: path.display().to_string(),
            source,
        })
    }

    /// Whether what came of it is what was promised.
    pub(crate) fn check(&self, reply: &Reply, received: &[Received]) -> Result<(), String> {
        let status = reply.status.as_u16();
        match (&self.promise, received) {
            (Promise::Refused(expected, words), []) => {
                let body = reply.json().map_err(|error| error.to_string())?;
                let message = body
                    .pointer("/message")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                match words.iter().find(|words| !message.contains(**words)) {
                    None if status == *expected => Ok(()),
                    None => Err(format!("the status is {status}")),
                    Some(words) => Err(format!("`{words}` is not in `{message}`")),
                }
            }
            (Promise::Images(expected), [received]) => {
                let object = received.json().map_err(|error| error.to_string())?;
                match images(&object) {
                    found if found == *expected && status == 200 => Ok(()),
                    found => Err(format!("the images are {found:?}, the status {status}")),
                }
            }
            (Promise::Untouched, [received]) => {
                let sent = self.body().map_err(|error| error.to_string())?;
                if received.body == sent && status == 200 {
                    Ok(())
                } else {
                    Err("the body is another".into())
                }
            }
            (_, received) => Err(format!("the upstream got {} requests", received.len())),
        }
    }
}

/// The images of an object's containers, in their order.
pub(crate) fn images(object: &Value) -> Vec<&str> {
    let containers = object
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("image")?.as_str())
        .collect()
}
