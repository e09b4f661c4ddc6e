/* Requests that fail at the other end, and what both ends are told. */
#include "common.h"

static struct node node;
static struct ibv_qp *qp[2]; /* each is the other's peer */

static void open_pair(unsigned access, uint8_t rnr_retry)
{
	for (int n = 0; n < 2; n++)
		qp[n] = make_qp(&node);
	for (int n = 0; n < 2; n++) {
		struct address peer = address_of(&node, qp[1 - n]);
		struct ibv_qp_attr attr = attr_init();
		if (n == 1)
			attr.qp_access_flags = access;
		EQ(ibv_modify_qp(qp[n], &attr, TO_INIT), 0);
		to_rtr(qp[n], &peer);
		attr = attr_rts(peer.psn, TIMEOUT, 7);
		attr.rnr_retry = rnr_retry;
		EQ(ibv_modify_qp(qp[n], &attr, TO_RTS), 0);
	}
}

static void close_pair(void)
{
	struct ibv_wc wc;
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	EQ(ibv_destroy_qp(qp[0]), 0);
	EQ(ibv_destroy_qp(qp[1]), 0);
}

static struct ibv_send_wr request(struct ibv_sge *sge, enum ibv_wr_opcode opcode, uint64_t remote,
				  uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

/* The request fails, the one behind it is flushed, memory stays as it is, and so does the process
 * at the other end. */
static void refused(enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey, unsigned access)
{
	open_pair(access, 7);
	memset(node.memory, 1, 4096);
	memset(node.memory + 4096, 2, 4096);
	struct ibv_sge sge = {(uintptr_t)node.memory, 8, node.mr->lkey};
	struct ibv_send_wr wr = request(&sge, opcode, remote, rkey), behind = wr, *bad;
	wr.next = &behind;
	behind.wr_id = 2;
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	/* A queue pair that does not allow the operation at all does not know it. */
	COMPLETES(node.cq, 1,
		  access == ALL_ACCESS ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
	COMPLETES(node.cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(state_of(qp[0]), IBV_QPS_ERR);
	EQ(state_of(qp[1]), IBV_QPS_ERR);
	for (int n = 0; n < 8192; n++)
		EQ(node.memory[n], n < 4096 ? 1 : 2);
	close_pair();
}

static void keys(char **argv, int fd)
{
	node = open_node(8192);
	enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	unsigned rights[] = {
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};
	uint8_t *half = node.memory + 4096;
	struct ibv_pd *other = SOME(ibv_alloc_pd(node.context));
	struct ibv_mr *foreign = SOME(ibv_reg_mr(other, half, 4096, ALL_ACCESS));
	struct ibv_mr *far = SOME(ibv_reg_mr_iova(node.pd, half, 4096, UINT64_MAX - 8191, ALL_ACCESS));
	for (int n = 0; n < 3; n++) {
		uint64_t at = (uintptr_t)half;
		unsigned all_but = ALL_ACCESS & ~rights[n];
		struct ibv_mr *closed = SOME(ibv_reg_mr(node.pd, half, 4096, all_but));
		refused(opcodes[n], at, node.mr->rkey, all_but);
		refused(opcodes[n], at, closed->rkey, ALL_ACCESS);
		refused(opcodes[n], at, foreign->rkey, ALL_ACCESS);
		refused(opcodes[n], at, node.mr->rkey ^ 1, ALL_ACCESS);
		refused(opcodes[n], at, node.mr->rkey ^ 1u << 31, ALL_ACCESS);
		refused(opcodes[n], at, 0, ALL_ACCESS);
		refused(opcodes[n], at + 4096, node.mr->rkey, ALL_ACCESS);
		refused(opcodes[n], at - 4096 - 8, node.mr->rkey, ALL_ACCESS);
		refused(opcodes[n], at, far->rkey, ALL_ACCESS);
		refused(opcodes[n], UINT64_MAX - 7, far->rkey, ALL_ACCESS);
		refused(opcodes[n], UINT64_MAX - 8191 - 8, far->rkey, ALL_ACCESS);
		refused(opcodes[n], 0, node.mr->rkey, ALL_ACCESS);
		EQ(ibv_dereg_mr(closed), 0);
	}

	/* Far away is right where it is registered: 256 bytes before the end. */
	open_pair(ALL_ACCESS, 7);
	memset(node.memory, 7, 256);
	struct ibv_sge sge = {(uintptr_t)node.memory, 256, node.mr->lkey};
	struct ibv_send_wr wr = request(&sge, IBV_WR_RDMA_WRITE, UINT64_MAX - 8191 + 4096 - 256,
					far->rkey), *bad;
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	EQ(half[4096 - 257], 2);
	EQ(memcmp(half + 4096 - 256, node.memory, 256), 0);
	close_pair();
	EQ(ibv_dereg_mr(far), 0);
	EQ(ibv_dereg_mr(foreign), 0);
	EQ(ibv_dealloc_pd(other), 0);
	close_node(&node);
}

static void receive(uint64_t id, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)node.memory + 4096, 4096, lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	EQ(ibv_post_recv(qp[1], &wr, &bad), 0);
}

static void not_ready(char **argv, int fd)
{
	node = open_node(8192);
	struct ibv_sge sge = {(uintptr_t)node.memory, 64, node.mr->lkey};
	struct ibv_send_wr wr = request(&sge, IBV_WR_SEND, 0, 0), *bad;

	/* Without a receive request: for ever with 7, else as often as it says. */
	open_pair(ALL_ACCESS, 7);
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	struct ibv_wc wc;
	for (double end = seconds() + 0.05; seconds() < end;)
		EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	receive(2, node.mr->lkey);
	uint64_t ids = next_wc(node.cq).wr_id;
	EQ(ids + COMPLETES(node.cq, 3 - ids, IBV_WC_SUCCESS).wr_id, 3);
	close_pair();
	for (uint8_t retries = 0; retries < 3; retries++) {
		open_pair(ALL_ACCESS, retries);
		EQ(ibv_post_send(qp[0], &wr, &bad), 0);
		COMPLETES(node.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		EQ(state_of(qp[0]), IBV_QPS_ERR);
		EQ(state_of(qp[1]), IBV_QPS_RTS);
		close_pair();
	}

	/* A receive request with a wrong key fails when the message arrives. */
	open_pair(ALL_ACCESS, 7);
	receive(2, node.mr->lkey ^ 1);
	receive(3, node.mr->lkey);
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	int seen[4] = {-1, -1, -1, -1};
	for (int n = 0; n < 3; n++) {
		wc = next_wc(node.cq);
		EQ(wc.wr_id < 4, 1);
		seen[wc.wr_id] = wc.status;
	}
	EQ(seen[1], IBV_WC_REM_OP_ERR);
	EQ(seen[2], IBV_WC_LOC_PROT_ERR);
	EQ(seen[3], IBV_WC_WR_FLUSH_ERR);
	close_pair();

	/* What is posted to a drained queue pair waits until it runs again. */
	open_pair(ALL_ACCESS, 7);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
	EQ(ibv_modify_qp(qp[0], &attr, IBV_QP_STATE), 0);
	receive(2, node.mr->lkey);
	EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	for (double end = seconds() + 0.02; seconds() < end;)
		EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	attr.qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(qp[0], &attr, IBV_QP_STATE), 0);
	ids = next_wc(node.cq).wr_id;
	EQ(ids + COMPLETES(node.cq, 3 - ids, IBV_WC_SUCCESS).wr_id, 3);
	close_pair();
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"keys", keys}, {"not_ready", not_ready}};
	return RUN(tests);
}
