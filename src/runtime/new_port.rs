//! What a port is like that `weft port add` gives a running switch: as asked, and for the rest as the switch was told
//! last that a port on that interface is. So a port that was removed comes back as it was.

use ipnet::IpNet;

use crate::config::{PortConfig, SwitchConfig, default_hello};
use crate::control::NewPort;
use crate::fault::Faults;
use crate::id::PortId;

/// The port, and the prefixes that lead by it. `configured` is what the switch was started with or reloaded from last,
/// `current` what it is now.
pub(super) fn resolve(new: &NewPort, current: &SwitchConfig, configured: &SwitchConfig) -> (PortConfig, Vec<IpNet>) {
    let known = configured.port(&new.interface).filter(|id| configured.ports[id.index()].kind == new.kind);
    let told = known.map(|id| &configured.ports[id.index()]);
    let mut port = PortConfig {
        interface: new.interface.clone(),
        kind: new.kind,
        rate: new.rate.or(told.map(|p| p.rate)).unwrap_or_default(),
        mtu: new.mtu.or(told.and_then(|p| p.mtu)),
        mode: new.mode.or(told.map(|p| p.mode)).unwrap_or_default(),
        enabled: true,
        pass_to_kernel: new.pass_to_kernel.or(told.map(|p| p.pass_to_kernel)).unwrap_or_default(),
        peer_mac: new.peer_mac.or(told.and_then(|p| p.peer_mac)),
        hello: told.map_or(default_hello(new.kind), |p| p.hello),
        fault: told.map_or(Faults::default(), |p| p.fault),
        uplink: new.uplink.or(told.and_then(|p| p.uplink)),
    };
    if new.uplink.is_none()
        && let Some(id) = known
    {
        port.uplink = uplink_again(&port, id, current, configured);
    }
    let routes = match known {
        Some(id) if new.routes.is_empty() => {
            configured.routes.iter().filter(|route| route.ports.contains(&id)).map(|route| route.prefix).collect()
        }
        _ => new.routes.clone(),
    };
    (port, routes)
}

/// Why the switch can't have the port as an uplink now, with what to do instead.
pub(super) fn no_uplink_for(port: &PortConfig, current: &SwitchConfig, configured: &SwitchConfig) -> Option<String> {
    let known = configured.port(&port.interface);
    current.no_uplink_for(port, known.and_then(|id| configured.uplink_numbers()[id.index()]))
}

