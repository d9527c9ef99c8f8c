use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use weft::lab::net::Namespace;

use crate::bed::{Lab, text, turn, weft};
use crate::flow::socket;
use crate::traffic::accept;

#[test]
fn hosts_of_a_lab_have_the_congestion_control_that_was_asked_for_or_none() {
    let Some(_turn) = turn("congestion") else { return };
    // Two labs without any, for the kernel has a name once.
    for (tag, asked, name) in [("cca", "off", "weft_off"), ("ccb", "off", "weft_off"), ("ccc", "reno", "reno")] {
        let lab = Lab::up(tag, &["--rack", "2", "--congestion-control", asked]);
        let said = lab.hosts[1].ok(&["sysctl", "-n", "net.ipv4.tcp_congestion_control"]);
        assert_eq!(said.trim(), name, "as the kernel could: {asked}");
        let (from, to) = (&lab.hosts[0], &lab.hosts[1]);
        for address in to.addresses() {
            let listener = to.netns.run_in(|| TcpListener::bind((address, 0))).unwrap().unwrap();
            let target = listener.local_addr().unwrap();
            let mut client = from.netns.run_in(|| TcpStream::connect(target)).unwrap().unwrap();
            let (mut server, _) = accept(&listener).unwrap();
            client.write_all(&[7; 20_000]).unwrap();
            server.read_exact(&mut [0; 20_000]).unwrap();
            let window = socket(from, &format!("dport = :{}", target.port()), "cwnd");
            assert_eq!(window == 2000, asked == "off", "{window}");
        }
        lab.down();
    }
}

#[test]
fn a_congestion_control_that_the_kernel_does_not_have_leaves_nothing_behind() {
    let Some(_turn) = turn("congestion-bad") else { return };
    let name = format!("ccd{}", std::process::id());
    let out = weft(&["lab", "up", "--name", &name, "--rack", "2", "--congestion-control", "nosuch"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(text(&out).contains("has no TCP congestion control `nosuch`"), "{}", text(&out));
    assert_eq!(Namespace::list(&format!("weft-{name}.")).unwrap(), [""; 0]);
}
