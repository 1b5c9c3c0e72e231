//! Provides the metrics that Prometheus' client libraries call `process_*`. They need the /proc of Linux.

#![allow(clippy::disallowed_methods, reason = "they are files of the kernel")]

use std::fs;

use admittance_net::metric_table;
use metrics::{counter, gauge};
use rustix::process::{Resource, getrlimit};

metric_table! {
    CPU = Counter Seconds "process_cpu_seconds_total" []
        "User and system processor time.";
    RESIDENT = Gauge Bytes "process_resident_memory_bytes" []
        "Resident memory.";
    VIRTUAL = Gauge Bytes "process_virtual_memory_bytes" []
        "Virtual memory.";
    OPEN_FDS = Gauge Count "process_open_fds" []
        "Open file descriptors.";
    MAX_FDS = Gauge Count "process_max_fds" []
        "The limit of open file descriptors.";
    START = Gauge Seconds "process_start_time_seconds" []
        "When the process started, since 1970.";
    THREADS = Gauge Count "process_threads" []
        "Threads.";
}

/// The unit in which the kernel reports processor time: hundredths of a second (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// Updates the metrics. If a value cannot be read, its metric is unchanged.
pub(crate) fn collect() {
    if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
        let stat = Stat::parse(&stat);
        if let Some(ticks) = stat.processor_ticks {
            counter!(CPU).absolute(ticks / TICKS_PER_SECOND);
        }
        if let (Some(ticks), Some(boot)) = (stat.start_ticks, boot_time()) {
            gauge!(START).set((boot + ticks / TICKS_PER_SECOND) as f64);
        }
        if let Some(threads) = stat.threads {
            gauge!(THREADS).set(threads as f64);
        }
    }
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        for (name, field) in [(RESIDENT, "VmRSS:"), (VIRTUAL, "VmSize:")] {
            if let Some(kibibytes) = number_after(&status, field) {
                gauge!(name).set((kibibytes << 10) as f64);
            }
        }
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        gauge!(OPEN_FDS).set(descriptors.count().saturating_sub(1) as f64);
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            gauge!(MAX_FDS).set(limit as f64);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    processor_ticks: Option<u64>,
    threads: Option<u64>,
    start_ticks: Option<u64>,
}

impl Stat {
    fn parse(stat: &str) -> Self {
        // /proc/PID/stat contains the name of the program in parentheses. The name may itself contain spaces and
        // parentheses, so the fields are counted from the last `)`.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
        Self {
            processor_ticks: field(14).zip(field(15)).map(|(user, system)| user + system),
            threads: field(20),
            start_ticks: field(22),
        }
    }
}

fn boot_time() -> Option<u64> {
    number_after(&fs::read_to_string("/proc/stat").ok()?, "btime ")
}

fn number_after(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_may_contain_spaces_and_parentheses() {
        let stat = "7 (a) 1 2 (b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 5 0 4200 1000 50";
        assert_eq!(
            Stat::parse(stat),
            Stat {
                processor_ticks: Some(42),
                threads: Some(5),
                start_ticks: Some(4200),
            }
        );
        assert_eq!(Stat::parse("").processor_ticks, None);
    }

    #[test]
    fn process_status_fields_are_found_by_name() {
        let status = "Name:\tadmittance\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1024));
        assert_eq!(number_after(status, "Threads:"), None);
    }
}
