/* Completion vectors: a worker each, under one set of keys. */
#include "common.h"

static struct ibv_qp *qp_on(struct node *node, struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp_init_attr init = init_of(node);
	init.send_cq = send;
	init.recv_cq = recv;
	return ibv_create_qp(node->pd, &init);
}

/* Writes from one queue pair to the other: both ends are this process, and know one rkey. */
static void writes(struct node *node, struct ibv_qp *from, struct ibv_cq *cq, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)node->memory, 4096, node->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)node->memory + 4096, node->mr->rkey}}, *bad;
	memset(node->memory, (int)id, 4096);
	EQ(ibv_post_send(from, &wr, &bad), 0);
	COMPLETES(cq, id, IBV_WC_SUCCESS);
	EQ(memcmp(node->memory, node->memory + 4096, 4096), 0);
}

/* SPANWIRE_WORKERS is 2. */
static void vectors(char **argv, int fd)
{
	struct node node = open_node(8192);
	EQ(node.context->num_comp_vectors, 2);
	NULL_WITH(ibv_create_cq(node.context, 16, NULL, NULL, 2), EINVAL);
	NULL_WITH(ibv_create_cq(node.context, 16, NULL, NULL, -1), EINVAL);
	struct ibv_cq *cqs[2] = {node.cq, SOME(ibv_create_cq(node.context, 16, NULL, NULL, 1))};
	NULL_WITH(qp_on(&node, cqs[0], cqs[1]), EINVAL);
	NULL_WITH(qp_on(&node, cqs[1], cqs[0]), EINVAL);

	/* Each pair of workers, in both directions; the second pair of a worker is with itself. */
	uint64_t id = 1;
	for (int from = 0; from < 2; from++) {
		for (int to = 0; to < 2; to++) {
			struct ibv_qp *ends[2] = {SOME(qp_on(&node, cqs[from], cqs[from])),
						  SOME(qp_on(&node, cqs[to], cqs[to]))};
			struct address at[2] = {address_of(&node, ends[0]),
						address_of(&node, ends[1])};
			connect_qp(ends[0], &at[1], at[0].psn, TIMEOUT, 7);
			connect_qp(ends[1], &at[0], at[1].psn, TIMEOUT, 7);
			writes(&node, ends[0], cqs[from], id++);
			writes(&node, ends[1], cqs[to], id++);
			EQ(ibv_destroy_qp(ends[0]), 0);
			EQ(ibv_destroy_qp(ends[1]), 0);
		}
	}

	/* A domain is busy while an object of any worker belongs to it. */
	EQ(ibv_dereg_mr(node.mr), 0);
	struct ibv_qp *last = SOME(qp_on(&node, cqs[1], cqs[1]));
	ERROR_OF(ibv_dealloc_pd(node.pd), EBUSY);
	ERROR_OF(ibv_destroy_cq(cqs[1]), EBUSY);
	EQ(ibv_destroy_qp(last), 0);
	EQ(ibv_destroy_cq(cqs[0]), 0);
	EQ(ibv_destroy_cq(cqs[1]), 0);
	EQ(ibv_dealloc_pd(node.pd), 0);
	EQ(ibv_close_device(node.context), 0);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"vectors", vectors}};
	return RUN(tests);
}
