// SPDX-License-Identifier: GPL-2.0
//! Raises a signal at each instruction of a session's calls. Its handler pauses, resumes or closes
//! the session, makes a call that fails, jumps out, or takes an EBB. The same at the end of a
//! thread or process that has a session.

use ebb::EbbContext;
use ebb::Error;
use ebb::RawHandler;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb::reg::Bescr;
use ebb_selftests::current;
use ebb_selftests::current::with;
use ebb_selftests::each_instruction::Steps;
use ebb_selftests::each_instruction::check_expected;
use ebb_selftests::each_instruction::expect;
use ebb_selftests::each_instruction::leave_call;
use ebb_selftests::each_instruction::mark;
use ebb_selftests::each_instruction::own_code;
use ebb_selftests::each_instruction::traced;
use ebb_selftests::escape;
use ebb_selftests::neighbour::Pinned;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use std::arch::asm;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// Period so long that no EBB comes.
const LONG: u64 = 1 << 30;
const ON: Bescr = Bescr(Bescr::GE.0 | Bescr::PME.0);

fn open() -> Outcome {
    current::open(LONG)
}

/// Closes the session; signal handlers use it too. No EBB comes once a close has returned, even if
/// another closer had begun to close the session.
fn close() {
    if !current::raw().is_null() {
        current::close();
        expect(!Bescr::read().has(Bescr::GE), line!());
    }
}

/// Closes the session, and fills freed memory with other data. Must not be used where the signal
/// may have interrupted the C library's `malloc`.
fn close_and_allocate() {
    close();
    for size in (256..=1024).step_by(16) {
        black_box(vec![0x5a_u8; size]);
    }
}

fn start(session: &Session) -> Result<(), Error> {
    // SAFETY: The handler does nothing.
    unsafe { session.start(Save::Full, session::count_only) }
}

/// Fails unless the session reports its state correctly; running means that EBBs are on.
fn check_state(wanted: Option<State>) -> Outcome {
    let state = with(|session| Ok(session.state()))?;
    let bescr = Bescr::read();
    check!(state != State::Running || bescr.has(ON), "{bescr:?}");
    check!(wanted.is_none_or(|wanted| state == wanted), "{state:?}");
    Ok(())
}

/// Fails unless the counter counts.
fn check_counts() -> Outcome {
    let before = with(|session| session.read(0))?;
    session::work();
    let after = with(|session| session.read(0))?;
    check!(after != before, "the counter stays at {after:#x}");
    Ok(())
}

fn check_free() -> Outcome {
    let [bescr, ebbhr, _] = session::ebb_registers();
    check!(
        !Bescr(bescr).has(Bescr::GE) && ebbhr == 0,
        "{bescr:#x}, {ebbhr:#x}"
    );
    Ok(())
}

/// A call that a signal interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Start,
    /// Start of a session when EBBHR already has the library's entry.
    StartAgain,
    Resume,
    Pause,
    Close,
    State,
    Read,
    SetPeriod,
    Count,
    Add,
}

impl Call {
    /// Calls during which `closed_in_call` closes the session.
    const ALL: [Self; 10] = [
        Self::Start,
        Self::StartAgain,
        Self::Resume,
        Self::Pause,
        Self::Close,
        Self::State,
        Self::Read,
        Self::SetPeriod,
        Self::Count,
        Self::Add,
    ];

    /// Opens a session in a state in which the call can be made.
    fn prepare(self) -> Outcome {
        open()?;
        if !matches!(self, Self::Start | Self::Add) {
            with(start)?;
        }
        if self == Self::Resume {
            with(Session::pause)?;
        }
        Ok(())
    }

