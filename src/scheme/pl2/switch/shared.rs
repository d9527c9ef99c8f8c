use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::book::SlotBook;
use super::super::config::{BookConfig, BookConfigError};
use crate::id::{MAX_PORTS, PortId};
use crate::time::Instant;

/// Stands for no deadline.
const NEVER: u64 = u64::MAX;

/// The slot book as one pipe has it.
#[derive(Debug)]
pub enum Book {
    /// The pipe is its switch's only one, and nobody else has the book.
    Own(Box<SlotBook>),
    /// It is that of all pipes.
    Shared(SharedBook),
}

impl Book {
    /// Uses the book, while no other pipe does.
    #[inline(always)]
    pub(super) fn with<R>(&mut self, use_it: impl FnOnce(&mut SlotBook) -> R) -> R {
        match self {
            Book::Own(book) => use_it(book),
            Book::Shared(book) => book.with(use_it),
        }
    }

    /// Looks at the book, while no other pipe uses it.
    pub(super) fn look<R>(&self, look: impl FnOnce(&SlotBook) -> R) -> R {
        match self {
            Book::Own(book) => look(book),
            Book::Shared(book) => book.with(|book| look(book)),
        }
    }

    /// When [`SlotBook::sweep`] is due; of a shared book, see [`SharedBook::next_deadline`].
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Book::Own(book) => book.next_deadline(),
            Book::Shared(book) => book.next_deadline(),
        }
    }

    /// Which start of the switch this is: see [`SharedBook::start`].
    pub(super) fn start(&mut self, epoch: u16) {
        match self {
            Book::Own(book) => book.restart(epoch),
            Book::Shared(book) => book.start(epoch),
        }
    }

    /// The pipe has seen `port` go for the `departure`-th time, from 1: see [`SharedBook::gone`].
    pub(super) fn gone(&mut self, port: PortId, departure: u32) {
        match self {
            Book::Own(book) => book.link_down(port),
            Book::Shared(book) => book.gone(port, departure),
        }
    }
}

/// The slot book of a switch, which all its pipes use. A clone is the same book.
///
/// Each use is one step: pipes on several threads never see half of one. Nothing waits with the lock held, and a
/// pipe holds no other.
#[derive(Clone, Debug)]
pub struct SharedBook(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// When the book is due, for pipes that only want to know that.
    due: AtomicU64,
}

#[derive(Debug)]
struct State {
    book: SlotBook,
    is_started: bool,
    /// How often each port has gone, by the pipe that has seen it go most often.
    departures: [u32; MAX_PORTS],
}

impl SharedBook {
    /// An empty book of a switch's start 1.
    ///
    /// # Errors
    /// See [`BookConfig::validate`].
    pub fn new(config: &BookConfig) -> Result<Self, BookConfigError> {
        let state = State { book: SlotBook::new(config, 1)?, is_started: false, departures: [0; MAX_PORTS] };
        Ok(SharedBook(Arc::new(Shared { state: Mutex::new(state), due: AtomicU64::new(NEVER) })))
    }

    /// Uses the book, while no other pipe does.
    #[inline]
    pub fn with<R>(&self, use_it: impl FnOnce(&mut SlotBook) -> R) -> R {
        self.with_state(|state| use_it(&mut state.book))
    }

    #[inline]
    fn with_state<R>(&self, use_it: impl FnOnce(&mut State) -> R) -> R {
        // A worker that panics ends the switch; the others have their frames to account for until then.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = use_it(&mut state);
        let due = state.book.next_deadline().map_or(NEVER, |Instant(at)| at);
        self.0.due.store(due, Ordering::Relaxed);
        result
    }

    /// When [`SlotBook::sweep`] is due. A pipe knows of every deadline that was there when it used the book last:
    /// whoever reserves wakes in time, and any pipe may sweep.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        // Relaxed: stored with the lock held, so a pipe reads what it stored or what came after.
        Some(self.0.due.load(Ordering::Relaxed)).filter(|due| *due != NEVER).map(Instant)
    }

    /// Which start of the switch this is, as the first pipe says; they need not agree.
    pub fn start(&self, epoch: u16) {
        self.with_state(|state| {
            if !std::mem::replace(&mut state.is_started, true) {
                state.book.restart(epoch);
            }
        });
    }

    /// A pipe has seen `port` go for the `departure`-th time, from 1: for the first that has, what senders there have
    /// reserved is free. A pipe that hears of it later does no harm to who has come since.
    pub fn gone(&self, port: PortId, departure: u32) {
        self.with_state(|state| {
            let known = &mut state.departures[port.index()];
            if departure > *known {
                *known = departure;
                state.book.link_down(port);
            }
        });
    }
}
