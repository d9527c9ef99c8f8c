//! What rate adaptation leaves alone, on links that call for it, and congestion marks.

use weft::config::{AckRule, RateAdaptation};

use crate::chain::{Connection, Decider, HERE, MSS, THERE, W, ends, fabric};
use crate::packets;
use crate::rig::{LARGE, set_tos};
use crate::sim::Sim;
use crate::tcp::{ACK, FIN, RST, SYN, Segment, read};

/// Sends 200 frames that `make` makes of their number, above the safe rate of large flows on a green link; what got
/// back to the sender.
fn answers(sim: &mut Sim, mut make: impl FnMut(&Sim, u32) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut back = vec![];
    for i in 0..200 {
        let frame = make(sim, i);
        sim.send(HERE, &frame);
        sim.run_for(200_000);
        back.extend(sim.take(HERE));
    }
    back
}

#[test]
fn no_fack_for_what_opens_ends_or_carries_no_data_and_none_for_udp_and_fragments() {
    for decider in [Decider::Leaf, Decider::Spine] {
        for v6 in [false, true] {
            for what in ["data", "SYN", "FIN", "RST", "pure ACK", "UDP", "fragment", "no handshake"] {
                if v6 && what == "fragment" {
                    continue;
                }
                let mut sim = Sim::new(&fabric(decider, RateAdaptation::Fack, AckRule::Paper));
                let ports = (40_000, 80);
                let start = if what == "no handshake" { 1 } else { Connection::open(&mut sim, ports, v6).next };
                let segment = |i: u32| Segment {
                    ports,
                    seq: start.wrapping_add(i * MSS as u32),
                    ack: 7_001,
                    flags: match what {
                        "SYN" => SYN,
                        "FIN" => FIN | ACK,
                        "RST" => RST | ACK,
                        _ => ACK,
                    },
                    window: 400,
                    options: [&[1, 1, 8, 10][..], &(i + 9).to_be_bytes(), &[0; 4]].concat(),
                    len: if what == "pure ACK" { 0 } else { MSS },
                    tos: LARGE << 2,
                };
                let back = answers(&mut sim, |sim, i| {
                    let ends = ends(sim, HERE, THERE, v6);
                    match what {
                        "UDP" => {
                            let mut frame = packets::udp(ends, 64, ports, &[0; MSS]);
                            set_tos(&mut frame, LARGE << 2);
                            frame
                        }
                        "fragment" => {
                            let mut frame = segment(i).bytes(ends);
                            // More fragments follow.
                            frame[20] = 0x20;
                            packets::mend_ipv4(&mut frame, 14);
                            frame
                        }
                        _ => segment(i).bytes(ends),
                    }
                });
                if what == "data" {
                    // That it is not the link which is why: 200,000 B have 9 times more than B.
                    assert!((1..=9).contains(&back.len()), "{decider:?}: {} FACKs", back.len());
                    assert!(back.iter().all(|f| read(f).is_some_and(|got| got.window == W + W / 4)));
                } else {
                    assert_eq!(back.len(), 0, "{what} by {decider:?}, v6 {v6}");
                    assert_eq!(sim.rate_count("spine0", "notice_sent"), 0, "{what}");
                }
                sim.finish();
            }
        }
    }
}

#[test]
fn congestion_marks_and_tags_pass_as_they_came() {
    let mut sim = Sim::new(&fabric(Decider::Leaf, RateAdaptation::Fack, AckRule::Safe));
    for v6 in [false, true] {
        let c = Connection::open(&mut sim, (41_000 + u16::from(v6), 80), v6);
        for ecn in 0..4u8 {
            let segment = Segment {
                ports: c.ports,
                seq: c.next,
                ack: 7_001,
                flags: ACK,
                window: 400,
                len: MSS,
                tos: LARGE << 2 | ecn,
                ..Segment::default()
            };
            let frame = segment.bytes(ends(&sim, HERE, THERE, v6));
            sim.send(HERE, &frame);
            sim.run_for(1_000_000);
            let got: Vec<_> = sim.take(THERE).iter().filter_map(|f| read(f)).collect();
            assert_eq!(got.iter().map(|g| (g.tos, g.len)).collect::<Vec<_>>(), [(LARGE << 2 | ecn, MSS)]);
        }
    }
    sim.finish();
}
