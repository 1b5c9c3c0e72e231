//! Whether compiled code may be mapped into memory from the files of a directory.

use std::path::Path;

/// Returns whether files of this directory can be mapped for execution, and stay readable while they are mapped even if
/// another program removes them. A file on network storage does not: a program that used its pages would be killed.
#[cfg(target_os = "linux")]
pub(super) fn is_safe_in(directory: &Path) -> bool {
    use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

    /// The types of local file systems: btrfs, ext2 to ext4, F2FS, overlayfs, tmpfs, XFS, and ZFS. See statfs(2).
    const LOCAL: [u64; 7] = [
        0x9123_683e,
        0xef53,
        0xf2f5_2010,
        0x794c_7630,
        0x0102_1994,
        0x5846_5342,
        0x2fc1_2fc1,
    ];
    let is_local = statfs(directory).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64)));
    let executes = statvfs(directory).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::NOEXEC));
    is_local && executes
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_safe_in(_: &Path) -> bool {
    false
}
