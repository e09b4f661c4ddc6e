// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Steers every frame to AF_XDP: for a program that terminates the wire itself, such as a switch,
 * which also forwards ARP, neighbour discovery and TCP.
 *
 *   anything                                                      -> XSKMAP[receive queue]
 *   everything when the map slot is empty                         -> XDP_PASS
 *
 * There are no includes and no BTF on purpose, so any clang with a BPF back end builds it:
 *   clang -O2 -target bpf -c steer_all.bpf.c -o steer_all.o
 * src/steer.rs holds the resulting instructions; a test compares the two.
 */

typedef unsigned int u32;
typedef unsigned long long u64;

/* uapi/linux/bpf.h: the context the verifier rewrites loads from. */
struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

enum { XDP_PASS = 2 };
enum { HELPER_KTIME_GET_NS = 5, HELPER_REDIRECT_MAP = 51, HELPER_XDP_ADJUST_META = 54 };

static u64 (*ktime_get_ns)(void) = (void *)HELPER_KTIME_GET_NS;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)HELPER_REDIRECT_MAP;
static long (*adjust_meta)(struct xdp_md *ctx, int delta) = (void *)HELPER_XDP_ADJUST_META;

/* Metadata directly before the frame, which the socket copies with it. */
struct arrival {
	u64 mark;
	u64 monotonic_ns; /* CLOCK_MONOTONIC */
};

#define ARRIVAL_MARK 0x006c617669727261ULL

/*
 * Writes the arrival time before the frame. A driver without metadata refuses, and the frame is
 * redirected without it. Pointers into the frame are invalid afterwards.
 */
static inline __attribute__((always_inline)) void write_arrival(struct xdp_md *ctx)
{
	struct arrival *arrival;

	if (adjust_meta(ctx, -(int)sizeof(*arrival)))
		return;
	arrival = (struct arrival *)(long)ctx->data_meta;
	if ((void *)(arrival + 1) > (void *)(long)ctx->data)
		return;
	arrival->mark = ARRIVAL_MARK;
	arrival->monotonic_ns = ktime_get_ns();
}

/* Only its address is used; the loader puts the map's descriptor in its place. */
u32 xsks __attribute__((section(".maps"))) = 0;

__attribute__((section("xdp.frags"), used)) int steer(struct xdp_md *ctx)
{
	write_arrival(ctx);
	/* The low bits of the flags are the verdict for an empty slot. */
	return redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char licence_text[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