    fn make(self) -> Result<(), Error> {
        match self {
            Self::Start | Self::StartAgain => with(start),
            Self::Resume => with(Session::resume),
            Self::Pause => with(Session::pause),
            Self::State => with(|session| Ok(session.state())).map(drop),
            Self::Read => with(|session| session.read(0)).map(drop),
            Self::SetPeriod => with(|session| session.set_period(0, LONG, 0)),
            Self::Count => with(|session| Ok(session.count())).map(drop),
            Self::Add => with(|session| session.add("0x20002", 0)).map(drop),
            Self::Close => {
                current::close();
                Ok(())
            }
        }
    }
}

/// Returns `short` unless tests try all cases: a signal at some of the instructions is enough then.
fn stride(long: usize, short: usize) -> usize {
    if ktap::is_long() { long } else { short }
}

const OWN_REASON: &str = "own";
const OTHER_REASON: &str = "other";

/// If a call fails and another call fails in a signal's handler, the last reason is one of the two,
/// and complete.
fn reasons() -> Outcome {
    let other = || ebb::set_last_reason(OTHER_REASON);
    Steps::interrupt(1, other, || {
        other();
        let reason = traced(|| {
            ebb::set_last_reason(OWN_REASON);
            ebb::last_reason()
        });
        check!([OWN_REASON, OTHER_REASON].contains(&reason), "{reason}");
        Ok(())
    })
}

fn pause() {
    let _ = with(Session::pause);
}

fn resume() {
    let _ = with(Session::resume);
}

/// The reported state is right at the end, and the session can be resumed.
fn changed_in(call: Call, action: fn()) -> Outcome {
    Steps::interrupt(5, action, || {
        call.prepare()?;
        traced(|| call.make())?;
        check_state(None)?;
        if call == Call::Start {
            check_counts()?;
        }
        with(Session::resume)?;
        check_state(Some(State::Running))?;
        close();
        Ok(())
    })
}

fn jump() {
    // SAFETY: `resume_traced` runs in `call_escapable`.
    unsafe { escape::escape() };
}

extern "C" fn resume_traced() {
    let resumed = traced(|| with(Session::resume));
    expect(resumed.is_ok(), line!());
}

/// Jumps out of the function that loads the counters of a session that has started without the PMU.
/// The counters count if the session reports that it runs, and in any case after the next call.
fn jumped_out_of_resume() -> Outcome {
    Steps::interrupt(5, jump, || {
        let other = Pinned::here()?;
        open()?;
        let started = with(start);
        check!(started == Err(Error::NotScheduled), "{started:?}");
        other.close()?;
        // SAFETY: `resume_traced` has nothing that must be dropped.
        if unsafe { escape::call_escapable(resume_traced) } == 1 {
            leave_call();
        }
        if with(|session| Ok(session.state())) == Ok(State::Running) {
            check_counts()?;
        }
        with(Session::resume)?;
        check_state(Some(State::Running))?;
        check_counts()?;
        close();
        Ok(())
    })
}

/// Returns the lowest two free descriptors.
fn free_descriptors() -> Result<[libc::c_int; 2], Failure> {
    // SAFETY: The system calls take no pointers; the descriptors belong to this function.
    unsafe {
        let free = [
            ktap::os_result(libc::dup(0))?,
            ktap::os_result(libc::dup(0))?,
        ];
        for descriptor in free {
            libc::close(descriptor);
        }
        Ok(free)
    }
}

/// Closes the session in the middle of a call for it, and checks that nothing of it remains.
fn close_in(call: Call) -> Outcome {
    let free = free_descriptors()?;
    call.prepare()?;
    let made = traced(|| call.make());
    check!(matches!(made, Ok(()) | Err(Error::Closed)), "{made:?}");
    // The signal may not have come until here.
    close();
    check_free()?;
    let now = free_descriptors()?;
    check!(now == free, "{now:?} instead of {free:?} are free");
    open()?;
    with(start)?;
    check_state(Some(State::Running))?;
    close();
    Ok(())
}

fn closed_in_call() -> Outcome {
    for call in Call::ALL {
        println!("{call:?}");
        let action: fn() = match call {
            Call::Start => close,
            _ => close_and_allocate,
        };
        Steps::interrupt(stride(11, 37), action, || close_in(call))?;
    }
    Ok(())
}

