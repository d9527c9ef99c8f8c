//! What anybody may say in a message of PL2, the ends of every number's range often among it.

use proptest::prelude::*;
use weft::wire::pl2::{Control, Flags, Kind};

/// The ends of a number's range, small ones, and any.
macro_rules! number {
    ($t:ty) => {
        prop_oneof![
            4 => 0..4 as $t,
            2 => <$t>::MAX - 2..=<$t>::MAX,
            1 => (<$t>::MAX / 2 - 1)..=(<$t>::MAX / 2 + 2),
            2 => any::<$t>(),
        ]
    };
}
pub(crate) use number;

/// Messages of these kinds, of start 1 or any, about these connections.
pub fn controls(
    kinds: impl Strategy<Value = Kind>,
    conns: impl Strategy<Value = u32>,
) -> impl Strategy<Value = Control> {
    let flags = any::<[bool; 4]>().prop_map(|[retry, nack, clock, window]| Flags { retry, nack, clock, window });
    let head = (kinds, flags, number!(u16), prop_oneof![3 => Just(1), 1 => number!(u16)]);
    let name = (conns, number!(u32), number!(u32));
    let times = (number!(u32), number!(u32), number!(u64), number!(u64), number!(u32));
    (head, name, times).prop_map(
        |((kind, flags, k, epoch), (conn, seq, demand), (t_in, t_out, t_sw, t_tx, slot_ns))| Control {
            kind,
            flags,
            k,
            epoch,
            conn,
            seq,
            demand,
            t_in,
            t_out,
            t_sw,
            t_tx,
            slot_ns,
        },
    )
}
