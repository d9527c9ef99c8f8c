//! Golden vectors of the hello frame: what it says, its bytes, what is read from them. The bytes were laid
//! out by hand from the table in `src/wire/hello.rs`; there is no other implementation to take them from.

mod golden;

use golden::{dump, hex};
use proptest::prelude::*;
use weft::id::{PortId, SwitchId};
use weft::wire::hello::{self, Hello, HelloError, LinkEnd, LinkState};
use weft::wire::{MacAddr, parse};

const SENDER: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 7]);

const fn end(switch: u16, port: u8) -> LinkEnd {
    LinkEnd { switch: SwitchId(switch), port: PortId(port) }
}

/// `Ok` with what it says, `Err` with why not, `None` if it is no hello at all.
fn read(frame: &[u8]) -> Option<Result<Hello, HelloError>> {
    let headers = parse(frame).ok()?;
    hello::is_hello(frame, &headers).then(|| hello::read(frame, &headers))
}

/// Destination, source, EtherType, OUI, protocol.
const HEAD: &str = "0180c200000e 027700000007 88b7 027765 0001";

/// What it says, and the bytes behind [`HEAD`] without padding:
/// version, state, multiplier, reserved | interval | sender: switch, port, reserved | heard: the same.
fn vectors() -> Vec<(&'static str, Hello, &'static str)> {
    let first = Hello { state: LinkState::Down, multiplier: 3, interval: 10_000, sender: end(7, 3), heard: None };
    vec![
        (
            "the first hello of port 3 of switch 7, every 10 ms, nobody heard",
            first,
            "01010300 00002710 00070300 ffffff00",
        ),
        (
            "port 4 of switch 258 is heard, whether it hears us is not known",
            Hello { state: LinkState::Init, heard: Some(end(0x0102, 4)), ..first },
            "01020300 00002710 00070300 01020400",
        ),
        (
            "both ways work",
            Hello { state: LinkState::Up, heard: Some(end(0x0102, 4)), ..first },
            "01030300 00002710 00070300 01020400",
        ),
        (
            "the longest times, the highest port, and a switch with the number that stands for none",
            Hello {
                state: LinkState::Up,
                multiplier: 50,
                interval: 10_000_000,
                sender: end(0xffff, 63),
                heard: Some(end(0xffff, 0)),
            },
            "01033200 00989680 ffff3f00 ffff0000",
        ),
    ]
}

#[test]
fn a_hello_is_written_as_the_vectors_say_and_read_back() {
    for (what, hello, body) in vectors() {
        let mut expected = hex(&format!("{HEAD} {body}"));
        expected.resize(60, 0);
        let mut frame = [0xee; hello::FRAME_LEN];
        hello.emit(SENDER, &mut frame);
        assert_eq!(dump(&frame), dump(&expected), "{what}");
        assert_eq!(read(&frame), Some(Ok(hello)), "{what}");
    }
}

#[test]
fn what_a_reader_overlooks_is_read_the_same() {
    let (_, hello, body) = vectors().remove(1);
    let cases = [
        ("cut off where the last field ends", format!("{HEAD} {body}")),
        ("padding that is not zero", format!("{HEAD} {body} eeeeeeee eeeeeeee")),
        ("longer than the shortest frame, as a later version might be", format!("{HEAD} {body} {}", "ee".repeat(200))),
        ("reserved bytes that are not zero", format!("{HEAD} 010203aa 00002710 000703bb 010204cc")),
        ("a VLAN tag", format!("0180c200000e 027700000007 81000064 88b7 027765 0001 {body}")),
    ];
    for (what, frame) in cases {
        assert_eq!(read(&hex(&frame)), Some(Ok(hello)), "{what}");
    }
    let nobody = format!("{HEAD} 01010300 00002710 00070300 1234ff00");
    assert_eq!(read(&hex(&nobody)).unwrap().unwrap().heard, None, "port ff is nobody, whatever the switch");
}

