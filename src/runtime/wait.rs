use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::time::{Instant, SECONDS};

const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Where a worker sleeps: until a socket has frames, a deadline passes, or somebody wakes it.
///
/// Deadlines go through a timerfd, because epoll's own timeout counts in milliseconds and a paced
/// frame at 1 Gbit/s is due every 12 us.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    wake: Arc<EventFd>,
    timer: TimerFd,
    events: Vec<EpollEvent>,
    asleep: Arc<AtomicBool>,
}

/// Wakes a worker from another thread.
#[derive(Clone, Debug)]
pub struct Waker {
    wake: Arc<EventFd>,
    asleep: Arc<AtomicBool>,
}

impl Waker {
    /// The worker's next sleep ends at once.
    pub fn wake(&self) {
        // The counter is full only when the worker has been woken 2^64 times without looking.
        let _ = self.wake.write(1);
    }

    /// The same, but at no cost while the worker is awake and will look by itself. What it shall find has to
    /// be put there before, with a fence between.
    pub(super) fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }
}

impl Waiter {
    /// A waiter that watches nothing yet.
    ///
    /// # Errors
    /// Out of file descriptors or memory.
    pub fn new() -> io::Result<Waiter> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(Waiter { epoll, wake, timer, events: vec![EpollEvent::empty(); 64], asleep: Arc::default() })
    }

    /// A handle to end this waiter's sleep.
    pub fn waker(&self) -> Waker {
        Waker { wake: self.wake.clone(), asleep: self.asleep.clone() }
    }

    /// Says that the worker is about to sleep: it has to look once more at what others may have put there.
    /// [`Waiter::wait`] and [`Waiter::stay_awake`] take it back.
    pub(super) fn about_to_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// It does not sleep after all.
    pub(super) fn stay_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Watches `socket` for frames.
    ///
    /// # Errors
    /// The system's.
    pub fn watch(&self, socket: impl AsFd) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?)
    }

    /// Watches `socket` no more.
    pub fn unwatch(&self, socket: impl AsFd) {
        // It fails only for what was not watched.
        let _ = self.epoll.delete(socket);
    }

    /// Sleeps until something happens or `until` has come (`None`: until something happens).
    ///
    /// # Errors
    /// The system's; an interrupting signal is none.
    pub fn wait(&mut self, now: Instant, until: Option<Instant>) -> io::Result<()> {
        let timeout = match until {
            Some(until) if until <= now => EpollTimeout::ZERO,
            Some(until) => {
                let at = TimeSpec::new((until.0 / SECONDS) as i64, (until.0 % SECONDS) as i64);
                self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
                EpollTimeout::NONE
            }
            None => EpollTimeout::NONE,
        };
        let waited = self.epoll.wait(&mut self.events, timeout);
        self.stay_awake();
        let n = match waited {
            Ok(n) => n,
            Err(Errno::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        for event in &self.events[..n] {
            match event.data() {
                WAKE => {
                    let _ = self.wake.read();
                }
                // Reading disarms it; a timer that is armed anew needs no reading.
                TIMER => self.timer.unset()?,
                _ => {}
            }
        }
        Ok(())
    }
}
