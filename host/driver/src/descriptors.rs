//! How many files and connections the system lets this process open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are for other things than connections: files, webhooks, registries, the operator's port.
const RESERVED: u64 = 512;

/// Raise the limit of open file descriptors as far as the system allows: the soft limit is often 1024, for
/// programs that use `select`. Call it once, at the start.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::debug!(%error, "the limit of open file descriptors stays as it is");
    }
}

/// How many connections of clients the limit allows.
pub(crate) fn connections() -> usize {
    of_limit(getrlimit(Resource::Nofile).current)
}

/// Each connection of a client may need another one to the upstream. `None` is no limit.
fn of_limit(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.unwrap_or(u64::MAX);
    // Where there are few, half of them.
    let for_connections = descriptors.saturating_sub(RESERVED).max(descriptors / 2);
    usize::try_from(for_connections / 2)
        .unwrap_or(usize::MAX)
        .clamp(1, 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_limit() {
        for (descriptors, connections) in [
            (Some(1024), 256),
            (Some(256), 64),
            (Some(20_000), 9744),
            (Some(65_536), 32_512),
            (Some(1), 1),
            (None, 1_000_000),
        ] {
            assert_eq!(of_limit(descriptors), connections, "{descriptors:?}");
        }
    }
}
