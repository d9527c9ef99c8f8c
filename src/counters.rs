use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a frame ended without being forwarded or consumed. The list is closed: every drop
        /// anywhere in the switch is one of these, counted once.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// Every reason, in the order of their discriminants.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// The name shown to users: lower case, underscores.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than an Ethernet header (14 bytes).
    Runt = "runt",
    /// Longer than the interface's MTU plus Ethernet header and two tags.
    Giant = "giant",
    /// Ends inside a VLAN tag stack.
    TruncatedTag = "truncated_tag",
    /// Ends inside the IP or ARP header, or before the length the IP header gives.
    TruncatedL3 = "truncated_l3",
    /// The version nibble does not match the EtherType.
    BadIpVersion = "bad_ip_version",
    /// An IP header or total length that cannot be.
    BadIpLength = "bad_ip_length",
    /// The IPv4 header checksum is wrong.
    BadIpChecksum = "bad_ip_checksum",
    /// A source address that no host can have (multicast, loopback, unspecified, broadcast).
    MartianSource = "martian_source",
    /// A destination that is never routed (loopback, link-local, unspecified).
    MartianDestination = "martian_destination",
    /// An ARP packet or neighbour discovery message that fails its own rules.
    BadNeighbourMessage = "bad_neighbour_message",
    /// A hello that fails its own rules, or of a version not known here: its sender counts as silent.
    BadHello = "bad_hello",
    /// A scheme's probe that fails its own rules, or of a version not known here.
    BadProbe = "bad_probe",
    /// A scheme's tag, from another switch, that ends too soon, does not fit what is known of the fabric, or is
    /// around something that no switch tags.
    BadTag = "bad_tag",
    /// A tag that has no business here: a message between other switches than those that got it.
    StrayTag = "stray_tag",
    /// A scheme's tag sent by a host, which no host may.
    TagFromHost = "tag_from_host",
    /// A scheme's tag on its way to a host: it must not get there.
    TagToHost = "tag_to_host",
    /// A message or shim of PL2 that fails its own rules, is of a version not known here, or that no host sends.
    BadSlotMessage = "bad_slot_message",
    /// Sent in a slot that nobody had reserved, where such frames are to be dropped.
    Unreserved = "unreserved",
    /// More frames of a host, or of one of its connections, than may wait for slots.
    SlotQueueFull = "slot_queue_full",
    /// An ICMP echo request to the switch with a wrong ICMP checksum.
    BadIcmpChecksum = "bad_icmp_checksum",
    /// Not addressed to this switch's MAC on a port that only routes.
    NotForUs = "not_for_us",
    /// An EtherType that this port does not forward.
    UnknownEthertype = "unknown_ethertype",
    /// A source MAC that is a group address.
    MulticastSource = "multicast_source",
    /// Sent by a host to a group address that is for one link alone (01-80-C2-00-00-00 to -0F: STP,
    /// LACP, LLDP, PAUSE), which no bridge forwards (IEEE 802.1Q, section 8.6.3).
    ReservedGroup = "reserved_group",
    /// IP multicast, which is bridged between host ports but not routed.
    MulticastNotRouted = "multicast_not_routed",
    /// TTL or hop limit ran out here.
    TtlExpired = "ttl_expired",
    /// No route to the destination.
    NoRoute = "no_route",
    /// The route's group has no live port, or the scheme knows that none leads on.
    EmptyGroup = "empty_group",
    /// A message between switches that had no way on, as a packet would have been dropped for `no_route` or
    /// `empty_group`: no host has lost anything.
    LostMessage = "lost_message",
    /// Longer than the egress MTU and not to be fragmented.
    TooBig = "too_big",
    /// The destination host did not answer ARP or neighbour discovery.
    NeighbourUnresolved = "neighbour_unresolved",
    /// Too many frames wait for neighbours to answer.
    NeighbourQueueFull = "neighbour_queue_full",
    /// Over the flood limit of the port.
    StormLimited = "storm_limited",
    /// Bridged to the port it came from, or to no port at all.
    NoBridgePort = "no_bridge_port",
    /// Addressed to the switch itself, but nothing here takes it.
    NoListener = "no_listener",
    /// The port is down: what was to leave by it, and what it still receives.
    PortDown = "port_down",
    /// Tail drop: the queue's packet limit.
    QueuePackets = "queue_packets",
    /// Tail drop: the queue's byte limit.
    QueueBytes = "queue_bytes",
    /// The queue, or the waiting room for neighbours, holds its share of the free frames: the rest are
    /// kept for other ports and for receiving.
    SharedBuffer = "shared_buffer",
    /// No free frame for a copy or a reply.
    NoFrame = "no_frame",
    /// More frames for ports of another pipe than its worker takes.
    PipeFull = "pipe_full",
    /// More replies, clones or punts in one burst than the outbox holds.
    OutboxFull = "outbox_full",
    /// Sent round the pipeline too often.
    RecirculationLimit = "recirculation_limit",
    /// A forwarding decision named a port that does not exist.
    NoSuchPort = "no_such_port",
    /// Still queued when the switch was shut down.
    Shutdown = "shutdown",
}

