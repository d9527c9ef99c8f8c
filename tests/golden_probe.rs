//! Golden vectors of HULA's probe: what it says, its bytes, what is read from them. The bytes were laid out
//! by hand from the table in `src/wire/hula.rs`; there is no other implementation to take them from.

mod golden;

use golden::{dump, hex};
use proptest::prelude::*;
use weft::id::SwitchId;
use weft::wire::hula::{self, Probe, ProbeError};
use weft::wire::{MacAddr, hello, parse};

const SENDER: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 7]);

/// `Ok` with what it says, `Err` with why not, `None` if it is no probe at all.
fn read(frame: &[u8]) -> Option<Result<Probe, ProbeError>> {
    let headers = parse(frame).ok()?;
    hula::is_probe(frame, &headers).then(|| hula::read(frame, &headers))
}

/// Destination, source, EtherType, OUI, protocol.
const HEAD: &str = "0180c200000e 027700000007 88b7 027765 0002";
/// An IPv6 prefix that is not there.
const NO_V6: &str = "ff 00000000000000000000000000000000";

/// What it says, and the bytes behind [`HEAD`] without padding:
/// version, links | utilisation | origin | IPv4 length, prefix | IPv6 length, prefix.
fn vectors() -> Vec<(&'static str, Probe, String)> {
    let both = Probe {
        origin: SwitchId(7),
        links: 8,
        utilisation: 0,
        ipv4: Some("10.1.2.0/24".parse().unwrap()),
        ipv6: Some("fd00:0:1:2::/64".parse().unwrap()),
    };
    vec![
        (
            "as ToR 7 sends it, both families",
            both,
            "0108 0000 0007 18 0a010200 40 fd000000000100020000000000000000".into(),
        ),
        (
            "a link further, half used, IPv4 only",
            Probe { links: 7, utilisation: 0x8000, ipv6: None, ..both },
            format!("0107 8000 0007 18 0a010200 {NO_V6}"),
        ),
        (
            "on its last link, all used, IPv6 only, the longest prefix and the highest number",
            Probe {
                origin: SwitchId(0xffff),
                links: 1,
                utilisation: hula::FULL,
                ipv4: None,
                ipv6: Some("fd00::1/128".parse().unwrap()),
            },
            "0101 ffff ffff ff 00000000 80 fd000000000000000000000000000001".into(),
        ),
        (
            "the shortest prefix",
            Probe { ipv4: Some("128.0.0.0/1".parse().unwrap()), ipv6: None, ..both },
            format!("0108 0000 0007 01 80000000 {NO_V6}"),
        ),
    ]
}

#[test]
fn a_probe_is_written_as_the_vectors_say_and_read_back() {
    for (what, probe, body) in vectors() {
        let mut expected = hex(&format!("{HEAD} {body}"));
        expected.resize(60, 0);
        let mut frame = [0xee; hula::FRAME_LEN];
        probe.emit(SENDER, &mut frame);
        assert_eq!(dump(&frame), dump(&expected), "{what}");
        assert_eq!(read(&frame), Some(Ok(probe)), "{what}");
    }
}

#[test]
fn what_a_reader_overlooks_is_read_the_same() {
    let (_, probe, body) = vectors().remove(1);
    let cases = [
        ("cut off where the last field ends", format!("{HEAD} {body}")),
        ("padding that is not zero", format!("{HEAD} {body} eeeeeeee eeeeeeee")),
        ("longer than the shortest frame, as a later version might be", format!("{HEAD} {body} {}", "ee".repeat(200))),
        ("a VLAN tag", format!("0180c200000e 027700000007 81000064 88b7 027765 0002 {body}")),
        (
            "an address where none is said to be",
            format!("{HEAD} 0107 8000 0007 18 0a010200 ff fd00000000000000000000000000000a"),
        ),
    ];
    for (what, frame) in cases {
        assert_eq!(read(&hex(&frame)), Some(Ok(probe)), "{what}");
    }
}

