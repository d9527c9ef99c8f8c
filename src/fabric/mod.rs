/// Messages a switch makes itself: ARP, neighbour discovery, ICMP.
pub mod reply;
