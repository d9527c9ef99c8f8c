//! Golden vectors of FACKs, byte for byte: each is the answer to the data segment above it. The bytes were
//! made by hand from RFC 9293, 7323, 791 and 8200 with checksums summed by another program; what the switch
//! writes is then read by smoltcp. The switch is 02:00:00:00:00:01; the sender 10.0.1.2, fd00:0:0:1::2, port
//! 40000; the receiver 10.0.2.3, fd00:0:0:2::3, port 5201.

mod golden;

use golden::{dump, hex, written};
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpOption, TcpPacket, TcpSeqNumber};
use weft::fabric::reply::tags;
use weft::scheme::p4te::rate::Fack;
use weft::scheme::p4te::rate::fack::build;
use weft::wire::{MacAddr, ethernet, parse};

const SWITCH: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn answer(data: &[u8], capacity: usize, fack: Fack) -> Option<Vec<u8>> {
    let headers = parse(data).expect("an Ethernet frame");
    written(capacity, |out| build(out, data, &headers, SWITCH, &fack))
}

/// Reads a FACK behind `tags` VLAN tags with smoltcp and asserts what a host checks: lengths, checksums,
/// flags, options. Gives its sequence number, acknowledgment number and window.
fn read(frame: &[u8], tags: usize, timestamps: Option<(u32, u32)>) -> (u32, u32, u16) {
    assert_eq!((&frame[..6], &frame[6..12]), (&SWITCH.0[..], &SWITCH.0[..]));
    let packet = &frame[14 + 4 * tags..];
    let (src, dst, segment): (IpAddress, IpAddress, &[u8]) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).expect("an IPv4 packet");
        assert!(ip.verify_checksum());
        assert_eq!((ip.next_header(), ip.header_len(), ip.ident()), (IpProtocol::Tcp, 20, 0));
        assert!(ip.dont_frag() && !ip.more_frags() && ip.frag_offset() == 0);
        assert_eq!(ip.ecn(), 0);
        (ip.src_addr().into(), ip.dst_addr().into(), &packet[20..ip.total_len().into()])
    } else {
        let ip = Ipv6Packet::new_checked(packet).expect("an IPv6 packet");
        assert_eq!((ip.next_header(), ip.traffic_class() & 3), (IpProtocol::Tcp, 0));
        (ip.src_addr().into(), ip.dst_addr().into(), &packet[40..40 + usize::from(ip.payload_len())])
    };
    let tcp = TcpPacket::new_checked(segment).expect("a TCP segment");
    assert!(tcp.verify_checksum(&src, &dst));
    assert_eq!((tcp.src_port(), tcp.dst_port()), (5201, 40000));
    assert_eq!((segment[13], tcp.urgent_at(), tcp.payload().len()), (0x10, 0, 0), "just ACK, no data");
    let mut options = tcp.options();
    let mut found = None;
    while !options.is_empty() {
        let (rest, option) = TcpOption::parse(options).expect("an option");
        match option {
            TcpOption::TimeStamp { tsval, tsecr } => found = Some((tsval, tsecr)),
            TcpOption::NoOperation => {}
            other => panic!("{other:?}"),
        }
        options = rest;
    }
    assert_eq!(found, timestamps);
    let TcpSeqNumber(seq) = tcp.seq_number();
    let TcpSeqNumber(ack) = tcp.ack_number();
    (seq as u32, ack as u32, tcp.window_len())
}

