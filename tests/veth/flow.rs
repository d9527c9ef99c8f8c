use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::bed::Host;
use crate::packet::Numbers;
use crate::shown::LIMIT;

/// The TOS octet of large flows: DSCP 5, one of the two that are large unless configured otherwise.
const LARGE: i32 = 5 << 2;

/// A large TCP flow one way: its sender sends a known stream until it is told to end, its receiver compares
/// every byte.
pub struct Flow {
    sender: TcpStream,
    receiver: TcpStream,
    pub received: AtomicU64,
    end: AtomicBool,
    /// The receiver has seen the end of the stream.
    pub ended: AtomicBool,
}

/// What `ss` tells of one end of a connection.
pub fn socket(host: &Host, filter: &str, key: &str) -> u64 {
    let said = host.ok(&["ss", "-tinH", "state", "connected", filter]);
    let found = said.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
    // It leaves out what is 0.
    found.map_or(0, |value| value.parse().unwrap())
}

impl Flow {
    /// Starts it; the receiver's buffer is `buffer` bytes instead of growing by itself.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        (from, to): (&'scope Host, &'scope Host),
        address: IpAddr,
        buffer: Option<usize>,
    ) -> Arc<Flow> {
        let listen = || TcpListener::bind((address, 0)).unwrap();
        let listener = to.netns.run_in(listen).unwrap();
        if let Some(bytes) = buffer {
            // Before the handshake, whose window scale it bounds.
            setsockopt(&listener, sockopt::RcvBuf, &bytes).unwrap();
        }
        let target = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&target, LIMIT).unwrap();
        let sender = from.netns.run_in(connect).unwrap();
        match address {
            IpAddr::V4(_) => setsockopt(&sender, sockopt::Ipv4Tos, &LARGE).unwrap(),
            IpAddr::V6(_) => setsockopt(&sender, sockopt::Ipv6TClass, &LARGE).unwrap(),
        }
        // What the window does is not to depend on what the machine prefers: BBR paces.
        setsockopt(&sender, sockopt::TcpCongestion, &"reno".into()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_write_timeout(Some(LIMIT)).unwrap();
        receiver.set_read_timeout(Some(LIMIT)).unwrap();
        let (end, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let flow = Arc::new(Flow { sender, receiver, received: AtomicU64::new(0), end, ended });
        let sending = Arc::clone(&flow);
        scope.spawn(move || sending.send());
        let receiving = Arc::clone(&flow);
        scope.spawn(move || receiving.receive());
        flow
    }

    fn send(&self) {
        let (mut numbers, mut chunk) = (Numbers(7), [0; 4096]);
        while !self.end.load(Ordering::Relaxed) {
            numbers.fill(&mut chunk);
            (&self.sender).write_all(&chunk).unwrap();
        }
        self.sender.shutdown(Shutdown::Write).unwrap();
    }

    fn receive(&self) {
        let (mut numbers, mut expected, mut got) = (Numbers(7), [0; 4096], [0; 4096]);
        loop {
            let mut n = 0;
            while n < got.len() {
                match (&self.receiver).read(&mut got[n..]).unwrap() {
                    0 => break,
                    more => n += more,
                }
            }
            numbers.fill(&mut expected);
            assert!(got[..n] == expected[..n], "other bytes than were sent");
            self.received.fetch_add(n as u64, Ordering::Relaxed);
            if n < got.len() {
                assert!(self.end.load(Ordering::Relaxed), "the stream ended early");
                self.ended.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Its receiver's port.
    pub fn port(&self) -> u16 {
        self.receiver.local_addr().unwrap().port()
    }

    /// Goodput over `time` in bit/s, and the windows that the sender saw meanwhile, in bytes, ascending.
    pub fn watch(&self, from: &Host, time: Duration) -> (f64, Vec<u64>) {
        let (start, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        let mut windows = Vec::new();
        while start.elapsed() < time {
            windows.push(socket(from, &format!("dport = :{}", self.port()), "snd_wnd"));
            thread::sleep(Duration::from_millis(15));
        }
        let bytes = self.received.load(Ordering::Relaxed) - before;
        let goodput = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
        windows.sort_unstable();
        (goodput, windows)
    }
}

/// Ends a flow when dropped, by a panic too, which would otherwise wait for its threads.
pub struct Ending(pub Arc<Flow>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::Relaxed);
    }
}
