/* What each operation does to memory, and what its completions say. */
#include "common.h"

static struct node node;
static struct ibv_qp *qp[2]; /* each is the other's peer */
static uint8_t *own, *theirs; /* halves of the memory */

#define HALF 65536
/* A value for a field that an operation does not use. */
#define NONE 0xabadcafe

static void open_pair(int sq_sig_all)
{
	node = open_node(2 * HALF);
	own = node.memory;
	theirs = node.memory + HALF;
	for (int n = 0; n < 2; n++) {
		struct ibv_qp_init_attr init = init_of(&node);
		init.sq_sig_all = sq_sig_all;
		qp[n] = SOME(ibv_create_qp(node.pd, &init));
	}
	for (int n = 0; n < 2; n++) {
		struct address peer = address_of(&node, qp[1 - n]);
		connect_qp(qp[n], &peer, peer.psn, TIMEOUT, 7);
	}
}

static void close_pair(void)
{
	struct ibv_wc wc;
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	EQ(ibv_destroy_qp(qp[0]), 0);
	EQ(ibv_destroy_qp(qp[1]), 0);
	close_node(&node);
}

static struct ibv_sge sge_of(const uint8_t *at, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)at, length, node.mr->lkey};
}

static void post(struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
}

static void receive(uint64_t id, struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sges, .num_sge = count}, *bad;
	EQ(ibv_post_recv(qp[1], &wr, &bad), 0);
}

static void fill(uint8_t *at, size_t len, uint8_t first)
{
	for (size_t n = 0; n < len; n++)
		at[n] = (uint8_t)(first + n * 3);
}

/* The next two completions, in any order: of request `send` and of receive `recv`. */
static void both(uint64_t send, uint64_t recv, struct ibv_wc *sent, struct ibv_wc *received)
{
	for (int n = 0; n < 2; n++) {
		struct ibv_wc wc = next_wc(node.cq);
		if (wc.status)
			FAIL("request %llu: %s", (unsigned long long)wc.wr_id,
			     ibv_wc_status_str(wc.status));
		*(wc.qp_num == qp[0]->qp_num ? sent : received) = wc;
	}
	EQ(sent->wr_id, send);
	EQ(received->wr_id, recv);
	EQ(received->qp_num, qp[1]->qp_num);
}

static void atomics(char **argv, int fd)
{
	open_pair(0);
	uint64_t *target = (uint64_t *)theirs, *result = (uint64_t *)own;
	struct ibv_sge sge = sge_of(own, 8);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = (uintptr_t)target,
			      .compare_add = 5,
			      .swap = NONE,
			      .rkey = node.mr->rkey},
	};
	uint64_t expected = *target = UINT64_MAX - 7; /* wraps */
	for (int n = 0; n < 4; n++, expected += 5) {
		post(wr);
		struct ibv_wc wc = COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
		EQ(wc.opcode, IBV_WC_FETCH_ADD);
		EQ(wc.byte_len, 8);
		EQ(*result, expected);
		EQ(*target, expected + 5);
	}
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = expected - 1;
	wr.wr.atomic.swap = 0x0123456789abcdef;
	for (int equal = 0; equal < 2; equal++) {
		post(wr);
		EQ(COMPLETES(node.cq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
		EQ(*result, expected);
		EQ(*target, equal ? 0x0123456789abcdef : expected);
		wr.wr.atomic.compare_add++;
	}

	/* An address that is no multiple of 8: refused by the peer. */
	wr.wr.atomic.remote_addr++;
	post(wr);
	COMPLETES(node.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	EQ(*target, 0x0123456789abcdef);
	close_pair();
}

static void immediate(char **argv, int fd)
{
	open_pair(0);
	struct ibv_sge from[3] = {sge_of(own, 10), sge_of(own + 100, 4999), sge_of(own + 9000, 1)};
	struct ibv_sge to[2] = {sge_of(theirs, 4096), sge_of(theirs + 8192, 8192)};
	fill(own, HALF, 1);
	struct ibv_wc sent, received;
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = from,
		.num_sge = 3,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0x01020304),
	};
	receive(2, to, 2);
	post(wr);
	both(1, 2, &sent, &received);
	EQ(sent.opcode, IBV_WC_SEND);
	EQ(received.opcode, IBV_WC_RECV);
	EQ(received.wc_flags, IBV_WC_WITH_IMM);
	EQ(ntohl(received.imm_data), 0x01020304);
	EQ(received.byte_len, 5010);
	EQ(memcmp(theirs, own, 10), 0);
	EQ(memcmp(theirs + 10, own + 100, 4086), 0);
	EQ(memcmp(theirs + 8192, own + 100 + 4086, 4999 - 4086), 0);
	EQ(theirs[8192 + 5010 - 4096 - 1], own[9000]);
	EQ(theirs[8192 + 5010 - 4096], 0);

	/* The memory of the receive is not used by a WRITE; its length is that of the message. */
	uint8_t last = theirs[0];
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(UINT32_MAX);
	wr.wr.rdma.remote_addr = (uintptr_t)theirs + 32768;
	wr.wr.rdma.rkey = node.mr->rkey;
	receive(3, to, 0);
	own[0]++;
	post(wr);
	both(1, 3, &sent, &received);
	EQ(sent.opcode, IBV_WC_RDMA_WRITE);
	EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQ(received.wc_flags, IBV_WC_WITH_IMM);
	EQ(received.imm_data, UINT32_MAX);
	EQ(received.byte_len, 5010);
	EQ(theirs[0], last);
	EQ(memcmp(theirs + 32768 + 10, own + 100, 4999), 0);

	/* A plain SEND has none, and a receive that is too short fails at both ends. */
	wr.opcode = IBV_WR_SEND;
	receive(4, to, 2);
	post(wr);
	both(1, 4, &sent, &received);
	EQ(received.wc_flags, 0);
	receive(5, to, 1);
	post(wr);
	struct ibv_wc one = next_wc(node.cq), two = next_wc(node.cq);
	sent = one.wr_id == 1 ? one : two;
	received = one.wr_id == 1 ? two : one;
	EQ(sent.status, IBV_WC_REM_INV_REQ_ERR);
	EQ(received.wr_id, 5);
	EQ(received.status, IBV_WC_LOC_LEN_ERR);
	close_pair();
}

