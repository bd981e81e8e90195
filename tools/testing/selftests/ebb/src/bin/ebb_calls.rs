// SPDX-License-Identifier: GPL-2.0
//! A signal at each instruction of a session's calls, whose handler pauses, resumes, closes, fails,
//! jumps, or takes an EBB; and of the end of a thread or process that has a session.

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

/// No EBB comes of it.
const LONG: u64 = 1 << 30;
const ON: Bescr = Bescr(Bescr::GE.0 | Bescr::PME.0);

fn open() -> Outcome {
    current::open(LONG)
}

/// Closes the session; for signals, too. No EBB comes once a close has returned, also of what another
/// closer has begun to close.
fn close() {
    if !current::raw().is_null() {
        current::close();
        expect(!Bescr::read().has(Bescr::GE), line!());
    }
}

/// Memory that was freed has something else then. Not where the signal may have interrupted the C
/// library's `malloc`.
fn close_and_allocate() {
    close();
    for size in (256..=1024).step_by(16) {
        black_box(vec![0x5a_u8; size]);
    }
}

fn start(session: &Session) -> Result<(), Error> {
    // SAFETY: the handler does nothing.
    unsafe { session.start(Save::Full, session::count_only) }
}

/// Fails unless EBBs come, or the session does not say so.
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
    check!(after != before, "the counter stands at {after:#x}");
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

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Start,
    /// EBBHR has the library's entry already.
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
    /// Those by which the session is closed in `closed_in_call`.
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

    /// Opens a session for which it can be made.
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

/// Signals at some of the instructions are enough where tests should not take long.
fn stride(long: usize, short: usize) -> usize {
    if ktap::is_long() { long } else { short }
}

const OWN_REASON: &str = "own";
const OTHER_REASON: &str = "other";

/// Of a call that fails and of one in a signal's handler there is one reason, and it is whole.
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

/// The state is true at the end, and the session goes on.
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

/// A jump out of what loads the counters of a session that has started without the PMU: the counters
/// count if it says that it runs, and in any case after the next call.
fn jumped_out_of_resume() -> Outcome {
    Steps::interrupt(5, jump, || {
        let other = Pinned::here()?;
        open()?;
        let started = with(start);
        check!(started == Err(Error::NotScheduled), "{started:?}");
        other.close()?;
        // SAFETY: nothing in `resume_traced` has to be dropped.
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

/// The lowest descriptors that are free.
fn free_descriptors() -> Result<[libc::c_int; 2], Failure> {
    // SAFETY: system calls without pointers, on descriptors of this function's own.
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

/// Closes the session in the middle of a call for it, of which nothing remains then.
fn close_in(call: Call) -> Outcome {
    let free = free_descriptors()?;
    call.prepare()?;
    let made = traced(|| call.make());
    check!(matches!(made, Ok(()) | Err(Error::Closed)), "{made:?}");
    // If the signal has not come until then.
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

/// At each instruction of what notes the thread's end for the C library, in two stores.
fn closed_in_setspecific() -> Outcome {
    let function = libc::pthread_setspecific as *const () as usize;
    let scenario = || close_in(Call::Start);
    let steps = Steps::of(&scenario)?;
    let within = |place: usize| place.wrapping_sub(function) < 256;
    let tried = steps.at_each(1, within, close, &scenario)?;
    check!(tried > 10, "{tried} instructions");
    Ok(())
}

/// Another thread has closed the session, and so does a signal's handler, as if both did at once,
/// while the thread closes the next session, and finds what the first has left.
fn closed_by_another() -> Outcome {
    Steps::interrupt(stride(11, 37), close_and_allocate, || {
        let next = Session::open("cycles", LONG)?;
        open()?;
        with(start)?;
        let raw = current::raw().expose_provenance();
        // SAFETY: of `open`.
        let close = || unsafe { Session::close_raw(ptr::with_exposed_provenance(raw)) };
        check!(thread::scope(|scope| scope.spawn(close).join()).is_ok());
        check!(Bescr::read().has(Bescr::GE), "EBBs are off");
        traced(|| next.close());
        current::close();
        check_free()
    })
}

/// The descriptor of the session's event, and of what has it next.
static NUMBERS: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];
const VALUE: u64 = 7;

/// There is something to be read where the session's descriptor was.
fn close_and_replace() {
    close();
    // SAFETY: a system call without pointers.
    let number = unsafe { libc::eventfd(VALUE as libc::c_uint, libc::EFD_NONBLOCK) };
    NUMBERS[1].store(number, Relaxed);
}

/// A call for a session that was closed under it leaves what is not the session's.
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
        // SAFETY: the variable has room for what is read, and lives; the descriptor is this test's.
        let length = unsafe {
            let length = libc::read(second, (&raw mut value).cast(), 8);
            libc::close(second);
            length
        };
        check!(length == 8 && value == VALUE, "{length}, {value}");
        Ok(())
    })
}

/// EBBs that the two handlers have taken, and those whose argument was the other's; the handlers call
/// nothing.
static CALLS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static WRONG_USERS: AtomicUsize = AtomicUsize::new(0);
static LOST_REGISTERS: AtomicBool = AtomicBool::new(false);

fn count_call(n: usize, user: *mut c_void) {
    CALLS[n].store(CALLS[n].load(Relaxed) + 1, Relaxed);
    if user.addr() != n + 1 {
        WRONG_USERS.store(WRONG_USERS.load(Relaxed) + 1, Relaxed);
    }
}

/// Uses general registers only, as `Save::Gprs` requires.
extern "C" fn first_handler(_: &mut EbbContext<'_>, user: *mut c_void) {
    count_call(0, user);
}

/// Changes what `Save::Full` keeps and the other ways do not.
extern "C" fn second_handler(_: &mut EbbContext<'_>, user: *mut c_void) {
    count_call(1, user);
    // SAFETY: what changes is named.
    unsafe {
        asm!("xxlxor 1, 1, 1", "xxlxor 34, 34, 34", out("f1") _, out("v2") _);
    }
}

/// Makes an EBB occur, as the processor does at an alert: GE goes off, PMEO on.
fn inject() {
    const BEFORE: u64 = 0x0123_4567_89ab_cdef;
    let (scalar, vector): (u64, u64);
    // SAFETY: EBBHR has the library's entry, as EBBs are on; what changes is named.
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

/// In the middle of a second start the session is not resumed.
fn resume_and_inject() {
    resume();
    if Bescr::read().has(ON) {
        inject();
    }
}

/// What a session is started by.
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
        // SAFETY: each handler keeps to what its way to save permits.
        with(|session| unsafe { session.start_raw(save, handler, user) })
    }
}

