//! Decides whether compiled code in a directory can be mapped into memory.

use std::path::Path;

/// Returns whether compiled code in this directory can be mapped into memory safely. Network storage is not safe: if
/// another program removes a mapped file there, the process that has mapped it is killed.
#[cfg(target_os = "linux")]
pub(super) fn is_safe_in(directory: &Path) -> bool {
    use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

    /// The magic numbers of local file systems, from statfs(2).
    const LOCAL: [u64; 7] = [
        0x9123_683e, // btrfs
        0xef53,      // ext2, ext3 and ext4
        0xf2f5_2010, // F2FS
        0x794c_7630, // overlayfs
        0x0102_1994, // tmpfs
        0x5846_5342, // XFS
        0x2fc1_2fc1, // ZFS
    ];
    let is_local = statfs(directory).is_ok_and(|file_system| LOCAL.contains(&(file_system.f_type as u64)));
    let allows_execution =
        statvfs(directory).is_ok_and(|file_system| !file_system.f_flag.contains(StatVfsMountFlags::NOEXEC));
    is_local && allows_execution
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_safe_in(_: &Path) -> bool {
    false
}
