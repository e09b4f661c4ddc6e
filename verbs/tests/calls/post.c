/* Requests that are refused, and those that fail. */
#include "common.h"

static struct node node;
static struct ibv_qp *qp;

static struct ibv_sge sge_of(size_t at, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)node.memory + at, .length = length, .lkey = node.mr->lkey};
}

/* The request alone must be refused. */
#define REFUSED(wr, expected)                                             \
	do {                                                              \
		struct ibv_send_wr *bad = NULL;                           \
		ERROR_OF(ibv_post_send(qp, wr, &bad), expected);          \
		EQ(bad == (wr), 1);                                       \
	} while (0)

#define RECV_REFUSED(wr, expected)                                        \
	do {                                                              \
		struct ibv_recv_wr *bad = NULL;                           \
		ERROR_OF(ibv_post_recv(qp, wr, &bad), expected);          \
		EQ(bad == (wr), 1);                                       \
	} while (0)

/* A queue pair in RTS whose peer does not exist, which waits for ever. */
static void open_lonely(uint32_t send_wrs, uint32_t recv_wrs)
{
	node = open_node(8192);
	struct ibv_qp_init_attr init = init_of(&node);
	init.cap.max_send_wr = send_wrs;
	init.cap.max_recv_wr = recv_wrs;
	qp = SOME(ibv_create_qp(node.pd, &init));
}

static void connect_lonely(void)
{
	struct address peer = address_of(&node, qp);
	peer.gid.raw[15]++;
	connect_qp(qp, &peer, 0, 0, 7);
}

