use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::{Egress, EgressContext, EgressVerdict, Meta};

use super::hooks::SchemeEgress;

/// The egress stage: the scheme's, and the count of slots that end.
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

    /// The scheme's egress state, to tell it of ports.
    pub fn scheme_mut(&mut self) -> &mut S {
        &mut self.scheme
    }
}

impl<S: SchemeEgress> Egress for FabricEgress<S> {
    type Feedback = S::Feedback;
    type Digest = S::Digest;

    #[inline]
    fn process(
        &mut self,
        cx: &mut EgressContext<'_, S::Feedback, S::Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> EgressVerdict {
        if meta.headers.closes_slot() {
            cx.count_off();
        }
        self.scheme.leaving(cx, port, frame, meta)
    }
}
