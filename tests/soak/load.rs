use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft::config::FABRIC_MAC;

use crate::bed::{Host, text};
use crate::net::{Net, Station};
use crate::packet::{LONGEST, Numbers, PacketSocket, SHORTEST, bad_frame, destinations};
use crate::record::add;
use crate::soak::Soak;

/// A stream that says nothing for so long, while both its hosts stand, is lost: several times the
/// retransmission timeout that a fault can drive TCP to.
const IDLE: Duration = Duration::from_secs(60);
/// A stream that trickles takes no longer than this, nor does one that finds no way.
const LONGEST_STREAM: Duration = Duration::from_secs(180);
/// Between two looks at whether a stream is to be given up.
const LOOK: Duration = Duration::from_millis(250);
/// A connection that takes longer is begun again.
const CONNECT: Duration = Duration::from_secs(20);
/// Between two datagrams of a flow, and two malformed frames.
const PACE: Duration = Duration::from_millis(5);

/// How a transfer ended.
enum End {
    Exact,
    /// A host was lost meanwhile.
    Cut,
    Unreachable,
    Wrong(String),
}

/// Byte-exact TCP between random pairs of a circle, one after the other, until the end.
pub fn tcp(soak: &Soak, circle: &[usize], seed: u64) {
    let mut numbers = Numbers(seed);
    while soak.goes_on() {
        // Each size is as likely as half and double of it, from 1 KiB to 2 MiB.
        let size = (1024 << numbers.below(11)) + numbers.below(1024) as usize;
        let (from, to) = pair(&mut numbers, circle);
        let (v6, stream) = (numbers.below(2) == 1, numbers.next());
        let _gate = soak.gate.read().unwrap();
        transfer(soak, &soak.net.stations[from], &soak.net.stations[to], v6, size, stream);
    }
}

fn pair(numbers: &mut Numbers, circle: &[usize]) -> (usize, usize) {
    let at = numbers.below(circle.len() as u64) as usize;
    let by = 1 + numbers.below(circle.len() as u64 - 1) as usize;
    (circle[at], circle[(at + by) % circle.len()])
}

/// One transfer, begun again as long as faults keep it from ending.
pub fn transfer(soak: &Soak, from: &Station, to: &Station, v6: bool, size: usize, seed: u64) {
    let traffic = &soak.record.traffic;
    let start = Instant::now();
    loop {
        match attempt(from, to, v6, size, seed) {
            End::Exact => {
                add(&traffic.transfers, 1);
                return add(&traffic.tcp_bytes, 2 * size as u64);
            }
            End::Cut => add(&traffic.cut, 1),
            End::Unreachable => {
                add(&traffic.unreachable, 1);
                thread::sleep(LOOK);
            }
            End::Wrong(why) => {
                let family = if v6 { "IPv6" } else { "IPv4" };
                let took = start.elapsed();
                let what = format!("TCP {} to {}, {family}, {size} bytes, after {took:?}", from.name, to.name);
                return soak.record.find(format_args!("{what}: {why}"));
            }
        }
        if start.elapsed() > LONGEST_STREAM {
            let what = format!("TCP {} to {}", from.name, to.name);
            return soak.record.find(format_args!("{what}: no connection within {LONGEST_STREAM:?}"));
        }
    }
}

fn attempt(from: &Station, to: &Station, v6: bool, size: usize, seed: u64) -> End {
    // Counted before they are looked at, so that a host that is just being lost is seen to be.
    let before = (from.times_lost(), to.times_lost());
    let (client, server) = (from.host(), to.host());
    let cut = || (from.times_lost(), to.times_lost()) != before;
    let (any, target): (IpAddr, IpAddr) = match v6 {
        false => (Ipv4Addr::UNSPECIFIED.into(), server.ipv4.into()),
        true => (Ipv6Addr::UNSPECIFIED.into(), server.ipv6.into()),
    };
    let listener = server.netns.run_in(|| TcpListener::bind((any, 0))).unwrap().unwrap();
    let address = SocketAddr::new(target, listener.local_addr().unwrap().port());
    let nobody_comes = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let give_up = || cut() || nobody_comes.load(Ordering::Relaxed);
        let served = scope.spawn(move || {
            let stream = accept(&listener, &give_up).map_err(|e| (true, e))?;
            both_ways(&stream, seed ^ 1, seed, size, &cut).map_err(|e| (false, e))
        });
        let connected = client.netns.run_in(|| TcpStream::connect_timeout(&address, CONNECT)).unwrap();
        let stream = match connected {
            Ok(stream) => stream,
            Err(e) => {
                nobody_comes.store(true, Ordering::Relaxed);
                return Err((true, e.to_string()));
            }
        };
        let near = both_ways(&stream, seed, seed ^ 1, size, &cut);
        let far = served.join().unwrap();
        match (near, far) {
            (Ok(()), Ok(())) => Ok(()),
            // Half open: the server's kernel forgets a connection if it has no address when it is to repeat its
            // SYN-ACK (reqsk_timer_handler in net/ipv4/inet_connection_sock.c), and resets what comes of it then.
            (Err(e), Err((true, _))) => Err((true, e.to_string())),
            (near, far) => {
                let text = |end: io::Result<()>| end.map_or_else(|e| e.to_string(), |()| "all well".into());
                let far = far.map_err(|(_, e)| e);
                Err((false, format!("at the client: {}; at the server: {}", text(near), text(far))))
            }
        }
    });
    match ended {
        Ok(()) => End::Exact,
        Err(_) if cut() => End::Cut,
        Err((true, _)) => End::Unreachable,
        Err((false, why)) => End::Wrong(why),
    }
}

