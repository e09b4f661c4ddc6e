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
enum { HELPER_REDIRECT_MAP = 51 };

static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)HELPER_REDIRECT_MAP;

/* Only its address is used; the loader puts the map's descriptor in its place. */
u32 xsks __attribute__((section(".maps"))) = 0;

__attribute__((section("xdp.frags"), used)) int steer(struct xdp_md *ctx)
{
	/* The low bits of the flags are the verdict for an empty slot. */
	return redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char licence_text[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
