//! Flows from host to host through a whole fabric: what each link carries, and where the flow ends up.

use std::collections::BTreeSet;

use weft::counters::DropReason;
use weft::dataplane::Dataplane;
use weft::fabric::clos::Direction::{Egress, Ingress};
use weft::fabric::view::{Cell, SchemeTable, Topic};
use weft::topo::{Fabric, FabricOptions};

use crate::rig::{Hop, Net, clos, delivered, lines, options};

const FROM: &str = "h0-1-2";
const TO: &str = "h1-1-2";

/// The loads of CAFT's example (its figures 2 and 3), with the far ToR's as given.
fn loaded(far: [usize; 2]) -> Net {
    let mut net = Net::new(&clos(&options()));
    for (switch, direction, peers, loads) in [
        ("tor0-1", Egress, ["agg0-0", "agg0-1"], [1, 3]),
        ("agg0-0", Egress, ["core0", "core1"], [4, 2]),
        ("agg0-1", Egress, ["core2", "core3"], [5, 4]),
        ("agg1-0", Ingress, ["core0", "core1"], [3, 2]),
        ("agg1-1", Ingress, ["core2", "core3"], [3, 3]),
        ("tor1-1", Ingress, ["agg1-0", "agg1-1"], far),
    ] {
        for (peer, load) in peers.into_iter().zip(loads) {
            net.load(switch, peer, direction, load);
        }
    }
    net
}

/// Checks a request's way up and down and gives its plane: the tag stays as the ToR has made it.
fn request(hops: &[Hop], tag: &str) -> usize {
    let found = lines(hops, |hop| hop.tag() != "-" && !hop.is_response());
    let plane = usize::from(found[0].contains("agg0-1"));
    let core = hops.iter().find(|hop| hop.to.starts_with("core")).map(|hop| hop.to.clone()).expect("a core");
    assert!([format!("core{}", 2 * plane), format!("core{}", 2 * plane + 1)].contains(&core), "{core}");
    let (up, down) = (format!("agg0-{plane}"), format!("agg1-{plane}"));
    let way = ["tor0-1", &up, &core, &down, "tor1-1"];
    let expected: Vec<_> = way.windows(2).map(|ends| format!("{} {} {tag}", ends[0], ends[1])).collect();
    assert_eq!(found, expected);
    plane
}

/// The switches that a packet without a tag goes through, and its host.
fn way(hops: &[Hop]) -> Vec<&str> {
    assert!(hops.iter().all(|hop| hop.tag() == "-"), "{hops:?}");
    hops.iter().map(|hop| hop.to.as_str()).collect()
}

/// Stage 1: max(1, 4) = 4 by plane 0, max(3, 0) = 3 by plane 1. Stage 2 in plane 1: max(5, 3) = 5 by core2,
/// max(4, 3) = 4 by core3.
#[test]
fn the_far_tor_chooses_the_plane_by_the_tors_links_and_the_near_agg_the_core_by_the_aggs() {
    for v6 in [false, true] {
        let mut net = loaded([4, 0]);
        let first = net.flow(FROM, TO, 5_000, v6, 0);
        request(&first, "88b50213");
        let responses = lines(&first, Hop::is_response);
        let core = responses[1].split(' ').nth(1).expect("where to").to_owned();
        assert!(["core2", "core3"].contains(&core.as_str()), "{core} by its hash");
        let expected = [
            "tor1-1 agg1-1 88b580".into(),
            format!("agg1-1 {core} 88b58233"),
            format!("{core} agg0-1 88b58233"),
            "agg0-1 tor0-1 88b580".into(),
        ];
        assert_eq!(responses, expected);
        assert_eq!(net.pat("tor0-1"), [("agg0-1".into(), "response")]);
        assert_eq!(net.pat("agg0-1"), [("core3".into(), "response")]);
        for none in ["agg0-0", "agg1-0", "agg1-1", "tor1-1", "core3"] {
            assert_eq!(net.pat(none), [], "{none} keeps nothing");
        }

        let second = net.flow(FROM, TO, 5_000, v6, 500);
        assert_eq!(way(&second), ["agg0-1", "core3", "agg1-1", "tor1-1", TO]);

        // Each host gets what was sent, five routers later, and nothing else.
        for (hops, len) in [(&first, 0), (&second, 500)] {
            let got = delivered(&net, hops);
            let mut sent = crate::rig::tcp(net.ends(FROM, TO, v6), (5_000, 80), len);
            for _ in 0..5 {
                let [tor, host] =
                    [net.fabric.switch("tor1-1").expect("a ToR").config.mac, net.fabric.host(TO).expect("a host").mac];
                sent = crate::packets::routed(&sent, tor, host);
            }
            assert_eq!(got.len(), 1);
            assert_eq!((got[0].to.as_str(), &got[0].frame), (TO, &sent));
        }
        let (near, far) = (net.counters("tor0-1"), net.counters("tor1-1"));
        assert_eq!((near.requests, near.moved + near.stayed), (1, 1));
        assert_eq!((far.requests_down, far.responses_sent), (1, 1));
    }
}

