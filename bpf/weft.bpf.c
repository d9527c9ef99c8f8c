// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Steers every frame of an RX queue to the AF_XDP socket bound to it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64); // RX queues of one interface
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

// A queue without a socket keeps its frames for the kernel (the helper's fallback action).
static __always_inline int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
