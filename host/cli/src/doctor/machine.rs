//! Reads facts about this machine.

#![allow(
    clippy::disallowed_methods,
    reason = "the kernel's files are read once, before anything is served"
)]

use std::{fs, path::Path};

use rustix::process::{Resource, getrlimit};

use super::DoctorFinding;

/// The free disk space that the store or the history needs, in bytes.
pub(super) const NEEDED_SPACE: u64 = 1 << 30;

/// The first version of Linux in which threads that serve requests can interrupt threads that run plugins.
const MIN_KERNEL_VERSION: (u32, u32) = (6, 12);

/// The number of file descriptors that suffice for thousands of connections.
const MIN_DESCRIPTOR_COUNT: u64 = 65_536;

pub(super) struct MachineFacts {
    /// The release of the kernel, such as `6.12.3-amd64`; empty if it is unknown.
    kernel_release: String,
    /// The hard limit on file descriptors: the highest limit that a process may set for itself. `None` means unlimited.
    descriptors: Option<u64>,
}

impl MachineFacts {
    pub(super) fn read() -> Self {
        Self {
            kernel_release: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default(),
            descriptors: getrlimit(Resource::Nofile).maximum,
        }
    }

    pub(super) fn check_kernel(&self) -> DoctorFinding {
        let release = self.kernel_release.trim();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let version = numbers.next().zip(numbers.next());
        if version.is_some_and(|version| version < MIN_KERNEL_VERSION) {
            let message = format!(
                "Linux {release}: under load, requests wait some milliseconds longer than from Linux {}.{} on",
                MIN_KERNEL_VERSION.0, MIN_KERNEL_VERSION.1
            );
            return DoctorFinding::warning("kernel", message);
        }
        DoctorFinding::ok("kernel", format!("Linux {release}"))
    }

    pub(super) fn check_descriptors(&self) -> DoctorFinding {
        match self.descriptors {
            Some(limit) if limit < MIN_DESCRIPTOR_COUNT => DoctorFinding::warning(
                "open files",
                format!(
                    "at most {limit}, which limits connections: raise it (`LimitNOFILE={MIN_DESCRIPTOR_COUNT}` of systemd)"
                ),
            ),
            _ => DoctorFinding::ok("open files", "enough for thousands of connections"),
        }
    }
}

pub(super) fn free_space(path: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(path).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::{super::Severity, *};

    #[test]
    fn old_kernels_and_low_limits_give_warnings() {
        for (release, descriptors, expected) in [
            ("6.1.0-18-amd64", Some(1024), Severity::Warning),
            ("6.12.3", Some(1 << 20), Severity::Ok),
            ("7.0-rc1", None, Severity::Ok),
            ("", None, Severity::Ok),
        ] {
            let machine = MachineFacts {
                kernel_release: release.to_owned(),
                descriptors,
            };
            let findings = [machine.check_kernel(), machine.check_descriptors()];
            assert_eq!(findings.map(|finding| finding.severity), [expected; 2], "{release}");
        }
    }
}
