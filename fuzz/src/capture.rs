//! A capture file of any bytes, replayed and recorded: it ends, with or without an error, and what was recorded
//! reads back.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use weft::frame::{Burst, Pool};
use weft::port::Port;
use weft::port::pcap::{Capture, Pace, PcapPort, Recorder};
use weft::time::Instant;

const CHUNK: usize = 1024;

pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let pace = if choice & 1 == 0 { Pace::Recorded } else { Pace::Asap };
    let capture = match Capture::new(Box::new(Cursor::new(bytes.to_vec())), "fuzz.pcap") {
        Ok(capture) => capture,
        Err(error) => return assert!(error.to_string().starts_with("fuzz.pcap"), "{error}"),
    };
    let sink = Sink::default();
    let recorder = Recorder::new(Box::new(sink.clone()), "out.pcap", 0).expect("written to memory");
    let mut port = PcapPort::new(Some((capture, pace)), Some(recorder));
    let (mut pool, mut burst) = (Pool::heap(1 + usize::from(choice >> 1), CHUNK), Burst::new());
    let mut passed = vec![];
    port.at(Instant(5));
    while let Some(due) = port.next_deadline() {
        port.at(due);
        port.rx_burst(&mut pool, &mut burst);
        passed.extend(burst.frames().iter().map(|frame| frame.to_vec()));
        port.tx_burst(&mut pool, &mut burst);
        assert_eq!((port.held(), pool.out_count(), burst.len()), (0, 0, 0));
    }
    let counts = port.counts();
    assert_eq!((counts.received, counts.recorded), (passed.len() as u64, passed.len() as u64));
    let failed = port.read_error().is_some();
    assert_eq!(port.finish().is_err(), failed);

    let recorded = sink.0.lock().expect("no panic before").clone();
    if failed {
        return; // What was buffered may be lost with the error.
    }
    let mut again = Capture::new(Box::new(Cursor::new(recorded)), "out.pcap").expect("what was recorded");
    for frame in passed {
        assert!(again.advance().expect("what was recorded"));
        assert_eq!(again.record().bytes, frame);
    }
    assert!(!again.advance().expect("what was recorded"));
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic before").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
