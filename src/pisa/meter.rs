/// What a meter says of a packet, the least loaded first (RFC 2698, section 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Color {
    /// Within the committed rate.
    Green,
    /// Over the committed, within the peak rate.
    Yellow,
    /// Over the peak rate.
    Red,
}