/// What to say of its uplink, so that the port has the number again that it had: nothing if that comes by itself, or if
/// another has the number now.
fn uplink_again(port: &PortConfig, id: PortId, current: &SwitchConfig, configured: &SwitchConfig) -> Option<u8> {
    if !current.selector.goes_by_place() {
        return port.uplink;
    }
    let had = configured.uplink_numbers()[id.index()];
    if current.uplink_numbers().contains(&had) {
        return None;
    }
    let by_itself = current.with_port(port.clone(), &[]).uplink_numbers().last() == Some(&had);
    if by_itself { port.uplink } else { had }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diff::{Layout, diff};
    use crate::id::PortKind;
    use crate::units::BitRate;

    /// An aggregation switch with two racks and three uplinks, each port as no default has it.
    fn configured() -> SwitchConfig {
        let ports = [("d0", "down"), ("d1", "down"), ("u0", "up"), ("u1", "up"), ("u2", "up")];
        let ports = ports.map(|(name, kind)| {
            format!(
                "[[port]]\ninterface = \"{name}\"\nkind = \"{kind}\"\nrate = \"7Mbit\"\nmtu = 1600\nmode = \"generic\"\n\
                 hello = \"required\"\nfault = \"loss=0.1\"\npass_to_kernel = true\npeer_mac = \"02:00:00:00:00:07\"\n"
            )
        });
        let text = format!(
            "name = \"a\"\nrole = \"agg\"\nselector = \"caft\"\nuplinks = 3\n[pod]\nipv4 = \"10.0.0.0/16\"\n{}\
             [[route]]\nprefix = \"0.0.0.0/0\"\nports = [\"u0\", \"u1\", \"u2\"]\n\
             [[route]]\nprefix = \"10.2.0.0/16\"\nports = [\"u1\", \"u2\"]\n\
             [[route]]\nprefix = \"10.0.0.0/24\"\nports = [\"d0\"]\n",
            ports.concat()
        );
        SwitchConfig::parse(&text, "a.toml").unwrap()
    }

    fn bare(interface: &str, kind: PortKind) -> NewPort {
        NewPort {
            interface: interface.into(),
            kind,
            rate: None,
            mtu: None,
            mode: None,
            peer_mac: None,
            uplink: None,
            pass_to_kernel: None,
            routes: Vec::new(),
        }
    }

    fn add(current: &SwitchConfig, new: &NewPort) -> SwitchConfig {
        let (port, routes) = resolve(new, current, &configured());
        let config = current.with_port(port, &routes);
        config.validate().unwrap();
        config
    }

    /// What a reload would change.
    fn left_to_do(config: &SwitchConfig) -> Vec<String> {
        diff(config, &Layout::of(config), &configured()).unwrap().summary
    }

    #[test]
    fn what_is_removed_and_added_again_is_as_the_file_has_it_routes_and_number_included() {
        let all = configured();
        // In any order: the lowest number that is free is not always the one that it had.
        for gone in [&["u0"][..], &["u1"], &["u2", "u0", "u1"], &["u0", "u2"], &["d0", "u1"]] {
            let less = gone.iter().fold(all.clone(), |config, name| config.without_port(name).unwrap());
            let kind = |name: &str| if name.starts_with('u') { PortKind::Up } else { PortKind::Down };
            let back = gone.iter().fold(less, |config, name| add(&config, &bare(name, kind(name))));
            let number = |config: &SwitchConfig, name| config.uplink_numbers()[config.port(name).unwrap().index()];
            for (name, expected) in [("u0", 0), ("u1", 1), ("u2", 2)] {
                assert_eq!(number(&back, name), Some(expected), "{gone:?}");
            }
            assert_eq!(left_to_do(&back), Vec::<String>::new(), "{gone:?}");
        }
    }

    #[test]
    fn what_is_said_counts_more_than_what_the_file_says() {
        let less = configured().without_port("u1").unwrap();
        let prefix: IpNet = "10.7.0.0/16".parse().unwrap();
        let said = NewPort { rate: Some(BitRate(5_000)), routes: vec![prefix], ..bare("u1", PortKind::Up) };
        let (port, routes) = resolve(&said, &less, &configured());
        assert_eq!((port.rate, port.mtu, routes), (BitRate(5_000), Some(1600), vec![prefix]));
        for (said, passes) in [(None, true), (Some(true), true), (Some(false), false)] {
            let said = NewPort { pass_to_kernel: said, ..bare("u1", PortKind::Up) };
            assert_eq!(resolve(&said, &less, &configured()).0.pass_to_kernel, passes);
        }
        // Another kind of port is another port, and an interface that the file does not have is as by default.
        for new in [bare("u1", PortKind::Down), bare("x", PortKind::Up)] {
            let (port, routes) = resolve(&new, &less, &configured());
            assert_eq!((port.rate, port.mtu, port.uplink, routes), (BitRate(0), None, None, vec![]));
            assert!(!port.pass_to_kernel);
        }
        // Whoever has the number meanwhile keeps it.
        let taken = add(&less, &NewPort { uplink: Some(1), ..bare("x", PortKind::Up) });
        let again = resolve(&bare("u1", PortKind::Up), &taken, &configured()).0;
        assert_eq!(again.uplink, None);
        let refused = no_uplink_for(&again, &taken, &configured());
        let expected = "port `u1` can't be uplink 1, for port `x` is: take that out first, with `weft port del x`";
        assert_eq!(refused.as_deref(), Some(expected));
        // With its number free, or another.
        assert_eq!(no_uplink_for(&again, &less, &configured()), None);
        let two_less = taken.without_port("u2").unwrap();
        assert_eq!(no_uplink_for(&again, &two_less, &configured()), None);
    }
}
