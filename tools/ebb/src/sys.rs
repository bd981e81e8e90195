// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of a [`Session`](crate::Session), without the standard library. Those whose
//! functions in the C library are cancellation points are called by their numbers: no thread ends in
//! the middle of a call of this library, or of a handler.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::Error;

/// The part of `struct perf_event_attr` (uapi/linux/perf_event.h) that an EBB event fills in.
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

// PERF_ATTR_SIZE_VER1.
const _: () = assert!(size_of::<EventAttr>() == 72);

const PERF_TYPE_RAW: u32 = 4;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::Ioctl = 0x2401;
/// `_IOC_NONE` of this architecture, in an ioctl's upper bits.
const IOC_NONE: libc::Ioctl = 1 << 29;

const DISABLED: u64 = 1;
const PINNED: u64 = 1 << 2;
const EXCLUSIVE: u64 = 1 << 3;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;

/// The descriptor of a perf event, closed on drop. [`close`](Self::close) may come from any
/// thread.
pub(crate) struct Descriptor {
    fd: AtomicI32,
    /// The kernel's number of the event: the program may have put another file at `fd`.
    id: AtomicU64,
}

impl Descriptor {
    /// Of no event yet.
    pub(crate) const fn none() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            id: AtomicU64::new(0),
        }
    }

    /// Opens an event of the calling thread, on any CPU: pinned, exclusive and disabled, or a
    /// member of `leader`'s group. Fails with the kernel's errno.
    pub(crate) fn open(&self, config: u64, config1: u64, leader: Option<&Self>) -> Result<(), i32> {
        let user_only = EXCLUDE_KERNEL | EXCLUDE_HV | EXCLUDE_IDLE;
        let attr = EventAttr {
            kind: PERF_TYPE_RAW,
            // CAST: 72.
            size: size_of::<EventAttr>() as u32,
            config,
            config1,
            flags: match leader {
                None => user_only | DISABLED | PINNED | EXCLUSIVE,
                Some(_) => user_only,
            },
            ..EventAttr::default()
        };
        let group = leader.map_or(-1, Self::raw);
        // SAFETY: the kernel only reads the structure, whose size it is told.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                0,
                -1,
                group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => {
                match event_id(fd) {
                    Ok(id) => self.id.store(id, Relaxed),
                    Err(REVOKED) => {}
                    Err(errno) => {
                        // A filter of system calls forbids it: nothing could be done to the event.
                        // SAFETY: nobody has it.
                        unsafe { libc::syscall(libc::SYS_close, fd) };
                        return Err(errno);
                    }
                }
                self.fd.store(fd, Relaxed);
                Ok(())
            }
            _ => Err(errno()),
        }
    }

    /// The descriptor, or -1 once it is closed.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.load(Relaxed)
    }

    /// Closes it, if nobody has: what the program has opened in its place stays.
    pub(crate) fn close(&self) {
        let fd = self.fd.swap(-1, Relaxed);
        if fd >= 0 && self.is_at(fd) {
            // SAFETY: it is still the event, and nobody else closes it.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }

    /// Moves it to a number that is `least` or above, if there is one.
    pub(crate) fn move_up(&self, least: i32) {
        let old = self.raw();
        // SAFETY: without pointers; of what is no descriptor there is no copy.
        let new = unsafe { libc::fcntl(old, libc::F_DUPFD_CLOEXEC, least) };
        if new >= 0 {
            self.fd.store(new, Relaxed);
            // SAFETY: it was open, and nobody has it any more.
            unsafe { libc::syscall(libc::SYS_close, old) };
        }
    }

    /// Enables the group of a leader.
    pub(crate) fn enable(&self) -> Result<(), Error> {
        self.ioctl("PERF_EVENT_IOC_ENABLE", IOC_NONE | PERF_EVENT_IOC_ENABLE)
    }

    /// Disables the group of a leader: it is off the PMU when this returns.
    pub(crate) fn disable(&self) -> Result<(), Error> {
        self.ioctl("PERF_EVENT_IOC_DISABLE", IOC_NONE | PERF_EVENT_IOC_DISABLE)
    }

    fn ioctl(&self, what: &'static str, request: libc::Ioctl) -> Result<(), Error> {
        let fd = self.raw();
        // Whoever closes the session at this time leaves the number to the program's other events,
        // which this would turn on or off.
        if !self.is_at(fd) {
            return Err(Error::Closed);
        }
        // SAFETY: an ioctl without a pointer.
        match unsafe { libc::ioctl(fd, request, 0) } {
            -1 => Err(self.failed(what, errno())),
            _ => Ok(()),
        }
    }

    /// Whether the file at `fd` is the event, which may be revoked.
    fn is_at(&self, fd: i32) -> bool {
        match event_id(fd) {
            Ok(id) => id == self.id.load(Relaxed),
            // Other files may say so, but have room for nothing.
            Err(errno) => errno == REVOKED && read_nothing(fd) == libc::ENOSPC,
        }
    }

    /// That of a system call; a signal's handler may have closed the descriptor.
    fn failed(&self, what: &'static str, errno: i32) -> Error {
        match self.raw() {
            -1 => Error::Closed,
            _ if errno == REVOKED => Error::Revoked,
            _ => Error::System {
                what,
                errno,
                rule: None,
            },
        }
    }

    /// Whether an enabled group is on the PMU when its thread runs, that is not in error state.
    /// [`Error::Revoked`] if it has lost the PMU for good: another driver has taken that over.
    ///
    /// The kernel looks at the error state before it finds that there is no room for the count. Nothing
    /// is read: once the session is closed, the descriptor may be that of another file.
    pub(crate) fn is_scheduled(&self) -> Result<bool, Error> {
        match read_nothing(self.raw()) {
            0 => Ok(false),
            // That of an event that is revoked, too.
            libc::ENOSPC if event_id(self.raw()) == Err(REVOKED) => Err(Error::Revoked),
            libc::ENOSPC => Ok(true),
            errno => Err(self.failed("read of the event", errno)),
        }
    }
}

/// The errno of all requests to an event that was revoked.
const REVOKED: i32 = libc::ENODEV;

/// What a read of no bytes at `fd` fails with, or 0; the program's errno stays, which is that of the
/// interrupted code if a handler asks.
fn read_nothing(fd: i32) -> i32 {
    let nothing = ptr::null_mut::<u64>();
    let before = errno();
    // SAFETY: no bytes are stored.
    match unsafe { libc::syscall(libc::SYS_read, fd, nothing, 0_usize) } {
        -1 => {
            let failed = errno();
            set_errno(before);
            failed
        }
        _ => 0,
    }
}

/// The kernel's number of the event at `fd`, or the errno if it does not tell; that of the program
/// stays.
fn event_id(fd: i32) -> Result<u64, i32> {
    /// `PERF_EVENT_IOC_ID`.
    const ID: libc::c_ulong = 0x4008_2407;
    let mut id = 0_u64;
    let before = errno();
    // SAFETY: the call stores to the variable at most.
    match unsafe { libc::syscall(libc::SYS_ioctl, fd, ID, &raw mut id) } {
        0 => Ok(id),
        _ => {
            let failed = errno();
            set_errno(before);
            Err(failed)
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.close();
    }
}

/// Maps the first page of an event's buffer; its address, or 0 if the kernel allows this user no
/// more such memory. With the page `poll` of the descriptor reports POLLERR for an event that
/// was evicted, and nothing before; without it POLLHUP before.
pub(crate) fn map_page(event: &Descriptor) -> usize {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    let (size, fd) = (page_size(), event.raw());
    // SAFETY: a new mapping, where the kernel has room.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, fd, 0) };
    match address {
        libc::MAP_FAILED => 0,
        _ => address.expose_provenance(),
    }
}

/// Gives it back.
///
/// # Safety
///
/// `address` is of [`map_page`], in this process; nobody refers to it.
pub(crate) unsafe fn unmap_page(address: usize) {
    // SAFETY: the caller's contract.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), page_size()) };
}

fn page_size() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(1 << 16)
}

/// Reads a small file into `buffer`; the part that it filled.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with 0.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the buffer is ours for its length; the descriptor is closed once.
    let length = unsafe {
        let length = libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, fd);
        length
    };
    let read = buffer.get(..usize::try_from(length).ok()?)?;
    core::str::from_utf8(read).ok()
}

