//! Golden vectors of the packet-path parser: what a frame is, its bytes, what `parse` says of it or
//! what a rewrite leaves. The bytes were made by an independent implementation (scapy) and by hand.

mod golden;

use golden::{dump, hex};
use weft::fabric::reply::tags;
use weft::wire::{Headers, L3, ethernet, ipv4, ipv6, parse};

/// (what it is, the frame, what the parser says): `drop <reason>` if it is no Ethernet frame, else
/// `<kind> l3 l4 end proto`, the number of tags, ports, fragment state and fault where there are any.
type Case = (&'static str, &'static str, &'static str);

fn describe(frame: &[u8]) -> String {
    let h: Headers = match parse(frame) {
        Err(reason) => return format!("drop {}", reason.name()),
        Ok(h) => h,
    };
    let kind = match h.kind {
        L3::Other => format!("ethertype {:04x}", h.ethertype),
        L3::Arp => "arp".into(),
        L3::Ipv4 => "ipv4".into(),
        L3::Ipv6 => "ipv6".into(),
    };
    let mut text = format!("{kind} l3={} l4={} end={} proto={}", h.l3, h.l4, h.end, h.proto);
    let tags = tags(frame, &h).len() / ethernet::TAG_LEN;
    if tags > 0 {
        text += &format!(" tags={tags}");
    }
    if let Some(ports) = h.ports(frame) {
        text += &format!(" ports={}>{}", ports >> 16, ports & 0xffff);
    }
    if h.is_fragment() {
        text += if h.is_later_fragment() { " later-fragment" } else { " first-fragment" };
    }
    if let Some(fault) = h.fault {
        text += &format!(" fault={}", fault.name());
    }
    text
}

fn check(cases: &[Case]) {
    for (what, frame, expected) in cases {
        assert_eq!(describe(&hex(frame)), *expected, "{what}");
    }
}

#[test]
fn ethernet_and_vlan_tags_lead_to_the_network_header() {
    check(&[
        (
            "an EtherType that is neither IP nor ARP (LLDP)",
            "0180c200000e 02000000000a 88cc  02070402 00000000 00  a000",
            "ethertype 88cc l3=14 l4=0 end=25 proto=0",
        ),
        (
            "an 802.3 length instead of an EtherType (spanning tree over LLC), padded",
            "0180c2000000 02000000000a 0026
             42420300 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000
             00000000 00000000",
            "ethertype 0026 l3=14 l4=0 end=60 proto=0",
        ),
        (
            "802.1Q with priority 3",
            "020000000001 02000000000a 8100  60640800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=18 l4=38 end=58 proto=6 tags=1 ports=1234>80",
        ),
        (
            "802.1ad: a service and a customer tag",
            "020000000001 02000000000a 88a8  000a8100  00140800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=22 l4=42 end=62 proto=6 tags=2 ports=1234>80",
        ),
        (
            "the pre-standard service tag 0x9100",
            "020000000001 02000000000a 9100  000a8100  001486dd
             60000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            "ipv6 l3=22 l4=62 end=82 proto=6 tags=2 ports=1234>80",
        ),
        (
            "five tags",
            "020000000001 02000000000a 8100  00018100  00028100  00038100  00048100  00050800
             45000028 12340000 40065397 0a000102 0a010003  04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=34 l4=54 end=74 proto=6 tags=5 ports=1234>80",
        ),
        (
            "ARP in a VLAN",
            "ffffffffffff 02000000000a 8100  00070806
             00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            "arp l3=18 l4=0 end=46 proto=0 tags=1",
        ),
        (
            "ARP, not padded",
            "ffffffffffff 02000000000a 0806  00010800 06040001 02000000 000a0a00 01020000 00000000 0a000101",
            "arp l3=14 l4=0 end=42 proto=0",
        ),
        (
            "nothing behind the EtherType",
            "020000000001 02000000000a 0800",
            "ipv4 l3=14 l4=0 end=14 proto=0 fault=truncated_l3",
        ),
        ("one byte short of the tag's EtherType", "020000000001 02000000000a 8100  006408", "drop truncated_tag"),
        ("the second tag is cut", "020000000001 02000000000a 88a8  000a8100  0014", "drop truncated_tag"),
    ]);
}

#[test]
fn ipv4_headers_are_found_and_checked() {
    check(&[
        (
            "TCP",
            "020000000001 02000000000a 0800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=34 end=54 proto=6 ports=1234>80",
        ),
        (
            "UDP, padded to 60 bytes: the datagram ends before the padding",
            "020000000001 02000000000a 0800  4500001e 12340000 40115396 0a000102 0a010003  03e80035 000a7e4e
             6869  00000000 00000000 00000000 00000000",
            "ipv4 l3=14 l4=34 end=44 proto=17 ports=1000>53",
        ),
        (
            "ICMP has no ports",
            "020000000001 02000000000a 0800  4500001f 12340000 400153a5 0a000102 0a010003  0800339b 00010001
             616263",
            "ipv4 l3=14 l4=34 end=45 proto=1",
        ),
        (
            "GRE has no ports",
            "020000000001 02000000000a 0800  45000018 12340000 402f537e 0a000102 0a010003  00000000",
            "ipv4 l3=14 l4=34 end=38 proto=47",
        ),
        (
            "SCTP has ports",
            "020000000001 02000000000a 0800  45000024 12340000 4084531d 0a000102 0a010003
             0bb80050 00000001 00000000 00000000",
            "ipv4 l3=14 l4=34 end=50 proto=132 ports=3000>80",
        ),
        (
            "four bytes of options",
            "020000000001 02000000000a 0800  4600002c 12340000 40065092 0a000102 0a010003 01010100
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=38 end=58 proto=6 ports=1234>80",
        ),
        (
            "all 40 bytes of options (record route)",
            "020000000001 02000000000a 0800
             4f000044 12340000 40113e49 0a000102 0a010003 07270400 00000000 00000000 00000000 00000000
             00000000 00000000 00000000 00000000 00000000  03e80035 0008e6bb",
            "ipv4 l3=14 l4=74 end=82 proto=17 ports=1000>53",
        ),
        (
            "don't fragment is no fragment",
            "020000000001 02000000000a 0800  45000028 12344000 40061397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=34 end=54 proto=6 ports=1234>80",
        ),
        (
            "the reserved flag is ignored",
            "020000000001 02000000000a 0800  45000028 12348000 4006d396 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=34 end=54 proto=6 ports=1234>80",
        ),
        (
            "the first fragment has its ports, but they are not used",
            "020000000001 02000000000a 0800  4500002c 12342000 40113388 0a000102 0a010003  03e80035 0018e69b
             00000000 00000000 00000000 00000000",
            "ipv4 l3=14 l4=34 end=58 proto=17 first-fragment",
        ),
        (
            "a middle fragment",
            "020000000001 02000000000a 0800  4500002c 12342003 40113385 0a000102 0a010003
             00000000 00000000 00000000 00000000 00000000 00000000",
            "ipv4 l3=14 l4=0 end=58 proto=17 later-fragment",
        ),
        (
            "the last fragment",
            "020000000001 02000000000a 0800  4500001c 12340006 40115392 0a000102 0a010003  00000000 00000000",
            "ipv4 l3=14 l4=0 end=42 proto=17 later-fragment",
        ),
        (
            "total length below what the frame holds",
            "020000000001 02000000000a 0800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000  aaaaaaaa aaaa",
            "ipv4 l3=14 l4=34 end=54 proto=6 ports=1234>80",
        ),
        (
            "total length is just the header",
            "020000000001 02000000000a 0800  45000014 12340000 400653ab 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=34 end=34 proto=6",
        ),
        (
            "total length cuts the ports",
            "020000000001 02000000000a 0800  45000017 12340000 400653a8 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=34 end=37 proto=6",
        ),
        (
            "total length one byte above what the frame holds",
            "020000000001 02000000000a 0800  45000029 12340000 40065396 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=truncated_l3",
        ),
        (
            "total length below the header length",
            "020000000001 02000000000a 0800  45000013 12340000 400653ac 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_length",
        ),
        (
            "header length 16",
            "020000000001 02000000000a 0800  44000028 12340000 40065e9b 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_length",
        ),
        (
            "header length 0",
            "020000000001 02000000000a 0800  40000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_length",
        ),
        (
            "header length 60 in a datagram of 40",
            "020000000001 02000000000a 0800  4f000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_length",
        ),
        (
            "the frame ends among the options",
            "020000000001 02000000000a 0800  4600002c 12340000 40065092 0a000102 0a010003 0101",
            "ipv4 l3=14 l4=0 end=36 proto=0 fault=truncated_l3",
        ),
        (
            "checksum off by one",
            "020000000001 02000000000a 0800  45000028 12340000 40065396 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_checksum",
        ),
        (
            "version 6",
            "020000000001 02000000000a 0800  65000028 12340000 40063397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
            "ipv4 l3=14 l4=0 end=54 proto=0 fault=bad_ip_version",
        ),
    ]);
}

#[test]
fn ipv6_extension_headers_are_followed_to_the_transport() {
    check(&[
        (
            "TCP",
            "020000000001 02000000000a 86dd
             60000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            "ipv6 l3=14 l4=54 end=74 proto=6 ports=1234>80",
        ),
        (
            "UDP",
            "020000000001 02000000000a 86dd
             60000000 000d1140 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             03e80035 000dbddc  68656c6c 6f",
            "ipv6 l3=14 l4=54 end=67 proto=17 ports=1000>53",
        ),
        (
            "ICMPv6 has no ports",
            "020000000001 02000000000a 86dd
             60000000 000b3a40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             8000c14c 00010001  616263",
            "ipv6 l3=14 l4=54 end=65 proto=58",
        ),
        (
            "hop-by-hop options",
            "020000000001 02000000000a 86dd
             60000000 001c0040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000104 00000000  04d20050 00000001 00000002 50100400 aca70000",
            "ipv6 l3=14 l4=62 end=82 proto=6 ports=1234>80",
        ),
        (
            "destination options, 16 bytes",
            "020000000001 02000000000a 86dd
             60000000 00183c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             1101010c 00000000 00000000 00000000  03e80035 000801b9",
            "ipv6 l3=14 l4=70 end=78 proto=17 ports=1000>53",
        ),
        (
            "a segment routing header, 40 bytes",
            "020000000001 02000000000a 86dd
             60000000 00312b40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             11040401 01000000 fd000000 00030000 00000000 00000009 fd000000 00010000 00000000 00000003
             03e80035 000989ae  78",
            "ipv6 l3=14 l4=94 end=103 proto=17 ports=1000>53",
        ),
        (
            "an authentication header: 4-byte units, less two",
            "020000000001 02000000000a 86dd
             60000000 002c3340 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06040000 00000001 00000001 aaaaaaaa aaaaaaaa aaaaaaaa  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=78 end=98 proto=6 ports=1234>80",
        ),
        (
            "a mobility header and nothing after it",
            "020000000001 02000000000a 86dd
             60000000 00088740 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3b000000 00000000",
            "ipv6 l3=14 l4=0 end=62 proto=59",
        ),
        (
            "host identity protocol, 16 bytes",
            "020000000001 02000000000a 86dd
             60000000 00248b40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06010000 00000000 00000000 00000000  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=70 end=90 proto=6 ports=1234>80",
        ),
        (
            "shim6",
            "020000000001 02000000000a 86dd
             60000000 001c8c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000000 00000000  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=62 end=82 proto=6 ports=1234>80",
        ),
        (
            "hop-by-hop, destination, routing, atomic fragment, authentication, destination",
            "020000000001 02000000000a 86dd
             60000000 00540040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000000 00000000  2b000000 00000000  2c000000 00000000
             33000000 00000001 3c040000 00000000 00000000 00000000 00000000 00000000 06000000 00000000
             04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=118 end=138 proto=6 ports=1234>80",
        ),
        (
            "an atomic fragment is whole (RFC 6946)",
            "020000000001 02000000000a 86dd
             60000000 001c2c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000000 deadbeef  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=62 end=82 proto=6 ports=1234>80",
        ),
        (
            "the reserved bits of a fragment header are ignored",
            "020000000001 02000000000a 86dd
             60000000 001c2c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000006 deadbeef  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=62 end=82 proto=6 ports=1234>80",
        ),
        (
            "the first fragment",
            "020000000001 02000000000a 86dd
             60000000 00202c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             11000001 deadbeef  03e80035 00200000 00000000 00000000 00000000 00000000",
            "ipv6 l3=14 l4=62 end=86 proto=17 first-fragment",
        ),
        (
            "a middle fragment",
            "020000000001 02000000000a 86dd
             60000000 00102c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             11000019 deadbeef  00000000 00000000",
            "ipv6 l3=14 l4=0 end=70 proto=17 later-fragment",
        ),
        (
            "the last fragment, its next header an extension header",
            "020000000001 02000000000a 86dd
             60000000 00102c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000018 deadbeef  00000000 00000000",
            "ipv6 l3=14 l4=0 end=70 proto=60 later-fragment",
        ),
        (
            "eight extension headers are followed",
            "020000000001 02000000000a 86dd
             60000000 00540040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000000 00000000  3c000000 00000000  3c000000 00000000  3c000000 00000000  3c000000 00000000
             3c000000 00000000  3c000000 00000000  06000000 00000000
             04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=118 end=138 proto=6 ports=1234>80",
        ),
        (
            "the ninth is not",
            "020000000001 02000000000a 86dd
             60000000 005c0040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000000 00000000  3c000000 00000000  3c000000 00000000  3c000000 00000000  3c000000 00000000
             3c000000 00000000  3c000000 00000000  3c000000 00000000  06000000 00000000
             04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=0 end=146 proto=60",
        ),
        (
            "the second extension header is cut after 4 bytes",
            "020000000001 02000000000a 86dd
             60000000 000c0040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000000 00000000  06000000",
            "ipv6 l3=14 l4=0 end=66 proto=60",
        ),
        (
            "the second extension header reaches past the packet",
            "020000000001 02000000000a 86dd
             60000000 00100040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             3c000000 00000000  06020000 00000000",
            "ipv6 l3=14 l4=0 end=70 proto=6",
        ),
        (
            "nothing behind the extension header",
            "020000000001 02000000000a 86dd
             60000000 00083c40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000000 00000000",
            "ipv6 l3=14 l4=62 end=62 proto=6",
        ),
        (
            "no next header, and four bytes after it",
            "020000000001 02000000000a 86dd
             60000000 00043b40 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003  01020304",
            "ipv6 l3=14 l4=0 end=58 proto=59",
        ),
        (
            "behind ESP all is encrypted",
            "020000000001 02000000000a 86dd
             60000000 00103240 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             00000001 00000002 00000000 00000000",
            "ipv6 l3=14 l4=54 end=70 proto=50",
        ),
        (
            "payload length 0",
            "020000000001 02000000000a 86dd
             60000000 00000640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
            "ipv6 l3=14 l4=54 end=54 proto=6",
        ),
        (
            "payload length below what the frame holds",
            "020000000001 02000000000a 86dd
             60000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 00000000  aaaaaaaa aaaa",
            "ipv6 l3=14 l4=54 end=74 proto=6 ports=1234>80",
        ),
        (
            "payload length one byte above what the frame holds",
            "020000000001 02000000000a 86dd
             60000000 00150640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=0 end=74 proto=0 fault=truncated_l3",
        ),
        (
            "a jumbogram: payload length 0 before hop-by-hop options",
            "020000000001 02000000000a 86dd
             60000000 00000040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             0600c204 00010008  04d20050 00000001 00000002 50100400 00000000",
            "ipv6 l3=14 l4=0 end=82 proto=0 fault=bad_ip_length",
        ),
        (
            "one byte short of a header",
            "020000000001 02000000000a 86dd
             60000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 000000",
            "ipv6 l3=14 l4=0 end=53 proto=0 fault=truncated_l3",
        ),
        (
            "version 4",
            "020000000001 02000000000a 86dd
             45000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             04d20050 00000001 00000002 50100400 aca70000",
            "ipv6 l3=14 l4=0 end=74 proto=0 fault=bad_ip_version",
        ),
    ]);
}

/// Asserts what the parser says of every prefix of `frame`, by ranges of its length.
fn check_prefixes(frame: &str, ranges: &[(std::ops::RangeInclusive<usize>, &str)]) {
    let frame = hex(frame);
    assert_eq!(*ranges.last().expect("some ranges").0.end(), frame.len());
    let mut next = 0;
    for (lengths, expected) in ranges {
        assert_eq!(*lengths.start(), next, "the ranges leave a gap");
        next = lengths.end() + 1;
        for len in lengths.clone() {
            let expected = expected.replace("LEN", &len.to_string());
            assert_eq!(describe(&frame[..len]), expected, "the first {len} bytes");
        }
    }
}

#[test]
fn a_frame_cut_at_any_length_is_told_apart() {
    check_prefixes(
        "020000000001 02000000000a 0800  4500001e 12340000 40115396 0a000102 0a010003  03e80035 000a7e4e
             6869  00000000 00000000 00000000 00000000",
        &[
            (0..=13, "drop runt"),
            (14..=43, "ipv4 l3=14 l4=0 end=LEN proto=0 fault=truncated_l3"),
            (44..=60, "ipv4 l3=14 l4=34 end=44 proto=17 ports=1000>53"),
        ],
    );
    check_prefixes(
        "020000000001 02000000000a 88a8  000a8100  00140800  45000028 12340000 40065397 0a000102 0a010003
             04d20050 00000001 00000002 50100400 91aa0000",
        &[
            (0..=13, "drop runt"),
            (14..=21, "drop truncated_tag"),
            (22..=61, "ipv4 l3=22 l4=0 end=LEN proto=0 tags=2 fault=truncated_l3"),
            (62..=62, "ipv4 l3=22 l4=42 end=62 proto=6 tags=2 ports=1234>80"),
        ],
    );
    check_prefixes(
        "020000000001 02000000000a 86dd
             60000000 001c0040 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003
             06000104 00000000  04d20050 00000001 00000002 50100400 aca70000",
        &[
            (0..=13, "drop runt"),
            (14..=81, "ipv6 l3=14 l4=0 end=LEN proto=0 fault=truncated_l3"),
            (82..=82, "ipv6 l3=14 l4=62 end=82 proto=6 ports=1234>80"),
        ],
    );
}

#[test]
fn the_ttl_goes_down_by_one_and_the_checksum_follows() {
    for (before, after) in [
        ("45000028 12340000 40065397 0a000102 0a010003", "45000028 12340000 3f065497 0a000102 0a010003"),
        ("45000028 12340000 01069297 0a000102 0a010003", "45000028 12340000 00069397 0a000102 0a010003"),
    ] {
        let mut header = hex(before);
        ipv4::decrement_ttl(&mut header, 0);
        assert_eq!(dump(&header), dump(&hex(after)));
    }
}

#[test]
fn the_hop_limit_goes_down_by_one() {
    let mut header = hex("60000000 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003");
    ipv6::decrement_hop_limit(&mut header, 0);
    assert_eq!(
        dump(&header),
        dump(&hex("60000000 0014063f fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003"))
    );
}

/// For every TTL and 256 sums of the rest of the header the mended checksum is the one
/// that a full sum gives.
#[test]
fn the_incremental_checksum_equals_the_full_one_for_every_ttl() {
    for ttl in 1..=255u8 {
        for id in (0..=u16::MAX).step_by(257) {
            let mut header = hex("45000028 12340000 40065397 0a000102 0a010003");
            header[8] = ttl;
            header[4..6].copy_from_slice(&id.to_be_bytes());
            set_checksum(&mut header);
            ipv4::decrement_ttl(&mut header, 0);
            let mended = header.clone();
            set_checksum(&mut header);
            assert_eq!(mended, header, "TTL {ttl}, identification {id}");
        }
    }
}

/// RFC 1071, word by word: shares nothing with the code under test.
fn set_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let mut sum = 0u32;
    for word in header.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word[1]);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn congestion_is_marked_on_ecn_capable_packets_only() {
    let ce4 = "45bb0028 12340000 400652dc 0a000102 0a010003";
    for (what, before, after) in [
        ("not ECN-capable: left alone", "45b80028 12340000 400652df 0a000102 0a010003", None),
        ("ECT(1)", "45b90028 12340000 400652de 0a000102 0a010003", Some(ce4)),
        ("ECT(0)", "45ba0028 12340000 400652dd 0a000102 0a010003", Some(ce4)),
        ("marked already", ce4, Some(ce4)),
    ] {
        let mut header = hex(before);
        assert_eq!(ipv4::mark_ce(&mut header, 0), after.is_some(), "{what}");
        assert_eq!(dump(&header), dump(&hex(after.unwrap_or(before))), "{what}");
    }
    let ce6 = "6bbabcde 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003";
    for (what, before, after) in [
        (
            "not ECN-capable: left alone",
            "6b8abcde 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
            None,
        ),
        (
            "ECT(1)",
            "6b9abcde 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
            Some(ce6),
        ),
        (
            "ECT(0)",
            "6baabcde 00140640 fd000000 00000001 00000000 00000002 fd000000 00010000 00000000 00000003",
            Some(ce6),
        ),
        ("marked already", ce6, Some(ce6)),
    ] {
        let mut header = hex(before);
        assert_eq!(ipv6::mark_ce(&mut header, 0), after.is_some(), "IPv6, {what}");
        assert_eq!(dump(&header), dump(&hex(after.unwrap_or(before))), "IPv6, {what}");
    }
}