/// max(1, 1) = 1 by plane 0, max(3, 7) = 7 by plane 1; in plane 0 max(4, 3) = 4 by core0, max(2, 2) = 2 by core1.
/// CAFT would answer a request that came by plane 0 by plane 1.
#[test]
fn the_plane_that_the_request_came_by_is_a_candidate_like_any_other() {
    let mut net = loaded([1, 7]);
    let mut came = BTreeSet::new();
    for port in 5_000..5_016 {
        let first = net.flow(FROM, TO, port, false, 0);
        came.insert(request(&first, "88b50213"));
        let responses = lines(&first, Hop::is_response);
        assert_eq!((responses[0].as_str(), responses[3].as_str()), ("tor1-1 agg1-0 88b580", "agg0-0 tor0-1 88b580"));
        assert!(responses[1].ends_with(" 88b58232"), "{responses:?}");
        assert_eq!(way(&net.flow(FROM, TO, port, false, 500)), ["agg0-0", "core1", "agg1-0", "tor1-1", TO]);
    }
    assert_eq!(came, BTreeSet::from([0, 1]), "requests go by their hash");
    let near = net.counters("tor0-1");
    assert!(near.moved > 0 && near.stayed > 0 && near.moved + near.stayed == 16, "{near:?}");
}

/// Ways of flows over an idle fabric, as plane and core.
fn ways(options: &FabricOptions) -> BTreeSet<String> {
    let mut net = Net::new(&clos(options));
    let way = |net: &mut Net, port| {
        net.flow(FROM, TO, port, false, 0);
        let hops = net.flow(FROM, TO, port, false, 500);
        format!("{} {}", hops[0].to, hops[1].to)
    };
    (5_000..5_032).map(|port| way(&mut net, port)).collect()
}

#[test]
fn of_equals_the_lowest_is_taken_or_one_by_the_hash() {
    assert_eq!(ways(&options()), BTreeSet::from(["agg0-0 core0".into()]));
    let mut rotated = options();
    rotated.caft.deterministic = false;
    let all = ["agg0-0 core0", "agg0-0 core1", "agg0-1 core2", "agg0-1 core3"];
    assert_eq!(ways(&rotated), all.map(String::from).into());
}

