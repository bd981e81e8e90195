// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of a [`Session`](crate::Session), without the standard library. System calls
//! that are cancellation points in the C library are made with `syscall`, so that no thread is
//! cancelled inside a call of this library or inside a handler.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::Error;

/// The part of `struct perf_event_attr` (uapi/linux/perf_event.h) that is set for an EBB event.
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

// The size is PERF_ATTR_SIZE_VER1.
const _: () = assert!(size_of::<EventAttr>() == 72);

const PERF_TYPE_RAW: u32 = 4;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::Ioctl = 0x2401;
/// `_IOC_NONE` of this architecture, in the upper bits of an ioctl number.
const IOC_NONE: libc::Ioctl = 1 << 29;

const DISABLED: u64 = 1;
const PINNED: u64 = 1 << 2;
const EXCLUSIVE: u64 = 1 << 3;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;
const REMOVE_ON_EXEC: u64 = 1 << 36;

/// The descriptor of a perf event, closed on drop. Any thread may call [`close`](Self::close).
pub(crate) struct Descriptor {
    fd: AtomicI32,
    /// The kernel's id of the event, to detect that the program has put another file at `fd`.
    id: AtomicU64,
}

impl Descriptor {
    /// Returns a descriptor without an event.
    pub(crate) const fn none() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            id: AtomicU64::new(0),
        }
    }

    /// Opens an event of the calling thread, on any CPU: pinned, exclusive and disabled, or a
    /// member of `leader`'s group. It ends when the thread executes another program. Returns the
    /// kernel's errno on failure.
    pub(crate) fn open(&self, config: u64, config1: u64, leader: Option<&Self>) -> Result<(), i32> {
        // `PERF_FLAG_FD_CLOEXEC` is not enough: a forked process may have a copy of the descriptor,
        // and a process that reads from /proc keeps the mapping of `map_page`. The event would keep
        // the PMU from the new program.
        let common = EXCLUDE_KERNEL | EXCLUDE_HV | EXCLUDE_IDLE | REMOVE_ON_EXEC;
        let attr = EventAttr {
            kind: PERF_TYPE_RAW,
            // CAST: The size is 72, see above.
            size: size_of::<EventAttr>() as u32,
            config,
            config1,
            flags: match leader {
                None => common | DISABLED | PINNED | EXCLUSIVE,
                Some(_) => common,
            },
            ..EventAttr::default()
        };
        let group = leader.map_or(-1, Self::raw);
        // SAFETY: The kernel only reads the structure, whose size is in its `size` field.
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
                        // A seccomp filter forbids the ioctl, so the event could not be used.
                        // SAFETY: No other code has this new descriptor.
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

    /// Returns the descriptor's number, or -1 once it is closed.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.load(Relaxed)
    }

    /// Closes the event unless it is closed. A file that the program has opened in its place stays
    /// open.
    pub(crate) fn close(&self) {
        let fd = self.fd.swap(-1, Relaxed);
        if fd >= 0 && self.is_at(fd) {
            // SAFETY: `fd` is still the event, and the swap lets only one caller close it.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }

    /// Moves the descriptor to a number of `least` or above, if one is free.
    pub(crate) fn move_up(&self, least: i32) {
        let old = self.raw();
        // SAFETY: The call takes no pointers, and fails if `old` is no descriptor.
        let new = unsafe { libc::fcntl(old, libc::F_DUPFD_CLOEXEC, least) };
        if new >= 0 {
            self.fd.store(new, Relaxed);
            // SAFETY: `old` was open, and `fd` no longer refers to it.
            unsafe { libc::syscall(libc::SYS_close, old) };
        }
    }

    /// Enables the group of a leader.
    pub(crate) fn enable(&self) -> Result<(), Error> {
        self.ioctl("PERF_EVENT_IOC_ENABLE", IOC_NONE | PERF_EVENT_IOC_ENABLE)
    }

    /// Disables the group of a leader. It is off the PMU when this returns.
    pub(crate) fn disable(&self) -> Result<(), Error> {
        self.ioctl("PERF_EVENT_IOC_DISABLE", IOC_NONE | PERF_EVENT_IOC_DISABLE)
    }

    fn ioctl(&self, what: &'static str, request: libc::Ioctl) -> Result<(), Error> {
        let fd = self.raw();
        // If the session is closed at this time, the number may be reused for another event of the
        // program, which this call would enable or disable.
        if !self.is_at(fd) {
            return Err(Error::Closed);
        }
        // SAFETY: The ioctl takes no pointer.
        match unsafe { libc::ioctl(fd, request, 0) } {
            -1 => Err(self.failed(what, errno())),
            _ => Ok(()),
        }
    }

    /// Returns whether the file at `fd` is the event, including an event that was revoked.
    fn is_at(&self, fd: i32) -> bool {
        match event_id(fd) {
            Ok(id) => id == self.id.load(Relaxed),
            // Other files may also return this errno, but do not fail a read with ENOSPC.
            Err(errno) => errno == REVOKED && read_nothing(fd) == libc::ENOSPC,
        }
    }

    /// Converts the errno of a system call. A signal handler may have closed the descriptor.
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

    /// Returns whether an enabled group is on the PMU while its thread runs, that is, not in error
    /// state. Fails with [`Error::Revoked`] if another driver has taken over the PMU for good.
    ///
    /// A read of no bytes is enough, because the kernel checks the error state before the size of
    /// the buffer. Reading bytes would be wrong: once the session is closed, the descriptor's
    /// number may belong to another file.
    pub(crate) fn is_scheduled(&self) -> Result<bool, Error> {
        match read_nothing(self.raw()) {
            0 => Ok(false),
            // A revoked event also fails a read with ENOSPC.
            libc::ENOSPC if event_id(self.raw()) == Err(REVOKED) => Err(Error::Revoked),
            libc::ENOSPC => Ok(true),
            errno => Err(self.failed("read of the event", errno)),
        }
    }
}

/// The errno of all requests to an event that was revoked.
const REVOKED: i32 = libc::ENODEV;

/// Returns the errno of a read of no bytes from `fd`, or 0. Preserves the C library's errno, which
/// belongs to the interrupted code if a handler calls this.
fn read_nothing(fd: i32) -> i32 {
    let nothing = ptr::null_mut::<u64>();
    let before = errno();
    // SAFETY: The kernel stores no bytes.
    match unsafe { libc::syscall(libc::SYS_read, fd, nothing, 0_usize) } {
        -1 => {
            let failed = errno();
            set_errno(before);
            failed
        }
        _ => 0,
    }
}

/// Returns the kernel's id of the event at `fd`, or the errno. Preserves the C library's errno.
fn event_id(fd: i32) -> Result<u64, i32> {
    /// `PERF_EVENT_IOC_ID`.
    const ID: libc::c_ulong = 0x4008_2407;
    let mut id = 0_u64;
    let before = errno();
    // SAFETY: The kernel stores at most the 8 bytes of `id`.
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

/// Maps the first page of an event's buffer. Returns its address, or 0 if the kernel allows this
/// user no more such memory. With the page, `poll` of the descriptor reports POLLERR for an event
/// that was evicted and nothing before that; without it, POLLHUP before that.
pub(crate) fn map_page(event: &Descriptor) -> usize {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    let (size, fd) = (page_size(), event.raw());
    // SAFETY: The kernel chooses the place of the new mapping, so none is replaced.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, fd, 0) };
    match address {
        libc::MAP_FAILED => 0,
        _ => address.expose_provenance(),
    }
}

/// Unmaps a page of [`map_page`].
///
/// # Safety
///
/// `address` is from [`map_page`] in this process, and no reference to the page exists.
pub(crate) unsafe fn unmap_page(address: usize) {
    // SAFETY: The caller guarantees that the page is mapped and not used.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), page_size()) };
}

fn page_size() -> usize {
    // SAFETY: The call takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(1 << 16)
}

/// Reads a small file into `buffer`. Returns the part that was filled.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: `path` ends with a NUL.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: The buffer is writable for its length, and the descriptor is closed once.
    let length = unsafe {
        let length = libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, fd);
        length
    };
    let read = buffer.get(..usize::try_from(length).ok()?)?;
    core::str::from_utf8(read).ok()
}