#[test]
fn what_is_no_hello_is_left_to_others() {
    let body = "01010300 00002710 00070300 ffffff00";
    let cases = [
        ("another EtherType (LLDP)", format!("0180c200000e 027700000007 88cc 027765 0001 {body}")),
        ("another owner of the OUI Extended EtherType", format!("0180c200000e 027700000007 88b7 00005e 0001 {body}")),
        ("another protocol of weft's", format!("0180c200000e 027700000007 88b7 027765 0002 {body}")),
        ("cut off inside the protocol", "0180c200000e 027700000007 88b7 027765 00".into()),
        ("nothing behind the EtherType", "0180c200000e 027700000007 88b7".into()),
    ];
    for (what, frame) in cases {
        assert_eq!(read(&hex(&frame)), None, "{what}");
    }
}

#[test]
fn a_malformed_hello_is_refused_and_it_is_said_why() {
    let cases = [
        ("cut off inside the last field", "01010300 00002710 00070300 ffffff", HelloError::Truncated),
        ("nothing behind the protocol", "", HelloError::Truncated),
        ("version 0", "00010300 00002710 00070300 ffffff00", HelloError::BadVersion),
        ("version 2", "02010300 00002710 00070300 ffffff00", HelloError::BadVersion),
        ("state 0, in BFD AdminDown", "01000300 00002710 00070300 ffffff00", HelloError::BadState),
        ("state 4", "01040300 00002710 00070300 ffffff00", HelloError::BadState),
        ("multiplier 0", "01010000 00002710 00070300 ffffff00", HelloError::BadTiming),
        ("multiplier 51", "01013300 00002710 00070300 ffffff00", HelloError::BadTiming),
        ("interval of a microsecond over 10 s", "01010300 00989681 00070300 ffffff00", HelloError::BadTiming),
        ("interval 0", "01010300 00000000 00070300 ffffff00", HelloError::BadTiming),
        ("a sender's port that no switch has", "01010300 00002710 00074000 ffffff00", HelloError::BadPort),
        ("a heard port that no switch has", "01010300 00002710 00070300 0102fe00", HelloError::BadPort),
        ("Init, but nobody was heard", "01020300 00002710 00070300 ffffff00", HelloError::BadState),
        ("Up, but nobody was heard", "01030300 00002710 00070300 ffffff00", HelloError::BadState),
    ];
    for (what, body, why) in cases {
        assert_eq!(read(&hex(&format!("{HEAD} {body}"))), Some(Err(why)), "{what}");
    }
    let elsewhere = "027700000001 027700000007 88b7 027765 0001 01010300 00002710 00070300 ffffff00";
    assert_eq!(read(&hex(elsewhere)), Some(Err(HelloError::BadDestination)), "to an address that bridges forward");
}

fn ends() -> impl Strategy<Value = LinkEnd> {
    (any::<u16>(), 0u8..64).prop_map(|(switch, port)| end(switch, port))
}

prop_compose! {
    fn hellos()(
        state in prop::sample::select(vec![LinkState::Down, LinkState::Init, LinkState::Up]),
        multiplier in 1u8..=50,
        interval in 1u32..=10_000_000,
        sender in ends(),
        heard in ends(),
        anybody: bool,
    ) -> Hello {
        let heard = (anybody || state != LinkState::Down).then_some(heard);
        Hello { state, multiplier, interval, sender, heard }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(hello in hellos(), mac: [u8; 6], padding in 0usize..100) {
        let mut frame = [0; hello::FRAME_LEN];
        hello.emit(MacAddr(mac), &mut frame);
        let longer = [&frame[..], &vec![0xee; padding]].concat();
        prop_assert_eq!(read(&longer), Some(Ok(hello)));
    }

    #[test]
    fn no_bytes_make_the_reader_panic_and_what_it_accepts_can_be_written(
        body in prop::collection::vec(any::<u8>(), 0..40),
        noise: bool,
    ) {
        let frame = if noise { body } else { [hex(HEAD), vec![1], body].concat() };
        if let Some(Ok(hello)) = read(&frame) {
            let mut again = [0; hello::FRAME_LEN];
            hello.emit(SENDER, &mut again);
            prop_assert_eq!(read(&again), Some(Ok(hello)));
        }
    }
}
