// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Sends every frame of an interface out of one other: the kernel's own forwarding, as a yardstick.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

SEC("xdp")
int weft_forward(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
