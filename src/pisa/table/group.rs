use crate::id::{MAX_PORTS, PortId, PortMask};
use crate::pisa::hash::bucket;

/// A group's ordered priority sets of ports and the members that are live.
///
/// The first priority that has a live port serves; within it a hash picks the member. With one
/// priority this is an ECMP group; P4TE's routing groups use several (P4TE section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    priorities: Vec<PortMask>,
    live: PortMask,
    serving: PortMask,
    /// Live ports of the serving priority, lowest first; derived, so that a pick is one load.
    members: [PortId; MAX_PORTS],
    count: u8,
}

impl Group {
    /// A group of `priorities`, best first; every port counts as live.
    pub fn new(priorities: Vec<PortMask>) -> Self {
        let mut group = Group {
            priorities,
            live: PortMask(u64::MAX),
            serving: PortMask::EMPTY,
            members: [PortId(0); MAX_PORTS],
            count: 0,
        };
        group.derive();
        group
    }

    /// Replaces the set of live ports.
    pub fn set_live(&mut self, live: PortMask) {
        self.live = live;
        self.derive();
    }

    /// Replaces the priorities.
    pub fn set_priorities(&mut self, priorities: Vec<PortMask>) {
        self.priorities = priorities;
        self.derive();
    }

    fn derive(&mut self) {
        let live = |priority: &PortMask| priority.and(self.live);
        self.serving = self.priorities.iter().map(live).find(|p| !p.is_empty()).unwrap_or(PortMask::EMPTY);
        self.count = 0;
        for port in self.serving.iter() {
            self.members[self.count as usize] = port;
            self.count += 1;
        }
    }

    /// The live ports of the first priority that has any.
    #[inline]
    pub fn serving(&self) -> PortMask {
        self.serving
    }

    /// All priorities, best first, live or not.
    pub fn priorities(&self) -> &[PortMask] {
        &self.priorities
    }

    /// The serving members, lowest first.
    #[inline]
    pub fn members(&self) -> &[PortId] {
        &self.members[..self.count as usize]
    }

    /// The serving member that `hash` falls on; `None` if no port is live.
    #[inline]
    pub fn pick(&self, hash: u64) -> Option<PortId> {
        self.members().get(bucket(hash, self.count as usize)).copied()
    }
}

/// Number of a group in its [`GroupTable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GroupId(pub u16);

/// The groups that routes point to.
#[derive(Clone, Debug, Default)]
pub struct GroupTable {
    groups: Vec<Group>,
    live: Option<PortMask>,
}

impl GroupTable {
    /// No groups; every port live.
    pub fn new() -> Self {
        Self::default()
    }

    /// The group with just these priorities, made if there is none yet.
    ///
    /// # Panics
    /// With more than 65,536 different groups.
    pub fn intern(&mut self, priorities: Vec<PortMask>) -> GroupId {
        if let Some(at) = self.groups.iter().position(|g| g.priorities == priorities) {
            return GroupId(at as u16);
        }
        let id = GroupId(u16::try_from(self.groups.len()).expect("at most 65,536 groups"));
        let mut group = Group::new(priorities);
        if let Some(live) = self.live {
            group.set_live(live);
        }
        self.groups.push(group);
        id
    }

    /// The group `id`.
    ///
    /// # Panics
    /// If `id` is of another table.
    #[inline]
    pub fn get(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    /// Every group, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().enumerate().map(|(i, g)| (GroupId(i as u16), g))
    }

    /// A dead port leaves every group at once; a live one is back in those that name it.
    pub fn set_live(&mut self, live: PortMask) {
        self.live = Some(live);
        for group in &mut self.groups {
            group.set_live(live);
        }
    }
}
