//! The system-call filter of the front: hearing and answering callers, writing its log, waiting. Everything else fails.
use bastle_sys::seccomp::Instruction;
use libc::*;

/// What the front does once it is fenced. No opening, no connecting, no socket, no program, no child.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    SYS_accept4, SYS_brk, SYS_clock_gettime, SYS_close, SYS_exit, SYS_exit_group, SYS_fcntl, SYS_fdatasync, SYS_fstat,
    SYS_fsync, SYS_futex, SYS_getpid, SYS_getrandom, SYS_getsockopt, SYS_gettid, SYS_lseek, SYS_madvise, SYS_mmap,
    SYS_mprotect, SYS_mremap, SYS_munmap, SYS_pipe2, SYS_ppoll, SYS_pread64, SYS_read, SYS_recvfrom, SYS_recvmsg, SYS_restart_syscall,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sendmsg, SYS_sigaltstack, SYS_write, SYS_writev,
];

#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[SYS_poll];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[c_long] = &[];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// The program: one comparison per call. Numbers with the x32 bit are in no list.
pub(super) fn program() -> Vec<Instruction> {
    let refuse = one(RETURN, SECCOMP_RET_ERRNO | EPERM as u32, 0, 0);
    let mut program = vec![
        one(LOAD, ARCH, 0, 0),
        one(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        refuse,
        one(LOAD, NUMBER, 0, 0),
    ];
    for number in ALLOWED.iter().chain(ALLOWED_HERE) {
        program.push(one(JUMP_EQUAL, *number as u32, 0, 1));
        program.push(one(RETURN, SECCOMP_RET_ALLOW, 0, 0));
    }
    program.push(refuse);
    program
}

fn one(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn judge(arch: u32, number: u32) -> bool {
        let program = program();
        let (mut at, mut value) = (0_usize, 0_u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1 + match code {
                LOAD => {
                    value = if k == ARCH { arch } else { number };
                    0
                }
                JUMP_EQUAL if value == k => usize::from(jt),
                JUMP_EQUAL => usize::from(jf),
                RETURN => return k == SECCOMP_RET_ALLOW,
                _ => unreachable!(),
            };
        }
    }

    #[test]
    fn a_call_that_is_not_listed_or_comes_by_another_entry_is_refused() {
        for number in [
            SYS_openat,
            SYS_execve,
            SYS_clone,
            SYS_clone3,
            SYS_socket,
            SYS_connect,
            SYS_kill,
            SYS_ptrace,
            SYS_setns,
            SYS_mount,
            SYS_bpf,
            SYS_ioctl,
            SYS_prctl,
        ] {
            assert!(!judge(ARCHITECTURE, number as u32), "call {number}");
        }
        for number in ALLOWED {
            assert!(judge(ARCHITECTURE, *number as u32), "call {number}");
            assert!(
                !judge(0x4000_0003, *number as u32),
                "call {number} of another architecture"
            );
            assert!(
                !judge(ARCHITECTURE, *number as u32 | 0x4000_0000),
                "x32 call {number}"
            );
        }
    }
}
