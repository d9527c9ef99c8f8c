//! The addresses of the kernel's own stack on an interface.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;

/// The IPv4 and IPv6 addresses of every interface of this thread's namespace, by name, in order.
pub(super) fn local_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut addresses: Vec<_> = getifaddrs()?
        .filter_map(|entry| {
            let address = entry.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let ip = v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?;
            Some((entry.interface_name, ip))
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// Those of one interface.
pub(super) fn of_interface(all: &[(String, IpAddr)], name: &str) -> Vec<IpAddr> {
    all.iter().filter(|(interface, _)| interface == name).map(|(_, address)| *address).collect()
}
