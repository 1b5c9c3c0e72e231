//! The demo's example requests, and the expected results.

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
    /// The upstream gets the object with these images, one per container.
    Images(&'static [&'static str]),
    /// The upstream gets nothing, and the client gets this status and a message with these words.
    Refused(u16, &'static [&'static str]),
    /// The upstream gets the body unchanged.
    Untouched,
}

pub(crate) const EXAMPLES: [Example; 3] = [
    Example {
        title: "An application gets a sidecar, and its images are rewritten to the mirror",
        file: "web.json",
        path: "/mesosdriver/v4/namespaces/shop/applications",
        promise: Promise::Images(&[
            "mirror.example.com/library/nginx:1.29",
            "mirror.example.com/ops/log-agent:2.4",
        ]),
    },
    Example {
        title: "An image tagged `latest` is denied",
        file: "latest.json",
        path: "/mesosdriver/v4/namespaces/shop/applications",
        promise: Promise::Refused(400, &["stage images of chain applications", "latest"]),
    },
    Example {
        title: "The same application in an excluded namespace passes unchanged",
        file: "system.json",
        path: "/mesosdriver/v4/namespaces/bcs-system/applications",
        promise: Promise::Untouched,
    },
];

impl Example {
    /// A command for a shell at the top of the repository.
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

    /// Compares the result with the expected one.
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
                    Err("the body was changed".into())
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
