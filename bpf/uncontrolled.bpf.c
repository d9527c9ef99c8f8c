// SPDX-License-Identifier: GPL-2.0
// TCP without congestion control: a window that nothing changes, as PL2 (arXiv 2101.06537) runs TCP above slots that
// were reserved. What remains is the receiver's window, and the retransmission of what is lost.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL"; // the kernel asks for it

// Packets: more than any receive window on a rack's round trip.
#define WINDOW 2000
// tcp.h: also for sockets, and namespaces, of who is not root.
#define TCP_CONG_NON_RESTRICTED 1

// Of the kernel's own, what is used here; libbpf finds the offsets by name.
struct sock {
} __attribute__((preserve_access_index));
struct tcp_sock {
	__u32 snd_cwnd;
} __attribute__((preserve_access_index));
struct rate_sample;
struct tcp_congestion_ops {
	__u32 flags;
	char name[16];
	__u32 (*ssthresh)(struct sock *sk);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs);
	void (*init)(struct sock *sk);
} __attribute__((preserve_access_index));

static __always_inline void open_window(struct sock *sk)
{
	((struct tcp_sock *)sk)->snd_cwnd = WINDOW;
}

SEC("struct_ops/init")
void BPF_PROG(uncontrolled_init, struct sock *sk)
{
	open_window(sk);
}

// After each acknowledgement: also what a loss took is given back at once.
SEC("struct_ops/cong_control")
void BPF_PROG(uncontrolled_control, struct sock *sk)
{
	open_window(sk);
}

SEC("struct_ops/ssthresh")
__u32 BPF_PROG(uncontrolled_ssthresh, struct sock *sk)
{
	return WINDOW;
}

SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(uncontrolled_undo, struct sock *sk)
{
	return WINDOW;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops uncontrolled = {
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "weft_off",
	.init = (void *)uncontrolled_init,
	.cong_control = (void *)uncontrolled_control,
	.ssthresh = (void *)uncontrolled_ssthresh,
	.undo_cwnd = (void *)uncontrolled_undo,
};