fn check_pairs() -> Outcome {
    let wrong = WRONG_USERS.load(Relaxed);
    check!(wrong == 0, "{wrong} EBBs had the other handler's argument");
    check!(!LOST_REGISTERS.load(Relaxed), "registers were lost");
    Ok(())
}

/// An EBB occurs at each instruction of a call, and finds a handler, its argument and its entry that
/// belong together: those of `last` at the end. The session was started by `before`, if at all.
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

/// The address of the session's memory. Below it are some bits of the session's number.
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

/// Comes after the end of the thread's variables; the session's memory serves the next.
extern "C" fn judge() {
    mark();
    let over = is_over();
    if let Err(why) = &over {
        println!("{why:?}");
    }
    // SAFETY: a system call without pointers.
    unsafe { libc::_exit(over.is_err().into()) };
}

/// Executed by a child, which has a session and ends by `end`.
fn ends(end: fn()) -> Outcome {
    Peer::spawn(|_| {
        own_code()?;
        // SAFETY: the function takes nothing.
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
    /// A static program has it only if its code refers to it.
    fn __cxa_thread_atexit_impl();
}

/// At the end of a thread's variables, by which it calls `exit`.
fn exits() {
    black_box(__cxa_thread_atexit_impl as *const ());
    mark();
    // SAFETY: ends the process.
    unsafe { libc::exit(1) };
}

/// Comes before the library's: the C library calls them in the order of their keys.
extern "C" fn mark_here(_: *mut c_void) {
    mark();
}

/// At the end of a process' first thread, whose variables end after the values of its keys.
fn thread_ends() {
    let key = KEY.load(Relaxed) as libc::pthread_key_t;
    // SAFETY: the key exists, and its values are no pointers; nothing on this stack has to be dropped.
    unsafe {
        libc::pthread_setspecific(key, ptr::without_provenance(1));
        libc::pthread_exit(ptr::null_mut());
    }
}

static KEY: AtomicI32 = AtomicI32::new(0);

fn closed_in_thread_end() -> Outcome {
    let mut key = 0;
    // SAFETY: the variable lives, and the destructor takes any value.
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
    // EBBs stay off once the end of the session's thread has turned them off: EBBHR is 0 then.
    ebb_in_exit = Steps::interrupt(stride(1, 5), resume_and_inject, || ends(exits)),
    closed_in_exit = Steps::interrupt(stride(3, 11), close, || ends(exits)),
    closed_in_thread_end,
}
