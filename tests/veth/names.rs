use std::time::Duration;

use crate::bed::Kind::Host;
use crate::bed::{Bed, ping_all_pairs, turn};
use crate::books;
use crate::faults::{ip, nothing_is_lost_while, wait_down, wait_up};

/// Gives an interface of the switch's namespace another name, for which it has to be down.
fn rename(bed: &Bed, from: &str, to: &str) {
    ip(&bed.switch, &format!("link set {from} down"));
    ip(&bed.switch, &format!("link set {from} name {to}"));
    ip(&bed.switch, &format!("link set {to} up"));
}

#[test]
fn a_port_follows_its_name_not_its_interface_and_others_lose_nothing() {
    let Some(_turn) = turn("rename") else { return };
    let bed = Bed::new("rename", &[Host; 4]);
    let switch = bed.start(&bed.toml(""), &[]);
    ping_all_pairs(&bed.hosts);
    nothing_is_lost_while(&bed, || {
        rename(&bed, "p2", "q2");
        wait_down(&switch, "p2", "interface is gone");
        assert!(!bed.ip_link("q2").contains("xdp"), "given up under its new name: {}", bed.ip_link("q2"));
        rename(&bed, "q2", "p2");
        assert!(wait_up(&switch, "p2") < Duration::from_secs(1));
    });
    ping_all_pairs(&bed.hosts);
    // Two that swap their names: each port finds the other's interface.
    rename(&bed, "p2", "q2");
    rename(&bed, "p3", "p2");
    rename(&bed, "q2", "p3");
    wait_up(&switch, "p2");
    wait_up(&switch, "p3");
    ping_all_pairs(&bed.hosts);
    books::at_rest(&switch.socket);
    switch.stop();
    bed.assert_detached();
}
