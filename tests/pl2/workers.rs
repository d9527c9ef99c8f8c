//! PL2 on a switch with several workers: one book for all of them.

use weft::dataplane::Dataplane;
use weft::fabric::view::{Cell, Topic};
use weft::frame::{Burst, Pool};
use weft::id::PortId;
use weft::rng::Rng;
use weft::scheme::pl2::host::HostConfig;
use weft::time::{Instant, MILLIS};

use crate::packets;
use crate::pipes::Pipes;
use crate::rig::{ALONE, HOSTS, Rig, Setup, ip, mac, rsv};
use crate::wire::Net;

/// The same switch on so many workers.
fn on(pipes: usize, setup: &Setup) -> Rig {
    setup.rig_of(|config, mtus| Box::new(Pipes::new(config, mtus, pipes)))
}

/// 300 frames of any length from each host, at any time in 5 ms, to any other.
fn load(net: &mut Net) {
    let mut rng = Rng::new(5);
    let mut frames: Vec<_> = (0..300 * u64::from(HOSTS))
        .map(|n| {
            let from = n as u8 % HOSTS;
            let to = (from + 1 + rng.below(u64::from(HOSTS) - 1) as u8) % HOSTS;
            (rng.below(5 * MILLIS), from, to, 60 + rng.below(1455) as usize, n as u16)
        })
        .collect();
    frames.sort_unstable();
    let start = net.rig.now;
    for (at, from, to, len, number) in frames {
        net.run((start + at).since(net.rig.now));
        let now = net.rig.now;
        net.stations[usize::from(from)].queue(now, to, len, number);
    }
}

/// All that the switch sends while hosts send, some frames are lost, one host dies and the link of another flaps.
fn sent(mut net: Net) -> Vec<(Instant, u8, Vec<u8>)> {
    net.loss = 50;
    load(&mut net);
    net.stations[0].dead = true;
    net.run(MILLIS);
    net.rig.set_up(1, false);
    net.run(MILLIS);
    net.rig.set_up(1, true);
    net.run(500 * MILLIS);
    assert!(net.stations[1..].iter().all(|s| s.host.parked() == 0), "something still waits");
    assert!(net.sum("timeouts") > 0 && net.sum("granted_slots") > 500);
    net.rig.at_rest();
    net.log
}

#[test]
fn several_workers_send_the_same_frames_at_the_same_times_as_one() {
    for mode in ["counter", "clock", "window"] {
        let setup = Setup { tables: format!("[pl2]\nagent = \"none\"\nmode = \"{mode}\"").leak(), ..ALONE };
        let config = HostConfig { depth: 2, ..HostConfig::default() };
        let all = [0, 1, 2, 3, 4];
        let one = sent(Net::new(setup.rig(), &all, config));
        // Grants, and most of the 1,500 frames.
        assert!(one.len() > 2_000, "{mode}: {} frames", one.len());
        for pipes in [2, 3] {
            let several = sent(Net::new(on(pipes, &setup), &all, config));
            let differs = one.iter().zip(&several).position(|(one, other)| one != other);
            assert_eq!((differs, several.len()), (None, one.len()), "{mode}, {pipes} workers");
        }
    }
}

#[test]
fn each_port_is_shown_once_and_the_book_too() {
    let mut rig = on(3, &ALONE);
    rig.send(1, &rsv(1, mac(0), 3, 1, 1));
    assert_eq!([rig.registers(0), rig.registers(1)], [[0, 3, 0, 0], [3, 0, 0, 1]]);
    let tables = rig.plane.show(rig.now, Topic::Slots);
    for name in ["slots", "requests"] {
        let table = tables.iter().find(|table| table.name == name).expect("a table");
        let mut ports: Vec<_> = table.rows.iter().map(|row| format!("{:?}", row[0])).collect();
        ports.sort();
        let expected: Vec<_> = (0..HOSTS).map(|port| format!("{:?}", Cell::Port(PortId(port)))).collect();
        assert_eq!(ports, expected, "{name}");
    }
    let book: Vec<_> = tables.iter().filter(|table| table.record).collect();
    assert!(book.len() == 1 && book[0].get("epoch") == Some(&Cell::Int(1)), "{book:?}");
    rig.wait(20 * MILLIS);
    rig.at_rest();
}

/// Workers hear of what happens one after the other, and one of them may be a whole flap behind.
#[test]
fn a_link_that_flaps_frees_its_slots_once_whoever_hears_of_it_first() {
    let config = ALONE.config();
    for (first, second) in [(0, 1), (1, 0)] {
        for port in [0, 1] {
            let mut pool = Pool::heap(64, 2048);
            let mut burst = Burst::new();
            let now = Instant(1_000_000_000);
            let mut pipes = Pipes::new(&config, &vec![1500; config.ports.len()], 2);
            for host in 0..HOSTS {
                let us = (mac(host), ip(host));
                let said = packets::arp(false, us, us, weft::wire::MacAddr::BROADCAST, &[]);
                burst.push(pool.alloc_with(&said).expect("a chunk"));
                pipes.receive(now, PortId(host), &mut pool, &mut burst);
            }
            let reserved = |pipes: &Pipes| {
                let tables = pipes.show(now, Topic::Slots);
                let row = tables[0].rows.iter().find(|row| row[0] == Cell::Port(PortId(port))).expect("the port");
                row[1].clone()
            };
            let mut ask = |pipes: &mut Pipes, pool: &mut Pool, pipe: usize| {
                burst.push(pool.alloc_with(&rsv(port, mac(3), 4, 1, 1)).expect("a chunk"));
                pipes.planes[pipe].receive(now, PortId(port), pool, &mut burst);
            };
            let flap = |pipes: &mut Pipes, pool: &mut Pool, pipe: usize| {
                [false, true].into_iter().for_each(|up| pipes.planes[pipe].set_port_up(PortId(port), up, pool));
            };
            ask(&mut pipes, &mut pool, second);
            assert_eq!(reserved(&pipes), Cell::Int(4));
            flap(&mut pipes, &mut pool, first);
            assert_eq!(reserved(&pipes), Cell::Int(0), "the first to hear frees them");
            ask(&mut pipes, &mut pool, first);
            flap(&mut pipes, &mut pool, second);
            assert_eq!(reserved(&pipes), Cell::Int(4), "those of after the flap stay");
            flap(&mut pipes, &mut pool, second);
            assert_eq!(reserved(&pipes), Cell::Int(0), "another flap is another");
            pipes.drain(now, &mut pool);
        }
    }
}