/// Waits for a connection: longer than anybody tries to make one, because a client that has its SYN answered may
/// have to send what makes the connection known here again and again, as any other data.
fn accept(listener: &TcpListener, give_up: &impl Fn() -> bool) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + CONNECT + IDLE;
    loop {
        match listener.accept() {
            Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < deadline && !give_up() => {
                thread::sleep(Duration::from_millis(5));
            }
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Sends the stream of one seed and compares what comes with that of another, at the same time.
fn both_ways(s: &TcpStream, own: u64, other: u64, size: usize, cut: &(impl Fn() -> bool + Sync)) -> io::Result<()> {
    s.set_read_timeout(Some(LOOK))?;
    s.set_write_timeout(Some(LOOK))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| each_chunk(own, size, cut, |chunk, at| (&*s).write(&chunk[at..])));
        let mut got = [0; 4096];
        let read = each_chunk(other, size, cut, |chunk, at| {
            let n = (&*s).read(&mut got[..chunk.len() - at])?;
            match got[..n] == chunk[at..at + n] {
                true => Ok(n),
                false => Err(io::Error::other("other bytes than were sent")),
            }
        });
        if read.is_err() {
            // Or the writer would wait for a reader that is not there.
            let _ = s.shutdown(Shutdown::Both);
        }
        writer.join().unwrap().and(read)
    })
}

/// Passes the stream of `seed` to `work` in chunks, which says how much of the chunk it did.
fn each_chunk(
    seed: u64,
    size: usize,
    cut: &impl Fn() -> bool,
    mut work: impl FnMut(&[u8], usize) -> io::Result<usize>,
) -> io::Result<()> {
    let (mut numbers, mut chunk, mut done, start) = (Numbers(seed), [0; 4096], 0, Instant::now());
    while done < size {
        if start.elapsed() > LONGEST_STREAM {
            return Err(io::Error::other(format!("only {done} of {size} bytes within {LONGEST_STREAM:?}")));
        }
        let n = chunk.len().min(size - done);
        numbers.fill(&mut chunk);
        let (mut at, mut last) = (0, Instant::now());
        while at < n {
            match work(&chunk[..n], at) {
                Ok(0) => return Err(io::Error::other(format!("ended after {} of {size} bytes", done + at))),
                Ok(n) => (at, last) = (at + n, Instant::now()),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if cut() {
                        return Err(io::Error::other("a host was lost"));
                    }
                    if last.elapsed() > IDLE {
                        return Err(io::Error::other(format!("stands still at {} of {size} bytes", done + at)));
                    }
                }
                Err(e) => return Err(io::Error::new(e.kind(), format!("{e}, at {} of {size} bytes", done + at))),
            }
        }
        done += n;
    }
    Ok(())
}