static void close_lonely(void)
{
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

static void to_err(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static void full(char **argv, int fd)
{
	open_lonely(4, 3);
	connect_lonely();
	struct ibv_sge sge = sge_of(0, 4096);
	struct ibv_send_wr sends[6], *bad;
	struct ibv_recv_wr recvs[6], *bad_recv;
	for (int n = 0; n < 6; n++) {
		sends[n] = (struct ibv_send_wr){
			.wr_id = (uint64_t)n,
			.next = n < 5 ? &sends[n + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = n % 2 ? IBV_SEND_SIGNALED : 0,
		};
		recvs[n] = (struct ibv_recv_wr){
			.wr_id = 10 + (uint64_t)n,
			.next = n < 5 ? &recvs[n + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
		};
	}
	ERROR_OF(ibv_post_send(qp, sends, &bad), ENOMEM);
	EQ(bad - sends, 4);
	REFUSED(&sends[5], ENOMEM);
	ERROR_OF(ibv_post_recv(qp, recvs, &bad_recv), ENOMEM);
	EQ(bad_recv - recvs, 3);
	RECV_REFUSED(&recvs[5], ENOMEM);
	struct ibv_wc wc;
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);

	/* What was posted is flushed, whether it is signaled or not, in order. */
	to_err();
	for (int n = 0, next_send = 0, next_recv = 10; n < 7; n++) {
		wc = next_wc(node.cq);
		EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		EQ(wc.qp_num, qp->qp_num);
		EQ(wc.wr_id, wc.wr_id < 10 ? next_send++ : next_recv++);
	}
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	EQ(ibv_post_send(qp, &sends[5], &bad), 0);
	COMPLETES(node.cq, 5, IBV_WC_WR_FLUSH_ERR);
	EQ(ibv_post_recv(qp, &recvs[5], &bad_recv), 0);
	COMPLETES(node.cq, 15, IBV_WC_WR_FLUSH_ERR);
	close_lonely();
}

static void refused(char **argv, int fd)
{
	open_lonely(16, 16);
	struct ibv_sge sges[17];
	for (int n = 0; n < 17; n++)
		sges[n] = sge_of((size_t)n * 8, 8);
	struct ibv_send_wr ok = {.wr_id = 1, .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = sges, .num_sge = 1};

	/* States. */
	struct address own = address_of(&node, qp);
	REFUSED(&ok, EINVAL);
	RECV_REFUSED(&recv, EINVAL);
	to_init(qp);
	REFUSED(&ok, EINVAL);
	struct ibv_recv_wr *bad_recv;
	EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
	to_rtr(qp, &own);
	REFUSED(&ok, EINVAL);
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
	connect_lonely();

	/* Lists. */
	int counts[] = {-1, 17, 5, INT32_MAX, INT32_MIN};
	for (size_t n = 0; n < 5; n++) {
		struct ibv_send_wr wr = ok;
		wr.num_sge = recv.num_sge = counts[n];
		REFUSED(&wr, EINVAL);
		wr.send_flags = IBV_SEND_INLINE;
		if (counts[n] != 5) /* of inline data nothing but the sum counts */
			REFUSED(&wr, EINVAL);
		RECV_REFUSED(&recv, EINVAL);
	}
	struct ibv_send_wr wr = ok;
	wr.sg_list = NULL;
	REFUSED(&wr, EINVAL);

	/* Inline data. */
	uint32_t lengths[] = {257, 1024, 1025, 1 << 20, UINT32_MAX};
	for (size_t n = 0; n < 5; n++) {
		struct ibv_sge sge = sge_of(0, lengths[n]);
		wr = ok;
		wr.sg_list = &sge;
		wr.send_flags = IBV_SEND_INLINE;
		REFUSED(&wr, EINVAL);
	}
	wr = ok;
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = IBV_SEND_INLINE;
	REFUSED(&wr, EINVAL);

	/* Operations. */
	int unknown[] = {16, 77, -1, INT32_MAX};
	int missing[] = {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_TSO};
	for (size_t n = 0; n < 4; n++) {
		wr = ok;
		wr.opcode = unknown[n];
		REFUSED(&wr, EINVAL);
	}
	for (size_t n = 0; n < 3; n++) {
		wr = ok;
		wr.opcode = missing[n];
		REFUSED(&wr, EOPNOTSUPP);
	}
	wr = ok;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 2; /* 16 bytes */
	REFUSED(&wr, EINVAL);

	/* None of them was posted. */
	to_err();
	struct ibv_wc wc;
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	EQ(ibv_poll_cq(node.cq, -1, &wc) < 0, 1);
	close_lonely();
}

static void local_key(char **argv, int fd)
{
	open_lonely(16, 16);
	connect_lonely();
	struct ibv_sge good = sge_of(0, 8), bad_key = good, outside = sge_of(8190, 3);
	bad_key.lkey ^= 0x55;
	struct ibv_sge *wrong[] = {&bad_key, &outside};
	for (int n = 0; n < 2; n++) {
		struct ibv_send_wr second = {
			.wr_id = 2, .sg_list = &good, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
		struct ibv_send_wr first = {.wr_id = 1,
					    .next = &second,
					    .sg_list = wrong[n],
					    .num_sge = 1,
					    .opcode = IBV_WR_RDMA_WRITE};
		struct ibv_recv_wr recv = {.wr_id = 3}, *bad_recv;
		EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
		EQ(ibv_post_send(qp, &first, &bad), 0);
		struct ibv_wc wc = COMPLETES(node.cq, 1, IBV_WC_LOC_PROT_ERR);
		EQ(wc.qp_num, qp->qp_num);
		uint64_t flushed = 0;
		for (int more = 0; more < 2; more++) {
			wc = next_wc(node.cq);
			EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
			flushed |= 1u << wc.wr_id;
		}
		EQ(flushed, 1 << 2 | 1 << 3);
		EQ(state_of(qp), IBV_QPS_ERR);
		EQ(ibv_post_send(qp, &second, &bad), 0);
		COMPLETES(node.cq, 2, IBV_WC_WR_FLUSH_ERR);
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
		EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
		connect_lonely();
	}
	close_lonely();
}

static void overrun(char **argv, int fd)
{
	open_lonely(16, 16);
	struct ibv_cq *small = SOME(ibv_create_cq(node.context, 2, NULL, NULL, 0));
	struct ibv_qp_init_attr init = init_of(&node);
	init.send_cq = small;
	EQ(ibv_destroy_qp(qp), 0);
	qp = SOME(ibv_create_qp(node.pd, &init));
	connect_lonely();
	to_err();
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	for (int n = 0; n < small->cqe + 1; n++)
		EQ(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc[8];
	int polled = 0;
	for (int n = 0; n < 8 && polled >= 0; n++)
		polled = ibv_poll_cq(small, 8, wc);
	EQ(polled < 0, 1);
	EQ(ibv_poll_cq(node.cq, 8, wc), 0);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(small), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"full", full},
			       {"refused", refused},
			       {"local_key", local_key},
			       {"overrun", overrun}};
	return RUN(tests);
}
