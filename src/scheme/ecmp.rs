//! ECMP: a flow's hash picks one of the live ports of its route's group (RFC 2992's hash-threshold
//! family, by multiply-shift).
//!
//! Hashed are source and destination address, protocol and ports, with the switch's own seed, so
//! that tiers do not polarise ([`crate::pisa::FlowHash`] has the details). All fragments of a
//! datagram take one path. When a port dies or comes back, flows are spread anew over the live
//! ports; flows on other ports may move too.

use crate::fabric::{Scheme, SchemeEgress, SchemeIngress};
use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::Meta;
use crate::pisa::table::Group;
use crate::time::Instant;

/// The scheme.
#[derive(Debug)]
pub struct Ecmp;

/// Ingress part; ECMP keeps no state.
#[derive(Debug, Default)]
pub struct EcmpIngress;

/// Egress part; ECMP does nothing there.
#[derive(Debug, Default)]
pub struct EcmpEgress;

impl Scheme for Ecmp {
    type Ingress = EcmpIngress;
    type Egress = EcmpEgress;
    type Control = ();
}

impl SchemeIngress for EcmpIngress {
    type Feedback = ();
    type Command = ();

    #[inline(always)]
    fn choose(&mut self, _: Instant, group: &Group, _: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        group.pick(meta.flow_hash)
    }
}

impl SchemeEgress for EcmpEgress {
    type Feedback = ();
    type Digest = ();
}