/// Closes the session at each instruction of pthread_setspecific(), by which the library requests a
/// destructor at the thread's end. It needs two stores.
fn closed_in_setspecific() -> Outcome {
    let function = libc::pthread_setspecific as *const () as usize;
    let scenario = || close_in(Call::Start);
    let steps = Steps::of(&scenario)?;
    let within = |place: usize| place.wrapping_sub(function) < 256;
    let tried = steps.at_each(1, within, close, &scenario)?;
    check!(tried > 10, "{tried} instructions");
    Ok(())
}

/// Another thread has closed the session, and a signal's handler closes it too, as if both did at
/// once. This happens while the thread closes the next session, and finds the state of the first.
fn closed_by_another() -> Outcome {
    Steps::interrupt(stride(11, 37), close_and_allocate, || {
        let next = Session::open("cycles", LONG)?;
        open()?;
        with(start)?;
        let raw = current::raw().expose_provenance();
        // SAFETY: The address is the one that `open` got.
        let close = || unsafe { Session::close_raw(ptr::with_exposed_provenance(raw)) };
        check!(thread::scope(|scope| scope.spawn(close).join()).is_ok());
        check!(Bescr::read().has(Bescr::GE), "EBBs are off");
        traced(|| next.close());
        current::close();
        check_free()
    })
}

/// Descriptor of the session's event, and the descriptor that replaces it.
static NUMBERS: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];
const VALUE: u64 = 7;

/// Closes the session and opens an eventfd, which gets the session's descriptor and is readable.
fn close_and_replace() {
    close();
    // SAFETY: The system call takes no pointers.
    let number = unsafe { libc::eventfd(VALUE as libc::c_uint, libc::EFD_NONBLOCK) };
    NUMBERS[1].store(number, Relaxed);
}

/// A call for a session that was closed in the meantime does not touch what now has its descriptor.
fn descriptor_replaced() -> Outcome {
    Steps::interrupt(1, close_and_replace, || {
        Call::State.prepare()?;
        NUMBERS[0].store(with(|session| Ok(session.descriptor()))?, Relaxed);
        let state = traced(|| with(|session| Ok(session.state())));
        let expected = [Ok(State::Running), Ok(State::Ended), Err(Error::Closed)];
        check!(expected.contains(&state), "{state:?}");
        if !current::raw().is_null() {
            close_and_replace();
        }
        let [first, second] = NUMBERS.each_ref().map(|number| number.load(Relaxed));
        check!(first == second, "{first}, {second}");
        let mut value = 0_u64;
        // SAFETY: The variable has room for 8 bytes and outlives the call; the descriptor is this
        // test's.
        let length = unsafe {
            let length = libc::read(second, (&raw mut value).cast(), 8);
            libc::close(second);
            length
        };
        check!(length == 8 && value == VALUE, "{length}, {value}");
        Ok(())
    })
}

/// EBBs that each of the two handlers has taken, and EBBs with the argument of the other handler.
/// The handlers call nothing.
static CALLS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static WRONG_USERS: AtomicUsize = AtomicUsize::new(0);
static LOST_REGISTERS: AtomicBool = AtomicBool::new(false);

fn count_call(n: usize, user: *mut c_void) {
    CALLS[n].store(CALLS[n].load(Relaxed) + 1, Relaxed);
    if user.addr() != n + 1 {
        WRONG_USERS.store(WRONG_USERS.load(Relaxed) + 1, Relaxed);
    }
}

/// Counts an EBB with general registers only, as `Save::Gprs` requires.
extern "C" fn first_handler(_: &mut EbbContext<'_>, user: *mut c_void) {
    count_call(0, user);
}

