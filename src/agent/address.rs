use std::fs;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::lab::net::{InterfaceConfig, NetError, Netlink};

/// Where the TAP's addresses come from. What is taken off the uplink goes back when the agent ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// From the uplink, with the routes that lead by it.
    Move,
    /// From here, with default routes through gateways. The uplink's are taken off as well, or the kernel would send by
    /// it.
    Give {
        /// Addresses with the lengths of their prefixes.
        addresses: Vec<IpNet>,
        /// Next hops of default routes, one of each family.
        gateways: Vec<IpAddr>,
    },
    /// From somebody else.
    Leave,
}

/// The addresses that an uplink had before its agent came.
///
/// The uplink's IPv6 is switched off meanwhile: the kernel would say neighbour discovery and multicast of its own there.
/// Only a process that ends by itself gives them back; after `kill -9` the uplink has none.
#[derive(Debug)]
pub struct Addresses {
    netlink: Netlink,
    uplink: String,
    moved: InterfaceConfig,
    /// What `disable_ipv6` was; `None` if it was not changed.
    ipv6: Option<String>,
}

impl Addresses {
    /// Those of `uplink`, which has them still.
    ///
    /// # Errors
    /// There is no netlink socket to be had.
    pub fn of(uplink: &str) -> Result<Addresses, NetError> {
        let netlink = Netlink::here()?;
        Ok(Addresses { netlink, uplink: uplink.into(), moved: InterfaceConfig::default(), ipv6: None })
    }

    /// Gives the TAP its addresses and routes, and takes the uplink's off it.
    ///
    /// # Errors
    /// The kernel refuses one. Some may have been given and taken by then: [`Addresses::restore`], once there is no TAP.
    pub fn give(&mut self, addressing: &Addressing, tap: &str) -> Result<(), NetError> {
        if *addressing == Addressing::Leave {
            return Ok(());
        }
        // Before IPv6 goes off, which would take its addresses too.
        self.moved = self.netlink.config_of(&self.uplink)?;
        self.netlink.remove_config(&self.uplink, &self.moved)?;
        self.silence_ipv6();
        match addressing {
            Addressing::Give { addresses, gateways } => {
                addresses.iter().try_for_each(|address| self.netlink.add_address(tap, *address))?;
                gateways.iter().try_for_each(|gateway| self.netlink.add_default_route(*gateway))
            }
            _ => self.netlink.add_config(tap, &self.moved),
        }
    }

    /// Gives the uplink back what it had. The TAP must be gone, and all that it was given with it: the kernel has one
    /// route to a prefix, and takes no second one.
    ///
    /// # Errors
    /// The first that the kernel refuses; all else is given back.
    pub fn restore(self) -> Result<(), NetError> {
        if let Some(was) = &self.ipv6
            && let Err(error) = fs::write(disable_ipv6(&self.uplink), was)
        {
            tracing::warn!(uplink = self.uplink, %error, "IPv6 stays off");
        }
        self.netlink.add_config(&self.uplink, &self.moved)
    }

    /// The uplink's kernel has nothing to say. Without the right to write it, a few frames a minute go by unasked.
    fn silence_ipv6(&mut self) {
        let path = disable_ipv6(&self.uplink);
        let silence = || -> io::Result<String> {
            let was = fs::read_to_string(&path)?;
            fs::write(&path, "1")?;
            Ok(was)
        };
        match silence() {
            Ok(was) => self.ipv6 = Some(was),
            Err(error) => tracing::debug!(path, %error, "the uplink's IPv6 stays on"),
        }
    }
}

fn disable_ipv6(interface: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
}
