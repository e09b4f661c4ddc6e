// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Steers RoCEv2 to AF_XDP and passes everything else to the kernel.
 *
 *   UDP to port 4791 of an address in the address map, over IPv4  -> XSKMAP[receive queue]
 *   without options or fragments, or over IPv6 without extension
 *   headers
 *   anything else, and everything when the map slot is empty      -> XDP_PASS
 *
 * The address map holds the local unicast addresses. RoCEv2 that the host routes or bridges to
 * others, and multicast, goes to the kernel.
 *
 * All frames of other forms go to the kernel, whose stack owns the address and replies to them
 * (ICMP, reassembly, neighbour discovery). VLAN tags are not parsed, so tagged traffic always
 * reaches the VLAN device above the interface.
 *
 * There are no includes and no BTF on purpose, so any clang with a BPF back end builds it:
 *   clang -O2 -target bpf -c steer.bpf.c -o steer.o
 * src/steer.rs holds the resulting instructions; a test compares the two.
 */

typedef unsigned char u8;
typedef unsigned short u16;
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
enum {
	HELPER_MAP_LOOKUP_ELEM = 1,
	HELPER_KTIME_GET_NS = 5,
	HELPER_REDIRECT_MAP = 51,
	HELPER_XDP_ADJUST_META = 54,
};

static void *(*map_lookup_elem)(void *map, const void *key) = (void *)HELPER_MAP_LOOKUP_ELEM;
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

#define BE16(host) __builtin_bswap16(host)
#define BE32(host) __builtin_bswap32(host)

/* Byte offsets in an untagged Ethernet frame. */
enum {
	ETH_TYPE = 12,
	IP4_VERSION_IHL = 14,
	IP4_FRAGMENT = 20,
	IP4_PROTOCOL = 23,
	IP4_DESTINATION = 30,
	IP4_UDP_DPORT = 36,
	IP4_UDP_END = 42,
	IP6_NEXT_HEADER = 20,
	IP6_DESTINATION = 38,
	IP6_UDP_DPORT = 56,
	IP6_UDP_END = 62,
};

enum {
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	IPV4_NO_OPTIONS = 0x45,
	FRAGMENT_MASK = 0x3fff, /* "more fragments" and the offset; "don't fragment" is allowed */
	PROTOCOL_UDP = 17,
	ROCEV2_PORT = 4791,
	IP4_MAPPED = 0xffff, /* third word of ::ffff:a.b.c.d (RFC 4291) */
};

/* Key of the address map: an IPv6 address, or an IPv4 address as an IPv4-mapped one. */
struct address {
	u32 word[4];
};

/* Only their addresses are used; the loader puts the maps' descriptors in their place. */
u32 xsks __attribute__((section(".maps"))) = 0;
u32 addresses __attribute__((section(".maps"))) = 0;

static inline __attribute__((always_inline)) u16 half(const u8 *frame, u32 offset)
{
	return *(const u16 *)(frame + offset);
}

static inline __attribute__((always_inline)) u32 word(const u8 *frame, u32 offset)
{
	return *(const u32 *)(frame + offset);
}

/*
 * The last word of a destination, loaded in each branch. A load shared by both branches would be
 * at a variable offset, which the verifier allows with CAP_PERFMON only.
 */
static inline __attribute__((always_inline)) u32 last_word(const u8 *frame, u32 offset)
{
	u32 last = word(frame, offset);

	__asm__ volatile("" : "+r"(last));
	return last;
}

__attribute__((section("xdp.frags"), used)) int steer(struct xdp_md *ctx)
{
	const u8 *frame = (const u8 *)(long)ctx->data;
	const u8 *end = (const u8 *)(long)ctx->data_end;
	struct address to;

	if (frame + IP4_UDP_END > end)
		return XDP_PASS;

	if (half(frame, ETH_TYPE) == BE16(TYPE_IPV4)) {
		if (frame[IP4_VERSION_IHL] != IPV4_NO_OPTIONS || frame[IP4_PROTOCOL] != PROTOCOL_UDP)
			return XDP_PASS;
		if (half(frame, IP4_FRAGMENT) & BE16(FRAGMENT_MASK))
			return XDP_PASS;
		if (half(frame, IP4_UDP_DPORT) != BE16(ROCEV2_PORT))
			return XDP_PASS;
		to.word[0] = 0;
		to.word[1] = 0;
		to.word[2] = BE32(IP4_MAPPED);
		to.word[3] = last_word(frame, IP4_DESTINATION);
	} else if (half(frame, ETH_TYPE) == BE16(TYPE_IPV6)) {
		if (frame + IP6_UDP_END > end)
			return XDP_PASS;
		if (frame[IP6_NEXT_HEADER] != PROTOCOL_UDP)
			return XDP_PASS;
		if (half(frame, IP6_UDP_DPORT) != BE16(ROCEV2_PORT))
			return XDP_PASS;
		to.word[0] = word(frame, IP6_DESTINATION);
		to.word[1] = word(frame, IP6_DESTINATION + 4);
		to.word[2] = word(frame, IP6_DESTINATION + 8);
		to.word[3] = last_word(frame, IP6_DESTINATION + 12);
	} else {
		return XDP_PASS;
	}

	if (!map_lookup_elem(&addresses, &to))
		return XDP_PASS;

	write_arrival(ctx);
	/* The low bits of the flags are the verdict for an empty slot. */
	return redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char licence_text[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