#[test]
fn what_is_no_probe_is_left_to_others() {
    let body = format!("0108 0000 0007 18 0a010200 {NO_V6}");
    let cases = [
        ("another EtherType (LLDP)", format!("0180c200000e 027700000007 88cc 027765 0002 {body}")),
        ("another owner of the OUI Extended EtherType", format!("0180c200000e 027700000007 88b7 00005e 0002 {body}")),
        ("a hello", format!("0180c200000e 027700000007 88b7 027765 0001 {body}")),
        ("cut off inside the protocol", "0180c200000e 027700000007 88b7 027765 00".into()),
    ];
    for (what, frame) in cases {
        assert_eq!(read(&hex(&frame)), None, "{what}");
    }
    let probe = hex(&format!("{HEAD} {body}"));
    assert!(!hello::is_hello(&probe, &parse(&probe).unwrap()), "nor is a probe a hello");
}

#[test]
fn a_malformed_probe_is_refused_and_it_is_said_why() {
    use ProbeError::*;
    let v4 = |fields: &str| format!("{fields} {NO_V6}");
    let v6 = |fields: &str| format!("0108 0000 0007 ff 00000000 {fields}");
    let cases = [
        ("nothing behind the protocol", String::new(), Truncated),
        (
            "cut off inside the last field",
            "0108 0000 0007 18 0a010200 40 fd0000000001000200000000000000".into(),
            Truncated,
        ),
        ("version 0", v4("0008 0000 0007 18 0a010200"), BadVersion),
        ("version 2", v4("0208 0000 0007 18 0a010200"), BadVersion),
        ("no links left", v4("0100 0000 0007 18 0a010200"), BadLinks),
        ("a link more than any sender starts with", v4("0109 0000 0007 18 0a010200"), BadLinks),
        ("the default route", v4("0108 0000 0007 00 00000000"), BadPrefix),
        ("33 bits of an IPv4 address", v4("0108 0000 0007 21 0a010200"), BadPrefix),
        ("a host bit", v4("0108 0000 0007 18 0a010201"), BadPrefix),
        ("the default route of IPv6", v6("00 00000000000000000000000000000000"), BadPrefix),
        ("129 bits of an IPv6 address", v6("81 fd000000000100020000000000000000"), BadPrefix),
        ("a host bit of an IPv6 address", v6("40 fd000000000100020000000000000001"), BadPrefix),
        (
            "a good IPv4 prefix does not help a bad one",
            "0108 0000 0007 18 0a010200 fe".to_owned() + &"00".repeat(16),
            BadPrefix,
        ),
        ("no prefix at all", v4("0108 0000 0007 ff 00000000"), NoPrefix),
    ];
    for (what, body, why) in cases {
        assert_eq!(read(&hex(&format!("{HEAD} {body}"))), Some(Err(why)), "{what}");
    }
    let elsewhere = format!("027700000001 027700000007 88b7 027765 0002 {}", v4("0108 0000 0007 18 0a010200"));
    assert_eq!(read(&hex(&elsewhere)), Some(Err(BadDestination)), "to an address that bridges forward");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_and_what_it_accepts_can_be_written(
        lengths in (prop::sample::select(vec![0u8, 8, 24, 32, 33, 255]), prop::sample::select(vec![0u8, 64, 128, 129, 255])),
        links in 0u8..12,
        v4: [u8; 4],
        v6: [u8; 16],
        cut in 0usize..60,
        host_bits: bool,
    ) {
        let mask = |bytes: &[u8], len: u8| -> Vec<u8> {
            let kept = |i: usize| (0..8).map(|bit| u8::from(host_bits || i * 8 + bit < len.into()) << (7 - bit)).sum::<u8>();
            bytes.iter().enumerate().map(|(i, byte)| byte & kept(i)).collect()
        };
        let fields = [&[1, links, 0x12, 0x34, 0, 9, lengths.0][..], &mask(&v4, lengths.0), &[lengths.1], &mask(&v6, lengths.1)];
        let mut frame = [hex(HEAD), fields.concat()].concat();
        frame.truncate(frame.len().saturating_sub(cut.saturating_sub(30)));
        if let Some(Ok(probe)) = read(&frame) {
            let mut again = [0; hula::FRAME_LEN];
            probe.emit(SENDER, &mut again);
            prop_assert_eq!(read(&again), Some(Ok(probe)));
        }
    }
}
