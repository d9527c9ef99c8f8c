use crate::pisa::meter::Color;

/// What is done to a flow's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RateAction {
    /// By one half.
    Decrease,
    /// By one quarter.
    Increase,
}

impl RateAction {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            RateAction::Decrease => "decrease",
            RateAction::Increase => "increase",
        }
    }

    /// The window field that follows from `window` (paper, section 6.1.5): `w - (w >> 1)` or `w + (w >> 2)`, at
    /// most 65,535. 0 only of 0.
    #[inline]
    pub fn apply(self, window: u16) -> u16 {
        match self {
            RateAction::Decrease => window - (window >> 1),
            RateAction::Increase => window.saturating_add(window >> 2),
        }
    }
}

/// Whether a packet calls for an action (paper, section 4.3): `incoming` is its class's colour at the port
/// it came in by, over the safe rate unless green; `egress` that of the link it leaves by.
///
/// | incoming | egress green | yellow | red |
/// |---|---|---|---|
/// | green | - | - | - |
/// | yellow, red | increase | - | decrease |
///
/// Yellow links are stable: left as they are. A class within its safe rate is not to blame.
#[inline]
pub fn decide(incoming: Color, egress: Color) -> Option<RateAction> {
    match (incoming, egress) {
        (Color::Green, _) | (_, Color::Yellow) => None,
        (_, Color::Red) => Some(RateAction::Decrease),
        (_, Color::Green) => Some(RateAction::Increase),
    }
}
