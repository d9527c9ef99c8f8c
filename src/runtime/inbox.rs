use std::collections::VecDeque;
use std::mem;

use crossbeam::channel::Receiver;

/// The receiving end of a channel some of whose messages can be taken out of turn.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    receiver: Receiver<T>,
    /// Received before those that are in the channel.
    waiting: VecDeque<T>,
}

impl<T> Inbox<T> {
    pub fn new(receiver: Receiver<T>) -> Inbox<T> {
        Inbox { receiver, waiting: VecDeque::new() }
    }

    /// The next message, if one is there.
    pub fn next(&mut self) -> Option<T> {
        self.waiting.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// All messages there are that are `wanted`; the others keep their order.
    pub fn take(&mut self, wanted: impl FnMut(&T) -> bool) -> VecDeque<T> {
        self.waiting.extend(self.receiver.try_iter());
        let (taken, waiting) = mem::take(&mut self.waiting).into_iter().partition(wanted);
        self.waiting = waiting;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam::channel::unbounded;

    #[test]
    fn what_is_taken_out_of_turn_leaves_the_others_in_their_order_before_what_comes_later() {
        let (sender, receiver) = unbounded();
        let mut inbox = Inbox::new(receiver);
        let send = |numbers: &[u32]| numbers.iter().for_each(|n| sender.send(*n).unwrap());
        let even = |n: &u32| n.is_multiple_of(2);
        send(&[1, 2, 3, 4]);
        assert_eq!(inbox.take(even), [2, 4]);
        send(&[6, 5]);
        assert_eq!(inbox.next(), Some(1));
        assert_eq!(inbox.take(even), [6]);
        send(&[7]);
        let rest: Vec<_> = std::iter::from_fn(|| inbox.next()).collect();
        assert_eq!(rest, [3, 5, 7]);
    }
}