/// Returns the C library's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: i32) {
    // SAFETY: The C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: The call takes no pointers.
    // CAST: The kernel returns a pid_t.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Address of this process's mark, or 0; and the highest mark of this process and the processes
/// that it was forked from.
static MARK: AtomicUsize = AtomicUsize::new(0);
static HIGHEST_MARK: AtomicU64 = AtomicU64::new(0);

/// Creates the mark by which [`process`] distinguishes this process from its ancestors. The process
/// id would not do: a descendant may have the same, if ids wrap around or in a pid namespace.
pub(crate) fn mark_process() -> Result<(), Error> {
    if MARK.load(Relaxed) != 0 {
        return Ok(());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: The kernel chooses the place of the new mapping, so none is replaced.
    let page = unsafe { libc::mmap(ptr::null_mut(), page_size(), access, flags, -1, 0) };
    // SAFETY: No other code has the page's address. If mmap() failed, madvise() fails with its
    // result.
    if unsafe { libc::madvise(page, page_size(), libc::MADV_WIPEONFORK) } != 0 {
        return Err(Error::System {
            what: "mmap",
            errno: libc::ENOMEM,
            rule: Some("out of memory"),
        });
    }
    let address = page.expose_provenance();
    if MARK.compare_exchange(0, address, Relaxed, Relaxed).is_err() {
        // SAFETY: No other code has this page's address, because it was not stored.
        unsafe { libc::munmap(page, page_size()) };
    }
    Ok(())
}

/// Returns the mark of this process. It differs from that of every ancestor and child, except a
/// child that shares its memory, as after `vfork`.
///
/// # Errors
///
/// [`Error::System`] if there is no memory for the mark.
pub fn process_mark() -> Result<u64, Error> {
    mark_process()?;
    Ok(process())
}

/// Returns the process's mark. The kernel clears it in the child of a fork, which then creates its
/// own.
pub(crate) fn process() -> u64 {
    let mark = ptr::with_exposed_provenance::<AtomicU64>(MARK.load(Relaxed));
    // SAFETY: `Shared::new` has called `mark_process`, and the page is never unmapped.
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

/// Sleeps for a short time, so that other threads run, whatever their priority.
pub(crate) fn sleep_shortly() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: `time` is a local variable, and a null pointer for the remaining time is allowed.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, 0_usize) };
}
