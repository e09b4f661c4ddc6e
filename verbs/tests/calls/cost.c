/* SENDs of 64 bytes from a queue pair to another one of the same process, 16 posted at a time. A
 * counter of instructions collects in `post` and `poll_some` only. */
#include "common.h"

enum { ROUNDS = 200, BURST = 16, LENGTH = 64 };

__attribute__((noinline)) int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, wr, &bad);
}

__attribute__((noinline)) int poll_some(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, BURST, wc);
}

static void run_send(char **argv, int fd)
{
	(void)argv, (void)fd;
	struct node node = open_node(4096);
	struct ibv_cq *arrived = SOME(ibv_create_cq(node.context, BURST, NULL, NULL, 0));
	struct ibv_qp_init_attr to_arrived = init_of(&node);
	to_arrived.recv_cq = arrived;
	struct ibv_qp *from = make_qp(&node), *to = SOME(ibv_create_qp(node.pd, &to_arrived));
	struct address from_address = address_of(&node, from), to_address = address_of(&node, to);
	connect_qp(from, &to_address, from_address.psn, TIMEOUT, 7);
	connect_qp(to, &from_address, to_address.psn, TIMEOUT, 7);

	struct ibv_sge source = {(uintptr_t)node.memory, LENGTH, node.mr->lkey};
	struct ibv_sge place = {(uintptr_t)node.memory + LENGTH, LENGTH, node.mr->lkey};
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_wc wc[BURST];
		for (int n = 0; n < BURST; n++) {
			struct ibv_recv_wr recv = {.sg_list = &place, .num_sge = 1}, *bad;
			EQ(ibv_post_recv(to, &recv, &bad), 0);
		}
		for (uint64_t n = 0; n < BURST; n++) {
			struct ibv_send_wr send = {.wr_id = n,
						   .sg_list = &source,
						   .num_sge = 1,
						   .opcode = IBV_WR_SEND,
						   .send_flags = IBV_SEND_SIGNALED};
			EQ(post(from, &send), 0);
		}
		double end = seconds() + 60;
		for (int completed = 0; completed < BURST;) {
			EQ(seconds() < end, 1);
			int polled = poll_some(node.cq, wc);
			for (int n = 0; n < polled; n++, completed++) {
				EQ(wc[n].wr_id, completed);
				EQ(wc[n].status, IBV_WC_SUCCESS);
			}
		}
		for (int completed = 0; completed < BURST;) {
			EQ(seconds() < end, 1);
			int polled = poll_some(arrived, wc);
			for (int n = 0; n < polled; n++, completed++)
				EQ(wc[n].status, IBV_WC_SUCCESS);
		}
	}
	EQ(ibv_destroy_qp(from), 0);
	EQ(ibv_destroy_qp(to), 0);
	EQ(ibv_destroy_cq(arrived), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	const struct test tests[] = {{"send", run_send}};
	return RUN(tests);
}