/// max(1, 2) = 2 by agg0-0, max(3, 1) = 3 by agg0-1.
#[test]
fn within_a_pod_the_agg_turns_the_response_round_and_there_is_no_second_stage() {
    for v6 in [false, true] {
        let mut net = loaded([0, 0]);
        net.load("tor0-0", "agg0-0", Ingress, 2);
        net.load("tor0-0", "agg0-1", Ingress, 1);
        let hops = net.flow(FROM, "h0-0-2", 5_000, v6, 0);
        let request = lines(&hops, |hop| hop.tag() != "-" && !hop.is_response());
        let agg = request[0].split(' ').nth(1).expect("where to").to_owned();
        assert_eq!(request, [format!("tor0-1 {agg} 88b50213"), format!("{agg} tor0-0 88b50213")]);
        assert_eq!(lines(&hops, Hop::is_response), ["tor0-0 agg0-0 88b580", "agg0-0 tor0-1 88b580"]);
        assert_eq!(net.pat("tor0-1"), [("agg0-0".into(), "response")]);
        assert_eq!((net.pat("agg0-0"), net.counters("agg0-0").responses_turned), (vec![], 1));
        assert_eq!(way(&net.flow(FROM, "h0-0-2", 5_000, v6, 500)), ["agg0-0", "tor0-0", "h0-0-2"]);
    }
}

#[test]
fn two_tiers_are_a_pod_whose_cores_turn_responses_round() {
    let mut net = Net::new(&Fabric::leaf_spine(2, 3, &options()).expect("a fabric"));
    for (spine, up, down) in [("spine0", 6, 0), ("spine1", 2, 3), ("spine2", 0, 4)] {
        net.load("leaf0", spine, Egress, up);
        net.load("leaf1", spine, Ingress, down);
    }
    let hops = net.flow("h0-0-2", "h0-1-2", 5_000, false, 0);
    // Worst links: 6, 3 and 4. An odd number of metrics leaves the last nibble 0.
    assert_eq!(lines(&hops, Hop::is_response), ["leaf1 spine1 88b580", "spine1 leaf0 88b580"]);
    assert!(lines(&hops, |hop| hop.from == "leaf0")[0].ends_with("88b5036200"), "{hops:?}");
    assert_eq!(way(&net.flow("h0-0-2", "h0-1-2", 5_000, false, 500)), ["spine1", "leaf1", "h0-1-2"]);
}

#[test]
fn each_direction_of_a_connection_looks_for_its_own_way() {
    let mut net = loaded([4, 0]);
    net.flow(FROM, TO, 5_000, false, 0);
    // tor1-1 has sent nothing but a response; tor0-1 has received nothing but that.
    let back = crate::rig::tcp(net.ends(TO, FROM, false), (80, 5_000), 1);
    net.hops.clear();
    net.send(TO, &back);
    let hops = std::mem::take(&mut net.hops);
    assert!(lines(&hops, |hop| hop.from == "tor1-1")[0].ends_with("88b50200"), "{hops:?}");
    assert_eq!(net.pat("tor1-1"), [("agg1-0".into(), "response")], "of equals the lowest");
    assert_eq!(net.pat("tor0-1"), [("agg0-1".into(), "response")], "as it was");
}

/// The failure of CAFT's figure 4: agg0-0 has lost core0. What a hash sends there from the other pod is lost.
#[test]
fn what_goes_to_a_core_without_a_link_to_the_pod_is_lost_and_flows_go_on_by_their_hash() {
    let mut net = loaded([1, 7]);
    net.set_link("agg0-0", "core0", false);
    let (mut lost, mut found) = (0, 0);
    for port in 5_000..5_032 {
        let hops = net.flow(FROM, TO, port, false, 0);
        request(&hops, "88b50213");
        assert_eq!(delivered(&net, &hops).len(), 1);
        let responses = lines(&hops, Hop::is_response);
        let again = net.flow(FROM, TO, port, false, 500);
        assert_eq!(delivered(&net, &again).len(), 1, "by the hash or not, data gets there");
        if responses[1].contains("core0") {
            lost += 1;
            assert_eq!(responses.len(), 2, "core0 has no link to pod 0");
            assert_eq!(again[0].to, hops[0].to, "the flow stays where its hash has put it");
        } else {
            found += 1;
            // max(F, 3) is out: core1.
            assert_eq!(way(&again), ["agg0-0", "core1", "agg1-0", "tor1-1", TO]);
        }
    }
    assert!(lost > 0 && found > 0, "{lost} lost, {found} found");
    assert_eq!(net.counters("tor0-1").moved + net.counters("tor0-1").stayed, found);
    assert_eq!(net.drops("core0", DropReason::LostMessage), lost);

    // Towards that pod a request, and its packet with it, is lost as well.
    let back: Vec<_> = (6_000..6_032).map(|port| net.flow(TO, FROM, port, false, 0)).collect();
    let (dead, live): (Vec<_>, Vec<_>) =
        back.iter().partition(|hops| hops.iter().any(|hop| hop.from == "agg1-0" && hop.to == "core0"));
    assert!(!dead.is_empty() && !live.is_empty());
    assert!(live.iter().all(|hops| delivered(&net, hops).len() == 1));
    assert!(dead.iter().all(|hops| delivered(&net, hops).is_empty()));
}

