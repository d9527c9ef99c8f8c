use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg, send,
    setsockopt, socket,
};

use crate::bed::Host;

/// Frames of a host's `eth0`, as they are on the wire.
pub struct PacketSocket {
    fd: OwnedFd,
}

/// packet(7): the kernel tells of the tag that it took out of a received frame.
#[derive(Clone)]
struct Auxdata;
nix::setsockopt_impl!(
    Auxdata,
    nix::libc::SOL_PACKET,
    nix::libc::PACKET_AUXDATA,
    bool,
    nix::sys::socket::sockopt::SetBool
);

/// packet(7): past the queueing discipline, each CPU by a TX queue of its own.
#[derive(Clone)]
struct QdiscBypass;
nix::setsockopt_impl!(
    QdiscBypass,
    nix::libc::SOL_PACKET,
    nix::libc::PACKET_QDISC_BYPASS,
    bool,
    nix::sys::socket::sockopt::SetBool
);

/// `struct tpacket_auxdata` (linux/if_packet.h): offsets in bytes.
const AUX_STATUS: usize = 0;
const AUX_TCI: usize = 16;
const AUX_TPID: usize = 18;
const AUX_LEN: usize = 20;

impl PacketSocket {
    /// Opens one in the host's namespace; it sees every frame from now on.
    pub fn open(host: &Host) -> PacketSocket {
        PacketSocket::try_open(host).unwrap_or_else(|e| panic!("packet socket in {}: {e}", host.name))
    }

    /// The same; `ENODEV` where there is no `eth0`.
    pub fn try_open(host: &Host) -> nix::Result<PacketSocket> {
        let open = || -> nix::Result<PacketSocket> {
            let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
            // The kernel lists an interface's link-layer address as the very structure to bind to.
            let eth0 = getifaddrs()?.find_map(|interface| {
                let address = (interface.interface_name == "eth0").then_some(interface.address)??;
                address.as_link_addr().copied()
            });
            bind(fd.as_raw_fd(), &eth0.ok_or(Errno::ENODEV)?)?;
            setsockopt(&fd, Auxdata, &true)?;
            Ok(PacketSocket { fd })
        };
        host.netns.run_in(open).unwrap()
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) {
        assert!(self.try_send(frame), "{} bytes are over the interface's MTU", frame.len());
    }

    /// Sends one frame; `false` if it is over the MTU of the host's interface.
    pub fn try_send(&self, frame: &[u8]) -> bool {
        loop {
            match self.attempt(frame) {
                Ok(()) => return true,
                // The veth's ring is full, which a real wire answers by backpressure.
                Err(Errno::ENOBUFS) => std::thread::yield_now(),
                Err(Errno::EMSGSIZE) => return false,
                Err(e) => panic!("sending {} bytes: {e}", frame.len()),
            }
        }
    }

    /// Sends one frame, once; `ENOBUFS` where the ring is full, others where the interface is down or gone.
    pub fn attempt(&self, frame: &[u8]) -> nix::Result<()> {
        send(self.fd.as_raw_fd(), frame, MsgFlags::empty()).map(|n| assert_eq!(n, frame.len()))
    }

    /// Gives it room for thousands of frames that nobody has read yet.
    pub fn keep_all(&self) {
        setsockopt(&self.fd, nix::sys::socket::sockopt::RcvBufForce, &(256 << 20)).unwrap();
    }

    /// What is sent leaves by the TX queue of the CPU that sends it, counted round.
    pub fn queue_by_cpu(&self) {
        setsockopt(&self.fd, QdiscBypass, &true).unwrap();
    }

