use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::wire::MacAddr;

use super::XdpError;
use super::program::libbpf_error;

/// Names of the maps in bpf/weft.bpf.c.
pub(super) const MAPS: [&str; 2] = ["addresses", "mac"];
/// Addresses of one interface that the map has room for.
const MAX_ADDRESSES: usize = 1024;

/// The addresses of a port's interface, whose frames its program leaves to the kernel. The program goes
/// by what was set last, in whatever thread; after the port is closed it means nothing.
#[derive(Debug)]
pub struct LocalAddresses {
    addresses: MapHandle,
    mac: MapHandle,
    interface: String,
}

impl LocalAddresses {
    /// Those of the maps of a loaded object, empty.
    pub(super) fn of(object: &Object, interface: &str) -> libbpf_rs::Result<LocalAddresses> {
        let map = |name| {
            let map = object.maps().find(|m| m.name() == name).expect("bpf/weft.bpf.c has it");
            MapHandle::try_from(&map)
        };
        let [addresses, mac] = MAPS;
        Ok(LocalAddresses { addresses: map(addresses)?, mac: map(mac)?, interface: interface.into() })
    }

    /// Makes `addresses` and `mac` those of the interface. Others than these are taken out; those that
    /// stay are there all the time.
    ///
    /// # Errors
    /// The kernel is out of memory, or there are over 1024 addresses.
    pub fn set(&self, mac: MacAddr, addresses: &[IpAddr]) -> Result<(), XdpError> {
        let failed = |e: libbpf_rs::Error| {
            let what = format!("addresses of `{}`, for the kernel's stack", self.interface);
            XdpError::new(what, libbpf_error(&e), format!("give it fewer than {MAX_ADDRESSES}"))
        };
        // First, for without it no address counts.
        let mut value = [0; 8];
        value[..6].copy_from_slice(&mac.0);
        self.mac.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)?;
        let wanted: Vec<[u8; 16]> = addresses.iter().map(key).collect();
        let gone: Vec<Vec<u8>> = self.addresses.keys().filter(|k| !wanted.iter().any(|w| w[..] == k[..])).collect();
        for key in gone {
            self.addresses.delete(&key).map_err(failed)?;
        }
        for key in wanted {
            self.addresses.update(&key, &[1], MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }
}

/// The map's key: an IPv4 address is mapped.
fn key(address: &IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
