//! Confines the compiler process: the kernel lets it use only memory, threads and its standard streams.
//!
//! The author of a module chooses the compiler's input. Even if a bug in the compiler lets this input run other code,
//! that code can open no file or socket, start no program, and affect no other process.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn confine() -> Result<(), String> {
    filters::apply_filters().map_err(|error| error.to_string())
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn confine() -> Result<(), String> {
    Err("this system has no seccomp".to_owned())
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filters {
    use std::{collections::BTreeMap, env::consts::ARCH, process};

    use libc::c_long;
    use seccompiler::{
        BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        apply_filter_all_threads,
    };

    /// The system calls that are allowed with any arguments: none of them opens, sends, starts or signals anything.
    const HARMLESS_CALLS: [c_long; 32] = [
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        // `clone3` is refused with `ENOSYS`, by a separate filter that `apply_filters` installs. It must be in this
        // list as well, because otherwise it would be refused with `EPERM`.
        libc::SYS_clone3,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_madvise,
        libc::SYS_membarrier,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_nanosleep,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_set_robust_list,
        libc::SYS_set_tid_address,
        libc::SYS_sigaltstack,
        libc::SYS_write,
        libc::SYS_writev,
    ];

    /// Confines all threads of this process, including later ones. The process can no longer gain privileges.
    pub(super) fn apply_filters() -> Result<(), Error> {
        // A filter cannot see the flags of the system call `clone3`. So `clone3` always fails with `ENOSYS`, as on an
        // old kernel, and C libraries then use `clone` instead.
        let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        let clone3 = [(libc::SYS_clone3, Vec::new())].into();
        apply_filter_all_threads(&compile_filter(clone3, SeccompAction::Allow, unknown)?)?;

        let thread = libc::CLONE_THREAD.cast_unsigned().into();
        let mut allowed_calls: BTreeMap<c_long, Vec<SeccompRule>> =
            HARMLESS_CALLS.map(|call| (call, Vec::new())).into();
        allowed_calls.extend([
            (
                libc::SYS_clone,
                vec![first_argument_rule(SeccompCmpOp::MaskedEq(thread), thread)?],
            ),
            (
                libc::SYS_prctl,
                vec![first_argument_rule(
                    SeccompCmpOp::Eq,
                    libc::PR_SET_NAME.cast_unsigned().into(),
                )?],
            ),
            // The C function `abort` needs this system call. It is allowed only for signals from the process to itself.
            (
                libc::SYS_tgkill,
                vec![first_argument_rule(SeccompCmpOp::Eq, process::id().into())?],
            ),
        ]);
        let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        apply_filter_all_threads(&compile_filter(allowed_calls, refusal, SeccompAction::Allow)?)
    }

    fn compile_filter(
        calls: BTreeMap<c_long, Vec<SeccompRule>>,
        default_action: SeccompAction,
        listed_action: SeccompAction,
    ) -> Result<BpfProgram, Error> {
        Ok(SeccompFilter::new(calls, default_action, listed_action, ARCH.try_into()?)?.try_into()?)
    }

    fn first_argument_rule(operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
        Ok(SeccompRule::new(vec![condition])?)
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::{
        fs::{self, File},
        io,
        net::{TcpListener, TcpStream, UdpSocket},
        os::unix::net::UnixStream,
        process::{self, Command},
    };

    use super::*;

    /// The environment variable that is set in a child process. The test confines only this child process, because a
    /// confined process cannot be freed again, and other tests run in the parent process.
    const CHILD_VARIABLE: &str = "ADMITTANCE_TEST_CONFINED";
    const TEST_NAME: &str = "confinement::tests::a_confined_process_cannot_open_files_or_sockets";

    #[test]
    fn a_confined_process_cannot_open_files_or_sockets() {
        if std::env::var_os(CHILD_VARIABLE).is_some() {
            // The test harness writes files when a test ends, which a confined process cannot do. So the process exits
            // before the test ends.
            process::exit(if confine_and_check() { 0 } else { 1 });
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST_NAME, "--nocapture"])
            .env(CHILD_VARIABLE, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
    }

    fn confine_and_check() -> bool {
        let file = File::open("/proc/self/status").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let parent = rustix::process::getppid().unwrap();
        confine().unwrap();
        let check_refused = |operation: &str, result: io::Result<()>| {
            let is_refused = result
                .as_ref()
                .is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
            if !is_refused {
                eprintln!("{operation}: {result:?}");
            }
            is_refused
        };
        let directory = std::env::temp_dir();
        let mut outcomes = [
            check_refused("a file", File::open("/etc/passwd").map(drop)),
            check_refused("a new file", fs::write(directory.join("confined"), "a")),
            check_refused("a directory", fs::read_dir(&directory).map(drop)),
            check_refused("the size of a file", file.metadata().map(drop)),
            check_refused("a listener", TcpListener::bind("127.0.0.1:0").map(drop)),
            check_refused("a connection", TcpStream::connect(address).map(drop)),
            check_refused("an incoming connection", listener.accept().map(drop)),
            check_refused("a datagram", UdpSocket::bind("127.0.0.1:0").map(drop)),
            check_refused("a socket in a file", UnixStream::connect("/run/a.sock").map(drop)),
            check_refused("a program", Command::new("/bin/true").status().map(drop)),
            check_refused(
                "a signal",
                rustix::process::kill_process(parent, rustix::process::Signal::CONT).map_err(Into::into),
            ),
        ]
        .into_iter();
        let threads = std::thread::Builder::new()
            .name("confined".to_owned())
            .spawn(|| File::open("/etc/passwd").is_err());
        outcomes.all(|refused| refused) && threads.unwrap().join().unwrap()
    }
}