/// The errno of the system call that failed last.
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library gives the address of this thread's.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: i32) {
    // SAFETY: the C library gives the address of this thread's.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread's id.
pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: asks for a number. CAST: a pid_t.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Address of this process' mark, or 0; and the highest of this process and those that it is a fork
/// of.
static MARK: AtomicUsize = AtomicUsize::new(0);
static HIGHEST_MARK: AtomicU64 = AtomicU64::new(0);

/// Has [`process`] tell this process from those that it is a fork of. Its number would not: a
/// descendant may have the same, by chance or as the first of a namespace.
pub(crate) fn mark_process() -> Result<(), Error> {
    if MARK.load(Relaxed) != 0 {
        return Ok(());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, where the kernel has room.
    let page = unsafe { libc::mmap(ptr::null_mut(), page_size(), access, flags, -1, 0) };
    // SAFETY: nobody has it yet; the kernel refuses an address that is none.
    if unsafe { libc::madvise(page, page_size(), libc::MADV_WIPEONFORK) } != 0 {
        return Err(Error::System {
            what: "mmap",
            errno: libc::ENOMEM,
            rule: Some("there is no memory"),
        });
    }
    let address = page.expose_provenance();
    if MARK.compare_exchange(0, address, Relaxed, Relaxed).is_err() {
        // SAFETY: nobody has it.
        unsafe { libc::munmap(page, page_size()) };
    }
    Ok(())
}

/// Returns the mark of this process. No ancestor of it has the same, and no child, except one that
/// shares its memory, as that of `vfork` does.
///
/// # Errors
///
/// [`Error::System`] if there is no memory for it.
pub fn process_mark() -> Result<u64, Error> {
    mark_process()?;
    Ok(process())
}

/// The process' mark. The kernel clears it in the child of a fork, which then makes its own.
pub(crate) fn process() -> u64 {
    let mark = ptr::with_exposed_provenance::<AtomicU64>(MARK.load(Relaxed));
    // SAFETY: `mark_process` came before, and the page stays.
    let mark = unsafe { &*mark };
    match mark.load(Relaxed) {
        0 => {
            let new = HIGHEST_MARK.fetch_add(1, Relaxed) + 1;
            let made = mark.compare_exchange(0, new, Relaxed, Relaxed);
            made.map_or_else(|others| others, |_| new)
        }
        made => made,
    }
}

/// Lets others run, of any priority.
pub(crate) fn sleep_shortly() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: the time is there; what is left of it is not asked for.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0_usize) };
}
