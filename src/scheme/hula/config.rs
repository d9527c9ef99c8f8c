use crate::time::{MICROS, MILLIS, SECONDS};

/// How HULA runs. All times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HulaConfig {
    /// Time between the probes of a ToR, 50 us to 10 s. The estimate of a link's utilisation looks back over
    /// two of them.
    pub period: u64,
    /// How long a way is believed after its last probe, at least two periods and at most 100 s.
    pub keepalive: u64,
    /// Longest pause within a flowlet, at most 10 s; 0: each packet that does not come in one burst with its
    /// flow's last goes by the way that is best then.
    pub flowlet_gap: u64,
    /// Slots for flowlets.
    pub flowlet_slots: usize,
    /// Most ToRs that are known at once, 1 to 65,536.
    pub max_tors: usize,
}

impl Default for HulaConfig {
    /// A probe each millisecond, believed for ten, and flowlets by a pause of 500 us.
    fn default() -> Self {
        HulaConfig {
            period: MILLIS,
            keepalive: 10 * MILLIS,
            flowlet_gap: 500 * MICROS,
            flowlet_slots: 65_536,
            max_tors: 256,
        }
    }
}

/// What a [`HulaConfig`] can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HulaConfigError {
    /// Probes too close for a software switch, or so rare that they say nothing.
    #[error("a probe period of {0} ns: choose 50 us to 10 s")]
    Period(u64),
    /// One lost probe, or one that is late, would take the best way away; or none would for minutes.
    #[error(
        "a keep-alive of {keepalive} ns with a probe period of {period} ns: choose at least two periods, at most 100 s"
    )]
    Keepalive {
        /// What was asked for.
        keepalive: u64,
        /// The period it has to go with.
        period: u64,
    },
    /// Flows would keep their way for ever.
    #[error("a flowlet gap of {0} ns: choose at most 10 s")]
    FlowletGap(u64),
    /// No ToR at all, or more than a switch number can tell apart.
    #[error("room for {0} ToRs: choose 1 to 65536")]
    MaxTors(usize),
}

impl HulaConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), HulaConfigError> {
        let HulaConfig { period, keepalive, flowlet_gap, max_tors, .. } = *self;
        match () {
            () if !(50 * MICROS..=10 * SECONDS).contains(&period) => Err(HulaConfigError::Period(period)),
            () if !(2 * period..=100 * SECONDS).contains(&keepalive) => {
                Err(HulaConfigError::Keepalive { keepalive, period })
            }
            () if flowlet_gap > 10 * SECONDS => Err(HulaConfigError::FlowletGap(flowlet_gap)),
            () if !(1..=1 << 16).contains(&max_tors) => Err(HulaConfigError::MaxTors(max_tors)),
            () => Ok(()),
        }
    }
}