static void lists(char **argv, int fd)
{
	open_pair(0);
	fill(own, HALF, 7);
	/* A READ of contiguous bytes into three places. */
	struct ibv_sge sges[4] = {sge_of(own, 1), sge_of(own + 64, 6000), sge_of(own + 32768, 99)};
	fill(theirs, HALF, 99);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = sges,
		.num_sge = 3,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)theirs + 5, node.mr->rkey},
	};
	uint8_t between = own[1], behind = own[32768 + 99];
	post(wr);
	struct ibv_wc wc = COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	EQ(wc.opcode, IBV_WC_RDMA_READ);
	EQ(wc.byte_len, 6100);
	EQ(own[0], theirs[5]);
	EQ(own[1], between);
	EQ(memcmp(own + 64, theirs + 6, 6000), 0);
	EQ(memcmp(own + 32768, theirs + 6006, 99), 0);
	EQ(own[32768 + 99], behind);

	/* Inline data needs no key, and is copied by the call. */
	uint8_t local[256], expected[256];
	fill(local, 256, 50);
	memcpy(expected, local, 256);
	struct ibv_sge pieces[4];
	for (int n = 0; n < 4; n++)
		pieces[n] = (struct ibv_sge){.addr = (uintptr_t)local + (size_t)n * 16, .length = 16};
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.sg_list = pieces;
	wr.num_sge = 4;
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = (uintptr_t)theirs;
	post(wr);
	memset(local, 0, 64);
	memset(pieces, 0xff, sizeof(pieces));
	COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	EQ(memcmp(theirs, expected, 64), 0);
	EQ(theirs[64], (uint8_t)(99 + 64 * 3));
	pieces[0] = (struct ibv_sge){.addr = (uintptr_t)local, .length = 256};
	wr.num_sge = 1;
	post(wr);
	COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	EQ(memcmp(theirs, local, 256), 0);

	/* No bytes at all: with an address that does not exist, without a list, inline. */
	wr.wr.rdma.remote_addr = 0;
	wr.wr.rdma.rkey = 0;
	wr.num_sge = 0;
	for (int inlined = 0; inlined < 2; inlined++) {
		wr.send_flags = IBV_SEND_SIGNALED | (inlined ? IBV_SEND_INLINE : 0);
		wr.opcode = IBV_WR_RDMA_WRITE;
		post(wr);
		EQ(COMPLETES(node.cq, 1, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
		wr.opcode = IBV_WR_SEND;
		receive(2, NULL, 0);
		post(wr);
		struct ibv_wc received;
		both(1, 2, &wc, &received);
		EQ(received.byte_len, 0);
	}
	close_pair();
}

static void signals(char **argv, int fd)
{
	for (int all = 0; all < 2; all++) {
		open_pair(all);
		struct ibv_sge sge = sge_of(own, 64);
		struct ibv_send_wr wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {(uintptr_t)theirs, node.mr->rkey},
		};
		/* Far more than the queue holds: a completion frees all before it. */
		for (uint64_t n = 1; n <= 640; n++) {
			wr.wr_id = n;
			wr.send_flags = n % 10 == 0 ? IBV_SEND_SIGNALED : 0;
			post(wr);
			if (all || n % 10 == 0)
				COMPLETES(node.cq, n, IBV_WC_SUCCESS);
		}
		/* Behind a READ: the fence waits for its data, which the WRITE sends back. */
		for (uint64_t n = 0; n < 50; n++) {
			memset(own, 0, 64);
			memset(theirs, (int)n + 1, 128);
			struct ibv_sge read = sge_of(own, 64);
			struct ibv_send_wr first = wr, second = wr, *bad;
			first.wr_id = 1;
			first.sg_list = &read;
			first.opcode = IBV_WR_RDMA_READ;
			first.send_flags = 0;
			first.next = &second;
			second.wr_id = 2;
			second.wr.rdma.remote_addr = (uintptr_t)theirs + 4096;
			second.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
			EQ(ibv_post_send(qp[0], &first, &bad), 0);
			if (all)
				COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
			COMPLETES(node.cq, 2, IBV_WC_SUCCESS);
			EQ(theirs[4096], n + 1);
			EQ(theirs[4096 + 63], n + 1);
		}
		close_pair();
	}
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"atomics", atomics},
			       {"immediate", immediate},
			       {"lists", lists},
			       {"signals", signals}};
	return RUN(tests);
}