fn rows(net: &Net, switch: &str, topic: Topic, name: &str) -> Vec<Vec<Cell>> {
    let tables: Vec<SchemeTable> = Dataplane::show(net.switch(switch), net.now, topic);
    let table = tables.into_iter().find(|table| table.name == name).unwrap_or_else(|| panic!("no table {name}"));
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    table.rows
}

#[test]
fn every_switch_shows_what_it_has_decided_and_none_knows_of_failures() {
    let mut net = loaded([4, 0]);
    let first = net.flow(FROM, TO, 5_000, false, 0);
    let plane = request(&first, "88b50213") as u64;
    let int = Cell::Int;
    let loads = |loads: [u64; 2]| Cell::List(loads.map(Cell::Int).to_vec());
    let ends = [Cell::from("10.0.1.2:5000"), "10.1.1.2:80".into()];
    let moved = Cell::Bool(plane != 1);
    for (switch, stage, egress, ingress, before, chosen, moved) in [
        ("tor1-1", "agg", loads([1, 3]), loads([4, 0]), Cell::None, 1, Cell::None),
        ("agg0-1", "core", loads([5, 4]), loads([3, 3]), Cell::None, 1, Cell::None),
        ("tor0-1", "uplink", Cell::None, Cell::None, int(plane), 1, moved),
    ] {
        let found = rows(&net, switch, Topic::Paths, "decisions");
        let expected = [&ends[..], &[stage.into(), egress, ingress, before, int(chosen), moved, int(0)]].concat();
        assert_eq!(found.len(), 1, "{switch}");
        assert_eq!(found[0][1..], expected, "{switch}");
    }
    // The flow and its ends: the entry is one flow's of which the switch has decided.
    for switch in ["tor0-1", "agg0-1"] {
        let flow = |topic, name| rows(&net, switch, topic, name)[0][..3].to_vec();
        assert_eq!(flow(Topic::Paths, "decisions"), flow(Topic::Pat, "pat"), "{switch}");
    }
    let count = |switch: &str, what: &str| {
        let tables = Dataplane::show(net.switch(switch), net.now, Topic::Paths);
        let counts = tables.into_iter().find(|table| table.name == "allocation").expect("counters");
        counts.get(what).cloned().expect("a counter")
    };
    assert_eq!(count("tor0-1", "requests_opened"), int(1));
    assert_eq!(count("tor1-1", "responses_sent"), int(1));
    assert_eq!(count("agg1-1", "responses_passed_up"), int(1));
    assert_eq!(count("agg0-1", "responses_given_a_core"), int(1));
    let dre = rows(&net, "tor0-1", Topic::Dre, "dre");
    let egress: Vec<_> = dre.iter().filter(|row| row[1] == Cell::from("egress")).map(|row| row[5].clone()).collect();
    assert_eq!(egress, [int(1), int(3)]);
    assert_eq!(Dataplane::show(net.switch("agg0-1"), net.now, Topic::Failures), []);
    // A core keeps nothing of flows, and measures no link.
    for topic in [Topic::Dre, Topic::Pat, Topic::Failures] {
        assert_eq!(Dataplane::show(net.switch("core2"), net.now, topic), [], "{topic:?}");
    }
}