/// A flow of numbered datagrams of random sizes between two stations; each comes at most as it was sent.
pub fn udp(soak: &Soak, circle: &[usize], seed: u64) {
    let mut numbers = Numbers(seed);
    let traffic = &soak.record.traffic;
    while soak.goes_on() {
        let (from, to) = pair(&mut numbers, circle);
        let (from, to) = (&soak.net.stations[from], &soak.net.stations[to]);
        let lost = (from.times_lost(), to.times_lost());
        let (client, server) = (from.host(), to.host());
        let bind = |host: &Host| -> io::Result<UdpSocket> {
            let socket =
                host.netns.run_in(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))).map_err(io::Error::other)??;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let (source, sink) = (bind(&client).unwrap(), bind(&server).unwrap());
        let v6 = numbers.below(2) == 1;
        let ip = if v6 { server.ipv6 } else { server.ipv4.to_ipv6_mapped() };
        let target = SocketAddr::new(ip.into(), sink.local_addr().unwrap().port());
        let (own, mut seen, mut highest) = (numbers.next(), Vec::new(), 0);
        // Another pair from time to time.
        for number in 0..1000u64 {
            if !soak.goes_on() || (from.times_lost(), to.times_lost()) != lost {
                break;
            }
            let _gate = soak.gate.read().unwrap();
            // Without a way there, which is no harm.
            if source.send_to(&datagram(own, number), target).is_ok() {
                add(&traffic.datagrams_sent, 1);
            }
            thread::sleep(PACE);
            let mut got = [0; 2048];
            while let Ok((n, _)) = sink.recv_from(&mut got) {
                let at = got.first_chunk().map_or(u64::MAX, |first| u64::from_be_bytes(*first));
                if at > number || got[..n] != datagram(own, at) {
                    let what = format!("{} to {}, IPv{}", from.name, to.name, if v6 { 6 } else { 4 });
                    soak.record.find(format_args!("UDP {what}: {n} bytes that were not sent, number {at}"));
                    continue;
                }
                seen.resize(number as usize + 1, false);
                match std::mem::replace(&mut seen[at as usize], true) {
                    true => add(&traffic.datagrams_twice, 1),
                    false => add(&traffic.datagrams_received, 1),
                }
                if at < highest {
                    add(&traffic.datagrams_late, 1);
                }
                highest = highest.max(at);
            }
        }
    }
}

/// Its number, then bytes that follow from it.
fn datagram(seed: u64, number: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed ^ number);
    let mut bytes = vec![0; 8 + numbers.below(1400) as usize];
    numbers.fill(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Malformed frames from every station, those at links up too.
pub fn raw(soak: &Soak, seed: u64) {
    let mut numbers = Numbers(seed);
    let stations = &soak.net.stations;
    let macs: Vec<_> = soak.net.sites.iter().map(|site| site.config().mac.0).collect();
    let mut sockets: Vec<Option<(u64, PacketSocket)>> = stations.iter().map(|_| None).collect();
    while soak.goes_on() {
        let i = numbers.below(stations.len() as u64) as usize;
        let lost = stations[i].times_lost();
        let (station, host) = (&stations[i], stations[i].host());
        let gateway = if station.talks { macs[station.site] } else { FABRIC_MAC.0 };
        let neighbour = stations[numbers.below(stations.len() as u64) as usize].mac;
        let to = destinations(gateway, neighbour)[numbers.below(5) as usize];
        let len = SHORTEST + numbers.below((LONGEST - SHORTEST) as u64 + 1) as usize;
        let frame = bad_frame(&mut numbers, len, to, station.mac, &host);
        let _gate = soak.gate.read().unwrap();
        let socket = sockets[i].take().filter(|(of, _)| *of == lost);
        let socket = socket.or_else(|| Some((lost, PacketSocket::try_open(&host).ok()?)));
        if let Some((_, socket)) = socket
            && socket.attempt(&frame).is_ok()
        {
            add(&soak.record.traffic.raw_frames, 1);
            // Not after an error: the interface may be another by now.
            sockets[i] = Some((lost, socket));
        }
        thread::sleep(PACE);
    }
}

/// Pings between random pairs, unanswered ones only counted.
pub fn pings(soak: &Soak, circle: &[usize], seed: u64) {
    let mut numbers = Numbers(seed);
    while soak.goes_on() {
        let (from, to) = pair(&mut numbers, circle);
        let (from, to) = (soak.net.stations[from].host(), soak.net.stations[to].host());
        let target = to.addresses()[numbers.below(2) as usize].to_string();
        let _gate = soak.gate.read().unwrap();
        let ping = from.spawn(&["ping", "-n", "-c", "5", "-i", "0.2", "-w", "3", &target]).wait_with_output().unwrap();
        let said = text(&ping);
        // "5 packets transmitted, 4 received, ..."
        let mut counts =
            said.lines().find(|line| line.contains(" transmitted")).into_iter().flat_map(|l| l.split(", "));
        for counter in [&soak.record.traffic.pings_sent, &soak.record.traffic.pings_answered] {
            let number = counts.next().and_then(|text| text.split(' ').next()?.parse().ok());
            counter.fetch_add(number.unwrap_or(0), Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Every station of a circle pings every other over both families; each has to be answered.
pub fn all_ping_all(net: &Net) {
    let mut pings = Vec::new();
    for circle in net.circles() {
        for from in &circle {
            for to in circle.iter().filter(|to| *to != from) {
                let (from, to) = (net.stations[*from].host(), net.stations[*to].host());
                pings.extend(to.addresses().map(|address| from.ping(address, &[])));
            }
        }
    }
    pings.into_iter().for_each(crate::bed::Pings::answered);
}