    /// The first frame that `wanted` accepts within `limit`, with the tag put back that the kernel
    /// took out.
    pub fn receive(&self, limit: Duration, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.next() {
                Ok(frame) if wanted(&frame) => return Some(frame),
                Ok(_) => {}
                Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
                Err(e) => panic!("receiving: {e}"),
            }
        }
        None
    }

    /// The frames that have come and that nobody has read.
    pub fn waiting(&self) -> impl Iterator<Item = Vec<u8>> {
        std::iter::from_fn(|| match self.next() {
            Ok(frame) => Some(frame),
            Err(Errno::EAGAIN) => None,
            Err(e) => panic!("receiving: {e}"),
        })
    }

    fn next(&self) -> nix::Result<Vec<u8>> {
        let mut buffer = [0; 16_384];
        let mut control = vec![0; 256];
        let mut vectors = [io::IoSliceMut::new(&mut buffer)];
        let message =
            recvmsg::<LinkAddr>(self.fd.as_raw_fd(), &mut vectors, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
        let len = message.bytes;
        let tag = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Unknown(c) if c.data_bytes.len() >= AUX_LEN => {
                let word = |at| u16::from_ne_bytes([c.data_bytes[at], c.data_bytes[at + 1]]);
                let status = u32::from_ne_bytes(c.data_bytes[AUX_STATUS..AUX_STATUS + 4].try_into().ok()?);
                (status & nix::libc::TP_STATUS_VLAN_VALID != 0).then(|| (word(AUX_TPID), word(AUX_TCI)))
            }
            _ => None,
        });
        let mut frame = buffer[..len].to_vec();
        if let Some((tpid, tci)) = tag {
            frame.splice(12..12, [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        Ok(frame)
    }
}

/// A seeded stream of numbers: SplitMix64 (Steele et al., OOPSLA 2014).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Ethernet header and `tags` (TPID, TCI), then an EtherType.
pub fn ethernet(to: [u8; 6], from: [u8; 6], tags: &[(u16, u16)], ethertype: u16) -> Vec<u8> {
    let mut frame = [to, from].concat();
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// An IPv4 packet with UDP (checksum 0: none) and a payload; `to` must be of the same family.
pub fn udp_v4(from: std::net::Ipv4Addr, to: std::net::Ipv4Addr, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let total = 28 + payload.len() as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, ttl, 17, 0, 0];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip.extend(from.octets());
    ip.extend(to.octets());
    let sum: u32 = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    ip.extend(4000u16.to_be_bytes());
    ip.extend(4001u16.to_be_bytes());
    ip.extend((8 + payload.len() as u16).to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(payload);
    ip
}

/// What a veth of MTU 1500 lets pass, without and with one VLAN tag.
pub const SHORTEST: usize = 14;
pub const LONGEST: usize = 1514;

/// Addresses that bad frames go to: the gateway's, a host's, all, a group, nobody's.
pub fn destinations(gateway: [u8; 6], host: [u8; 6]) -> [[u8; 6]; 5] {
    [gateway, host, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [2, 9, 9, 9, 9, 9]]
}

/// One bad frame of `len` bytes: random, or right up to somewhere.
pub fn bad_frame(numbers: &mut Numbers, len: usize, to: [u8; 6], mac: [u8; 6], from: &Host) -> Vec<u8> {
    let mut bytes = vec![0; len];
    numbers.fill(&mut bytes);
    let ethertypes = [0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88b5, 0x0005, 0x8847];
    let ethertype = ethertypes[numbers.below(8) as usize];
    let kind = numbers.below(8);
    let header = match kind {
        // Not even an address is right, but for the group bit of the source, which would be a plain drop.
        0 => Vec::new(),
        1 => ethernet(to, mac, &[], ethertype),
        // A stack of tags that may end the frame.
        2 => ethernet(to, mac, &vec![(0x8100, 7); 1 + numbers.below(400) as usize], ethertype),
        // A source no station has.
        3 => ethernet(to, [1, 0, 0x5e, 0, 0, 1], &[], ethertype),
        // A sound header whose lengths say more, or less, than there is.
        4 => {
            let mut frame = ethernet(to, mac, &[], 0x0800);
            let mut packet = udp_v4(from.ipv4, from.ipv4, 64, &[0; 40]);
            packet[numbers.below(10) as usize] ^= 1 << numbers.below(8);
            frame.extend(packet);
            frame
        }
        // IPv6 with a chain of extension headers that leads anywhere.
        5 => {
            let mut frame = ethernet(to, mac, &[], 0x86dd);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((len as u16).wrapping_sub(54).to_be_bytes());
            frame.extend([[0, 43, 44, 60, 135, 58][numbers.below(6) as usize], 64]);
            frame.extend(from.ipv6.octets());
            frame.extend(from.ipv6.octets());
            frame
        }
        // ARP, cut or with lengths of its own.
        6 => {
            let mut frame = ethernet(to, mac, &[], 0x0806);
            frame.extend([0, 1, 8, 0, numbers.next() as u8, numbers.next() as u8, 0, 1]);
            frame
        }
        // Tagged, and the packet inside is noise.
        _ => ethernet(to, mac, &[(0x88a8, 1), (0x8100, 2)], ethertype),
    };
    let n = header.len().min(len);
    bytes[..n].copy_from_slice(&header[..n]);
    if kind == 0 {
        bytes[6] &= 0xfe;
    }
    bytes
}
