use std::io::{self, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{SO_EE_ORIGIN_LOCAL, sock_extended_err};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};

use crate::bed::Host;
use crate::packet::Numbers;

/// A connection or an answer that takes longer is lost.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A stream that trickles takes no longer than this.
const STREAM_TIMEOUT: Duration = Duration::from_secs(60);

/// What a connection carries each way at once: bytes, and how long it falls silent after each of them (of the
/// last one apart).
#[derive(Clone, Copy)]
pub struct Bursts<'a> {
    pub sizes: &'a [usize],
    pub pause: Duration,
}

impl Bursts<'_> {
    fn bytes(&self) -> usize {
        self.sizes.iter().sum()
    }
}

/// Writes the bytes of the stream of `seed`.
fn write_stream(mut to: impl Write, seed: u64, bursts: Bursts<'_>) -> io::Result<()> {
    let mut stream = vec![0; bursts.bytes()];
    Numbers(seed).fill(&mut stream);
    let mut left = &stream[..];
    for size in bursts.sizes {
        let (burst, rest) = left.split_at(*size);
        // In one piece: what is behind a pause begins with full segments.
        to.write_all(burst)?;
        if !rest.is_empty() {
            thread::sleep(bursts.pause);
        }
        left = rest;
    }
    Ok(())
}

/// Reads `len` bytes and compares each with the stream of `seed`.
fn read_stream(mut from: impl Read, seed: u64, len: usize) -> io::Result<()> {
    let (mut numbers, mut expected, mut got, mut at) = (Numbers(seed), [0; 4096], [0; 4096], 0);
    let start = Instant::now();
    while at < len {
        if start.elapsed() > STREAM_TIMEOUT {
            return Err(io::Error::other(format!("only {at} of {len} bytes within {STREAM_TIMEOUT:?}")));
        }
        let n = (len - at).min(got.len());
        numbers.fill(&mut expected);
        from.read_exact(&mut got[..n])?;
        if got[..n] != expected[..n] {
            return Err(io::Error::other(format!("other bytes than were sent, from byte {at} on")));
        }
        at += n;
    }
    Ok(())
}

/// One side of a connection: sends its stream and checks the other's, at the same time.
fn both_ways(stream: &TcpStream, own: u64, other: u64, bursts: Bursts<'_>) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_stream(stream, own, bursts));
        let read = read_stream(stream, other, bursts.bytes());
        if read.is_err() {
            // Or the writer would wait for a reader that is not there.
            let _ = stream.shutdown(Shutdown::Both);
        }
        writer.join().expect("the writer does not panic").and(read)
    })
}

/// One TCP connection from `client` to `server` that carries `len` bytes each way at once, all of them
/// compared.
pub fn tcp(client: &Host, server: &Host, to: IpAddr, len: usize) {
    tcp_bursts(client, server, to, Bursts { sizes: &[len], pause: Duration::ZERO });
}

/// The same with pauses; both sides pause at once, and nothing moves then.
pub fn tcp_bursts(client: &Host, server: &Host, to: IpAddr, bursts: Bursts<'_>) {
    let what = format!("TCP {} to {} at {to}", client.name, server.name);
    let listener = server.netns.run_in(|| TcpListener::bind((to, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            let (stream, _) = accept(&listener)?;
            both_ways(&stream, 2, 1, bursts)
        });
        let connect = || TcpStream::connect_timeout(&address, TIMEOUT);
        let stream = client.netns.run_in(connect).unwrap().unwrap_or_else(|e| panic!("{what}: connecting: {e}"));
        both_ways(&stream, 1, 2, bursts).unwrap_or_else(|e| panic!("{what}: at the client: {e}"));
        served.join().unwrap().unwrap_or_else(|e| panic!("{what}: at the server: {e}"));
    });
}

/// `accept`, bounded in time.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(2));
            }
            Ok((stream, peer)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, peer));
            }
            Err(e) => return Err(e),
        }
    }
}