/// Changes registers that only `Save::Full` saves.
extern "C" fn second_handler(_: &mut EbbContext<'_>, user: *mut c_void) {
    count_call(1, user);
    // SAFETY: All registers that change are named.
    unsafe {
        asm!("xxlxor 1, 1, 1", "xxlxor 34, 34, 34", out("f1") _, out("v2") _);
    }
}

/// Makes an EBB occur, as the processor does at an alert: GE goes off, PMEO on.
fn inject() {
    const BEFORE: u64 = 0x0123_4567_89ab_cdef;
    let (scalar, vector): (u64, u64);
    // SAFETY: EBBHR has the library's entry, as EBBs are on; all registers that change are named.
    unsafe {
        asm!(
            "mtvsrd 1, {before}",
            "mtvsrd 34, {before}",
            "mfspr {scratch}, 806",
            "clrldi {scratch}, {scratch}, 1",
            "ori {scratch}, {scratch}, 1",
            "mtspr 806, {scratch}",
            "bcl 20, 31, 2f",
            "2: mflr {scratch}",
            "addi {scratch}, {scratch}, 3f - 2b",
            "mtspr 805, {scratch}",
            "mfspr {scratch}, 804",
            "mtctr {scratch}",
            "bctr",
            "3: mfvsrd {scalar}, 1",
            "mfvsrd {vector}, 34",
            before = in(reg) BEFORE,
            scalar = out(reg) scalar,
            vector = out(reg) vector,
            scratch = out(reg_nonzero) _,
            out("f1") _,
            out("v2") _,
            out("lr") _,
            out("ctr") _,
        );
    }
    if [scalar, vector] != [BEFORE; 2] {
        LOST_REGISTERS.store(true, Relaxed);
    }
}

/// Resumes the session and makes an EBB occur. In the middle of a second start the resume has no
/// effect.
fn resume_and_inject() {
    resume();
    if Bescr::read().has(ON) {
        inject();
    }
}

/// Handler with which a session is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handler {
    First,
    Second,
}

impl Handler {
    fn start(self) -> Result<(), Error> {
        let (save, handler): (Save, RawHandler) = match self {
            Self::First => (Save::Gprs, first_handler),
            Self::Second => (Save::Full, second_handler),
        };
        let user = ptr::without_provenance_mut(self as usize + 1);
        // SAFETY: Each handler changes only registers that its `Save` covers.
        with(|session| unsafe { session.start_raw(save, handler, user) })
    }
}

fn check_pairs() -> Outcome {
    let wrong = WRONG_USERS.load(Relaxed);
    check!(wrong == 0, "{wrong} EBBs had the other handler's argument");
    check!(!LOST_REGISTERS.load(Relaxed), "registers were lost");
    Ok(())
}

/// An EBB occurs at each instruction of a call, and finds a handler, an argument and an entry that
/// belong together. At the end those of `last` are installed. If `before` is given, the session was
/// started with it.
fn taken_in(call: fn() -> Result<(), Error>, before: Option<Handler>, last: Handler) -> Outcome {
    for paused in [false, true] {
        if paused && before.is_none() {
            break;
        }
        Steps::interrupt(stride(1, 3), resume_and_inject, || {
            open()?;
            before.map_or(Ok(()), Handler::start)?;
            if paused {
                with(Session::pause)?;
            }
            traced(call)?;
            check_pairs()?;
            with(Session::resume)?;
            check_state(Some(State::Running))?;
            CALLS.iter().for_each(|calls| calls.store(0, Relaxed));
            inject();
            let calls = CALLS.each_ref().map(|calls| calls.load(Relaxed));
            let mut expected = [0, 0];
            expected[last as usize] = 1;
            check!(calls == expected, "{calls:?} instead of {expected:?}");
            check_pairs()?;
            close();
            Ok(())
        })?;
    }
    Ok(())
}

fn set_period() -> Result<(), Error> {
    with(|session| session.set_period(0, LONG, LONG / 2))
}

