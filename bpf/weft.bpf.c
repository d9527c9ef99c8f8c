// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Steers every frame of an RX queue to the AF_XDP socket bound to it; the programs with `own` in their
// names leave frames to the interface's own addresses to the kernel.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64); // RX queues of one interface
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

// An address of the interface; one of IPv4 is mapped (::ffff:a.b.c.d, RFC 4291 section 2.5.5.2).
struct address {
	__be32 words[4];
};

// What the kernel's own stack answers for: kept up to date by src/port/xdp/local.rs.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} addresses SEC(".maps");

// The interface's MAC address in the first six bytes.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} mac SEC(".maps");

struct ethernet {
	__u8 destination[ETH_ALEN], source[ETH_ALEN];
	__be16 type;
} __attribute__((packed));

// ARP of IPv4 on Ethernet (RFC 826).
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__u8 sender[4];
	__u8 target_mac[ETH_ALEN];
	__u8 target[4];
} __attribute__((packed));

struct ipv4 {
	__u8 version_and_length, tos;
	__be16 length, id, fragment;
	__u8 ttl, protocol;
	__be16 checksum;
	__u8 source[4], destination[4];
} __attribute__((packed));

struct ipv6 {
	__u8 version[4];
	__be16 length;
	__u8 next_header, hop_limit;
	__u8 source[16], destination[16];
} __attribute__((packed));

// Neighbour solicitation (RFC 4861 section 4.3).
struct solicitation {
	__u8 type, code;
	__be16 checksum;
	__u8 reserved[4];
	__u8 target[16];
} __attribute__((packed));

#define ARP_ETHERNET 1
#define ND_SOLICITATION 135

static __always_inline int is_own(const struct address *address)
{
	return bpf_map_lookup_elem(&addresses, address) != 0;
}

static __always_inline int is_own_ipv4(const __u8 *address)
{
	struct address mapped = {.words = {0, 0, bpf_htonl(0xffff), 0}};
	__builtin_memcpy(&mapped.words[3], address, 4);
	return is_own(&mapped);
}

static __always_inline int is_own_ipv6(const __u8 *address)
{
	struct address copy;
	__builtin_memcpy(&copy, address, sizeof(copy));
	return is_own(&copy);
}

// Whether `destination` is the solicited-node multicast address of `target`: ff02::1:ff and its last
// 24 bits (RFC 4291 section 2.7.1).
static __always_inline int is_solicited_node(const __u8 *destination, const __u8 *target)
{
	struct address to, of;
	__builtin_memcpy(&to, destination, sizeof(to));
	__builtin_memcpy(&of, target, sizeof(of));
	return to.words[0] == bpf_htonl(0xff020000) && to.words[1] == 0 && to.words[2] == bpf_htonl(1) &&
	       to.words[3] == (of.words[3] | bpf_htonl(0xff000000));
}

// Whether a frame is the kernel's: to the interface's MAC address and one of its IP addresses, or a
// question for one of these. A frame with a VLAN tag never is: the interface's addresses are outside
// any VLAN.
static __always_inline int is_for_kernel(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = data;
	if ((void *)(ethernet + 1) > end)
		return 0;
	__u32 zero = 0;
	const __u8 *own = bpf_map_lookup_elem(&mac, &zero);
	if (!own)
		return 0;
	int to_own = 1, to_all = 1;
	for (int i = 0; i < ETH_ALEN; i++) {
		to_own &= ethernet->destination[i] == own[i];
		to_all &= ethernet->destination[i] == 0xff;
	}
	void *payload = ethernet + 1;

	switch (ethernet->type) {
	case bpf_htons(ETH_P_ARP): {
		struct arp *arp = payload;
		if ((void *)(arp + 1) > end || !(to_own | to_all))
			return 0;
		if (arp->hardware != bpf_htons(ARP_ETHERNET) || arp->protocol != bpf_htons(ETH_P_IP) ||
		    arp->hardware_length != ETH_ALEN || arp->protocol_length != 4)
			return 0;
		return is_own_ipv4(arp->target);
	}
	case bpf_htons(ETH_P_IP): {
		struct ipv4 *ip = payload;
		return (void *)(ip + 1) <= end && to_own && is_own_ipv4(ip->destination);
	}
	case bpf_htons(ETH_P_IPV6): {
		struct ipv6 *ip = payload;
		if ((void *)(ip + 1) > end)
			return 0;
		if (to_own)
			return is_own_ipv6(ip->destination);
		struct solicitation *solicitation = (void *)(ip + 1);
		if ((void *)(solicitation + 1) > end || ip->next_header != IPPROTO_ICMPV6 ||
		    solicitation->type != ND_SOLICITATION)
			return 0;
		// Such an address has a MAC address of its own (RFC 2464 section 7).
		const __u8 *group = ethernet->destination;
		if (group[0] != 0x33 || group[1] != 0x33 || group[2] != 0xff)
			return 0;
		return is_solicited_node(ip->destination, solicitation->target) && is_own_ipv6(solicitation->target);
	}
	}
	return 0;
}

// An interface is the switch's whole: a frame of a queue without a socket (one that is being closed, or that
// `ethtool -L` added) is dropped (the helper's fallback action), not handed to the kernel's stack.
static __always_inline int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}

SEC("xdp")
int weft_redirect(struct xdp_md *ctx)
{
	return redirect(ctx);
}

// The same for frames that take several buffers (kernel 6.6).
SEC("xdp.frags")
int weft_redirect_frags(struct xdp_md *ctx)
{
	return redirect(ctx);
}

SEC("xdp")
int weft_own(struct xdp_md *ctx)
{
	return is_for_kernel(ctx) ? XDP_PASS : redirect(ctx);
}

SEC("xdp.frags")
int weft_own_frags(struct xdp_md *ctx)
{
	return is_for_kernel(ctx) ? XDP_PASS : redirect(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