#[test]
fn a_fack_answers_data_in_the_name_of_its_receiver() {
    for (what, fack, data, expected) in [
        (
            "one byte of data; the padding of its frame is not looked at",
            Fack { ack: 0x1001, window: 250, tsval: None },
            "020000000001 02000000000a 0800
             45000029 12344000 40061197 0a000102 0a000203 9c401451 00001000 00002000 501801f5 af400000 07aaaaaa aaaa",
            "020000000001 020000000001 0800
             45000028 00004000 400623cc 0a000203 0a000102 14519c40 00002000 00001001 501000fa b7430000 00000000 0000",
        ),
        (
            "timestamps, DSCP 46 with congestion experienced, CWR and PSH set",
            Fack { ack: 0xffff_fff0, window: 0x8000, tsval: Some(0x5566_7799) },
            "020000000001 02000000000a 0800
             45bb0039 12344000 3f0611cc 0a000102 0a000203 9c401451 00001000 00002000 809801f5 277e0000
             0101080a 11223344 55667788 68656c6c 6f",
            "020000000001 020000000001 0800
             45b80034 00004000 3f062408 0a000203 0a000102 14519c40 00002000 fffffff0 80108000 fdcf0000
             0101080a 55667799 11223344",
        ),
        (
            "IPv4 options, no DF, urgent data",
            Fack { ack: 0x0fff, window: 65535, tsval: None },
            "020000000001 02000000000a 0800
             47000033 12340000 4006b986 0a000102 0a000203 01010101 94040000 9c401451 00001000 00002000
             503801f5 e2b70002 6f6464",
            "020000000001 020000000001 0800
             45000028 00004000 400623cc 0a000203 0a000102 14519c40 00002000 00000fff 5010ffff b83f0000 00000000 0000",
        ),
        (
            "two VLAN tags, with their priorities",
            Fack { ack: 0x0fff, window: 1, tsval: None },
            "020000000001 02000000000a 88a8a00a 81000014 0800
             4500002c 12344000 40061194 0a000102 0a000203 9c401451 00001000 00002000 501801f5 c54c0000 78787878",
            "020000000001 020000000001 88a8a00a 81000014 0800
             45000028 00004000 400623cc 0a000203 0a000102 14519c40 00002000 00000fff 50100001 b83e0000",
        ),
        (
            "IPv6, DSCP 10 with ECT(0), a flow label, hop limit 2",
            Fack { ack: 0x1001, window: 626, tsval: None },
            "020000000001 02000000000a 86dd
             62a12345 001b0602 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             9c401451 00001000 00002000 501801f5 6e420000 68656c6c 6f2121",
            "020000000001 020000000001 86dd
             62812345 00140602 fd000000 00000002 00000000 00000003 fd000000 00000001 00000000 00000002
             14519c40 00002000 00001001 50100272 d2c60000",
        ),
        (
            "IPv6 in a VLAN, timestamps before their NOPs, ECT(1)",
            Fack { ack: 0x0f00, window: 313, tsval: Some(7) },
            "020000000001 02000000000a 81000064 86dd
             60100000 00250640 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             9c401451 00001000 00002000 801801f5 564e0000 080affff fffe0000 00010101 68656c6c 6f",
            "020000000001 020000000001 81000064 86dd
             60000000 00200640 fd000000 00000002 00000000 00000003 fd000000 00000001 00000000 00000002
             14519c40 00002000 00000f00 80100139 9be30000 0101080a 00000007 fffffffe",
        ),
    ] {
        let data = hex(data);
        let bytes = answer(&data, 2048, fack).expect(what);
        assert_eq!(dump(&bytes), dump(&hex(expected)), "{what}");
        let headers = parse(&data).expect("an Ethernet frame");
        let tags = tags(&data, &headers).len() / ethernet::TAG_LEN;
        let tsecr = fack.tsval.map(|value| (value, if tags == 1 { 0xffff_fffe } else { 0x1122_3344 }));
        assert_eq!(read(&bytes, tags, tsecr), (0x2000, fack.ack, fack.window), "{what}");
        assert_eq!(answer(&data, bytes.len() - 1, fack), None, "{what}: a byte too few");
        assert!(bytes.len() >= ethernet::MIN_FRAME);
    }
}

#[test]
fn what_is_not_data_of_a_known_kind_is_not_answered() {
    let plain = Fack { ack: 1, window: 1, tsval: None };
    let stamped = Fack { tsval: Some(9), ..plain };
    for (what, fack, frame) in [
        (
            "no timestamps in a flow that has them",
            stamped,
            "020000000001 02000000000a 0800
             45000029 12344000 40061197 0a000102 0a000203 9c401451 00001000 00002000 501801f5 af400000 07",
        ),
        (
            "no ACK",
            plain,
            "020000000001 02000000000a 0800
             45000029 12344000 40061197 0a000102 0a000203 9c401451 00001000 00002000 500801f5 af500000 07",
        ),
        (
            "a data offset past the packet",
            plain,
            "020000000001 02000000000a 0800
             45000029 12344000 40061197 0a000102 0a000203 9c401451 00001000 00002000 601801f5 9f400000 07aaaaaa aaaa",
        ),
        (
            "a first fragment",
            plain,
            "020000000001 02000000000a 0800
             45000029 12342000 40063197 0a000102 0a000203 9c401451 00001000 00002000 501801f5 af400000 07",
        ),
        (
            "UDP",
            plain,
            "020000000001 02000000000a 0800
             45000029 12344000 4011118c 0a000102 0a000203 9c401451 00150000 00002000 501801f5 af400000 07",
        ),
        (
            "behind a destination options header",
            plain,
            "020000000001 02000000000a 86dd
             60000000 001d3c40 fd000000 00000001 00000000 00000002 fd000000 00000002 00000000 00000003
             06000104 00000000 9c401451 00001000 00002000 501801f5 6e420000 68",
        ),
    ] {
        let frame = hex(frame);
        assert_eq!(parse(&frame).expect(what).fault, None, "{what}: refused for another reason");
        assert_eq!(answer(&frame, 2048, fack), None, "{what}");
    }
}
