//! A program that enters a sandbox after its pool was made, where the kernel refuses `membarrier(2)` from then on.
//!
//! A sandbox is for good, so that each test has a process of its own.

#![expect(unsafe_code, reason = "the sandbox is made by system calls")]

use std::{
    env,
    process::Command,
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use binpool_mock::MockDevice;

use crate::common::{Block, MIB, Pool, Rig};

const IS_CHILD: &str = "BINPOOL_TEST_SANDBOX";

/// Runs this module's test of this name again, in a process of its own, and there `run`. Not where the kernel has no such
/// barrier anyway, so that the pool never relies on it.
fn in_its_own_process(name: &str, run: fn()) {
    // SAFETY: it only asks what commands there are.
    if unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) } <= 0 {
        return;
    }
    if env::var_os(IS_CHILD).is_some() {
        return run();
    }
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("sandbox::{name}"), "--nocapture"])
        .env(IS_CHILD, "1")
        .output()
        .unwrap();
    let [told, failures] = [&child.stdout, &child.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(child.status.success(), "{told}\n{failures}");
    assert!(told.contains("1 passed"), "{told}");
}

/// Which commands of `membarrier` the kernel is to refuse.
#[derive(Clone, Copy)]
enum Refused {
    All,
    /// The one for the threads of one process.
    PrivateExpedited,
}

/// From now on the kernel refuses these, to all threads of the process.
fn enter_sandbox(refused: Refused) {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0);
    let skip_unless_equal =
        |value, skip| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skip);
    let answer = |answer| statement(libc::BPF_RET | libc::BPF_K, answer, 0);
    let number = u32::try_from(libc::SYS_membarrier).unwrap();
    let private_expedited = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED.cast_unsigned();
    let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
    let allow = answer(libc::SECCOMP_RET_ALLOW);
    // The number of the call comes first in `seccomp_data`, its first argument after 16 bytes.
    let filter = match refused {
        Refused::All => vec![load(0), skip_unless_equal(number, 1), refuse, allow],
        Refused::PrivateExpedited => vec![
            load(0),
            skip_unless_equal(number, 3),
            load(16),
            skip_unless_equal(private_expedited, 1),
            refuse,
            allow,
        ],
    };
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: it changes no memory.
    let is_set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(is_set, 0);
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: `program` and the filter that it points to are valid during the call, which only reads them.
    let is_in = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    assert_eq!(is_in, 0, "{}", std::io::Error::last_os_error());
}

fn statement(code: u32, k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: skip,
        k,
    }
}

/// A thread that keeps three free blocks of 16 MiB in its cache, and does what it is told in between.
struct Keeper {
    tell: Sender<fn(&Pool)>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Keeper {
    fn of(pool: &Pool) -> Self {
        let (tell, told) = mpsc::channel::<fn(&Pool)>();
        let (report, done) = mpsc::channel();
        let weak = pool.downgrade();
        let thread = thread::spawn(move || {
            for run in told {
                run(&weak.upgrade().unwrap());
                report.send(()).unwrap();
            }
        });
        let keeper = Self { tell, done, thread };
        keeper.has(|pool| drop([(); 3].map(|()| pool.allocate(16 * MIB).unwrap())));
        keeper
    }

    /// Has the thread do this.
    fn has(&self, run: fn(&Pool)) {
        self.tell.send(run).unwrap();
        self.done.recv().unwrap();
    }

    fn end(self) {
        drop(self.tell);
        self.thread.join().unwrap();
    }
}

/// A block for a thread to drop.
static GIVEN: Mutex<Option<Block>> = Mutex::new(None);

fn created_bytes(device: &MockDevice) -> u64 {
    device.statistics().created_bytes
}

#[test]
fn a_thread_that_comes_by_is_seen_again_and_one_that_ends_leaves_nothing() {
    in_its_own_process(
        "a_thread_that_comes_by_is_seen_again_and_one_that_ends_leaves_nothing",
        || {
            let Rig { device, pool, .. } = Rig::with_capacity(64 * MIB);
            let keeper = Keeper::of(&pool);
            enter_sandbox(Refused::All);
            // What it keeps counts as in use, for all that others can tell.
            assert_eq!(pool.active_blocks(), 3);
            assert!(pool.allocate(48 * MIB).is_err());
            // Whatever it comes by for: here to give a block back.
            *GIVEN.lock().unwrap() = Some(pool.allocate(100).unwrap());
            keeper.has(|_| drop(GIVEN.lock().unwrap().take()));
            assert_eq!((pool.active_blocks(), pool.held_blocks()), (0, 4));
            assert!(pool.allocate(48 * MIB).is_ok());
            // And so it remains, also with what the thread caches from now on.
            keeper.has(|pool| drop([(); 3].map(|()| pool.allocate(16 * MIB).unwrap())));
            assert_eq!(pool.active_blocks(), 0);
            assert!(pool.allocate(48 * MIB).is_ok());
            drop(pool);
            assert_eq!(created_bytes(&device), 0);
            keeper.end();
        },
    );
}

#[test]
fn memory_of_a_thread_that_never_comes_by_goes_with_it() {
    in_its_own_process(
        "memory_of_a_thread_that_never_comes_by_goes_with_it",
        || {
            let Rig { device, pool, .. } = Rig::with_capacity(64 * MIB);
            let keeper = Keeper::of(&pool);
            enter_sandbox(Refused::All);
            assert_eq!(pool.free_held(), 0);
            let weak = pool.downgrade();
            drop(pool);
            assert!(weak.upgrade().is_none());
            assert_eq!(created_bytes(&device), 48 << 20);
            keeper.end();
            assert_eq!(created_bytes(&device), 0);
        },
    );
}

#[test]
fn a_thread_that_ends_gives_its_blocks_to_the_pool() {
    in_its_own_process("a_thread_that_ends_gives_its_blocks_to_the_pool", || {
        let Rig { pool, .. } = Rig::with_capacity(64 * MIB);
        let keeper = Keeper::of(&pool);
        enter_sandbox(Refused::All);
        keeper.end();
        assert_eq!((pool.active_blocks(), pool.held_blocks()), (0, 3));
        assert!(pool.allocate(48 * MIB).is_ok());
    });
}

#[test]
fn a_recording_goes_on_with_threads_that_could_not_be_seen() {
    in_its_own_process(
        "a_recording_goes_on_with_threads_that_could_not_be_seen",
        || {
            let Rig { pool, .. } = Rig::with_capacity(64 * MIB);
            let keeper = Keeper::of(&pool);
            enter_sandbox(Refused::All);
            let recording = pool.record(std::io::sink()).unwrap();
            for _ in 0..10 {
                keeper.has(|pool| drop(pool.allocate(100).unwrap()));
            }
            let summary = recording.finish().unwrap();
            assert_eq!((summary.allocations, summary.frees), (10, 10));
        },
    );
}

#[test]
fn where_the_kernel_has_another_barrier_everything_is_as_before() {
    in_its_own_process(
        "where_the_kernel_has_another_barrier_everything_is_as_before",
        || {
            let Rig { device, pool, .. } = Rig::with_capacity(64 * MIB);
            let keeper = Keeper::of(&pool);
            enter_sandbox(Refused::PrivateExpedited);
            assert_eq!(pool.active_blocks(), 0);
            assert!(pool.allocate(48 * MIB).is_ok());
            drop(pool);
            assert_eq!(created_bytes(&device), 0);
            keeper.end();
        },
    );
}
