//! Counts the driver's memory allocations for a request, in this process.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use admittance::Host;
use admittance_driver::{Config, Connections, Driver, Shutdown};

use crate::{COUNTED, WARM_UP, configure_proxy, configure_webhook, count_alone, creation, exchange, review};

/// The system's allocator, which also counts the blocks and bytes that this process allocates.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; all calls are passed on unchanged"
)]
// SAFETY: Every call is passed on to the system's allocator, with the same arguments.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: The caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: The caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: The caller upholds the same contract.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: The caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

fn count(size: usize) {
    BLOCKS.fetch_add(1, Relaxed);
    BYTES.fetch_add(size as u64, Relaxed);
}

/// Prints and returns how many blocks of memory the driver allocates for a request.
fn blocks_per_request(label: &str, config: &Path, request: &[u8]) -> u64 {
    let _alone = count_alone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let chain = config.with_file_name("chain.yaml");
    let config = Config::read(config).unwrap();
    let driver = runtime.block_on(async {
        let mut host = Host::builder();
        if chain.exists() {
            host = host.definitions(chain);
        }
        let host = host.build().await.unwrap();
        Driver::bind(config, Connections::default(), host, None).await.unwrap()
    });
    let address = driver.address();
    let shutdown = Shutdown::default();
    let running = runtime.spawn(driver.run(shutdown.clone()));
    let mut connection = exchange::MeasuredConnection::open(address);
    connection.send(request, WARM_UP);
    let before = (BLOCKS.load(Relaxed), BYTES.load(Relaxed));
    connection.send(request, COUNTED);
    let after = (BLOCKS.load(Relaxed), BYTES.load(Relaxed));
    drop(connection);
    shutdown.signal();
    runtime.block_on(running).unwrap();
    let blocks = (after.0 - before.0) / COUNTED as u64;
    let bytes = (after.1 - before.1) / COUNTED as u64;
    println!("{label}: {blocks} allocations of {bytes} bytes for each request");
    blocks
}

#[test]
fn a_review_with_one_plugin_allocates_no_more_than_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let config = configure_webhook(directory.path());
    let blocks = blocks_per_request("review with one plugin", &config, &review());
    assert!(blocks <= 101, "{blocks} allocations");
}

#[test]
fn a_proxied_request_allocates_no_more_than_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let config = configure_proxy(directory.path(), exchange::start_upstream());
    let blocks = blocks_per_request("proxied request", &config, &creation());
    assert!(blocks <= 43, "{blocks} allocations");
}
