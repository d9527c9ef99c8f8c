use crate::frame::Frame;
use crate::id::PortId;
use crate::time::Instant;
use crate::wire::{Headers, ethernet};

/// Metadata that travels with a frame through the pipeline (names as in BMv2's simple_switch).
/// Fits one cache line, beside the frame's handle, in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Where the headers are; egress must call [`crate::wire::parse()`] again if it moved them.
    pub headers: Headers,
    /// Port the frame came in by, or on whose behalf it was made.
    pub ingress_port: PortId,
    /// Times the frame was recirculated.
    pub recirculations: u8,
    /// Whether the switch made the frame, rather than received it; [`super::Outbox::generate`] sets it.
    pub own: bool,
    /// Bytes of a scheme's tag between the Ethernet addresses and the VLAN tags or EtherType; `headers` are behind it.
    pub tag: u8,
    /// Seeded hash of the flow; 0 until the program computes it.
    pub flow_hash: u64,
    /// Depth of the queue in packets when the frame joined it.
    pub enq_qdepth: u32,
    /// Depth of the port's data queue in packets when the frame left, by whatever queue, itself not counted.
    pub deq_qdepth: u32,
    /// When the frame joined its queue.
    pub enq_timestamp: Instant,
    /// Scratch that belongs to the scheme: what its ingress tells its egress.
    pub scheme: u64,
}

impl Meta {
    /// Metadata of a frame with `headers` that came in by `port`.
    #[inline]
    pub fn new(headers: Headers, port: PortId) -> Meta {
        Meta {
            headers,
            ingress_port: port,
            recirculations: 0,
            own: false,
            tag: 0,
            flow_hash: 0,
            enq_qdepth: 0,
            deq_qdepth: 0,
            enq_timestamp: Instant::ZERO,
            scheme: 0,
        }
    }

    /// Takes the tag out of the frame.
    #[inline]
    pub fn strip_tag(&mut self, frame: &mut Frame) {
        let there = frame.remove(ethernet::ADDRESSES_LEN, self.tag.into());
        debug_assert!(there, "a tag that was read is in its frame");
        self.headers.shift(self.tag.into(), 0);
        self.tag = 0;
    }
}
