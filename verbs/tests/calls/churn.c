/* Threads that open and close everything while others do. */
#include "common.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 300

static void *open_and_close(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct node node = open_node(8192);
		struct ibv_qp *qp = make_qp(&node);
		struct address own = address_of(&node, qp);
		connect_qp(qp, &own, own.psn, TIMEOUT, 7);
		struct ibv_sge sge = {(uintptr_t)node.memory, 4096, node.mr->lkey};
		struct ibv_send_wr wr = {
			.wr_id = (uint64_t)round,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {(uintptr_t)node.memory + 4096, node.mr->rkey},
		}, *bad;
		memset(node.memory, round | 1, 4096);
		EQ(ibv_post_send(qp, &wr, &bad), 0);
		if (round % 2 == 0) {
			COMPLETES(node.cq, round, IBV_WC_SUCCESS);
			EQ(memcmp(node.memory, node.memory + 4096, 4096), 0);
		}
		EQ(ibv_destroy_qp(qp), 0);
		close_node(&node);
	}
	return unused;
}

static void contexts(char **argv, int fd)
{
	pthread_t threads[THREADS];
	for (int n = 0; n < THREADS; n++)
		EQ(pthread_create(&threads[n], NULL, open_and_close, NULL), 0);
	for (int n = 0; n < THREADS; n++)
		EQ(pthread_join(threads[n], NULL), 0);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"contexts", contexts}};
	return RUN(tests);
}