/// Frames dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Drops([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts one frame dropped for `reason`.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Frames dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r))).filter(|(_, n)| *n > 0)
    }

    /// Adds another set of counts to this one.
    pub fn add(&mut self, other: &Drops) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl Serialize for Drops {
    /// A map of the reasons that occurred.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for (reason, n) in self.nonzero() {
            map.serialize_entry(reason.name(), &n)?;
        }
        map.end()
    }
}

/// What happened to the frames of one port. Two laws hold whenever no burst is under way
/// (`queued` being the frames now in the port's egress queues or held by the program for it):
///
/// - ingress: `rx + generated = forwarded + consumed + ingress_drops + held`
/// - egress: `enqueued = tx + egress_drops + queued`
///
/// and over the whole switch the sum of `forwarded` equals the sum of `enqueued`, so that
/// rx + generated = tx + consumed + drops + queued. Where a switch has several pipes, what one handed to
/// another counts with it ([`Ledger`]). [`Ledger::check`] asserts them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct PortCounters {
    /// Frames received from the wire.
    pub rx: u64,
    /// Their bytes, without FCS.
    pub rx_bytes: u64,
    /// Frames the switch made itself on behalf of this ingress port (clones, replies, requests).
    pub generated: u64,
    /// Frames of this ingress port that were handed to some egress queue.
    pub forwarded: u64,
    /// Frames of this ingress port that ended in the switch on purpose.
    pub consumed: u64,
    /// Frames of this ingress port that the program holds for later (neighbour resolution).
    pub held: u64,
    /// Frames dropped before an egress queue.
    pub ingress_drops: Drops,
    /// Frames that reached this port's egress queues, also those tail-dropped there.
    pub enqueued: u64,
    /// Frames dropped at or after the egress queue.
    pub egress_drops: Drops,
    /// Frames handed to the wire.
    pub tx: u64,
    /// Their bytes, without FCS.
    pub tx_bytes: u64,
}

impl PortCounters {
    /// Drops at ingress and egress together.
    pub fn drops(&self) -> Drops {
        let mut all = self.ingress_drops;
        all.add(&self.egress_drops);
        all
    }
}

impl PortCounters {
    /// Adds what another port counted.
    pub fn add(&mut self, other: &PortCounters) {
        self.rx += other.rx;
        self.rx_bytes += other.rx_bytes;
        self.generated += other.generated;
        self.forwarded += other.forwarded;
        self.consumed += other.consumed;
        self.held += other.held;
        self.ingress_drops.add(&other.ingress_drops);
        self.enqueued += other.enqueued;
        self.egress_drops.add(&other.egress_drops);
        self.tx += other.tx;
        self.tx_bytes += other.tx_bytes;
    }
}

/// The counters of all ports with their queue lengths: the conservation law's two sides.
#[derive(Clone, Default, Debug)]
pub struct Ledger {
    /// Counters and frames queued now, by port.
    pub ports: Vec<(PortCounters, u64)>,
    /// What ports counted that the switch has no more.
    pub removed: PortCounters,
    /// Frames forwarded here that were handed to the pipe that has their port's queue.
    pub handed: u64,
    /// Frames that other pipes handed to this one's queues.
    pub accepted: u64,
}

impl Ledger {
    /// Counters and queue lengths of all ports, then those of removed ones as if they were one.
    pub fn entries(&self) -> impl Iterator<Item = (&PortCounters, u64)> {
        self.ports.iter().map(|(c, queued)| (c, *queued)).chain([(&self.removed, 0)])
    }

    /// Checks the laws of [`PortCounters`]; the error says which port and which sides differ.
    ///
    /// # Errors
    /// A sentence with both sides of the first law that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let (mut forwarded, mut enqueued) = (0, 0);
        for (i, (c, queued)) in self.entries().enumerate() {
            let (left, right) = (c.rx + c.generated, c.forwarded + c.consumed + c.ingress_drops.total() + c.held);
            if left != right {
                return Err(format!(
                    "port {i}: rx + generated = {left}, but forwarded + consumed + drops + held = {right}: {c:?}"
                ));
            }
            let out = c.tx + c.egress_drops.total() + queued;
            if c.enqueued != out {
                return Err(format!(
                    "port {i}: enqueued = {}, but tx + drops + queued({queued}) = {out}: {c:?}",
                    c.enqueued
                ));
            }
            forwarded += c.forwarded;
            enqueued += c.enqueued;
        }
        if forwarded + self.accepted != enqueued + self.handed {
            return Err(format!(
                "over all ports forwarded + accepted = {forwarded} + {}, but enqueued + handed = {enqueued} + {}",
                self.accepted, self.handed
            ));
        }
        Ok(())
    }
}
