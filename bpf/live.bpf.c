// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Fills probe and checksum into a frame and sends it when it is due. Runs by BPF_PROG_TEST_RUN with
// live frames, never attached to an interface.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Set before loading; src/port/xdp/live.rs writes the same words.
const volatile struct {
	__u64 ifindex;
	__u64 flows;
	__u64 udp;	  // offset of the UDP header in the frame
	__u64 base;	  // sum of all that the UDP checksum covers and no frame changes
	__u64 first_port; // of flow 0, counted from PORT_MIN
	__u64 interval;	  // between frames in 2^-16 ns; 0 sends at once
	__u64 backlog;	  // frames that may be late; more are skipped
} config;

// Read by src/port/xdp/live.rs. One program run at a time, so plain counters do.
struct {
	__u64 sent;
	__u64 skipped;
	__u64 first; // CLOCK_MONOTONIC ns of the first and the last frame
	__u64 last;
	__u64 due; // of the next frame, in 2^-16 ns after the first
} state;

#define FRACTION_BITS 16
#define PORT_MIN 1024
#define PORTS (65536 - PORT_MIN)
#define SEQUENCE_BITS 40
#define TIME_MASK ((1ULL << 48) - 1)

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

// Whether a frame may go at `now`, which then counts as gone.
static __always_inline int due(__u64 now)
{
	__u64 interval = config.interval;
	if (!interval)
		return 1;
	__u64 elapsed = now - state.first << FRACTION_BITS;
	if (elapsed < state.due)
		return 0;
	__u64 late = elapsed - state.due;
	if (late > config.backlog * interval) {
		__u64 skipped = late / interval - config.backlog;
		state.skipped += skipped;
		state.due += skipped * interval;
	}
	state.due += interval;
	return 1;
}

SEC("xdp")
int weft_live(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment *segment = data + (config.udp & 0xff);
	if ((void *)(segment + 1) > end)
		return XDP_ABORTED;

	__u64 now = bpf_ktime_get_ns();
	if (!state.first)
		state.first = now;
	if (!due(now))
		return XDP_DROP;
	state.last = now;

	__u64 n = state.sent++, flow = n % config.flows;
	__u64 flow_and_sequence = flow << SEQUENCE_BITS | n / config.flows;
	__u64 time = now & TIME_MASK;
	__u16 port = PORT_MIN + (config.first_port + flow) % PORTS;

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
