use weft::lab::net::Namespace;

use crate::bed::{Lab, ping_all_pairs, text, turn, weft, weft_ok};
use crate::traffic::tcp;

#[test]
fn two_labs_with_the_same_addresses_work_side_by_side() {
    let Some(_turn) = turn("side") else { return };
    let (first, second) = (Lab::up("a", &["--leaf-spine", "2x2"]), Lab::up("a-b", &["--rack", "2"]));
    assert_eq!(first.hosts[0].ipv4, second.hosts[0].ipv4);
    ping_all_pairs(&first.hosts);
    ping_all_pairs(&second.hosts);
    first.check_books();
    first.down();
    // The other, whose name begins with the first's, is untouched.
    ping_all_pairs(&second.hosts);
    tcp(&second.hosts[0], &second.hosts[1], second.hosts[1].ipv6.into(), 1 << 20);
    second.check_books();
    second.down();
}

#[test]
fn a_lab_that_comes_and_goes_five_times_forwards_each_time() {
    let Some(_turn) = turn("cycle") else { return };
    for _ in 0..5 {
        let lab = Lab::up("cycle", &["--leaf-spine", "2x1", "--hosts-per-tor", "1"]);
        ping_all_pairs(&lab.hosts);
        lab.check_books();
        lab.down();
    }
}

#[test]
fn every_shape_of_fabric_connects_its_far_ends() {
    let Some(_turn) = turn("shapes") else { return };
    for shape in [&["--fat-tree", "4"][..], &["--clos", "2x2x2x4", "--hosts-per-tor", "1"]] {
        let lab = Lab::up("shape", shape);
        let (first, last) = (&lab.hosts[0], lab.hosts.last().unwrap());
        let middle = &lab.hosts[lab.hosts.len() / 2 - 1];
        for to in [middle, last] {
            for address in to.addresses() {
                tcp(first, to, address, 256 << 10);
            }
        }
        lab.check_books();
        lab.down();
    }
}

#[test]
fn exec_runs_a_command_at_a_host_and_a_second_up_changes_nothing() {
    let Some(_turn) = turn("exec") else { return };
    let lab = Lab::up("exec", &["--rack", "2"]);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    let target = b.ipv4.to_string();
    weft_ok(&["lab", "exec", "--name", &lab.name, &a.name, "--", "ping", "-c", "1", "-W", "5", &target]);
    let failed = weft(&["lab", "exec", "--name", &lab.name, &a.name, "--", "sh", "-c", "exit 9"]);
    assert_eq!(failed.status.code(), Some(9));
    let twice = weft(&["lab", "up", "--name", &lab.name, "--rack", "2"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(text(&twice).contains(&format!("weft lab down --name {}", lab.name)), "{}", text(&twice));
    ping_all_pairs(&lab.hosts);
    let name = lab.name.clone();
    lab.check_books();
    lab.down();
    assert_eq!(weft_ok(&["lab", "down", "--name", &name]).trim(), format!("lab `{name}` is not up"));
    assert_eq!(Namespace::list(&format!("weft-{name}.")).unwrap(), Vec::<String>::new());
}
