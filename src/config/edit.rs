//! Changes to a configuration in memory, as `weft port` makes them. Each gives a whole new
//! configuration, which has to pass [`SwitchConfig::validate`] like any other.

use ipnet::IpNet;

use super::{PortConfig, SwitchConfig};
use crate::fault::Faults;
use crate::id::PortId;

impl SwitchConfig {
    /// With one port more, at the end, which `routes` lead by beside the ports they have; a route that
    /// is not there is made.
    pub fn with_port(&self, port: PortConfig, routes: &[IpNet]) -> SwitchConfig {
        let mut config = self.clone();
        let id = PortId(config.ports.len().min(usize::from(u8::MAX)) as u8);
        config.ports.push(port);
        for prefix in routes {
            match config.routes.iter_mut().find(|r| r.prefix == *prefix) {
                Some(route) => route.ports.push(id),
                None => config.routes.push(super::RouteConfig { prefix: *prefix, ports: vec![id] }),
            }
        }
        config
    }

    /// Without the port on `interface`. A route that led by it alone stays and leads nowhere, so that
    /// no shorter prefix takes its packets. Where the scheme goes by them, the other uplinks keep their numbers, and
    /// this one counts as absent.
    ///
    /// # Errors
    /// There is no such port: a sentence that names those there are.
    pub fn without_port(&self, interface: &str) -> Result<SwitchConfig, String> {
        let gone = self.find(interface)?;
        let mut config = if self.selector.goes_by_place() { self.with_uplinks_written() } else { self.clone() };
        config.ports.remove(gone.index());
        for route in &mut config.routes {
            route.ports.retain(|id| *id != gone);
            route.ports.iter_mut().filter(|id| **id > gone).for_each(|id| id.0 -= 1);
        }
        Ok(config)
    }

    /// With the port on `interface` in or out of service.
    ///
    /// # Errors
    /// As for [`SwitchConfig::without_port`].
    pub fn with_enabled(&self, interface: &str, enabled: bool) -> Result<SwitchConfig, String> {
        let id = self.find(interface)?;
        let mut config = self.clone();
        config.ports[id.index()].enabled = enabled;
        Ok(config)
    }

    /// With other faults for what the port on `interface` receives.
    ///
    /// # Errors
    /// As for [`SwitchConfig::without_port`].
    pub fn with_fault(&self, interface: &str, fault: Faults) -> Result<SwitchConfig, String> {
        let id = self.find(interface)?;
        let mut config = self.clone();
        config.ports[id.index()].fault = fault;
        Ok(config)
    }

    fn find(&self, interface: &str) -> Result<PortId, String> {
        self.port(interface).ok_or_else(|| {
            let names: Vec<_> = self.ports.iter().map(|p| p.interface.as_str()).collect();
            format!("switch `{}` has no port `{interface}`: name one of {}", self.name, names.join(", "))
        })
    }
}