/// Returns the address of the session's memory; the bits below it are part of the session's number.
fn memory() -> usize {
    current::raw().addr() >> 12
}

static MEMORY: AtomicUsize = AtomicUsize::new(0);

fn is_over() -> Outcome {
    check_free()?;
    check_pairs()?;
    check_expected()?;
    if !current::raw().is_null() {
        check_state(Some(State::Ended))?;
        close();
    }
    open()?;
    check!(memory() == MEMORY.load(Relaxed), "the memory is not reused");
    Ok(())
}

/// Runs after the end of the thread's variables, and checks that the next session reuses the
/// memory.
extern "C" fn judge() {
    mark();
    let over = is_over();
    if let Err(why) = &over {
        println!("{why:?}");
    }
    // SAFETY: The call takes no pointers.
    unsafe { libc::_exit(over.is_err().into()) };
}

/// Runs a child that has a session and ends by calling `end`.
fn ends(end: fn()) -> Outcome {
    Peer::spawn(|_| {
        own_code()?;
        // SAFETY: `judge` is a function of this program, and takes nothing.
        check!(unsafe { libc::atexit(judge) } == 0);
        open()?;
        Handler::First.start()?;
        MEMORY.store(memory(), Relaxed);
        end();
        Ok(())
    })?
    .join()
}

unsafe extern "C" {
    /// Makes the linker include the function: a static program has it only if its code refers to
    /// it.
    fn __cxa_thread_atexit_impl();
}

/// Calls `exit`, which ends the thread's variables first.
fn exits() {
    black_box(__cxa_thread_atexit_impl as *const ());
    mark();
    // SAFETY: The call ends the process.
    unsafe { libc::exit(1) };
}

/// Marks the end of the thread. Runs before the library's destructor, as the C library calls
/// destructors in the order of their keys.
extern "C" fn mark_here(_: *mut c_void) {
    mark();
}

/// Ends the process' first thread, whose variables end after the values of its keys.
fn thread_ends() {
    let key = KEY.load(Relaxed) as libc::pthread_key_t;
    // SAFETY: The key exists and its values are no pointers; nothing on this stack must be dropped.
    unsafe {
        libc::pthread_setspecific(key, ptr::without_provenance(1));
        libc::pthread_exit(ptr::null_mut());
    }
}

static KEY: AtomicI32 = AtomicI32::new(0);

fn closed_in_thread_end() -> Outcome {
    let mut key = 0;
    // SAFETY: The variable outlives the call, and the destructor takes any value.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(mark_here)) };
    check!(made == 0, "errno {made}");
    KEY.store(key as i32, Relaxed);
    Steps::interrupt(stride(3, 11), close, || ends(thread_ends))
}

ktap::main! {
    first: session::require_ebb;
    reasons,
    paused_in_resume = changed_in(Call::Resume, pause),
    resumed_in_pause = changed_in(Call::Pause, resume),
    resumed_in_start = changed_in(Call::Start, resume),
    jumped_out_of_resume, closed_in_call, closed_in_setspecific, closed_by_another,
    descriptor_replaced,
    ebb_in_start = taken_in(|| Handler::Second.start(), None, Handler::Second),
    ebb_in_start_that_saves_more =
        taken_in(|| Handler::Second.start(), Some(Handler::First), Handler::Second),
    ebb_in_start_that_saves_less =
        taken_in(|| Handler::First.start(), Some(Handler::Second), Handler::First),
    ebb_in_resume = taken_in(|| with(Session::resume), Some(Handler::Second), Handler::Second),
    ebb_in_set_period = taken_in(set_period, Some(Handler::Second), Handler::Second),
    // EBBs stay off after the end of the session's thread has turned them off: EBBHR is 0 then.
    ebb_in_exit = Steps::interrupt(stride(1, 5), resume_and_inject, || ends(exits)),
    closed_in_exit = Steps::interrupt(stride(3, 11), close, || ends(exits)),
    closed_in_thread_end,
}
