use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::{Egress, EgressVerdict, Meta};
use crate::time::Instant;

use super::hooks::SchemeEgress;

/// The egress stage: the scheme's, and nothing of its own yet.
#[derive(Debug)]
pub struct FabricEgress<S> {
    scheme: S,
}

impl<S: SchemeEgress> FabricEgress<S> {
    /// The egress stage around a scheme's.
    pub fn new(scheme: S) -> Self {
        FabricEgress { scheme }
    }

    /// The scheme's egress state.
    pub fn scheme(&self) -> &S {
        &self.scheme
    }
}

impl<S: SchemeEgress> Egress for FabricEgress<S> {
    #[inline]
    fn process(&mut self, now: Instant, port: PortId, frame: &mut Frame, meta: &mut Meta) -> EgressVerdict {
        self.scheme.leaving(now, port, frame, meta)
    }
}