/// Goodput of one TCP connection from `client` to `server`, in bit/s: what arrived in `time`, from the
/// first byte on.
pub fn tcp_goodput(client: &Host, server: &Host, to: IpAddr, time: Duration) -> f64 {
    let listener = server.netns.run_in(|| TcpListener::bind((to, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let stream = client.netns.run_in(|| TcpStream::connect_timeout(&address, TIMEOUT)).unwrap()?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            let chunk = [0; 65536];
            while !stop.load(Ordering::Relaxed) {
                (&stream).write_all(&chunk)?;
            }
            Ok::<_, io::Error>(())
        });
        let (mut stream, _) = accept(&listener).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut buffer = vec![0; 65536];
        stream.read_exact(&mut buffer[..1]).unwrap();
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < time {
            bytes += stream.read(&mut buffer).unwrap();
        }
        let goodput = bytes as f64 * 8.0 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        // The sender may wait for room: the rest is read until it has seen the flag.
        while stream.read(&mut buffer).unwrap() > 0 {}
        sender.join().unwrap().unwrap();
        goodput
    })
}

/// Sends a datagram of each of `sizes` from `client` to an echo at `server`, one at a time; each has
/// to come back as it was.
pub fn udp_echo(client: &Host, server: &Host, to: IpAddr, sizes: impl IntoIterator<Item = usize>) {
    let what = format!("UDP {} to {} at {to}", client.name, server.name);
    let bind = |host: &Host, address: IpAddr| {
        let socket = host.netns.run_in(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    };
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let (echo, socket) = (bind(server, to), bind(client, any));
    socket.connect(echo.local_addr().unwrap()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 65536];
            while !done.load(Ordering::Relaxed) {
                if let Ok((n, from)) = echo.recv_from(&mut buffer) {
                    let _ = echo.send_to(&buffer[..n], from);
                }
            }
        });
        // Ends the echo also when an assertion fails.
        let _end = Set(&done);
        let (mut sent, mut got) = (vec![0; 65536], vec![0; 65536]);
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        for size in sizes {
            Numbers(size as u64).fill(&mut sent[..size]);
            socket.send(&sent[..size]).unwrap_or_else(|e| panic!("{what}: sending {size} bytes: {e}"));
            let n = socket.recv(&mut got).unwrap_or_else(|e| panic!("{what}: no answer to {size} bytes: {e}"));
            assert!(n == size && got[..n] == sent[..size], "{what}: {size} bytes came back as {n}, or others");
        }
    });
}

/// Sets its flag when dropped.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An ICMP or ICMPv6 error as the socket that caused it sees it (ip(7), `IP_RECVERR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Who sent it.
    pub from: IpAddr,
    pub kind: u8,
    pub code: u8,
    /// The MTU of a packet too big.
    pub info: u32,
}

/// Sends one datagram of `size` bytes with DF set and this TTL or hop limit from `host` to port 33434
/// of `to`, and waits for the ICMP error it causes.
pub fn udp_error(host: &Host, to: IpAddr, ttl: u8, size: usize) -> Option<IcmpError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = match to {
            IpAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            IpAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        match to {
            IpAddr::V4(_) => {
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
                setsockopt(&socket, sockopt::Ipv4Ttl, &ttl.into())?;
            }
            IpAddr::V6(_) => {
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
                setsockopt(&socket, sockopt::Ipv6Ttl, &ttl.into())?;
            }
        }
        socket.connect((to, 33434))?;
        Ok(socket)
    };
    let socket = host.netns.run_in(open).unwrap().unwrap();
    socket.send(&vec![0; size]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(8);
    while Instant::now() < deadline {
        match error_of(&socket) {
            Ok(error) => return error,
            Err(Errno::EAGAIN) => thread::sleep(Duration::from_millis(2)),
            Err(e) => panic!("error queue: {e}"),
        }
    }
    None
}

fn error_of(socket: &UdpSocket) -> nix::Result<Option<IcmpError>> {
    let (mut payload, mut control) = ([0; 2048], vec![0; 512]);
    let mut vectors = [IoSliceMut::new(&mut payload)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut vectors, Some(&mut control), flags)?;
    let read = |e: sock_extended_err, from: Option<IpAddr>| {
        assert_ne!(e.ee_origin, SO_EE_ORIGIN_LOCAL, "an error of the host's own: {e:?}");
        from.map(|from| IcmpError { from, kind: e.ee_type, code: e.ee_code, info: e.ee_info })
    };
    Ok(message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::Ipv4RecvErr(e, from) => {
            read(e, from.map(|a| Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)).into()))
        }
        ControlMessageOwned::Ipv6RecvErr(e, from) => read(e, from.map(|a| Ipv6Addr::from(a.sin6_addr.s6_addr).into())),
        _ => None,
    }))
}
