//! One rtnetlink socket inside a namespace: veths, addresses, routes, link state.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use futures::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime::{Builder, Runtime};

use super::{Namespace, NetError};

/// One end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEnd<'a> {
    /// Interface name, at most 15 bytes.
    pub interface: &'a str,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// What the kernel says of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStatus {
    /// Interface name.
    pub name: String,
    /// MAC address; zero where the interface has none.
    pub mac: [u8; 6],
    /// MTU in bytes, the link header not counted.
    pub mtu: u32,
    /// Administratively up (IFF_UP).
    pub up: bool,
    /// Has carrier (IFF_LOWER_UP): for a veth, both ends are up.
    pub carrier: bool,
}

/// A netlink socket inside one namespace; every call blocks until the kernel has answered.
#[derive(Debug)]
pub struct Netlink {
    /// None: the process's own.
    namespace: Option<String>,
    runtime: Runtime,
    pub(super) handle: Handle,
}

impl Netlink {
    /// Opens a socket in `namespace`.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN (to enter the namespace), or out of file descriptors.
    pub fn open(namespace: &Namespace) -> Result<Netlink, NetError> {
        namespace
            .run_in(|| Netlink::connect(Some(namespace.name().into())))?
            .map_err(|cause| namespace.fail("cannot open a netlink socket in", cause))
    }

    /// Opens a socket in the namespace of this thread.
    ///
    /// # Errors
    /// Out of file descriptors.
    pub fn here() -> Result<Netlink, NetError> {
        Netlink::connect(None).map_err(|cause| NetError::new("cannot open a netlink socket", cause))
    }

    fn connect(namespace: Option<String>) -> std::io::Result<Netlink> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let handle = {
            let _context = runtime.enter();
            let (connection, handle, _) = rtnetlink::new_connection()?;
            runtime.spawn(connection);
            handle
        };
        Ok(Netlink { namespace, runtime, handle })
    }

    /// Creates a veth pair, `near` here and `far` in the namespace `far_in`, with one queue each way and
    /// the given MTU, in one request: there is no moment at which only one end stands. Both ends are
    /// down (the kernel can't open an end whose peer is not wired yet): see [`Netlink::set_up`].
    ///
    /// # Errors
    /// `EEXIST` if either name is taken, `EINVAL` or `ERANGE` for a name or an MTU the kernel can't
    /// take, `EOPNOTSUPP` without the veth driver.
    pub fn add_veth(&self, near: &VethEnd, far: &VethEnd, far_in: &Namespace, mtu: u32) -> Result<(), NetError> {
        let far_message = veth_end(LinkMessageBuilder::<LinkUnspec>::default(), far, mtu)
            .append_extra_attribute(LinkAttribute::NetNsFd(far_in.as_fd().as_raw_fd()))
            .build();
        let message = veth_end(LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth), near, mtu)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far_message)))
            .build();
        self.run(self.handle.link().add(message).execute(), || {
            format!("cannot create veth `{}` to `{}` of namespace `{}`", near.interface, far.interface, far_in.name())
        })
    }

    /// Gives `interface` an address, usable at once: IPv6 without duplicate address detection.
    ///
    /// # Errors
    /// `ENODEV` for an unknown interface, `EEXIST` for an address it has already.
    pub fn add_address(&self, interface: &str, address: IpNet) -> Result<(), NetError> {
        let step = || format!("cannot give `{interface}` the address {address}");
        let link = self.link_by_name(interface).map_err(|e| self.fail(step(), e))?;
        let mut request = self.handle.address().add(link.header.index, address.addr(), address.prefix_len());
        if matches!(address, IpNet::V6(_)) {
            // IFA_FLAGS overrides the 8 bits of the header.
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.run(request.execute(), step)
    }

    /// Adds a default route through `gateway`, which must lie in the prefix of an interface.
    ///
    /// # Errors
    /// `ENETUNREACH` or `EHOSTUNREACH` if no interface reaches the gateway, `EEXIST` if there is a default route.
    pub fn add_default_route(&self, gateway: IpAddr) -> Result<(), NetError> {
        let message = match gateway {
            IpAddr::V4(gateway) => RouteMessageBuilder::<std::net::Ipv4Addr>::new().gateway(gateway).build(),
            IpAddr::V6(gateway) => RouteMessageBuilder::<std::net::Ipv6Addr>::new().gateway(gateway).build(),
        };
        self.run(self.handle.route().add(message).execute(), || {
            format!("cannot add the default route through {gateway}")
        })
    }

    /// Sets `interface` administratively up or down.
    ///
    /// # Errors
    /// `ENODEV` for an unknown interface.
    pub fn set_up(&self, interface: &str, up: bool) -> Result<(), NetError> {
        let builder = LinkUnspec::new_with_name(interface);
        let message = if up { builder.up() } else { builder.down() }.build();
        self.run(self.handle.link().set(message).execute(), || {
            format!("cannot bring `{interface}` {}", if up { "up" } else { "down" })
        })
    }

    /// Every interface of the namespace, `lo` included, in the kernel's order.
    ///
    /// # Errors
    /// What the kernel answers to a link dump.
    pub fn links(&self) -> Result<Vec<LinkStatus>, NetError> {
        let links: Vec<LinkMessage> =
            self.run(self.handle.link().get().execute().try_collect(), || "cannot list interfaces".into())?;
        Ok(links.iter().map(link_status).collect())
    }

    pub(super) fn link_by_name(&self, interface: &str) -> Result<LinkMessage, rtnetlink::Error> {
        let mut answers = Box::pin(self.handle.link().get().match_name(interface).execute());
        self.runtime.block_on(answers.try_next())?.ok_or(rtnetlink::Error::RequestFailed)
    }

    pub(super) fn run<T>(
        &self,
        request: impl Future<Output = Result<T, rtnetlink::Error>>,
        step: impl FnOnce() -> String,
    ) -> Result<T, NetError> {
        self.runtime.block_on(request).map_err(|cause| self.fail(step(), cause))
    }

    pub(super) fn fail(&self, step: String, cause: rtnetlink::Error) -> NetError {
        let cause = match cause {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            // The connection task ended: the socket is gone.
            rtnetlink::Error::RequestFailed => Errno::EPIPE.into(),
            other => std::io::Error::other(other),
        };
        match &self.namespace {
            Some(namespace) => NetError::new(format!("{step} in namespace `{namespace}`"), cause),
            None => NetError::new(step, cause),
        }
    }
}

fn veth_end<T>(builder: LinkMessageBuilder<T>, end: &VethEnd, mtu: u32) -> LinkMessageBuilder<T> {
    builder
        .name(end.interface)
        .address(end.mac.to_vec())
        .mtu(mtu)
        .append_extra_attribute(LinkAttribute::NumTxQueues(1))
        .append_extra_attribute(LinkAttribute::NumRxQueues(1))
}

fn link_status(link: &LinkMessage) -> LinkStatus {
    let mut status = LinkStatus {
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        carrier: link.header.flags.contains(LinkFlags::LowerUp),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => status.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => status.mtu = *mtu,
            LinkAttribute::Address(address) => status.mac = address.as_slice().try_into().unwrap_or_default(),
            _ => {}
        }
    }
    status
}
