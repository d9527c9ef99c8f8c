//! What a user is shown: no second way where there is none, whether a flow was moved, and of each tier what it keeps.

use weft::dataplane::Dataplane;
use weft::fabric::view::{Cell, SchemeTable, Topic};

use crate::rig::{DOWN, Node, UP};
use crate::segment::{Flow, SYN, both, with_tag};

const HERE: (u8, u8, u8) = (0, 1, 2);
const POD_1: (u8, u8, u8) = (1, 1, 2);
const SAME_POD: (u8, u8, u8) = (0, 0, 2);

fn shown(node: &Node, topic: Topic) -> Vec<SchemeTable> {
    Dataplane::show(&node.switch, node.now, topic)
}

/// The cells of the one row of a table, without the last, its age.
fn row(node: &Node, topic: Topic, name: &str) -> Vec<Cell> {
    let tables = shown(node, topic);
    let table = tables.iter().find(|table| table.name == name).unwrap_or_else(|| panic!("no {name}"));
    let [row] = &table.rows[..] else { panic!("one row: {table:?}") };
    assert_eq!(row.len(), table.columns.len());
    row[..row.len() - 1].to_vec()
}

/// A ToR of two idle uplinks that has opened the flow, which goes by the first, and was answered by `UP[by]`.
fn answered(flow: Flow, by: usize, tag: &str) -> Node {
    let mut tor = Node::new("tor0-1");
    let [(port, ..)] = tor.send(DOWN[0], &flow.syn())[..] else { panic!("a request") };
    assert_eq!(port, UP[0]);
    assert_eq!(tor.send(UP[by], &with_tag(&flow.message(SYN), tag)), []);
    tor
}

fn loads(loads: [u64; 4]) -> Cell {
    Cell::List(loads.map(Cell::Int).to_vec())
}

#[test]
fn a_decision_names_both_ways_where_the_flow_goes_and_its_entry() {
    let int = Cell::Int;
    let failed = || Cell::from("failed");
    let none = || Cell::None;
    // In the order of the links: e2 i2, e1 i1, up1 down1, up2 down2 on the wire.
    let first = || loads([1, 2, 2, 4]);
    let (pod_1, same_pod) = (POD_1, SAME_POD);
    for (to, by, tag, first, second, second_uplink, chosen) in [
        (pod_1, 1, "88b5 88 30 14 22 43", first(), loads([3, 4, 3, 0]), int(1), 0),
        (pod_1, 1, "88b5 88 30 14 22 11", first(), loads([3, 1, 1, 0]), int(1), 1),
        // Cores that have failed are a way's fault (A7).
        (pod_1, 1, "88b5 88 30 14 22 ff", first(), Cell::List(vec![int(3), failed(), failed(), int(0)]), int(1), 0),
        // T8: no second way, whatever the cores by which the answer came.
        (pod_1, 0, "88b5 88 ff 14 22 00", first(), none(), none(), 0),
        // 6a: of the ways within a pod only the best is told.
        (same_pod, 1, "88b5 82 30", none(), Cell::List(vec![int(3), none(), none(), int(0)]), int(1), 1),
        (same_pod, 0, "88b5 82 30", none(), Cell::List(vec![int(3), none(), none(), int(0)]), int(0), 0),
        (same_pod, 0, "88b5 82 ff", none(), none(), none(), 0),
    ] {
        for flow in both(HERE, to) {
            let tor = answered(flow, by, tag);
            let id = format!("{:08x}", tor.flow(&flow.syn()) >> 32);
            let ends = [(flow.ends().src, flow.ports.0), (flow.ends().dst, 80)];
            let [from, to] = ends.map(|end| Cell::Text(std::net::SocketAddr::from(end).to_string()));
            let flow = [Cell::Text(id), from, to];
            let ways = [first.clone(), second.clone(), int(0), second_uplink.clone()];
            let outcome = [int(chosen), Cell::Bool(chosen != 0)];
            assert_eq!(row(&tor, Topic::Paths, "decisions"), [&flow[..], &ways, &outcome].concat(), "{tag}");
            let origin = if chosen == 0 { "request" } else { "response" };
            let port = Cell::Port(weft::id::PortId(UP[chosen as usize]));
            let entry = [port, origin.into(), Cell::Bool(true)];
            assert_eq!(row(&tor, Topic::Pat, "pat"), [&flow[..], &entry].concat(), "{tag}");
        }
    }
}

#[test]
fn a_tor_shows_what_it_doubts() {
    for flow in both(HERE, POD_1) {
        let mut tor = Node::new("tor0-1");
        tor.send(DOWN[0], &flow.syn());
        tor.wait(1000);
        tor.send(DOWN[0], &flow.syn());
        tor.wait(2);
        let tables = shown(&tor, Topic::Failures);
        let port = Cell::Ports(weft::id::PortMask::only(weft::id::PortId(UP[0])));
        let row = vec![Cell::Text(flow.ends().dst.to_string()), Cell::List(vec![Cell::Int(0)]), port, Cell::Int(2000)];
        assert_eq!((tables[0].name, &tables[0].rows), ("doubted", &vec![row]));
        let counts = shown(&tor, Topic::Paths);
        let counts = counts.iter().find(|table| table.name == "allocation").expect("counters");
        assert_eq!(counts.get("requests_in_vain"), Some(&Cell::Int(1)));
    }
}

#[test]
fn each_tier_shows_what_it_keeps() {
    let names = |switch: &str, topic| {
        shown(&Node::new(switch), topic).iter().map(|table| (table.name, table.record)).collect::<Vec<_>>()
    };
    let (pat, counts) = ([("pat", false), ("slots", true)], ("allocation", true));
    for (switch, dre, pat, failures, paths) in [
        (
            "tor0-1",
            &[("dre", false)][..],
            &pat[..],
            &[("doubted", false), ("uplinks", false)][..],
            &[("decisions", false), counts][..],
        ),
        ("agg0-1", &[("dre", false)], &pat, &[("failures", false), ("uplinks", false)], &[counts]),
        ("core2", &[], &[], &[], &[counts]),
    ] {
        assert_eq!(names(switch, Topic::Dre), dre, "{switch}");
        assert_eq!(names(switch, Topic::Pat), pat, "{switch}");
        assert_eq!(names(switch, Topic::Failures), failures, "{switch}");
        assert_eq!(names(switch, Topic::Paths), paths, "{switch}");
    }
}

#[test]
fn a_tor_without_a_second_way_and_an_aggregation_switch_without_a_core_are_counted_apart() {
    for flow in both(POD_1, HERE) {
        let mut tor = Node::new("tor0-1");
        tor.set_up(UP[1], false);
        tor.send(UP[0], &with_tag(&flow.syn(), "88b5 04 00 00"));
        let mut agg = Node::new("agg0-1");
        agg.send(UP[0], &with_tag(&flow.syn(), "88b5 04 00 ff"));
        for (node, expected) in [(tor, [1, 0]), (agg, [0, 1])] {
            let tables = shown(&node, Topic::Paths);
            let counts = tables.iter().find(|table| table.name == "allocation").expect("counters");
            let keys = ["requests_without_a_second_way", "messages_without_a_core"];
            assert_eq!(keys.map(|key| counts.get(key).cloned()), expected.map(|n| Some(Cell::Int(n))));
        }
    }
}
