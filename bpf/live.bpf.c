// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Fills probe and checksum into a frame and sends it. Runs by BPF_PROG_TEST_RUN with live frames,
// never attached to an interface.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Set before loading; src/port/xdp/live.rs writes the same five words.
const volatile struct {
	__u32 ifindex;
	__u32 flows;
	__u32 udp;	  // offset of the UDP header in the frame
	__u32 base;	  // sum of all that the UDP checksum covers and no frame changes
	__u32 first_port; // of flow 0, counted from PORT_MIN
} config;

#define PORT_MIN 1024
#define PORTS (65536 - PORT_MIN)
#define SEQUENCE_BITS 40
#define TIME_MASK ((1ULL << 48) - 1)

// Frames so far. One program run at a time, so a plain counter does.
__u64 sent;

// UDP header and probe (src/traffic/probe.rs).
struct segment {
	__be16 source, destination, length, checksum;
	__u8 magic[2];
	__be16 run;
	__be64 flow_and_sequence;
	__be16 time_high;
	__be32 time_low;
} __attribute__((packed));

static __always_inline __u64 words(__u64 value)
{
	return (value >> 48) + (value >> 32 & 0xffff) + (value >> 16 & 0xffff) + (value & 0xffff);
}

SEC("xdp")
int weft_live(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment *segment = data + (config.udp & 0xff);
	if ((void *)(segment + 1) > end)
		return XDP_ABORTED;

	__u64 n = sent++, flows = config.flows;
	__u64 flow_and_sequence = n % flows << SEQUENCE_BITS | n / flows;
	__u64 time = bpf_ktime_get_ns() & TIME_MASK;
	__u16 port = PORT_MIN + (config.first_port + n % flows) % PORTS;

	// Pages are used again with what an earlier run wrote: nothing here reads the frame.
	__u64 sum = config.base + port + words(flow_and_sequence) + words(time);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = ~sum & 0xffff;
	segment->source = bpf_htons(port);
	segment->checksum = bpf_htons(sum ? sum : 0xffff); // 0 means "none" (RFC 768)
	segment->flow_and_sequence = bpf_cpu_to_be64(flow_and_sequence);
	segment->time_high = bpf_htons(time >> 32);
	segment->time_low = bpf_htonl(time);
	return bpf_redirect(config.ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
